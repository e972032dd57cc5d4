package awsfake

import (
	"slices"
	"strconv"
)

type xmlTemplate struct {
	ID      string   `xml:"launchTemplateId"`
	Name    string   `xml:"launchTemplateName"`
	Created string   `xml:"createTime"`
	Creator string   `xml:"createdBy"`
	Default int      `xml:"defaultVersionNumber"`
	Latest  int      `xml:"latestVersionNumber"`
	Tags    []xmlTag `xml:"tagSet>item"`
}

type xmlTemplateAnswer struct {
	Template xmlTemplate `xml:"launchTemplate"`
}

func templateXML(t *LaunchTemplate) xmlTemplate {
	return xmlTemplate{
		ID: t.ID, Name: t.Name, Created: stamp(t.Created), Creator: "arn:aws:iam::" + owner + ":root",
		Default: t.Default, Latest: t.Versions[len(t.Versions)-1].Number, Tags: tagsXML(t.Tags),
	}
}

type xmlVersion struct {
	ID          string     `xml:"launchTemplateId"`
	Name        string     `xml:"launchTemplateName"`
	Number      int        `xml:"versionNumber"`
	Description string     `xml:"versionDescription,omitempty"`
	Created     string     `xml:"createTime"`
	Creator     string     `xml:"createdBy"`
	Default     bool       `xml:"defaultVersion"`
	Data        LaunchData `xml:"launchTemplateData"`
}

func versionXML(t *LaunchTemplate, v LaunchVersion) xmlVersion {
	return xmlVersion{
		ID: t.ID, Name: t.Name, Number: v.Number, Description: v.Description, Created: stamp(v.Created),
		Creator: "arn:aws:iam::" + owner + ":root", Default: v.Number == t.Default, Data: v.Data,
	}
}

// launchData reads the version that a call describes.
func launchData(p params) (LaunchData, error) {
	var d LaunchData
	switch problem, wrong := first(decodeShape(p.formTree("LaunchTemplateData"), &d, "query")); {
	case !wrong:
		return d, nil
	case problem.Unknown:
		return d, refuse("UnknownParameter", "The parameter LaunchTemplateData.%s is not recognized", problem.Path)
	case problem.Missing:
		return d, refuse("MissingParameter", "The request must contain the parameter LaunchTemplateData.%s", problem.Path)
	default:
		return d, refuse("InvalidParameterValue", "LaunchTemplateData.%s must be of type %s", problem.Path, problem.Want)
	}
}

// dry answers a call that only asks whether it might be made.
func dry(p params) error {
	if only, err := p.flag("DryRun", false); err != nil || !only {
		return err
	}
	return &Error{Status: 412, Code: "DryRunOperation", Message: "Request would have succeeded, but DryRun flag is set."}
}

// tokenAnswer is what a call with a client token was, and what was answered.
type tokenAnswer struct {
	call   string
	answer any
}

// once carries out a call once for each client token: a caller that has lost the answer gets it when it asks again.
func (e *EC2) once(do func(params) (any, error)) func(params) (any, error) {
	return func(p params) (any, error) {
		token := p.get("ClientToken")
		if token == "" {
			return do(p)
		}
		made, known := e.tokens[token]
		if known && made.call != sameCall(p) {
			return nil, refuse("IdempotentParameterMismatch", "The client token %s was used with other parameters.", token)
		}
		if known {
			return made.answer, nil
		}
		answer, err := do(p)
		if err == nil {
			e.tokens = with(e.tokens, token, tokenAnswer{sameCall(p), answer})
		}
		return answer, err
	}
}

func (e *EC2) createTemplateCall(p params) (any, error) {
	data, err := launchData(p)
	if err != nil {
		return nil, err
	}
	tags := map[string]string{}
	for _, spec := range p.structs("TagSpecification") {
		if kind := spec.get("ResourceType"); kind != "launch-template" {
			return nil, refuse("InvalidParameterValue", "'%s' is not a valid taggable resource type for this operation.", kind)
		}
		for _, tag := range spec.structs("Tag") {
			tags[tag.get("Key")] = tag.get("Value")
		}
	}
	if err := dry(p); err != nil {
		return nil, err
	}
	t, err := e.createTemplate(p.get("LaunchTemplateName"), p.get("VersionDescription"), data, tags)
	if err != nil {
		return nil, err
	}
	return xmlTemplateAnswer{templateXML(t)}, nil
}

func (e *EC2) named(p params) (*LaunchTemplate, error) {
	return e.template(p.get("LaunchTemplateId"), p.get("LaunchTemplateName"))
}

