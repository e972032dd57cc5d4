package awsfake

import "slices"

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
	if err := data.check(); err != nil {
		return nil, err
	}
	return struct {
		Version xmlVersion `xml:"launchTemplateVersion"`
	}{versionXML(t, t.add(p.get("VersionDescription"), data, e.now()))}, nil
}

func (e *EC2) describeTemplates(p params) (any, error) {
	size, err := p.integer("MaxResults", 200)
	if err != nil {
		return nil, err
	}
	var list []xmlTemplate
	for _, t := range e.templates {
		list = append(list, templateXML(t))
	}
	list, token, err := page(list, size, p.get("NextToken"))
	if err != nil {
		return nil, err
	}
	return struct {
		Templates []xmlTemplate `xml:"launchTemplates>item"`
		NextToken string        `xml:"nextToken,omitempty"`
	}{list, token}, nil
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

// describeVersions lists the versions of one template: those that the call names, or all, the newest first.
func (e *EC2) describeVersions(p params) (any, error) {
	size, err := p.integer("MaxResults", 200)
	if err != nil {
		return nil, err
	}
	if size < 1 || size > 200 {
		return nil, refuse("InvalidParameterValue", "Value ( %d ) for parameter maxResults is invalid. Expecting a value between 1 and 200.", size)
	}
	t, err := e.named(p)
	if err != nil {
		return nil, err
	}
	wanted := p.list("LaunchTemplateVersion")
	var list []xmlVersion
	for _, text := range wanted {
		v, err := t.version(text)
		if err != nil {
			return nil, err
		}
		list = append(list, versionXML(t, v))
	}
	if len(wanted) == 0 {
		for _, v := range slices.Backward(t.Versions) {
			list = append(list, versionXML(t, v))
		}
	}
	list, token, err := page(list, size, p.get("NextToken"))
	if err != nil {
		return nil, err
	}
	return struct {
		Versions  []xmlVersion `xml:"launchTemplateVersionSet>item"`
		NextToken string       `xml:"nextToken,omitempty"`
	}{list, token}, nil
}
