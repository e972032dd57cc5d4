package awsfake

import (
	"slices"
	"strconv"
)

type xmlDropped struct {
	ID     string `xml:"launchTemplateId"`
	Name   string `xml:"launchTemplateName"`
	Number int    `xml:"versionNumber"`
}

type xmlKept struct {
	xmlDropped
	Code    string `xml:"responseError>code"`
	Message string `xml:"responseError>message"`
}

// deleteVersionsCall deletes versions of a template, whoever launches from them. The default version stays ("you must first assign a
// different version as the default"), and each version has its own answer (API reference, DeleteLaunchTemplateVersions).
func (e *EC2) deleteVersionsCall(p params) (any, error) {
	wanted := p.list("LaunchTemplateVersion")
	if n := len(wanted); n < 1 || n > 200 {
		return nil, refuse("InvalidParameterValue", "A call deletes 1 to 200 versions of a launch template, not %d", n)
	}
	t, err := e.named(p)
	if err != nil {
		return nil, err
	}
	out := struct {
		Dropped []xmlDropped `xml:"successfullyDeletedLaunchTemplateVersionSet>item"`
		Kept    []xmlKept    `xml:"unsuccessfullyDeletedLaunchTemplateVersionSet>item"`
	}{}
	for _, text := range wanted {
		number, err := strconv.Atoi(text)
		if err != nil {
			return nil, refuse("InvalidParameterValue", "Launch template version '%s' is no number", text)
		}
		x := xmlDropped{t.ID, t.Name, number}
		k := slices.IndexFunc(t.Versions, func(v LaunchVersion) bool { return v.Number == number })
		switch {
		case k < 0:
			out.Kept = append(out.Kept, xmlKept{x, "launchTemplateVersionDoesNotExist", "Could not find the specified version " + text + " for the launch template."})
		case number == t.Default:
			out.Kept = append(out.Kept, xmlKept{x, "unexpectedError", "The default version of a launch template cannot be deleted."})
		default:
			t.Versions = slices.Delete(t.Versions, k, k+1)
			out.Dropped = append(out.Dropped, x)
		}
	}
	return out, nil
}

// setDefaultCall makes a version the default one.
func (e *EC2) setDefaultCall(p params) (any, error) {
	t, err := e.named(p)
	if err != nil {
		return nil, err
	}
	text := p.get("SetDefaultVersion")
	if _, err := strconv.Atoi(text); err != nil {
		return nil, refuse("InvalidLaunchTemplateId.Malformed", "Launch template version '%s' is malformed: it is a number.", text)
	}
	v, err := t.version(text)
	if err != nil {
		return nil, err
	}
	t.Default = v.Number
	return xmlTemplateAnswer{templateXML(t)}, nil
}
