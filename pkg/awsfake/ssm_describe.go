package awsfake

import (
	"slices"
)

// describePage is the most parameters in an answer of DescribeParameters (API reference, MaxResults).
const describePage = 50

type wireMetadata struct {
	Name, Type, DataType, Tier, ARN string
	KeyId, Description              string `json:",omitempty"`
	AllowedPattern                  string `json:",omitempty"`
	LastModifiedDate                float64
	LastModifiedUser                string `json:",omitempty"`
	Version                         int
}

// describe lists parameters without their values. Of the filters, DataType with Equals is modelled.
func (s *SSM) describe(c *call) (any, error) {
	var in struct {
		ParameterFilters []struct {
			Key, Option string
			Values      []string
		}
		MaxResults *int
		NextToken  string
	}
	if err := decodeKnown(c.Body, &in); err != nil {
		return nil, err
	}
	size := describePage
	if in.MaxResults != nil {
		size = *in.MaxResults
	}
	if size < 1 || size > describePage {
		return nil, invalidParameter("1 validation error detected: Value '%d' at 'maxResults' failed to satisfy constraint: Member must have value less than or equal to %d", size, describePage)
	}
	names := slices.Collect(func(yield func(string) bool) {
		for _, name := range sortedKeys(s.versions) {
			if len(s.versions[name]) > 0 && !yield(name) {
				return
			}
		}
	})
	for _, f := range in.ParameterFilters {
		if f.Key != "DataType" || f.Option != "" && f.Option != "Equals" || len(f.Values) == 0 {
			return nil, refuse("InvalidFilterKey", "awsfake models the filter DataType with Equals, not %s with %s", f.Key, f.Option)
		}
		names = slices.DeleteFunc(names, func(name string) bool {
			list := s.versions[name]
			return !slices.Contains(f.Values, list[len(list)-1].DataType)
		})
	}
	kept, token, err := page(names, size, in.NextToken)
	if err != nil {
		return nil, refuse("InvalidNextToken", "The specified token isn't valid.")
	}
	out := struct {
		Parameters []wireMetadata
		NextToken  string `json:",omitempty"`
	}{[]wireMetadata{}, token}
	for _, name := range kept {
		list := s.versions[name]
		p := list[len(list)-1]
		shown := s.shown(p, "", false)
		out.Parameters = append(out.Parameters, wireMetadata{
			Name: p.Name, Type: p.Type, DataType: shown.DataType, Tier: p.Tier, ARN: shown.ARN, KeyId: p.Key, Description: p.Description,
			AllowedPattern: p.Pattern, LastModifiedDate: shown.LastModifiedDate, LastModifiedUser: p.User, Version: p.Version,
		})
	}
	return out, nil
}