func (e *EC2) createVersionCall(p params) (any, error) {
	t, err := e.named(p)
	if err != nil {
		return nil, err
	}
	data, err := launchData(p)
	if err != nil {
		return nil, err
	}
	if source := p.get("SourceVersion"); source != "" {
		v, err := t.version(source)
		if err != nil {
			return nil, err
		}
		data = data.over(v.Data)
	}
	if err := data.check(); err != nil {
		return nil, err
	}
	if err := dry(p); err != nil {
		return nil, err
	}
	return struct {
		Version xmlVersion `xml:"launchTemplateVersion"`
	}{versionXML(t, t.add(p.get("VersionDescription"), data, e.now()))}, nil
}

func (e *EC2) modifyTemplateCall(p params) (any, error) {
	t, err := e.named(p)
	if err != nil {
		return nil, err
	}
	text := p.get("SetDefaultVersion")
	if text == "" {
		return nil, refuse("MissingParameter", "The request must contain the parameter SetDefaultVersion")
	}
	v, err := t.version(text)
	if err != nil {
		return nil, err
	}
	t.Default = v.Number
	return xmlTemplateAnswer{templateXML(t)}, nil
}

func (e *EC2) deleteTemplateCall(p params) (any, error) {
	t, err := e.named(p)
	if err != nil {
		return nil, err
	}
	if err := dry(p); err != nil {
		return nil, err
	}
	e.dropTemplate(t)
	return xmlTemplateAnswer{templateXML(t)}, nil
}

type xmlDropped struct {
	ID     string         `xml:"launchTemplateId"`
	Name   string         `xml:"launchTemplateName"`
	Number int            `xml:"versionNumber"`
	Error  *xmlDropFailed `xml:"responseError"`
}

type xmlDropFailed struct {
	Code    string `xml:"code"`
	Message string `xml:"message"`
}

// deleteVersionsCall deletes some versions and says of the others why not: that of the default first, which must
// be another's before.
func (e *EC2) deleteVersionsCall(p params) (any, error) {
	t, err := e.named(p)
	if err != nil {
		return nil, err
	}
	numbers := p.list("LaunchTemplateVersion")
	if len(numbers) == 0 || len(numbers) > 200 {
		return nil, refuse("InvalidParameterValue", "You can specify from 1 to 200 launch template versions.")
	}
	out := struct {
		Gone []xmlDropped `xml:"successfullyDeletedLaunchTemplateVersionSet>item"`
		Kept []xmlDropped `xml:"unsuccessfullyDeletedLaunchTemplateVersionSet>item"`
	}{}
	for _, text := range numbers {
		number, err := strconv.Atoi(text)
		if err != nil {
			return nil, refuse("InvalidParameterValue", "'%s' is not a launch template version number.", text)
		}
		x := xmlDropped{ID: t.ID, Name: t.Name, Number: number}
		switch {
		case number == t.Default:
			x.Error = &xmlDropFailed{"unexpectedError", "The default version of a launch template cannot be deleted."}
		case !slices.ContainsFunc(t.Versions, func(v LaunchVersion) bool { return v.Number == number }):
			x.Error = &xmlDropFailed{"launchTemplateVersionDoesNotExist", "The launch template version does not exist."}
		}
		if x.Error != nil {
			out.Kept = append(out.Kept, x)
			continue
		}
		t.Versions = slices.DeleteFunc(t.Versions, func(v LaunchVersion) bool { return v.Number == number })
		out.Gone = append(out.Gone, x)
	}
	return out, nil
}

func (e *EC2) describeTemplates(p params) (any, error) {
	ids, names := p.list("LaunchTemplateId"), p.list("LaunchTemplateName")
	size, err := p.integer("MaxResults", 200)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if _, err := e.template(id, ""); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		if _, err := e.template("", name); err != nil {
			return nil, refuse("InvalidLaunchTemplateName.NotFoundException", "At least one of the launch templates specified in the request does not exist.")
		}
	}
	var kept []xmlTemplate
	for _, t := range e.templates {
		if len(ids)+len(names) > 0 && !slices.Contains(ids, t.ID) && !slices.Contains(names, t.Name) {
			continue
		}
		ok, err := passAll(filtersOf(p.structs("Filter"), "Value", true), map[string][]string{"launch-template-name": {t.Name}, "create-time": {stamp(t.Created)}}, t.Tags)
		if err != nil {
			return nil, err
		}
		if ok {
			kept = append(kept, templateXML(t))
		}
	}
	kept, token, err := page(kept, size, p.get("NextToken"))
	if err != nil {
		return nil, err
	}
	return struct {
		Templates []xmlTemplate `xml:"launchTemplates>item"`
		NextToken string        `xml:"nextToken,omitempty"`
	}{kept, token}, nil
}

