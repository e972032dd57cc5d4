package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// The limits of a template's body ("CloudFormation quotas"): in the request, and as an object in S3.
const (
	MaxInline = 51_200
	MaxObject = 1 << 20
)

// Template is a CloudFormation template.
type Template struct {
	Version     string                    `yaml:"AWSTemplateFormatVersion" json:"AWSTemplateFormatVersion"`
	Description string                    `yaml:"Description" json:"Description"`
	Parameters  map[string]Parameter      `yaml:"Parameters,omitempty" json:"Parameters,omitempty"`
	Conditions  map[string]map[string]any `yaml:"Conditions,omitempty" json:"Conditions,omitempty"`
	Resources   map[string]Resource       `yaml:"Resources" json:"Resources"`
	Outputs     map[string]Output         `yaml:"Outputs" json:"Outputs"`
}

// Parameter is a parameter of a template. Default is nil if a value is required.
type Parameter struct {
	Type           string   `yaml:"Type" json:"Type"`
	Description    string   `yaml:"Description" json:"Description"`
	Default        *string  `yaml:"Default,omitempty" json:"Default,omitempty"`
	AllowedValues  []string `yaml:"AllowedValues,omitempty" json:"AllowedValues,omitempty"`
	AllowedPattern string   `yaml:"AllowedPattern,omitempty" json:"AllowedPattern,omitempty"`
	// follows is the parameter that this one is known by, empty for one that people decide.
	follows string
}

// Resource is a resource of a template.
type Resource struct {
	Type                string         `yaml:"Type" json:"Type"`
	Condition           string         `yaml:"Condition,omitempty" json:"Condition,omitempty"`
	DeletionPolicy      string         `yaml:"DeletionPolicy,omitempty" json:"DeletionPolicy,omitempty"`
	UpdateReplacePolicy string         `yaml:"UpdateReplacePolicy,omitempty" json:"UpdateReplacePolicy,omitempty"`
	Properties          map[string]any `yaml:"Properties" json:"Properties"`
}

// Output is an output of a template.
type Output struct {
	Description string `yaml:"Description" json:"Description"`
	Value       any    `yaml:"Value" json:"Value"`
}

// Count is how many resources of a type there are.
func (t *Template) Count(kind string) (n int) {
	for _, r := range t.Resources {
		if r.Type == kind {
			n++
		}
	}
	return n
}

// YAML renders the template in YAML. It fails if the template is larger than MaxObject.
func (t *Template) YAML() ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(t), enc.Close()); err != nil {
		return nil, fmt.Errorf("writing the template: %w", err)
	}
	return b.Bytes(), checkSize(b.Len())
}

// JSON renders the template in JSON, which is larger. It fails as YAML does.
func (t *Template) JSON() ([]byte, error) {
	data, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the template: %w", err)
	}
	return append(data, '\n'), checkSize(len(data) + 1)
}

// Request renders the template as a request carries it: in YAML if that fits, else in JSON without white space, which is a
// fifth shorter. The result is larger than MaxInline if neither fits.
func (t *Template) Request() ([]byte, error) {
	data, err := t.YAML()
	if err != nil || len(data) <= MaxInline {
		return data, err
	}
	if data, err = json.Marshal(t); err != nil {
		return nil, fmt.Errorf("writing the template: %w", err)
	}
	return data, nil
}

func checkSize(n int) error {
	if n > MaxObject {
		return fmt.Errorf("the template is %d bytes, and CloudFormation takes %d: make two clusters of it, or take fileAssets and additionalUserData out and bake them into the image", n, MaxObject)
	}
	return nil
}

// object is a JSON object.
type object = map[string]any

// The intrinsic functions, in the long form that every parser of YAML and JSON reads.
func ref(name string) object              { return object{"Ref": name} }
func attribute(name, attr string) object  { return object{"Fn::GetAtt": []any{name, attr}} }
func sub(text string) object              { return object{"Fn::Sub": text} }
func choose(cond string, a, b any) object { return object{"Fn::If": []any{cond, a, b}} }
func equals(name, value string) object    { return object{"Fn::Equals": []any{ref(name), value}} }
func not(condition object) object         { return object{"Fn::Not": []any{condition}} }
func nth(i int, list string) object       { return object{"Fn::Select": []any{i, ref(list)}} }
func optional(cond, parameter string) object {
	return choose(cond, ref(parameter), ref("AWS::NoValue"))
}
