package awsfake

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// knownLater stands for what is only known once a resource has been made.
const knownLater = "{{changeSet:KNOWN_AFTER_APPLY}}"

// noValue is what Ref of AWS::NoValue is: the property, or the item of the list, is not there.
type noValue struct{}

// scope is what functions see: the template, its parameters' values, and the resources that are there.
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
	case "Condition":
		name, _ := argument.(string)
		return s.condition(name)
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
	case "Fn::And", "Fn::Or":
		if len(args) < 2 || len(args) > 10 {
			return false, malformed("Template error: %s requires a list argument with 2 to 10 elements", function)
		}
		met := function == "Fn::And"
		for _, arg := range args {
			one, err := s.truth(arg)
			if err != nil {
				return false, err
			}
			if function == "Fn::Or" {
				met = met || one
			} else {
				met = met && one
			}
		}
		return met, nil
	}
	return false, malformed("Template error: %s is no condition function", function)
}

// branch is the part of an Fn::If that counts.
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

// value evaluates every function below v. What is left out by AWS::NoValue is not in the answer.
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
	case "Fn::Base64":
		text, err := s.text(argument, function)
		return base64.StdEncoding.EncodeToString([]byte(text)), err
	case "Fn::GetAZs":
		return s.zones(argument)
	case "Fn::Join", "Fn::Select", "Fn::Split":
		return s.lists(function, argument)
	case "Fn::FindInMap":
		return s.find(argument)
	}
	return nil, malformed("Template error: %s may not be used here", function)
}

// text evaluates what must be one text.
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
		return homeRegion, true
	case "AWS::AccountId":
		return owner, true
	case "AWS::Partition":
		return "aws", true
	case "AWS::URLSuffix":
		return "amazonaws.com", true
	case "AWS::StackName":
		return s.stack.name, true
	case "AWS::StackId":
		return s.stack.id, true
	case "AWS::NoValue":
		return noValue{}, true
	case "AWS::NotificationARNs":
		return []any{}, true
	}
	return nil, false
}

func (s *scope) substitute(argument any) (any, error) {
	local := map[string]any{}
	if args, ok := argument.([]any); ok {
		if len(args) != 2 {
			return nil, malformed("Template error: One or more Fn::Sub intrinsic functions don't specify expected arguments. Specify a string as first argument, and an optional second argument to specify a mapping of values to replace in the string")
		}
		argument = args[0]
		local, _ = args[1].(map[string]any)
	}
	text, ok := argument.(string)
	if !ok {
		return nil, malformed("Template error: One or more Fn::Sub intrinsic functions don't specify expected arguments. Specify a string as first argument, and an optional second argument to specify a mapping of values to replace in the string")
	}
	var failed error
	text = subVariable.ReplaceAllStringFunc(text, func(variable string) string {
		name := strings.TrimSpace(variable[2 : len(variable)-1])
		var v any
		var err error
		if given, ok := local[name]; ok {
			v, err = s.value(given)
		} else {
			id, attribute, _ := strings.Cut(name, ".")
			v, err = s.reference(reference{id, attribute})
		}
		out, isText := v.(string)
		if err == nil && !isText {
			err = malformed("Template error: Fn::Sub expression does not resolve to a string: %s", variable)
		}
		if err != nil && failed == nil {
			failed = err
		}
		return out
	})
	return strings.ReplaceAll(text, "${!", "${"), failed
}

// zones are those of the region in which the account has subnets, or three.
func (s *scope) zones(argument any) (any, error) {
	region, err := s.text(argument, "Fn::GetAZs")
	if err != nil {
		return nil, err
	}
	if region != "" && region != homeRegion {
		return nil, malformed("Template error: Fn::GetAZs cannot retrieve availability zones for region %s", region)
	}
	var zones []string
	for _, subnet := range s.stack.account.regional.ec2.network.subnets {
		if !slices.Contains(zones, subnet.Zone) {
			zones = append(zones, subnet.Zone)
		}
	}
	if slices.Sort(zones); len(zones) == 0 {
		zones = []string{homeRegion + "a", homeRegion + "b", homeRegion + "c"}
	}
	return anyList(zones), nil
}

func anyList(texts []string) []any {
	list := []any{}
	for _, text := range texts {
		list = append(list, text)
	}
	return list
}

// lists evaluates the functions of two arguments.
func (s *scope) lists(function string, argument any) (any, error) {
	args, _ := argument.([]any)
	if len(args) != 2 {
		return nil, malformed("Template error: every %s object requires two parameters", function)
	}
	first, err := s.text(args[0], function)
	if err != nil {
		return nil, err
	}
	if function == "Fn::Split" {
		text, err := s.text(args[1], function)
		return anyList(strings.Split(text, first)), err
	}
	v, err := s.value(args[1])
	if err != nil {
		return nil, err
	}
	list, ok := v.([]any)
	if !ok {
		return nil, malformed("Template error: every %s object requires a list of values", function)
	}
	if function == "Fn::Select" {
		n, err := strconv.Atoi(first)
		if err != nil || n < 0 || n >= len(list) {
			return nil, malformed("Template error: Fn::Select cannot select nonexistent value at index %s", first)
		}
		return list[n], nil
	}
	var texts []string
	for _, item := range list {
		text, ok := item.(string)
		if !ok {
			return nil, malformed("Template error: every Fn::Join object requires two parameters, (1) a string delimiter and (2) a list of strings to be joined")
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, first), nil
}

func (s *scope) find(argument any) (any, error) {
	args, _ := argument.([]any)
	if len(args) != 3 {
		return nil, malformed("Template error: every Fn::FindInMap object requires three parameters")
	}
	at := any(s.template.mappings)
	for _, arg := range args {
		key, err := s.text(arg, "Fn::FindInMap")
		if err != nil {
			return nil, err
		}
		m, _ := at.(map[string]any)
		if at = m[key]; at == nil {
			return nil, malformed("Template error: Unable to get mapping for %s", fmt.Sprint(args...))
		}
	}
	return at, nil
}