// passAll evaluates filters that must all hold.
func passAll(filters []filter, fields map[string][]string, tags map[string]string) (bool, error) {
	for _, f := range filters {
		if ok, err := passes(f, fields, tags); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// describedVersions are the versions that a call names: of one template those it lists or all, of all templates
// the latest or the default ones.
func (e *EC2) describedVersions(p params) ([]xmlVersion, error) {
	wanted := p.list("LaunchTemplateVersion")
	if p.get("LaunchTemplateId") == "" && p.get("LaunchTemplateName") == "" {
		return e.everyVersion(wanted)
	}
	t, err := e.named(p)
	if err != nil {
		return nil, err
	}
	lowest, err := p.integer("MinVersion", 0)
	if err != nil {
		return nil, err
	}
	highest, err := p.integer("MaxVersion", t.last)
	if err != nil {
		return nil, err
	}
	if len(wanted) > 0 && (p.has("MinVersion") || p.has("MaxVersion")) {
		return nil, refuse("InvalidParameterCombination", "The parameter launchTemplateVersions cannot be used with minVersion or maxVersion.")
	}
	var list []xmlVersion
	for _, text := range wanted {
		v, err := t.version(text)
		if err != nil {
			return nil, err
		}
		list = append(list, versionXML(t, v))
	}
	for _, v := range slices.Backward(t.Versions) {
		if len(wanted) == 0 && v.Number >= lowest && v.Number <= highest {
			list = append(list, versionXML(t, v))
		}
	}
	return list, nil
}

func (e *EC2) everyVersion(wanted []string) ([]xmlVersion, error) {
	if len(wanted) == 0 {
		return nil, refuse("MissingParameter", "The request must contain the parameter LaunchTemplateId, LaunchTemplateName or LaunchTemplateVersion")
	}
	for _, text := range wanted {
		if text != versionLatest && text != versionDefault {
			return nil, refuse("InvalidParameterValue", "Without a launch template, the versions can only be $Latest and $Default; '%s' is neither.", text)
		}
	}
	var list []xmlVersion
	for _, t := range e.templates {
		for _, text := range wanted {
			v, err := t.version(text)
			if err != nil {
				return nil, err
			}
			list = append(list, versionXML(t, v))
		}
	}
	return list, nil
}

func (e *EC2) describeVersions(p params) (any, error) {
	size, err := p.integer("MaxResults", 200)
	if err != nil {
		return nil, err
	}
	if size < 1 || size > 200 {
		return nil, refuse("InvalidParameterValue", "Value ( %d ) for parameter maxResults is invalid. Expecting a value between 1 and 200.", size)
	}
	resolve, err := p.flag("ResolveAlias", false)
	if err != nil {
		return nil, err
	}
	list, err := e.describedVersions(p)
	if err != nil {
		return nil, err
	}
	var kept []xmlVersion
	for _, v := range list {
		if resolve {
			if v.Data.Image, err = e.image(v.Data.Image); err != nil {
				return nil, err
			}
		}
		ok, err := passAll(filtersOf(p.structs("Filter"), "Value", true), v.fields(), nil)
		if err != nil {
			return nil, err
		}
		if ok {
			kept = append(kept, v)
		}
	}
	kept, token, err := page(kept, size, p.get("NextToken"))
	if err != nil {
		return nil, err
	}
	return struct {
		Versions  []xmlVersion `xml:"launchTemplateVersionSet>item"`
		NextToken string       `xml:"nextToken,omitempty"`
	}{kept, token}, nil
}

// fields are what filters of versions can ask for.
func (v xmlVersion) fields() map[string][]string {
	fields := map[string][]string{
		"create-time": {v.Created}, "image-id": {v.Data.Image}, "instance-type": {v.Data.Type}, "is-default-version": {strconv.FormatBool(v.Default)},
		"ebs-optimized": {""}, "http-tokens": {""}, "http-endpoint": {""}, "iam-instance-profile": {""},
	}
	if m := v.Data.Metadata; m != nil {
		fields["http-tokens"], fields["http-endpoint"] = []string{m.Tokens}, []string{m.Endpoint}
	}
	if v.Data.Profile != nil {
		fields["iam-instance-profile"] = []string{v.Data.Profile.ARN}
	}
	if v.Data.Optimized != nil {
		fields["ebs-optimized"] = []string{strconv.FormatBool(*v.Data.Optimized)}
	}
	return fields
}
