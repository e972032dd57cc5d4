package awsfake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// texts is a list of a policy, which may be a single string in JSON.
type texts []string

func (l *texts) UnmarshalJSON(data []byte) error {
	var one any
	if err := json.Unmarshal(data, &one); err != nil {
		return err
	}
	switch v := one.(type) {
	case string:
		*l = texts{v}
		return nil
	case bool, float64:
		*l = texts{fmt.Sprint(v)}
		return nil
	}
	var list []string
	err := json.Unmarshal(data, &list)
	*l = list
	return err
}

type statementDocument struct {
	Sid, Effect string
	Action      texts
	Resource    texts
	Condition   map[string]map[string]texts
}

// ParsePolicy reads an identity policy's JSON document. Its error lists every problem: everything that IAM would
// refuse, and everything that awsfake does not model.
func ParsePolicy(document []byte) (Policy, error) {
	var in struct {
		Version, Id string
		Statement   json.RawMessage
	}
	if err := strictly(document, &in); err != nil {
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	var list []statementDocument
	if raw := bytes.TrimSpace(in.Statement); len(raw) > 0 && raw[0] == '{' {
		raw = append(append([]byte{'['}, raw...), ']')
		in.Statement = raw
	}
	if err := strictly(in.Statement, &list); err != nil {
		return nil, fmt.Errorf("reading the policy's statements: %w", err)
	}
	var problems []error
	if in.Version != "2012-10-17" {
		problems = append(problems, fmt.Errorf("the Version is %q: policy variables need 2012-10-17", in.Version))
	}
	var p Policy
	for i, d := range list {
		s, errs := d.statement()
		for _, err := range errs {
			problems = append(problems, fmt.Errorf("statement %d: %w", i+1, err))
		}
		p = append(p, s)
	}
	return p, errors.Join(problems...)
}

func strictly(data []byte, v any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	return decoder.Decode(v)
}

func (d statementDocument) statement() (s Statement, problems []error) {
	complain := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	s = Statement{Deny: d.Effect == "Deny", Actions: d.Action, Resources: d.Resource}
	if d.Effect != "Allow" && d.Effect != "Deny" {
		complain("Effect is %q, not Allow or Deny", d.Effect)
	}
	if len(d.Action) == 0 || len(d.Resource) == 0 {
		complain("it needs Action and Resource (awsfake does not model NotAction and NotResource)")
	}
	for _, action := range d.Action {
		if vendor, name, ok := strings.Cut(action, ":"); action != "*" && (!ok || vendor == "" || name == "" || strings.ContainsAny(vendor, "*?")) {
			complain("%q is no action", action)
		}
	}
	for _, arn := range d.Resource {
		if strings.Contains(arn, "${") {
			complain("%q has a policy variable, which awsfake does not model", arn)
		}
		if parts := strings.SplitN(arn, ":", 6); arn != "*" && (len(parts) < 6 || parts[0] != "arn" || strings.ContainsAny(parts[2], "*?")) {
			complain("%q is no ARN: it has six parts, and the service is no wildcard", arn)
		}
	}
	for _, operator := range sortedKeys(d.Condition) {
		for _, key := range sortedKeys(d.Condition[operator]) {
			c := Condition{Operator: operator, Key: key, Patterns: d.Condition[operator][key]}
			if !c.known() {
				complain("the condition operator %s is not modelled", operator)
			}
			s.Conditions = append(s.Conditions, c)
		}
	}
	return s, problems
}
