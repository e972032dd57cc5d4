package awsfake

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// serve carries out one call of Systems Manager's JSON 1.1 protocol.
func (s *SSM) serve(c *call) (any, error) {
	actions := map[string]func(*call) (any, error){
		"GetParameter": s.getParameter, "GetParameters": s.getParameters, "GetParametersByPath": s.getByPath,
		"DescribeParameters": s.describe, "GetParameterHistory": s.history, "LabelParameterVersion": s.label, "UnlabelParameterVersion": s.unlabel,
		"PutParameter": s.putParameter, "DeleteParameter": s.deleteParameter, "DeleteParameters": s.deleteParameters,
	}
	do, ok := actions[c.Action]
	if !ok {
		return nil, refuse("UnknownOperationException", "awsfake does not model ssm:%s", c.Action)
	}
	return do(c)
}

// decodeKnown reads a document, and refuses fields that are not modelled.
func decodeKnown(body []byte, v any) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		return refuse("SerializationException", "reading the request (a field that awsfake does not know is an error): %v", err)
	}
	return nil
}

type wireParameter struct {
	Name             string
	Type             string
	Value            string
	Version          int
	Selector         string `json:",omitempty"`
	LastModifiedDate float64
	ARN              string
	DataType         string
}

// shown is a parameter as an answer carries it.
func (s *SSM) shown(p Parameter, selector string, decrypt bool) wireParameter {
	w := wireParameter{
		Name: p.Name, Type: p.Type, Value: p.Value, Version: p.Version, Selector: selector,
		LastModifiedDate: float64(p.Modified.UnixMilli()) / 1000, ARN: s.arn(p.Name), DataType: p.DataType,
	}
	if p.Type == ParameterSecure && !decrypt {
		w.Value = ciphertext(p)
	}
	return w
}

func (s *SSM) getParameter(c *call) (any, error) {
	var in struct {
		Name           string
		WithDecryption bool
	}
	if err := decodeKnown(c.Body, &in); err != nil {
		return nil, err
	}
	p, selector, err := s.find(in.Name)
	if err != nil {
		return nil, err
	}
	return struct{ Parameter wireParameter }{s.shown(p, selector, in.WithDecryption)}, nil
}

// batch checks the names of a call about several parameters.
func batch(names []string) error {
	if n := len(names); n < 1 || n > parameterBatch {
		return invalidParameter("1 validation error detected: Value at 'names' failed to satisfy constraint: Member must have length less than or equal to %d and greater than or equal to 1, has %d", parameterBatch, n)
	}
	return nil
}

func (s *SSM) getParameters(c *call) (any, error) {
	var in struct {
		Names          []string
		WithDecryption bool
	}
	if err := decodeKnown(c.Body, &in); err != nil {
		return nil, err
	}
	if err := batch(in.Names); err != nil {
		return nil, err
	}
	out := struct {
		Parameters        []wireParameter
		InvalidParameters []string
	}{[]wireParameter{}, []string{}}
	for i, name := range in.Names {
		if slices.Contains(in.Names[:i], name) {
			continue
		}
		p, selector, err := s.find(name)
		if err != nil {
			out.InvalidParameters = append(out.InvalidParameters, name)
			continue
		}
		out.Parameters = append(out.Parameters, s.shown(p, selector, in.WithDecryption))
	}
	return out, nil
}

// getByPath cuts its pages before it drops what is too deep, so that pages are short or empty though more
// follow: "the number of items returned can be between zero and the value of MaxResults".
func (s *SSM) getByPath(c *call) (any, error) {
	var in struct {
		Path           string
		Recursive      bool
		WithDecryption bool
		MaxResults     *int
		NextToken      string
	}
	if err := decodeKnown(c.Body, &in); err != nil {
		return nil, err
	}
	if err := checkParameterPath(in.Path); err != nil {
		return nil, err
	}
	size := parameterBatch
	if in.MaxResults != nil {
		size = *in.MaxResults
	}
	if size < 1 || size > parameterBatch {
		return nil, invalidParameter("1 validation error detected: Value '%d' at 'maxResults' failed to satisfy constraint: Member must have value less than or equal to %d", size, parameterBatch)
	}
	names, token, err := page(s.below(in.Path), size, in.NextToken)
	if err != nil {
		return nil, refuse("InvalidNextToken", "The specified token isn't valid.")
	}
	out := struct {
		Parameters []wireParameter
		NextToken  string `json:",omitempty"`
	}{[]wireParameter{}, token}
	depth := strings.Count(strings.TrimSuffix(in.Path, "/"), "/") + 1
	for _, name := range names {
		if level := strings.Count("/"+strings.TrimPrefix(name, "/"), "/"); !in.Recursive && level > depth {
			continue
		}
		list := s.versions[name]
		out.Parameters = append(out.Parameters, s.shown(list[len(list)-1], "", in.WithDecryption))
	}
	return out, nil
}

type putInput struct {
	Name, Value, Type, Tier     string
	Description, AllowedPattern string
	DataType, KeyId             string
	Overwrite                   bool
	Tags                        []struct{ Key, Value string }
}

func (in putInput) parameter() Parameter {
	p := Parameter{Name: in.Name, Type: in.Type, Value: in.Value, Key: in.KeyId, Tier: in.Tier, Pattern: in.AllowedPattern, DataType: in.DataType, Description: in.Description}
	for _, tag := range in.Tags {
		if p.Tags == nil {
			p.Tags = map[string]string{}
		}
		p.Tags[tag.Key] = tag.Value
	}
	return p
}

func (s *SSM) putParameter(c *call) (any, error) {
	var in putInput
	if err := decodeKnown(c.Body, &in); err != nil {
		return nil, err
	}
	if strings.HasPrefix(in.Name, "arn:") {
		return nil, invalidParameter(nameRule)
	}
	if len(in.Description) > maxParameterDescription {
		return nil, invalidParameter("1 validation error detected: Value at 'description' failed to satisfy constraint: Member must have length less than or equal to %d", maxParameterDescription)
	}
	given := in.parameter()
	given.User = c.user()
	p, err := s.put(given, in.Overwrite)
	if err != nil {
		return nil, err
	}
	return struct {
		Version int
		Tier    string
	}{p.Version, p.Tier}, nil
}

func (s *SSM) deleteParameter(c *call) (any, error) {
	var in struct{ Name string }
	if err := decodeKnown(c.Body, &in); err != nil {
		return nil, err
	}
	if _, ok := s.versions[in.Name]; !ok {
		return nil, refuse("ParameterNotFound", "Parameter %s not found.", in.Name)
	}
	s.forget(in.Name)
	return none{}, nil
}

func (s *SSM) deleteParameters(c *call) (any, error) {
	var in struct{ Names []string }
	if err := decodeKnown(c.Body, &in); err != nil {
		return nil, err
	}
	if err := batch(in.Names); err != nil {
		return nil, err
	}
	out := struct{ DeletedParameters, InvalidParameters []string }{[]string{}, []string{}}
	for _, name := range in.Names {
		if _, ok := s.versions[name]; ok {
			s.forget(name)
			out.DeletedParameters = append(out.DeletedParameters, name)
		} else {
			out.InvalidParameters = append(out.InvalidParameters, name)
		}
	}
	return out, nil
}
