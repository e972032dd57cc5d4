package awsfake

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// actions are the calls of Systems Manager's JSON 1.1 protocol that are understood.
func (s *SSM) actions() map[string]func(*call) (any, error) {
	return map[string]func(*call) (any, error){
		"GetParameter": s.getParameter, "GetParameters": s.getParameters, "GetParametersByPath": s.getByPath,
		"DescribeParameters": s.describe, "GetParameterHistory": s.history,
		"PutParameter": s.putParameter, "DeleteParameter": s.deleteParameter, "DeleteParameters": s.deleteParameters,
	}
}

func (s *SSM) serve(c *call) (any, error) {
	do, ok := s.actions()[c.Action]
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

// wireParameter is a parameter as the answers of every call carry it, those that show no value too.
type wireParameter struct {
	Name             string
	Type             string
	Value            string `json:",omitempty"`
	Version          int
	Selector         string `json:",omitempty"`
	LastModifiedDate float64
	LastModifiedUser string `json:",omitempty"`
	ARN              string
	DataType         string
	KeyId            string `json:",omitempty"`
}

type wireParameters struct {
	Parameters []wireParameter
	NextToken  string `json:",omitempty"`
}

// shown returns a parameter as an answer shows it.
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
	if err == nil && in.WithDecryption {
		err = s.open(c, p)
	}
	if err != nil {
		return nil, err
	}
	return struct{ Parameter wireParameter }{s.shown(p, selector, in.WithDecryption)}, nil
}

// getParameters answers what there is, in alphabetical order, and names the rest: those that do not exist, and those without
// the version that is asked for. AWS does not say what the same name twice is, and moto answers it once; here it is refused.
// One secret that the caller may not decrypt fails the call.
func (s *SSM) getParameters(c *call) (any, error) {
	var in struct {
		Names          []string
		WithDecryption bool
	}
	if err := decodeKnown(c.Body, &in); err != nil {
		return nil, err
	}
	if n := len(in.Names); n < 1 || n > parameterBatch {
		return nil, invalidParameter("a call has 1 to %d names, not %d", parameterBatch, n)
	}
	out := struct {
		Parameters        []wireParameter
		InvalidParameters []string
	}{[]wireParameter{}, []string{}}
	slices.Sort(in.Names)
	if len(slices.Compact(slices.Clone(in.Names))) != len(in.Names) {
		return nil, invalidParameter("a name is there twice in %v", in.Names)
	}
	for _, name := range in.Names {
		p, selector, err := s.find(name)
		if err != nil {
			out.InvalidParameters = append(out.InvalidParameters, name)
			continue
		}
		if in.WithDecryption {
			if err := s.open(c, p); err != nil {
				return nil, err
			}
		}
		out.Parameters = append(out.Parameters, s.shown(p, selector, in.WithDecryption))
	}
	return out, nil
}

// paging is how a call asks for a part of its answer.
type paging struct {
	MaxResults *int
	NextToken  string
}

// parameterPage returns a page of items; most is the largest page size, and the default.
func parameterPage[T any](items []T, in paging, most int) ([]T, string, error) {
	size := most
	if in.MaxResults != nil {
		size = *in.MaxResults
	}
	if size < 1 || size > most {
		return nil, "", invalidParameter("MaxResults is 1 to %d, not %d", most, size)
	}
	part, token, err := page(items, size, in.NextToken)
	if err != nil {
		return nil, "", refuse("InvalidNextToken", "The specified token isn't valid.")
	}
	return part, token, nil
}

// getByPath cuts pages before it drops parameters that are too deep, so that pages are short or empty though more
// follow: "the number of items returned can be between zero and the value of MaxResults".
func (s *SSM) getByPath(c *call) (any, error) {
	var in struct {
		Path           string
		Recursive      bool
		WithDecryption bool
		paging
	}
	if err := decodeKnown(c.Body, &in); err != nil {
		return nil, err
	}
	if in.Path != "/" && (!strings.HasPrefix(in.Path, "/") || !parameterName.MatchString(strings.TrimSuffix(in.Path, "/"))) {
		return nil, invalidParameter("%q is no path of parameters", in.Path)
	}
	names, token, err := parameterPage(s.below(in.Path), in.paging, parameterBatch)
	if err != nil {
		return nil, err
	}
	out := wireParameters{[]wireParameter{}, token}
	depth := strings.Count(strings.TrimSuffix(in.Path, "/"), "/") + 1
	for _, name := range names {
		if level := strings.Count("/"+strings.TrimPrefix(name, "/"), "/"); !in.Recursive && level > depth {
			continue
		}
		list := s.versions[name]
		if in.WithDecryption {
			if err := s.open(c, list[len(list)-1]); err != nil {
				return nil, err // of one, and so of the page
			}
		}
		out.Parameters = append(out.Parameters, s.shown(list[len(list)-1], "", in.WithDecryption))
	}
	return out, nil
}

