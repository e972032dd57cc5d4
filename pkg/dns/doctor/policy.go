package doctor

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/shipped"
)

// principals are the principals of a statement: "*", or names by their type.
type principals map[string]shipped.Texts

func (p *principals) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*p = principals{"*": {one}}
		return nil
	}
	return json.Unmarshal(data, (*map[string]shipped.Texts)(p))
}

type statement struct {
	shipped.Statement
	Principal                            principals
	NotPrincipal, NotAction, NotResource json.RawMessage
}

// policy checks that EventBridge may send to the queue: IAM's simulator does not support services as principals.
func (l *List) policy(f Facts) {
	q, ok := f.Queue.Value, f.Queue.Err == nil
	rules, known := f.Rules.Value, f.Rules.Err == nil
	const name = "queue.policy"
	if !ok || !known {
		l.unread(name, ErrUnread)
		return
	}
	var doc struct{ Statement []statement }
	if q.Policy == "" {
		l.fail(name, deployAgain, "the queue has none, so EventBridge may not send to it")
		return
	}
	if err := json.Unmarshal([]byte(q.Policy), &doc); err != nil {
		l.fail(name, deployAgain, "it cannot be read: %v", err)
		return
	}
	before := len(*l)
	for _, r := range rules {
		if r.Missing {
			continue
		}
		switch sends, why := mayBe(doc.Statement, q.ARN, r.ARN); {
		case why != "":
			l.warn(name, "compare it with the template's", "not known whether %s may send: %s", r.Name, why)
		case !sends:
			l.fail(name, deployAgain, "%s may not send to the queue: its events are lost", r.Name)
		}
	}
	if len(*l) == before {
		l.ok(name, "EventBridge may send what the %d rules match", len(rules))
	}
}

// mayBe reports whether the rule may send to the queue; why is a reason why that cannot be decided here.
func mayBe(statements []statement, queue, rule string) (sends bool, why string) {
	for _, s := range statements {
		applies, unknown := s.applies(queue, rule)
		if unknown != "" {
			why = unknown
			continue
		}
		if applies && s.Effect == "Deny" {
			return false, ""
		}
		sends = sends || applies
	}
	return sends, why
}

func (s statement) applies(queue, rule string) (applies bool, unknown string) {
	if s.NotPrincipal != nil || s.NotAction != nil || s.NotResource != nil {
		return false, "a statement says what it is not about"
	}
	if !slices.Contains(s.Principal["Service"], "events.amazonaws.com") && !slices.Contains(s.Principal["*"], "*") && !slices.Contains(s.Principal["AWS"], "*") {
		return false, ""
	}
	if !slices.ContainsFunc(s.Action, func(a string) bool { return like(strings.ToLower(a), "sqs:sendmessage") }) ||
		!slices.ContainsFunc(s.Resource, func(r string) bool { return like(r, queue) }) {
		return false, ""
	}
	for _, operator := range slices.Sorted(maps.Keys(s.Condition)) {
		for key, values := range s.Condition[operator] {
			switch key = strings.ToLower(key); {
			case key == "aws:sourcearn" && slices.Contains([]string{"ArnEquals", "ArnLike", "StringLike"}, operator):
				if !slices.ContainsFunc(values, func(v string) bool { return like(v, rule) }) {
					return false, ""
				}
			case key == "aws:sourcearn" && operator == "StringEquals":
				if !slices.Contains(values, rule) {
					return false, ""
				}
			case key == "aws:sourceaccount" && operator == "StringEquals":
				if parts := strings.Split(rule, ":"); len(parts) < 6 || !slices.Contains(values, parts[4]) {
					return false, ""
				}
			case key == "aws:securetransport" && operator == "Bool":
				if !slices.Contains(values, "true") { // EventBridge sends over TLS
					return false, ""
				}
			default:
				return false, fmt.Sprintf("a condition %s of %s", operator, key)
			}
		}
	}
	return true, ""
}

// like matches text as IAM does: "*" is any text, "?" any one character.
func like(pattern, text string) bool {
	for {
		switch {
		case pattern == "":
			return text == ""
		case pattern[0] == '*':
			for i := range len(text) + 1 {
				if like(pattern[1:], text[i:]) {
					return true
				}
			}
			return false
		case text == "" || pattern[0] != '?' && pattern[0] != text[0]:
			return false
		}
		pattern, text = pattern[1:], text[1:]
	}
}
