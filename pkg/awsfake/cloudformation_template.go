package awsfake

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The limits of templates ("CloudFormation quotas").
const (
	maxTemplateBody   = 51_200
	maxTemplateObject = 1 << 20
	maxResources      = 500
	maxParameters     = 200
	maxOutputs        = 200
)

// cfnTemplate is a template as it was read: maps, lists and texts, with every function in its long form.
type cfnTemplate struct {
	body        string
	description string
	parameters  map[string]cfnParameter
	mappings    map[string]any
	conditions  map[string]any
	resources   map[string]cfnResource
	outputs     map[string]cfnOutput
}

// cfnParameter is a parameter's declaration.
type cfnParameter struct {
	Type          string   `json:"Type,required"`
	Description   string   `json:"Description"`
	Default       *string  `json:"Default"`
	AllowedValues []string `json:"AllowedValues"`
	Pattern       string   `json:"AllowedPattern"`
	Constraint    string   `json:"ConstraintDescription"`
	MinLength     *int     `json:"MinLength"`
	MaxLength     *int     `json:"MaxLength"`
	MinValue      *int     `json:"MinValue"`
	MaxValue      *int     `json:"MaxValue"`
	NoEcho        bool     `json:"NoEcho"`
}

// cfnResource is a resource's declaration.
type cfnResource struct {
	Type          string `json:"Type,required"`
	Properties    any    `json:"Properties"`
	DependsOn     any    `json:"DependsOn"`
	Condition     string `json:"Condition"`
	Metadata      any    `json:"Metadata"`
	Deletion      string `json:"DeletionPolicy"`
	UpdateReplace string `json:"UpdateReplacePolicy"`
}

// properties are what the resource says, with functions still in it.
func (r cfnResource) properties() map[string]any {
	tree, _ := r.Properties.(map[string]any)
	return tree
}

// dependsOn lists what the resource names as made before it.
func (r cfnResource) dependsOn() []string {
	switch v := r.DependsOn.(type) {
	case string:
		return []string{v}
	case []any:
		var list []string
		for _, item := range v {
			if text, ok := item.(string); ok {
				list = append(list, text)
			}
		}
		return list
	}
	return nil
}

type cfnOutput struct {
	Description string `json:"Description"`
	Value       any    `json:"Value,required"`
	Condition   string `json:"Condition"`
}

// formatError is CloudFormation's word for a template that it cannot read.
func formatError(format string, args ...any) error {
	return malformed("Template format error: %s", fmt.Sprintf(format, args...))
}

// shortForms are the tags of functions in YAML whose name is not the tag with Fn:: before it.
var shortForms = map[string]string{"!Ref": "Ref", "!Condition": "Condition"}

// functions are the intrinsic functions that are modelled.
var functions = []string{
	"Ref", "Condition", "Fn::GetAtt", "Fn::Sub", "Fn::Join", "Fn::Base64", "Fn::If", "Fn::Select", "Fn::Split", "Fn::GetAZs", "Fn::FindInMap",
	"Fn::Equals", "Fn::And", "Fn::Or", "Fn::Not",
}

// parseTemplate reads a template in YAML or JSON, and refuses what CloudFormation refuses before it looks at
// parameters, and what is not modelled here.
func parseTemplate(body string) (*cfnTemplate, error) {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(body), &document); err != nil {
		return nil, formatError("YAML not well-formed. (%v)", err)
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, formatError("unsupported structure.")
	}
	tree, err := treeOf(document.Content[0], "")
	if err != nil {
		return nil, err
	}
	root := tree.(map[string]any)
	t := &cfnTemplate{body: body}
	t.description, _ = root["Description"].(string)
	if err := t.sections(root); err != nil {
		return nil, err
	}
	return t, t.check()
}

// treeOf turns YAML's nodes into maps, lists and texts, and short forms of functions into long ones.
func treeOf(n *yaml.Node, path string) (any, error) {
	if n.Kind == yaml.AliasNode {
		return nil, formatError("YAML aliases are not allowed in CloudFormation templates")
	}
	value, err := plainTree(n, path)
	if err != nil || !strings.HasPrefix(n.Tag, "!") || strings.HasPrefix(n.Tag, "!!") {
		return value, err
	}
	name, ok := shortForms[n.Tag]
	if !ok {
		name = "Fn::" + n.Tag[1:]
	}
	if text, isText := value.(string); isText && name == "Fn::GetAtt" {
		value = splitAttribute(text)
	}
	return map[string]any{name: value}, nil
}