// describe lists parameters without their values; the only filter is DataType. Pages are cut before they are filtered,
// so that they are short or empty though more follow.
func (s *SSM) describe(c *call) (any, error) {
	var in struct {
		ParameterFilters []parameterFilter
		paging
	}
	if err := decodeKnown(c.Body, &in); err != nil {
		return nil, err
	}
	for _, f := range in.ParameterFilters {
		if err := f.check(); err != nil {
			return nil, err
		}
	}
	names, token, err := parameterPage(s.below("/"), in.paging, describePage)
	if err != nil {
		return nil, err
	}
	out := wireParameters{[]wireParameter{}, token}
	for _, name := range names {
		list := s.versions[name]
		p := list[len(list)-1]
		if !slices.ContainsFunc(in.ParameterFilters, func(f parameterFilter) bool { return !f.passes(p) }) {
			w := s.shown(p, "", true)
			w.Value, w.LastModifiedUser, w.KeyId = "", p.User, p.Key
			out.Parameters = append(out.Parameters, w)
		}
	}
	return out, nil
}

// parameterFilter is a filter of DescribeParameters: by default values are compared as a whole (API reference, ParameterStringFilter).
type parameterFilter struct {
	Key, Option string
	Values      []string
}

func (f parameterFilter) check() error {
	switch {
	case !slices.Contains([]string{"Name", "Type", "DataType"}, f.Key):
		return refuse("InvalidFilterKey", "awsfake does not model the filter %q", f.Key)
	case f.Option != "" && f.Option != "Equals" && f.Option != "BeginsWith":
		return refuse("InvalidFilterOption", "The following filter option is not valid: %s. Valid options include: [BeginsWith, Equals].", f.Option)
	case len(f.Values) < 1 || len(f.Values) > 50:
		return refuse("InvalidFilterValue", "The filter %s has %d values, and takes 1 to 50", f.Key, len(f.Values))
	}
	return nil
}

func (f parameterFilter) passes(p Parameter) bool {
	have := map[string]string{"Name": p.Name, "Type": p.Type, "DataType": p.DataType}[f.Key]
	return slices.ContainsFunc(f.Values, func(v string) bool {
		return have == v || f.Option == "BeginsWith" && strings.HasPrefix(have, v)
	})
}

// history answers the versions that are kept, the oldest first.
func (s *SSM) history(c *call) (any, error) {
	var in struct {
		Name           string
		WithDecryption bool
		paging
	}
	if err := decodeKnown(c.Body, &in); err != nil {
		return nil, err
	}
	if len(s.versions[in.Name]) == 0 {
		return nil, refuse("ParameterNotFound", "Parameter %s not found.", in.Name)
	}
	kept, token, err := parameterPage(s.versions[in.Name], in.paging, describePage)
	if err != nil {
		return nil, err
	}
	out := wireParameters{NextToken: token}
	for _, p := range kept {
		if in.WithDecryption {
			if err := s.open(c, p); err != nil {
				return nil, err
			}
		}
		w := s.shown(p, "", in.WithDecryption)
		w.LastModifiedUser, w.KeyId = p.User, p.Key
		out.Parameters = append(out.Parameters, w)
	}
	return out, nil
}

func (s *SSM) putParameter(c *call) (any, error) {
	var in struct {
		Name, Value, Type string
		DataType, KeyId   string
		Overwrite         bool
	}
	if err := decodeKnown(c.Body, &in); err != nil {
		return nil, err
	}
	version, err := s.put(c, Parameter{Name: in.Name, Type: in.Type, Value: in.Value, DataType: in.DataType, User: c.user(), Key: in.KeyId}, in.Overwrite)
	if err != nil {
		return nil, err
	}
	return struct {
		Version int
		Tier    string
	}{version, "Standard"}, nil
}

// user returns the ARN of the caller that changes a parameter.
func (c *call) user() string {
	if c.Caller != nil {
		return c.Caller.arn
	}
	return "arn:aws:iam::" + owner + ":root"
}

func (s *SSM) deleteParameter(c *call) (any, error) {
	var in struct{ Name string }
	if err := decodeKnown(c.Body, &in); err != nil {
		return nil, err
	}
	if _, ok := s.versions[in.Name]; !ok {
		return nil, refuse("ParameterNotFound", "Parameter %s not found.", in.Name)
	}
	delete(s.versions, in.Name)
	return none{}, nil
}

// deleteParameters serves the command that `hardtack stack delete` prints.
func (s *SSM) deleteParameters(c *call) (any, error) {
	var in struct{ Names []string }
	if err := decodeKnown(c.Body, &in); err != nil {
		return nil, err
	}
	if n := len(in.Names); n < 1 || n > parameterBatch {
		return nil, invalidParameter("a call has 1 to %d names, not %d", parameterBatch, n)
	}
	out := struct{ DeletedParameters, InvalidParameters []string }{[]string{}, []string{}}
	for _, name := range in.Names {
		if _, ok := s.versions[name]; ok {
			delete(s.versions, name)
			out.DeletedParameters = append(out.DeletedParameters, name)
		} else {
			out.InvalidParameters = append(out.InvalidParameters, name)
		}
	}
	return out, nil
}
