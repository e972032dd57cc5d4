package awsfake

import (
	"regexp"
	"slices"
	"strings"
)

// The limits of labels (API reference, LabelParameterVersion).
const (
	labelsEach  = 10
	maxLabel    = 100
	historyPage = 50

	maxParameterDescription = 1024
	dataText                = "text"
	dataImage               = "aws:ec2:image"
)

// labelPattern: letters, numbers, periods, hyphens, underscores; not a number first, nor "aws" or "ssm".
var labelPattern = regexp.MustCompile(`^[a-zA-Z._-][a-zA-Z0-9._-]*$`)

func labelAllowed(label string) bool {
	lower := strings.ToLower(label)
	return labelPattern.MatchString(label) && !strings.HasPrefix(lower, "aws") && !strings.HasPrefix(lower, "ssm")
}

// labelsOf are the labels of one version, in order.
func (s *SSM) labelsOf(name string, version int) []string {
	var labels []string
	for _, label := range sortedKeys(s.labels[name]) {
		if s.labels[name][label] == version {
			labels = append(labels, label)
		}
	}
	return labels
}

type labelInput struct {
	Name             string
	ParameterVersion int
	Labels           []string
}

// labelled is the version that a call about labels means.
func (s *SSM) labelled(c *call) (in labelInput, err error) {
	if err = decodeKnown(c.Body, &in); err != nil {
		return in, err
	}
	in.Name = strings.TrimSpace(in.Name)
	list := s.versions[in.Name]
	switch {
	case strings.HasPrefix(in.Name, "arn:"):
		return in, invalidParameter(nameRule)
	case len(list) == 0:
		return in, refuse("ParameterNotFound", "Parameter %s not found.", in.Name)
	case len(in.Labels) < 1 || len(in.Labels) > labelsEach:
		return in, invalidParameter("1 validation error detected: Value at 'labels' failed to satisfy constraint: Member must have length less than or equal to %d and greater than or equal to 1, has %d", labelsEach, len(in.Labels))
	case slices.ContainsFunc(in.Labels, func(l string) bool { return l == "" || len(l) > maxLabel }):
		return in, invalidParameter("1 validation error detected: Value at 'labels' failed to satisfy constraint: Member must satisfy constraint: [Member must have length less than or equal to %d, Member must have length greater than or equal to 1]", maxLabel)
	case in.ParameterVersion == 0 && c.Action == "LabelParameterVersion":
		in.ParameterVersion = list[len(list)-1].Version
	}
	if !slices.ContainsFunc(list, func(p Parameter) bool { return p.Version == in.ParameterVersion }) {
		return in, refuse("ParameterVersionNotFound", "Systems Manager could not find version %d of %s. Verify the version and try again.", in.ParameterVersion, in.Name)
	}
	return in, nil
}

// label gives labels to a version; a label that another version has is moved. Labels against the rules are
// answered, not refused.
func (s *SSM) label(c *call) (any, error) {
	in, err := s.labelled(c)
	if err != nil {
		return nil, err
	}
	out := struct {
		InvalidLabels    []string
		ParameterVersion int
	}{[]string{}, in.ParameterVersion}
	has := s.labelsOf(in.Name, in.ParameterVersion)
	var valid []string
	for _, label := range in.Labels {
		switch {
		case !labelAllowed(label):
			out.InvalidLabels = append(out.InvalidLabels, label)
		case !slices.Contains(append(has, valid...), label):
			valid = append(valid, label)
		}
	}
	if len(has)+len(valid) > labelsEach {
		return nil, refuse("ParameterVersionLabelLimitExceeded", "A parameter version can have a maximum of %d labels.", labelsEach)
	}
	if s.labels[in.Name] == nil {
		s.labels[in.Name] = map[string]int{}
	}
	for _, label := range valid {
		s.labels[in.Name][label] = in.ParameterVersion
	}
	return out, nil
}

func (s *SSM) unlabel(c *call) (any, error) {
	in, err := s.labelled(c)
	if err != nil {
		return nil, err
	}
	out := struct{ RemovedLabels, InvalidLabels []string }{[]string{}, []string{}}
	for _, label := range in.Labels {
		if s.labels[in.Name][label] != in.ParameterVersion {
			out.InvalidLabels = append(out.InvalidLabels, label)
			continue
		}
		delete(s.labels[in.Name], label)
		out.RemovedLabels = append(out.RemovedLabels, label)
	}
	return out, nil
}

