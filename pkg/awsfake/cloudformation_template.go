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
	Type          string   `cfn:"Type,required"`
	Description   string   `cfn:"Description"`
	Default       *string  `cfn:"Default"`
	AllowedValues []string `cfn:"AllowedValues"`
	Pattern       string   `cfn:"AllowedPattern"`
	Constraint    string   `cfn:"ConstraintDescription"`
	MinLength     *int     `cfn:"MinLength"`
	MaxLength     *int     `cfn:"MaxLength"`
	MinValue      *int     `cfn:"MinValue"`
	MaxValue      *int     `cfn:"MaxValue"`
	NoEcho        bool     `cfn:"NoEcho"`
}

// cfnResource is a resource's declaration.
type cfnResource struct {
	Type          string `cfn:"Type,required"`
	Properties    any    `cfn:"Properties"`
	DependsOn     any    `cfn:"DependsOn"`
	Condition     string `cfn:"Condition"`
	Metadata      any    `cfn:"Metadata"`
	Deletion      string `cfn:"DeletionPolicy"`
	UpdateReplace string `cfn:"UpdateReplacePolicy"`
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
	Description string `cfn:"Description"`
	Value       any    `cfn:"Value,required"`
	Condition   string `cfn:"Condition"`
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
		switch p, wrong := first(decodeShape(member, &v, "cfn")); {
		case !wrong:
			into[key] = v
		case p.Missing:
			return nil, formatError("[/%s/%s] Every %s object must contain a %s member.", name, key, name, p.name())
		case p.Unknown:
			return nil, formatError("[/%s/%s] Invalid template member %s", name, key, p.Path)
		default:
			return nil, formatError("[/%s/%s/%s] must be of type %s.", name, key, p.Path, p.Want)
		}
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
