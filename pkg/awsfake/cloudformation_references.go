package awsfake

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// reference is a parameter or resource that a function names, with the attribute of Fn::GetAtt or "".
type reference struct{ name, attribute string }

// walk calls visit with every function below v; branch may choose between those of an Fn::If.
func walk(v any, branch func(args []any) []any, visit func(function string, argument any)) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			walk(item, branch, visit)
		}
	case map[string]any:
		if name, argument, ok := functionOf(v); ok {
			visit(name, argument)
			if args, isList := argument.([]any); isList && name == "Fn::If" && branch != nil {
				argument = branch(args)
			}
			walk(argument, branch, visit)
			return
		}
		for _, key := range sortedKeys(v) {
			walk(v[key], branch, visit)
		}
	}
}

// functionOf reports whether a map is the call of a function.
func functionOf(m map[string]any) (name string, argument any, ok bool) {
	if len(m) != 1 {
		return "", nil, false
	}
	for key, value := range m {
		name, argument = key, value
	}
	return name, argument, name == "Ref" || strings.HasPrefix(name, "Fn::")
}

// references returns the references in v, in their order.
func references(v any, branch func(args []any) []any) []reference {
	var list []reference
	walk(v, branch, func(function string, argument any) {
		switch text, _ := argument.(string); function {
		case "Ref":
			list = append(list, reference{name: text})
		case "Fn::GetAtt":
			list = append(list, attributeOf(argument))
		case "Fn::Sub":
			for _, name := range subNames(text) {
				id, attribute, _ := strings.Cut(name, ".")
				list = append(list, reference{id, attribute})
			}
		}
	})
	return list
}

func attributeOf(argument any) reference {
	args, _ := argument.([]any)
	if len(args) != 2 {
		return reference{}
	}
	name, _ := args[0].(string)
	attribute, _ := args[1].(string)
	return reference{name, attribute}
}

var subVariable = regexp.MustCompile(`\$\{([^!}][^}]*)\}`)

// subNames are the variables of a text for Fn::Sub.
func subNames(text string) []string {
	var names []string
	for _, match := range subVariable.FindAllStringSubmatch(text, -1) {
		names = append(names, strings.TrimSpace(match[1]))
	}
	return names
}

// checkReferences refuses unknown names, whatever the conditions.
func (t *cfnTemplate) checkReferences() error {
	for _, id := range sortedKeys(t.resources) {
		r := t.resources[id]
		if err := t.checkNames(r.Properties, "Resources"); err != nil {
			return err
		}
		if r.Condition != "" && t.conditions[r.Condition] == nil {
			return formatError("Unresolved condition dependencies [%s] in the Resources block of the template", r.Condition)
		}
	}
	for _, name := range sortedKeys(t.outputs) {
		if err := t.checkNames(t.outputs[name].Value, "Outputs"); err != nil {
			return err
		}
	}
	for _, name := range sortedKeys(t.conditions) {
		if err := t.checkNames(t.conditions[name], "Conditions"); err != nil {
			return err
		}
	}
	return nil
}

func (t *cfnTemplate) checkNames(v any, block string) (err error) {
	complain := func(e error) {
		if err == nil {
			err = e
		}
	}
	walk(v, nil, func(function string, argument any) {
		args, _ := argument.([]any)
		switch {
		case !slices.Contains(functions, function):
			complain(malformed("Template error: awsfake does not model the function %s", function))
		case function == "Fn::If" && len(args) != 3:
			complain(malformed("Template error: Fn::If requires a list argument with three elements"))
		case function == "Fn::If" && (args[0] == nil || t.conditions[fmt.Sprint(args[0])] == nil):
			complain(formatError("Unresolved condition dependency %v in the %s block of the template", args[0], block))
		}
	})
	for _, r := range references(v, nil) {
		_, isParameter := t.parameters[r.name]
		resource, isResource := t.resources[r.name]
		switch {
		case r.attribute == "" && !isParameter && !isResource && !slices.Contains(pseudoParameters, r.name):
			complain(formatError("Unresolved resource dependencies [%s] in the %s block of the template", r.name, block))
		case r.attribute != "" && !isResource:
			complain(malformed("Template error: instance of Fn::GetAtt references undefined resource %s", r.name))
		case r.attribute != "" && !slices.Contains(resourceKinds()[resource.Type].facts().attributes, r.attribute):
			complain(malformed("Template error: resource %s does not support attribute type %s in Fn::GetAtt", r.name, r.attribute))
		}
	}
	return err
}

// dependencies returns the resources that a resource depends on.
func (t *cfnTemplate) dependencies(id string, branch func(args []any) []any) []string {
	var list []string
	for _, ref := range references(t.resources[id].Properties, branch) {
		if _, ok := t.resources[ref.name]; ok {
			list = append(list, ref.name)
		}
	}
	return list
}

// order returns the resources in the order of their dependencies, and by name where there is a choice.
func (t *cfnTemplate) order(present func(string) bool, needs func(string) []string) ([]string, error) {
	var order []string
	done := map[string]bool{}
	var left []string
	for _, id := range sortedKeys(t.resources) {
		if present(id) {
			left = append(left, id)
		}
	}
	for len(left) > 0 {
		ready := func(id string) bool {
			return !slices.ContainsFunc(needs(id), func(other string) bool { return present(other) && !done[other] })
		}
		k := slices.IndexFunc(left, ready)
		if k < 0 {
			return nil, malformed("Circular dependency between resources: [%s]", strings.Join(left, ", "))
		}
		done[left[k]] = true
		order = append(order, left[k])
		left = slices.Delete(left, k, k+1)
	}
	return order, nil
}
