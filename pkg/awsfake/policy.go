package awsfake

import (
	"slices"
	"strings"
)

// Policy is an IAM identity policy. A matching Deny denies; otherwise a matching Allow allows; otherwise the call is
// denied. ParsePolicy reads one from JSON.
type Policy []Statement

// Statement is one statement of a policy. "*" and "?" in actions and resources match as in IAM, and an action
// whatever its case. NotAction, NotResource and policy variables are not modelled.
type Statement struct {
	Deny      bool
	Actions   []string // "route53:List*"
	Resources []string // "arn:aws:route53:::hostedzone/Z1"
	// Conditions must all hold.
	Conditions []Condition
}

// Condition compares a key of the call's context with a statement's values. An operator that is not modelled never
// holds.
type Condition struct {
	Operator string // "StringEquals", "ForAllValues:StringLike", "Null"
	Key      string // "route53:ChangeResourceRecordSetsNormalizedRecordNames"
	Patterns []string
}

// verdict is the decision of policies about one action on one resource.
type verdict int

const (
	notAllowed verdict = iota
	allowed
	denied
)

// judge evaluates all policies of one principal.
func judge(policies []Policy, action, arn string, context question) verdict {
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

// applies reports whether a statement decides. Of a key without a value here the hardest answer is taken: no allowance holds, and every
// denial does.
func (s Statement) applies(action, arn string, context question) bool {
	return likeAny(lower(s.Actions), strings.ToLower(action)) && likeAny(s.Resources, arn) &&
		!slices.ContainsFunc(s.Conditions, func(c Condition) bool {
			if context.unknown.has(strings.ToLower(c.Key)) {
				return !s.Deny
			}
			return !c.holds(context.values)
		})
}

func lower(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strings.ToLower(s)
	}
	return out
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
