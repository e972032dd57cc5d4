package awsfake

import (
	"slices"
	"strings"
)

// Policy is what a principal may do, as IAM's identity policies say it: one Deny is a no, else one
// Allow is a yes, else it is a no. ParsePolicy reads one from its JSON.
type Policy []Statement

// Statement is one statement of a policy. "*" and "?" in actions and resources match as in IAM, and an action
// whatever its case. The fields that begin with Not match everything but what they list, in place of the others.
type Statement struct {
	Deny                    bool
	Actions, NotActions     []string // "route53:List*"
	Resources, NotResources []string // "arn:aws:route53:::hostedzone/Z1"
	// Conditions must all hold.
	Conditions []Condition
}

// Condition is an operator over a key of the call's context and a statement's values; what its values may be is
// said beside conditionOperators. The zero Operator is ForAllValues:StringLike.
type Condition struct {
	Operator string // "StringEquals", "ForAnyValue:ArnLike", "NullIfExists" …
	Key      string // "route53:ChangeResourceRecordSetsNormalizedRecordNames"
	Patterns []string
}

// verdict is what policies say of one action on one resource.
type verdict int

const (
	notAllowed verdict = iota
	allowed
	denied
)

// judge asks several policies of one principal.
func judge(policies []Policy, action, arn string, context map[string][]string) verdict {
	v := notAllowed
	for _, p := range policies {
		for _, s := range p {
			if !s.applies(action, arn, context) {
				continue
			}
			if s.Deny {
				return denied
			}
			v = allowed
		}
	}
	return v
}

func (s Statement) applies(action, arn string, context map[string][]string) bool {
	acts := likeAny(lower(s.Actions), strings.ToLower(action))
	if len(s.NotActions) > 0 {
		acts = !likeAny(lower(s.NotActions), strings.ToLower(action))
	}
	on := likeAny(resolved(s.Resources, context), arn)
	if len(s.NotResources) > 0 {
		on = !likeAny(resolved(s.NotResources, context), arn)
	}
	return acts && on && !slices.ContainsFunc(s.Conditions, func(c Condition) bool { return !c.holds(context) })
}

func lower(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strings.ToLower(s)
	}
	return out
}

// resolved replaces policy variables ("${aws:PrincipalArn}"); a text with one that has no single value is left out,
// since it matches nothing.
func resolved(patterns []string, context map[string][]string) []string {
	var out []string
	for _, p := range patterns {
		if text, ok := resolve(p, context); ok {
			out = append(out, text)
		}
	}
	return out
}

func resolve(p string, context map[string][]string) (string, bool) {
	head, rest, found := strings.Cut(p, "${")
	if !found {
		return p, true
	}
	name, rest, closed := strings.Cut(rest, "}")
	if !closed {
		return p, true
	}
	value := name // "${*}", "${?}" and "${$}" stand for themselves; here they still match as patterns
	if len(name) != 1 {
		values := context[strings.ToLower(name)]
		if len(values) != 1 {
			return "", false
		}
		value = values[0]
	}
	rest, ok := resolve(rest, context)
	return head + value + rest, ok
}

func likeAny(patterns []string, s string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return like(p, s) })
}

// like matches as IAM does: "*" is any text, "?" any one character.
func like(pattern, s string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if len(s) < len(head) || !sameBut(head, s[:len(head)]) {
		return false
	}
	s = s[len(head):]
	if !star {
		return s == ""
	}
	for i := 0; i <= len(s); i++ {
		if like(rest, s[i:]) {
			return true
		}
	}
	return false
}

// sameBut compares texts of one length, where "?" in pattern stands for any character.
func sameBut(pattern, s string) bool {
	for i := range len(pattern) {
		if pattern[i] != '?' && pattern[i] != s[i] {
			return false
		}
	}
	return true
}