type wireHistory struct {
	Name, Type, Value string
	KeyId             string `json:",omitempty"`
	LastModifiedDate  float64
	LastModifiedUser  string
	Description       string `json:",omitempty"`
	AllowedPattern    string `json:",omitempty"`
	Version           int
	Labels            []string
	Tier, DataType    string
}

// history answers the versions that are kept, the oldest first.
func (s *SSM) history(c *call) (any, error) {
	var in struct {
		Name           string
		WithDecryption bool
		MaxResults     *int
		NextToken      string
	}
	if err := decodeKnown(c.Body, &in); err != nil {
		return nil, err
	}
	name, selector := s.split(in.Name)
	list := s.versions[name]
	size := historyPage
	if in.MaxResults != nil {
		size = *in.MaxResults
	}
	switch {
	case selector != "":
		return nil, invalidParameter(nameRule)
	case size < 1 || size > historyPage:
		return nil, invalidParameter("1 validation error detected: Value '%d' at 'maxResults' failed to satisfy constraint: Member must have value less than or equal to %d", size, historyPage)
	case len(list) == 0:
		return nil, refuse("ParameterNotFound", "Parameter %s not found.", name)
	}
	kept, token, err := page(list, size, in.NextToken)
	if err != nil {
		return nil, refuse("InvalidNextToken", "The specified token isn't valid.")
	}
	out := struct {
		Parameters []wireHistory
		NextToken  string `json:",omitempty"`
	}{NextToken: token}
	for _, p := range kept {
		shown := s.shown(p, "", in.WithDecryption)
		w := wireHistory{
			Name: p.Name, Type: p.Type, Value: shown.Value, LastModifiedDate: shown.LastModifiedDate, LastModifiedUser: p.User, Description: p.Description,
			AllowedPattern: p.Pattern, Version: p.Version, Labels: s.labelsOf(name, p.Version), Tier: p.Tier, DataType: p.DataType, KeyId: p.keyName(),
		}
		if w.Labels == nil {
			w.Labels = []string{}
		}
		out.Parameters = append(out.Parameters, w)
	}
	return out, nil
}

// user is who changes a parameter.
func (c *call) user() string {
	if c.Caller != nil {
		return c.Caller.arn
	}
	return "arn:aws:iam::" + owner + ":root"
}

// add makes a version of a parameter that the rules allow. One whose value is an image is made once the image has
// been found, after PutParameter was answered: "the asynchronous validation will fail and the parameter will not be
// created or updated".
func (s *SSM) add(p Parameter) {
	if p.DataType != dataImage {
		s.keep(p)
		return
	}
	s.validating[p.Name] = true
	s.account.regional.agenda.after(s.validation, func() {
		delete(s.validating, p.Name)
		images := s.account.place(s.region).images
		if _, err := images.launchable(p.Value); err == nil {
			p.Modified = s.now()
			s.keep(p)
		}
	})
}

// keep stores a version. The oldest makes room for it.
func (s *SSM) keep(p Parameter) {
	list := append(s.versions[p.Name], p)
	if len(list) > keptParameters {
		list = list[1:]
	}
	s.versions[p.Name] = list
}

// room refuses a version for which the oldest would have to go that has labels.
func (s *SSM) room(old []Parameter) error {
	if len(old) < keptParameters || len(s.labelsOf(old[0].Name, old[0].Version)) == 0 {
		return nil
	}
	return refuse("ParameterMaxVersionLimitExceeded", "You attempted to create a new version of %s by calling the PutParameter API with the overwrite flag. Version %d, the oldest version, can't be deleted because it has a label associated with it. Move the label to another version of the parameter, and try again.",
		old[0].Name, old[0].Version)
}

// forget takes a parameter away.
func (s *SSM) forget(name string) {
	delete(s.versions, name)
	delete(s.labels, name)
}

// checkDataType holds a parameter to the rules of its data type.
func checkDataType(p *Parameter) error {
	switch {
	case p.DataType == "":
		p.DataType = dataText
	case p.DataType == dataImage && p.Type != ParameterString:
		return invalidParameter("The data type %s takes the parameter type String, not %s.", dataImage, p.Type)
	case p.DataType != dataText && p.DataType != dataImage:
		return invalidParameter("The following data type is not supported: %s (Data type names are all lowercase; awsfake models text and %s.)", p.DataType, dataImage)
	}
	return nil
}
