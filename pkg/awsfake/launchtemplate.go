package awsfake

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The words that stand for a version.
const (
	versionLatest  = "$Latest"
	versionDefault = "$Default"
)

// LaunchTemplate is an EC2 launch template. Its versions never change; a number is never used again.
type LaunchTemplate struct {
	ID, Name string
	Default  int
	Versions []LaunchVersion
	Tags     map[string]string
	Created  time.Time
	// last is the highest number given so far.
	last int
}

// LaunchVersion is one version of a launch template.
type LaunchVersion struct {
	Number      int
	Description string
	Data        LaunchData
	Created     time.Time
}

// LaunchRef refers to a version of a launch template: by the template's ID or name, and a number, $Latest or $Default;
// an empty Version is $Default.
type LaunchRef struct{ ID, Name, Version string }

var templateName = regexp.MustCompile(`^[a-zA-Z0-9().\-/_]{3,128}$`)

func (e *EC2) createTemplate(name, description string, data LaunchData, tags map[string]string) (*LaunchTemplate, error) {
	switch {
	case !templateName.MatchString(name):
		return nil, refuse("InvalidLaunchTemplateName.MalformedException", "A launch template name must be between 3 and 128 characters, and may contain letters, numbers, and the following characters: - ( ) . / _.")
	case slices.ContainsFunc(e.templates, func(t *LaunchTemplate) bool { return t.Name == name }):
		return nil, refuse("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.")
	}
	if err := data.check(); err != nil {
		return nil, err
	}
	e.serial++
	t := &LaunchTemplate{ID: "lt-" + hexID("launch template", e.serial, 17), Name: name, Default: 1, Tags: maps.Clone(tags), Created: e.now()}
	t.add(description, data, e.now())
	e.templates = append(e.templates, t)
	return t, nil
}

func (t *LaunchTemplate) add(description string, data LaunchData, now time.Time) LaunchVersion {
	t.last++
	v := LaunchVersion{Number: t.last, Description: description, Data: data, Created: now}
	t.Versions = append(t.Versions, v)
	return v
}

// template finds a launch template by its id or its name; exactly one of them must be given.
func (e *EC2) template(id, name string) (*LaunchTemplate, error) {
	switch {
	case id == "" && name == "":
		return nil, refuse("MissingParameter", "Either a launch template ID or a launch template name must be specified in the request.")
	case id != "" && name != "":
		return nil, refuse("InvalidParameterCombination", "Only one of the following parameters can be specified: launchTemplateId, launchTemplateName.")
	}
	for _, t := range e.templates {
		if t.ID == id || name != "" && t.Name == name {
			return t, nil
		}
	}
	switch {
	case name != "":
		return nil, refuse("InvalidLaunchTemplateName.NotFoundException", "The specified launch template, with template name %s, does not exist.", name)
	case !strings.HasPrefix(id, "lt-"):
		return nil, refuse("InvalidLaunchTemplateId.Malformed", "Invalid id: \"%s\" (expecting \"lt-...\")", id)
	}
	return nil, refuse("InvalidLaunchTemplateId.NotFound", "The specified launch template, with template ID %s, does not exist.", id)
}

// version finds a version by its number, $Latest, $Default or nothing, which is the default.
func (t *LaunchTemplate) version(text string) (LaunchVersion, error) {
	number := t.Default
	switch text {
	case "", versionDefault:
	case versionLatest:
		number = t.Versions[len(t.Versions)-1].Number
	default:
		n, err := strconv.Atoi(text)
		if err != nil {
			return LaunchVersion{}, refuse("InvalidLaunchTemplateId.Malformed", "Launch template version '%s' is malformed: it is a number, $Latest or $Default.", text)
		}
		number = n
	}
	k := slices.IndexFunc(t.Versions, func(v LaunchVersion) bool { return v.Number == number })
	if k < 0 {
		return LaunchVersion{}, refuse("InvalidLaunchTemplateId.VersionNotFound", "Could not find the specified version %s for the launch template with ID %s.", text, t.ID)
	}
	return t.Versions[k], nil
}

