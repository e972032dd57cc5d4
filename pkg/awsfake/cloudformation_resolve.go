package awsfake

import (
	"reflect"
	"strconv"
	"strings"
)

// knownLater stands for a value that is known only once a resource has been made.
const knownLater = "{{changeSet:KNOWN_AFTER_APPLY}}"

// noValue is the value of AWS::NoValue: it removes the property or the list's item.
type noValue struct{}

// scope is the scope of functions: the template, its parameters' values, and the existing resources.
type scope struct {
	template *cfnTemplate
	stack    *cfnStack
	values   map[string]any // texts, and lists of texts
	// ref and attribute are those of a resource; false where it is not there.
	ref       func(id string) (string, bool)
	attribute func(id, name string) (string, bool)
	met       map[string]bool
}

// condition evaluates a condition by its name.
func (s *scope) condition(name string) (bool, error) {
	if met, known := s.met[name]; known {
		return met, nil
	}
	v, ok := s.template.conditions[name]
	if !ok {
		return false, formatError("Unresolved condition dependency %s", name)
	}
	met, err := s.truth(v)
	if err == nil {
		s.met[name] = met
	}
	return met, err
}

func (s *scope) truth(v any) (bool, error) {
	m, _ := v.(map[string]any)
	function, argument, ok := functionOf(m)
	if !ok {
		return false, malformed("Template error: every Conditions member must be a condition function")
	}
	args, _ := argument.([]any)
	switch function {
	case "Fn::Equals":
		if len(args) != 2 {
			return false, malformed("Template error: Fn::Equals requires a list argument with two elements")
		}
		a, err := s.value(args[0])
		if err != nil {
			return false, err
		}
		b, err := s.value(args[1])
		return reflect.DeepEqual(a, b), err
	case "Fn::Not":
		if len(args) != 1 {
			return false, malformed("Template error: Fn::Not requires a list argument with one element")
		}
		met, err := s.truth(args[0])
		return !met, err
	}
	return false, malformed("Template error: %s is no condition function", function)
}

// branch returns the branch of an Fn::If that its condition selects.
func (s *scope) branch(args []any) []any {
	if len(args) != 3 {
		return args
	}
	name, _ := args[0].(string)
	if met, err := s.condition(name); err == nil && met {
		return args[1:2]
	}
	return args[2:3]
}

// present reports whether a resource's condition is met.
func (s *scope) present(id string) bool {
	r := s.template.resources[id]
	if r.Condition == "" {
		return true
	}
	met, err := s.condition(r.Condition)
	return err == nil && met
}

// value evaluates every function below v. Values of AWS::NoValue are removed.
func (s *scope) value(v any) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		if function, argument, ok := functionOf(v); ok {
			return s.call(function, argument)
		}
		out := map[string]any{}
		for _, key := range sortedKeys(v) {
			value, err := s.value(v[key])
			if err != nil {
				return nil, err
			}
			if _, none := value.(noValue); !none {
				out[key] = value
			}
		}
		return out, nil
	case []any:
		out := []any{}
		for _, item := range v {
			value, err := s.value(item)
			if err != nil {
				return nil, err
			}
			if _, none := value.(noValue); !none {
				out = append(out, value)
			}
		}
		return out, nil
	}
	return v, nil
}

func (s *scope) call(function string, argument any) (any, error) {
	switch function {
	case "Ref":
		name, _ := argument.(string)
		return s.reference(reference{name: name})
	case "Fn::GetAtt":
		return s.reference(attributeOf(argument))
	case "Fn::If":
		args, _ := argument.([]any)
		return s.value(s.branch(args)[0])
	case "Fn::Sub":
		return s.substitute(argument)
	case "Fn::Select":
		return s.pick(argument)
	}
	return nil, malformed("Template error: %s may not be used here", function)
}

// text evaluates v, which must result in a string.
func (s *scope) text(v any, function string) (string, error) {
	v, err := s.value(v)
	if err != nil {
		return "", err
	}
	text, ok := v.(string)
	if !ok {
		return "", malformed("Template error: every %s object must have a String-typed value.", function)
	}
	return text, nil
}

func (s *scope) reference(r reference) (any, error) {
	if v, ok := s.values[r.name]; ok && r.attribute == "" {
		return v, nil
	}
	if v, ok := s.pseudo(r.name); ok {
		return v, nil
	}
	text, ok := "", false
	if !s.present(r.name) {
		return nil, formatError("Unresolved resource dependencies [%s] in the Resources block of the template", r.name)
	}
	if r.attribute == "" {
		text, ok = s.ref(r.name)
	} else {
		text, ok = s.attribute(r.name, r.attribute)
	}
	if !ok {
		return nil, formatError("Unresolved resource dependencies [%s] in the Resources block of the template", r.name)
	}
	return text, nil
}

func (s *scope) pseudo(name string) (any, bool) {
	switch name {
	case "AWS::Region":
		return HomeRegion, true
	case "AWS::AccountId":
		return owner, true
	case "AWS::Partition":
		return "aws", true
	case "AWS::URLSuffix":
		return "amazonaws.com", true
	case "AWS::NoValue":
		return noValue{}, true
	}
	return nil, false
}

func (s *scope) substitute(argument any) (any, error) {
	text, ok := argument.(string)
	if !ok {
		return nil, malformed("Template error: awsfake models Fn::Sub of one text alone")
	}
	var failed error
	text = subVariable.ReplaceAllStringFunc(text, func(variable string) string {
		id, attribute, _ := strings.Cut(strings.TrimSpace(variable[2:len(variable)-1]), ".")
		v, err := s.reference(reference{id, attribute})
		out, isText := v.(string)
		if err == nil && !isText {
			err = malformed("Template error: Fn::Sub expression does not resolve to a string: %s", variable)
		}
		if err != nil && failed == nil {
			failed = err
		}
		return out
	})
	return text, failed
}

func anyList(texts []string) []any {
	list := []any{}
	for _, text := range texts {
		list = append(list, text)
	}
	return list
}

// pick is the item of a list that Fn::Select names.
func (s *scope) pick(argument any) (any, error) {
	args, _ := argument.([]any)
	if len(args) != 2 {
		return nil, malformed("Template error: every Fn::Select object requires two parameters")
	}
	at, err := s.text(args[0], "Fn::Select")
	if err != nil {
		return nil, err
	}
	v, err := s.value(args[1])
	if err != nil {
		return nil, err
	}
	list, _ := v.([]any)
	n, err := strconv.Atoi(at)
	if err != nil || n < 0 || n >= len(list) {
		return nil, malformed("Template error: Fn::Select cannot select nonexistent value at index %s", at)
	}
	return list[n], nil
}
