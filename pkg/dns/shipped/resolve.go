package shipped

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Template is the parsed template, with CloudFormation's functions unresolved.
type Template struct {
	Parameters map[string]Parameter
	resources  map[string]yaml.Node
	conditions map[string]condition
}

// condition is a condition of the template: that a parameter is not empty, !Not [!Equals [!Ref P, ""]].
type condition struct{ parameter string }

func (c *condition) UnmarshalYAML(n *yaml.Node) error {
	if n.Tag == "!Not" && len(n.Content) == 1 && n.Content[0].Tag == "!Equals" {
		if args := n.Content[0].Content; len(args) == 2 && args[0].Tag == "!Ref" && args[1].Value == "" {
			c.parameter = args[0].Value
			return nil
		}
	}
	return fmt.Errorf("line %d: only !Not [!Equals [!Ref P, \"\"]] is understood here", n.Line)
}

// Parameter is a parameter of the template.
type Parameter struct {
	Type string `yaml:"Type"`
	// Default is nil if the parameter is required.
	Default *string `yaml:"Default"`
}

// Parse parses the template.
func Parse(text []byte) (*Template, error) {
	var doc struct {
		Parameters map[string]Parameter `yaml:"Parameters"`
		Resources  map[string]yaml.Node `yaml:"Resources"`
		Conditions map[string]condition `yaml:"Conditions"`
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("reading the function's template: %w", err)
	}
	return &Template{doc.Parameters, doc.Resources, doc.Conditions}, nil
}

// Deploy resolves the template for a stack, and reads the resulting resources.
func (t *Template) Deploy(s Stack) (*Deployment, error) {
	r := resolver{template: t, stack: s}
	resources := map[string]resource{}
	for _, id := range slices.Sorted(maps.Keys(t.resources)) {
		node := t.resources[id]
		value, err := r.value(&node)
		if err != nil {
			return nil, fmt.Errorf("resolving %s of the function's template: %w", id, err)
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("encoding %s of the function's template: %w", id, err)
		}
		var res resource
		if err := json.Unmarshal(text, &res); err != nil {
			return nil, fmt.Errorf("reading %s of the function's template: %w", id, err)
		}
		if res.Condition == "" || r.holds(res.Condition) {
			resources[id] = res
		}
	}
	return read(resources)
}

// resolver evaluates the CloudFormation functions that the template uses.
type resolver struct {
	template *Template
	stack    Stack
}

// noValue removes the element.
type noValue struct{}

// value returns the value of a node with its functions evaluated.
func (r resolver) value(n *yaml.Node) (any, error) {
	if strings.HasPrefix(n.Tag, "!") && !strings.HasPrefix(n.Tag, "!!") {
		return r.call(strings.TrimPrefix(n.Tag, "!"), n)
	}
	switch n.Kind {
	case yaml.MappingNode:
		out := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			v, err := r.value(n.Content[i+1])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", n.Content[i].Value, err)
			}
			if v != (noValue{}) {
				out[n.Content[i].Value] = v
			}
		}
		return out, nil
	case yaml.SequenceNode:
		return r.list(n)
	}
	var v any
	err := n.Decode(&v)
	return v, err
}

func (r resolver) list(n *yaml.Node) ([]any, error) {
	out := []any{}
	for _, c := range n.Content {
		v, err := r.value(c)
		if err != nil {
			return nil, err
		}
		if v != (noValue{}) {
			out = append(out, v)
		}
	}
	return out, nil
}

// call evaluates a function; its arguments are the node's scalar or list.
func (r resolver) call(name string, n *yaml.Node) (any, error) {
	if n.Kind == yaml.ScalarNode {
		switch name {
		case "Ref":
			if n.Value == "AWS::NoValue" {
				return noValue{}, nil
			}
			return r.ref(n.Value), nil
		case "GetAtt":
			return r.ref(n.Value), nil
		case "Sub":
			return r.sub(n.Value, nil), nil
		}
		return nil, fmt.Errorf("line %d: !%s of a text is not understood here", n.Line, name)
	}
	if name == "If" && len(n.Content) == 3 {
		if r.holds(n.Content[0].Value) {
			return r.value(n.Content[1])
		}
		return r.value(n.Content[2])
	}
	args, err := r.list(n)
	if err != nil {
		return nil, err
	}
	switch {
	case name == "Join" && len(args) == 2:
		separator, _ := args[0].(string)
		return strings.Join(strs(args[1]), separator), nil
	case name == "Split" && len(args) == 2:
		separator, _ := args[0].(string)
		text, _ := args[1].(string)
		return strings.Split(text, separator), nil
	case name == "Sub" && len(args) == 2:
		text, _ := args[0].(string)
		own, _ := args[1].(map[string]any)
		return r.sub(text, own), nil
	}
	return nil, fmt.Errorf("line %d: !%s of %d values is not understood here", n.Line, name, len(args))
}

// holds reports whether a condition holds.
func (r resolver) holds(name string) bool { return r.ref(r.template.conditions[name].parameter) != "" }

// ref returns a parameter, or a reference of the stack; an unknown one stays "${Name}".
func (r resolver) ref(name string) any {
	p, isParameter := r.template.Parameters[name]
	if !isParameter {
		if v, ok := r.stack.References[name]; ok {
			return v
		}
		return "${" + name + "}"
	}
	v, given := r.stack.Parameters[name]
	switch {
	case !given && p.Default == nil:
		v = "${" + name + "}"
	case !given:
		v = *p.Default
	}
	if p.Type == "CommaDelimitedList" {
		return strings.Split(strings.ReplaceAll(v, " ", ""), ",")
	}
	return v
}

var reference = regexp.MustCompile(`\$\{[^}]+\}`)

// sub replaces ${Name} in a text; own are the variables of this call.
func (r resolver) sub(text string, own map[string]any) string {
	return reference.ReplaceAllStringFunc(text, func(m string) string {
		name := m[2 : len(m)-1]
		if v, ok := own[name]; ok {
			return fmt.Sprint(v)
		}
		return fmt.Sprint(r.ref(name))
	})
}

// strs converts a list of strings, or of lists of strings, to a list of strings.
func strs(list any) []string {
	if texts, ok := list.([]string); ok {
		return texts
	}
	var out []string
	values, _ := list.([]any)
	for _, v := range values {
		out = append(out, fmt.Sprint(v))
	}
	return out
}