func plainTree(n *yaml.Node, path string) (any, error) {
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i].Value
			if _, twice := m[key]; twice {
				return nil, formatError("YAML not well-formed. (line %d, column %d): duplicate key %s", n.Content[i].Line, n.Content[i].Column, key)
			}
			value, err := treeOf(n.Content[i+1], path+"/"+key)
			if err != nil {
				return nil, err
			}
			m[key] = value
		}
		return m, nil
	case yaml.SequenceNode:
		list := []any{}
		for i, item := range n.Content {
			value, err := treeOf(item, fmt.Sprintf("%s/%d", path, i))
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		return list, nil
	}
	if n.Tag == "!!null" {
		return nil, formatError("[%s] 'null' values are not allowed in templates", path)
	}
	return n.Value, nil
}

func splitAttribute(text string) []any {
	name, attribute, _ := strings.Cut(text, ".")
	return []any{name, attribute}
}

// section decodes the members of one of a template's sections.
func section[T any](root map[string]any, name string) (map[string]T, error) {
	into := map[string]T{}
	tree, ok := root[name].(map[string]any)
	if !ok && root[name] != nil {
		return nil, formatError("[/%s] must be an object.", name)
	}
	for _, key := range sortedKeys(tree) {
		member, ok := tree[key].(map[string]any)
		if !ok {
			return nil, formatError("[/%s/%s] must be an object.", name, key)
		}
		var v T
		for _, p := range decodeShape(member, &v, "json") {
			switch {
			case p.Missing:
				return nil, formatError("[/%s/%s] Every %s object must contain a %s member.", name, key, name, p.name())
			case p.Unknown:
				return nil, formatError("[/%s/%s] Invalid template member %s", name, key, p.Path)
			}
			return nil, formatError("[/%s/%s/%s] must be of type %s.", name, key, p.Path, p.Want)
		}
		into[key] = v
	}
	return into, nil
}

var sectionNames = []string{"AWSTemplateFormatVersion", "Description", "Metadata", "Parameters", "Mappings", "Conditions", "Resources", "Outputs"}

func (t *cfnTemplate) sections(root map[string]any) (err error) {
	for _, name := range sortedKeys(root) {
		switch {
		case name == "Transform" || name == "Rules" || name == "Hooks":
			return formatError("awsfake does not model the section %s", name)
		case !slices.Contains(sectionNames, name):
			return malformed("Invalid template property or properties [%s]", name)
		}
	}
	if v, given := root["AWSTemplateFormatVersion"]; given && v != "2010-09-09" {
		return formatError("unsupported value for AWSTemplateFormatVersion.")
	}
	if t.parameters, err = section[cfnParameter](root, "Parameters"); err != nil {
		return err
	}
	if t.resources, err = section[cfnResource](root, "Resources"); err != nil {
		return err
	}
	if t.outputs, err = section[cfnOutput](root, "Outputs"); err != nil {
		return err
	}
	t.mappings, _ = root["Mappings"].(map[string]any)
	t.conditions, _ = root["Conditions"].(map[string]any)
	for _, f := range []struct {
		what       string
		have, most int
	}{{"resources", len(t.resources), maxResources}, {"parameters", len(t.parameters), maxParameters}, {"outputs", len(t.outputs), maxOutputs}} {
		if f.have > f.most {
			return formatError("Number of %s, %d, is greater than maximum allowed, %d", f.what, f.have, f.most)
		}
	}
	if len(t.resources) == 0 {
		return formatError("At least one Resources member must be defined.")
	}
	return nil
}

var (
	logicalID        = regexp.MustCompile(`^[A-Za-z0-9]{1,255}$`)
	pseudoParameters = []string{"AWS::Region", "AWS::AccountId", "AWS::Partition", "AWS::URLSuffix", "AWS::StackName", "AWS::StackId", "AWS::NoValue", "AWS::NotificationARNs"}
	deletionPolicies = []string{"", "Delete", "Retain", "RetainExceptOnCreate"}
)

