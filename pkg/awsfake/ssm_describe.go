package awsfake

import (
	"regexp"
	"slices"
	"strings"
)

// stringFilter is one of DescribeParameters' filters: any of its values may match; all filters must.
type stringFilter struct {
	Key, Option string
	Values      []string
}

type wireMetadata struct {
	Name, ARN, Type  string
	KeyId            string `json:",omitempty"`
	LastModifiedDate float64
	LastModifiedUser string
	Description      string `json:",omitempty"`
	AllowedPattern   string `json:",omitempty"`
	Version          int
	Tier, DataType   string
}

// describe lists what the parameters are, without their values. Its pages are cut before they are filtered, so that
// they are short or empty though more follow: "the number of items returned can be between zero and the value of
// MaxResults".
func (s *SSM) describe(c *call) (any, error) {
	var in struct {
		ParameterFilters []stringFilter
		MaxResults       *int
		NextToken        string
	}
	if err := decodeKnown(c.Body, &in); err != nil {
		return nil, err
	}
	for i, f := range in.ParameterFilters {
		if err := f.check(in.ParameterFilters[:i]); err != nil {
			return nil, err
		}
	}
	size := historyPage
	if in.MaxResults != nil {
		size = *in.MaxResults
	}
	if size < 1 || size > historyPage {
		return nil, invalidParameter("1 validation error detected: Value '%d' at 'maxResults' failed to satisfy constraint: Member must have value less than or equal to %d", size, historyPage)
	}
	names, token, err := page(s.below("/"), size, in.NextToken)
	if err != nil {
		return nil, refuse("InvalidNextToken", "The specified token isn't valid.")
	}
	out := struct {
		Parameters []wireMetadata
		NextToken  string `json:",omitempty"`
	}{[]wireMetadata{}, token}
	for _, name := range names {
		list := s.versions[name]
		p := list[len(list)-1]
		if !slices.ContainsFunc(in.ParameterFilters, func(f stringFilter) bool { return !f.passes(p) }) {
			out.Parameters = append(out.Parameters, s.metadata(p))
		}
	}
	return out, nil
}

func (s *SSM) metadata(p Parameter) wireMetadata {
	shown := s.shown(p, "", false)
	return wireMetadata{
		Name: p.Name, ARN: shown.ARN, Type: p.Type, KeyId: p.keyName(), LastModifiedDate: shown.LastModifiedDate, LastModifiedUser: p.User,
		Description: p.Description, AllowedPattern: p.Pattern, Version: p.Version, Tier: p.Tier, DataType: p.DataType,
	}
}

// keyName is the key of a secret as answers say it; empty for the other types.
func (p Parameter) keyName() string {
	if p.Type == ParameterSecure && p.Key == "" {
		return defaultSecureKey
	}
	return p.Key
}

var filterKey = regexp.MustCompile(`^(tag:.+|Name|Type|KeyId|Path|Tier|DataType)$`)

// check refuses a filter that DescribeParameters does not take, after those before it.
func (f stringFilter) check(before []stringFilter) error {
	options := []string{"", "Equals", "BeginsWith"}
	switch f.Key {
	case "Name":
		options = append(options, "Contains")
	case "Path":
		options = []string{"", "OneLevel", "Recursive"}
	}
	switch {
	case !filterKey.MatchString(f.Key):
		return refuse("InvalidFilterKey", "The following filter key is not valid: %s. Valid filter keys include: [Path, Name, Type, KeyId, Tier, DataType].", f.Key)
	case slices.ContainsFunc(before, func(o stringFilter) bool { return o.Key == f.Key }):
		return refuse("InvalidFilterKey", "The following filter is duplicated in the request: %s. A request can contain only one occurrence of a specific filter.", f.Key)
	case len(f.Values) == 0 && !strings.HasPrefix(f.Key, "tag:"):
		return refuse("InvalidFilterValue", "The following filter values are missing : null for filter key %s.", f.Key)
	case len(f.Values) > 50:
		return invalidParameter("1 validation error detected: Value at 'values' failed to satisfy constraint: Member must have length less than or equal to 50")
	case !slices.Contains(options, f.Option):
		return refuse("InvalidFilterOption", "The following filter option is not valid: %s. Valid options include: %v.", f.Option, options[1:])
	}
	if f.Key == "Path" {
		for _, path := range f.Values {
			if err := checkParameterPath(path); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f stringFilter) passes(p Parameter) bool {
	if f.Key == "Path" {
		return slices.ContainsFunc(f.Values, func(path string) bool { return under(p.Name, path, f.Option == "Recursive") })
	}
	value := map[string]string{"Name": p.Name, "Type": p.Type, "KeyId": p.keyName(), "Tier": p.Tier, "DataType": p.DataType}[f.Key]
	if tag, ok := strings.CutPrefix(f.Key, "tag:"); ok {
		has := false
		if value, has = p.Tags[tag]; !has || len(f.Values) == 0 {
			return has
		}
	}
	return slices.ContainsFunc(f.Values, func(wanted string) bool {
		switch f.Option {
		case "BeginsWith":
			return strings.HasPrefix(value, wanted)
		case "Contains":
			return strings.Contains(value, wanted)
		}
		return value == wanted
	})
}

// under reports whether a parameter is below a path, at any depth or just below it.
func under(name, path string, recursive bool) bool {
	rest, ok := strings.CutPrefix("/"+strings.TrimPrefix(name, "/"), strings.TrimSuffix(path, "/")+"/")
	return ok && rest != "" && (recursive || !strings.Contains(rest, "/"))
}