// resolved returns the template and version that a reference means now.
func (e *EC2) resolved(ref LaunchRef) (*LaunchTemplate, LaunchVersion, error) {
	t, err := e.template(ref.ID, ref.Name)
	if err != nil {
		return nil, LaunchVersion{}, err
	}
	v, err := t.version(ref.Version)
	return t, v, err
}

// dropTemplate deletes a launch template; groups that launch from it cannot launch any more.
func (e *EC2) dropTemplate(t *LaunchTemplate) {
	e.templates = slices.DeleteFunc(e.templates, func(other *LaunchTemplate) bool { return other == t })
}

// image returns the image ID that a launch uses: text itself, or the current value of the parameter that it names
// ("resolve:ssm:/name", with ":3" for a version).
func (e *EC2) image(text string) (string, error) {
	name, alias := strings.CutPrefix(text, "resolve:ssm:")
	if !alias {
		return text, nil
	}
	p, _, err := e.account.regional.ssm.find(name)
	if err != nil {
		return "", refuse("InvalidParameterValue", "Systems Manager parameter %s could not be resolved: it does not exist.", name)
	}
	if !imageID.MatchString(p.Value) || strings.HasPrefix(p.Value, "resolve:") {
		return "", refuse("InvalidAMIID.Malformed", "The Systems Manager parameter %s holds no image id: \"%s\"", name, p.Value)
	}
	return p.Value, nil
}

// canLaunch refuses an image that does not exist or is not available. While the account has no images, every image ID
// is accepted.
func (e *EC2) canLaunch(image string) error {
	images := e.account.Images()
	if len(images.images.order) == 0 && imagePattern.MatchString(image) {
		return nil
	}
	_, err := images.launchable(image)
	return err
}

// planned returns the machine that a version launches in a subnet of a zone, without the tags of a group, or EC2's
// refusal.
func (e *EC2) planned(t *LaunchTemplate, v LaunchVersion, zone, subnet string) (Machine, error) {
	d := v.Data
	m := Machine{Type: d.Type, Zone: zone, Subnet: subnet, Tags: d.tags("instance"), Launch: &d}
	var err error
	if m.Image, err = e.image(d.Image); err != nil {
		return m, err
	}
	switch {
	case m.Image == "":
		return m, refuse("MissingParameter", "The request must contain the parameter ImageId")
	case m.Type == "":
		return m, refuse("MissingParameter", "The request must contain the parameter InstanceType")
	}
	if err := e.canLaunch(m.Image); err != nil {
		return m, err
	}
	for _, id := range d.SecurityGroups {
		if err := e.network.hasGroup(id); err != nil {
			return m, err
		}
	}
	if m.Role, err = e.account.profileRole(d.Profile); err != nil {
		return m, err
	}
	m.UserData = d.rawUserData()
	m.Tags["aws:ec2launchtemplate:id"], m.Tags["aws:ec2launchtemplate:version"] = t.ID, strconv.Itoa(v.Number)
	return m, nil
}

// templateNeed is the permission that a call about a launch template takes.
func (e *EC2) templateNeed(action string, p params) need {
	n := need{action: action, arn: templateARN("*")}
	if t, err := e.named(p); err == nil {
		n.arn, n.context = templateARN(t.ID), tagContext("ec2", t.Tags)
	}
	return n
}

// templateNeeds are the permissions of a call about a launch template: with tags, a new one needs ec2:CreateTags too.
func (e *EC2) templateNeeds(action string, p params) []need {
	if action != "ec2:CreateLaunchTemplate" {
		return []need{e.templateNeed(action, p)}
	}
	var requested []params
	for _, spec := range p.structs("TagSpecification") {
		requested = append(requested, spec.structs("Tag")...)
	}
	needs := []need{{action: action, arn: templateARN("*"), context: requestContext(requested)}}
	if len(requested) > 0 {
		context := requestContext(requested)
		context["ec2:CreateAction"] = []string{"CreateLaunchTemplate"}
		needs = append(needs, need{action: "ec2:CreateTags", arn: templateARN("*"), context: context})
	}
	return needs
}

func templateARN(id string) string {
	return "arn:aws:ec2:" + HomeRegion + ":" + owner + ":launch-template/" + id
}