// check refuses what can be known without parameters: unknown types, names that nothing has, and cycles.
func (t *cfnTemplate) check() error {
	var strange []string
	kinds := resourceKinds()
	for _, id := range sortedKeys(t.resources) {
		r := t.resources[id]
		switch {
		case !logicalID.MatchString(id):
			return formatError("Resource name %s is non alphanumeric.", id)
		case kinds[r.Type] == nil:
			strange = append(strange, r.Type)
		case !slices.Contains(deletionPolicies, r.Deletion) || !slices.Contains(deletionPolicies[:3], r.UpdateReplace):
			return formatError("Unrecognized DeletionPolicy or UpdateReplacePolicy for resource %s", id)
		}
	}
	if len(strange) > 0 {
		return formatError("Unrecognized resource types: [%s]", strings.Join(slices.Compact(slices.Sorted(slices.Values(strange))), ", "))
	}
	for _, name := range sortedKeys(t.parameters) {
		if !logicalID.MatchString(name) {
			return formatError("Parameter name %s is non alphanumeric.", name)
		}
	}
	if err := t.checkReferences(); err != nil {
		return err
	}
	_, err := t.order(func(string) bool { return true }, func(id string) []string { return t.dependencies(id, nil) })
	return err
}

// reference is what a function names: a parameter or resource, and perhaps an attribute of it.
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

// functionOf reports whether a map is the call of a function. A policy's Condition is none.
func functionOf(m map[string]any) (name string, argument any, ok bool) {
	if len(m) != 1 {
		return "", nil, false
	}
	for key, value := range m {
		name, argument = key, value
	}
	if _, isText := argument.(string); name == "Condition" && !isText {
		return "", nil, false
	}
	return name, argument, name == "Ref" || name == "Condition" || strings.HasPrefix(name, "Fn::")
}

// references lists what v refers to, in the order in which it does.
func references(v any, branch func(args []any) []any) []reference {
	var list []reference
	walk(v, branch, func(function string, argument any) {
		switch text, _ := argument.(string); function {
		case "Ref":
			list = append(list, reference{name: text})
		case "Fn::GetAtt":
			list = append(list, attributeOf(argument))
		case "Fn::Sub":
			names := map[string]any{}
			if args, ok := argument.([]any); ok && len(args) == 2 {
				text, _ = args[0].(string)
				names, _ = args[1].(map[string]any)
			}
			for _, name := range subNames(text) {
				if _, local := names[name]; !local {
					id, attribute, _ := strings.Cut(name, ".")
					list = append(list, reference{id, attribute})
				}
			}
		}
	})
	return list
}

func attributeOf(argument any) reference {
	if text, ok := argument.(string); ok {
		argument = splitAttribute(text)
	}
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

// checkReferences finds names that nothing has, whatever the conditions say.
func (t *cfnTemplate) checkReferences() error {
	for _, id := range sortedKeys(t.resources) {
		r := t.resources[id]
		if err := t.checkNames(r.Properties, "Resources"); err != nil {
			return err
		}
		if r.Condition != "" && t.conditions[r.Condition] == nil {
			return formatError("Unresolved condition dependencies [%s] in the Resources block of the template", r.Condition)
		}
		for _, other := range r.dependsOn() {
			if _, ok := t.resources[other]; !ok {
				return formatError("Unresolved resource dependencies [%s] in the Resources block of the template", other)
			}
		}
	}
	for _, name := range sortedKeys(t.outputs) {
		if err := t.checkNames(t.outputs[name].Value, "Outputs"); err != nil {
			return err
		}
	}
	return t.checkConditions()
}

func (t *cfnTemplate) checkConditions() error {
	for _, name := range sortedKeys(t.conditions) {
		if err := t.checkNames(t.conditions[name], "Conditions"); err != nil {
			return err
		}
		for _, r := range references(t.conditions[name], nil) {
			if _, ok := t.resources[r.name]; ok {
				return malformed("Template error: Condition %s references resource %s: conditions can only refer to parameters", name, r.name)
			}
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
		text, _ := argument.(string)
		switch {
		case !slices.Contains(functions, function):
			complain(malformed("Template error: awsfake does not model the function %s", function))
		case function == "Condition" && t.conditions[text] == nil:
			complain(formatError("Unresolved condition dependency %s in the %s block of the template", text, block))
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

// dependencies are the resources that one needs.
func (t *cfnTemplate) dependencies(id string, branch func(args []any) []any) []string {
	r := t.resources[id]
	list := r.dependsOn()
	for _, ref := range references(r.Properties, branch) {
		if _, ok := t.resources[ref.name]; ok {
			list = append(list, ref.name)
		}
	}
	return list
}

// order lists the resources so that each comes after what it needs, those that could go first in the order of
// their names.
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
