package awsfake

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The limits of a template's size ("CloudFormation quotas"), in bytes.
const (
	maxTemplateBody   = 51_200
	maxTemplateObject = 1 << 20
)

// cfnTemplate is a template as it was read: maps, lists and texts, with every function in its long form.
type cfnTemplate struct {
	description string
	parameters  map[string]cfnParameter
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
}

// cfnResource is a resource's declaration.
type cfnResource struct {
	Type          string `cfn:"Type,required"`
	Properties    any    `cfn:"Properties"`
	Condition     string `cfn:"Condition"`
	Deletion      string `cfn:"DeletionPolicy"`
	UpdateReplace string `cfn:"UpdateReplacePolicy"`
}

// properties returns the resource's properties, with functions not evaluated.
func (r cfnResource) properties() map[string]any {
	tree, _ := r.Properties.(map[string]any)
	return tree
}

type cfnOutput struct {
	Description string `cfn:"Description"`
	Value       any    `cfn:"Value,required"`
}

// formatError returns the refusal of a template that CloudFormation cannot read.
func formatError(format string, args ...any) error {
	return malformed("Template format error: %s", fmt.Sprintf(format, args...))
}

// functions are the intrinsic functions that are modelled, in their long form: those that a rendered template has.
var functions = []string{"Ref", "Fn::GetAtt", "Fn::Sub", "Fn::If", "Fn::Select", "Fn::Equals", "Fn::Not"}

// parseTemplate reads a template in YAML or JSON. It makes the checks that CloudFormation makes before it reads
// parameters, and refuses everything that is not modelled.
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
	t := &cfnTemplate{}
	t.description, _ = root["Description"].(string)
	if err := t.sections(root); err != nil {
		return nil, err
	}
	return t, t.check()
}

// treeOf turns YAML's nodes into maps, lists and texts.
func treeOf(n *yaml.Node, path string) (any, error) {
	if tag := n.Tag; strings.HasPrefix(tag, "!") && !strings.HasPrefix(tag, "!!") {
		return shortForm(n, path)
	}
	switch {
	case n.Kind == yaml.AliasNode:
		return nil, formatError("YAML aliases are not allowed in CloudFormation templates")
	case n.Tag == "!!null":
		return nil, formatError("[%s] 'null' values are not allowed in templates", path)
	case n.Kind == yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i].Value
			value, err := treeOf(n.Content[i+1], path+"/"+key)
			if err != nil {
				return nil, err
			}
			m[key] = value
		}
		return m, nil
	case n.Kind == yaml.SequenceNode:
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
	return n.Value, nil
}

// shortForm turns the short form of a function, "!GetAtt A.Arn", into the long one.
func shortForm(n *yaml.Node, path string) (any, error) {
	name := "Fn::" + n.Tag[1:]
	if n.Tag == "!Ref" {
		name = "Ref"
	}
	plain := *n
	plain.Tag = ""
	value, err := treeOf(&plain, path)
	if text, isText := value.(string); isText && name == "Fn::GetAtt" {
		id, attribute, _ := strings.Cut(text, ".")
		value = []any{id, attribute}
	}
	return map[string]any{name: value}, err
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

var sectionNames = []string{"AWSTemplateFormatVersion", "Description", "Parameters", "Conditions", "Resources", "Outputs"}

func (t *cfnTemplate) sections(root map[string]any) (err error) {
	for _, name := range sortedKeys(root) {
		if !slices.Contains(sectionNames, name) {
			return formatError("awsfake does not model the section %s", name)
		}
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
	t.conditions, _ = root["Conditions"].(map[string]any)
	if len(t.resources) == 0 {
		return formatError("At least one Resources member must be defined.")
	}
	return nil
}

var (
	pseudoParameters = []string{"AWS::Region", "AWS::AccountId", "AWS::Partition", "AWS::URLSuffix", "AWS::NoValue"}
	deletionPolicies = []string{"", "Delete", retain, takeSnapshot, retainExceptOnCreate}
)

// check refuses unknown types, unknown names and cycles, which are independent of parameters.
func (t *cfnTemplate) check() error {
	kinds := resourceKinds()
	for _, id := range sortedKeys(t.resources) {
		r := t.resources[id]
		switch {
		case kinds[r.Type] == nil:
			return formatError("Unrecognized resource types: [%s]", r.Type)
		case !slices.Contains(deletionPolicies, r.Deletion) || !slices.Contains(deletionPolicies[:4], r.UpdateReplace):
			return formatError("Unrecognized DeletionPolicy or UpdateReplacePolicy for resource %s", id)
		case (r.Deletion == takeSnapshot || r.UpdateReplace == takeSnapshot) && r.Type != kindVolume:
			return malformed("Template error: resource type %s does not support deletion policy Snapshot", r.Type)
		}
	}
	if err := t.checkReferences(); err != nil {
		return err
	}
	_, err := t.order(func(string) bool { return true }, func(id string) []string { return t.dependencies(id, nil) })
	return err
}
