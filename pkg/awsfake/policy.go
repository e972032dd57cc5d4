package awsfake

import (
	"fmt"
	"slices"
	"strings"
)

// Policy is what a principal may do, as IAM's identity policies say it: one Deny is a no, else one
// Allow is a yes, else it is a no.
type Policy []Statement

// Statement is one statement of a policy. "*" and "?" in actions and resources match as in IAM.
type Statement struct {
	Deny      bool
	Actions   []string // "route53:List*"
	Resources []string // "arn:aws:route53:::hostedzone/Z1"
	// Conditions must all hold; a condition is a key and the patterns that it may have.
	Conditions []Condition
}

// Condition is ForAllValues:StringLike: every value that the call has for Key is like one of the
// patterns. As in IAM, a call without values for the key passes.
type Condition struct {
	Key      string // "route53:ChangeResourceRecordSetsNormalizedRecordNames"
	Patterns []string
}

// authorize refuses what the caller's policy does not allow.
func (a *Account) authorize(s service, c *call) error {
	policy, ok := a.policies[c.Key]
	if !ok {
		return nil
	}
	arn, attributes := "*", map[string][]string(nil)
	if r, ok := s.(resourced); ok {
		arn, attributes = r.resource(c)
	}
	action := c.Service + ":" + c.Action
	if policy.allows(action, arn, attributes) {
		return nil
	}
	return &Error{Status: 403, Code: "AccessDenied", Message: fmt.Sprintf(
		"User: arn:aws:iam::%s:user/%s is not authorized to perform: %s on resource: %s because no identity-based policy allows the %s action", owner, c.Key, action, arn, action)}
}

func (p Policy) allows(action, arn string, attributes map[string][]string) bool {
	allowed := false
	for _, s := range p {
		if !s.applies(action, arn, attributes) {
			continue
		}
		if s.Deny {
			return false
		}
		allowed = true
	}
	return allowed
}

func (s Statement) applies(action, arn string, attributes map[string][]string) bool {
	if !likeAny(s.Actions, action) || !likeAny(s.Resources, arn) {
		return false
	}
	for _, c := range s.Conditions {
		for _, value := range attributes[c.Key] {
			if !likeAny(c.Patterns, value) {
				return false
			}
		}
	}
	return true
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
