package awsfake

import (
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// imageCall is a call of EC2's about images and snapshots, and the parameters that it takes: what is not modelled
// is refused. A name ends before its first dot.
type imageCall struct {
	do     func(*call) (any, error)
	params []string
}

func (m *Images) calls() map[string]imageCall {
	return map[string]imageCall{
		"RegisterImage": {m.register, []string{
			"Name", "Description", "Architecture", "BootMode", "ImdsSupport", "TpmSupport", "EnaSupport", "SriovNetSupport", "VirtualizationType",
			"RootDeviceName", "BlockDeviceMapping", "TagSpecification"}},
		"DeregisterImage":   {m.deregister, []string{"ImageId", "DeleteAssociatedSnapshots"}},
		"DescribeImages":    {m.describeImages, []string{"ImageId", "Owner", "ExecutableBy", "Filter", "IncludeDeprecated", "IncludeDisabled", "MaxResults", "NextToken"}},
		"DescribeSnapshots": {m.describeSnapshots, []string{"SnapshotId", "Owner", "RestorableBy", "Filter", "MaxResults", "NextToken"}},
		"DeleteSnapshot":    {m.deleteSnapshotCall, []string{"SnapshotId"}},
		"CopyImage": {m.copyImage, []string{
			"Name", "Description", "SourceImageId", "SourceRegion", "ClientToken", "Encrypted", "KmsKeyId", "CopyImageTags", "TagSpecification"}},
		"CopySnapshot": {m.copySnapshot, []string{
			"Description", "SourceRegion", "SourceSnapshotId", "DestinationRegion", "PresignedUrl", "Encrypted", "KmsKeyId", "TagSpecification"}},
		"ModifyImageAttribute": {m.modifyImage, []string{
			"ImageId", "Attribute", "Value", "Description", "ImdsSupport", "LaunchPermission", "OperationType", "UserId", "UserGroup", "OrganizationArn", "OrganizationalUnitArn"}},
		"DescribeImageAttribute": {m.describeImage, []string{"ImageId", "Attribute"}},
		"ResetImageAttribute":    {m.resetImage, []string{"ImageId", "Attribute"}},
		"ModifySnapshotAttribute": {m.modifySnapshot, []string{
			"SnapshotId", "Attribute", "CreateVolumePermission", "OperationType", "UserId", "UserGroup"}},
		"DescribeSnapshotAttribute": {m.describeSnapshot, []string{"SnapshotId", "Attribute"}},
	}
}

// computing is EC2: machines and volumes in the home region, images and snapshots in each.
type computing struct{ *EC2 }

func (e computing) serve(c *call) (any, error) {
	images := e.account.place(c.Region).images
	if known, ok := images.calls()[c.Action]; ok {
		return known.serve(c)
	}
	if c.Action == "CreateTags" || c.Action == "DeleteTags" {
		rest, err := images.changeTags(c, c.Action == "CreateTags")
		if err != nil || rest == nil {
			return xmlReturn{true}, err
		}
		return e.changeTags(rest, c.Action == "CreateTags")
	}
	return e.EC2.serve(c)
}

func (known imageCall) serve(c *call) (any, error) {
	for name := range c.Form {
		plain, _, _ := strings.Cut(name, ".")
		if !slices.Contains(known.params, plain) && !slices.Contains([]string{"Action", "Version", "DryRun"}, plain) {
			return nil, refuse("UnknownParameter", "The parameter %s is not recognized (or awsfake does not model it)", name)
		}
	}
	dry, err := params(c.Form).flag("DryRun", false)
	if err != nil {
		return nil, err
	}
	if dry {
		return nil, &Error{Status: http.StatusPreconditionFailed, Code: "DryRunOperation", Message: "Request would have succeeded, but DryRun flag is set."}
	}
	return known.do(c)
}

var shelved = regexp.MustCompile(`^(ami|snap)-`)

// changeTags carries out the part of CreateTags and DeleteTags that is about images and snapshots, and returns the
// call for the rest; nil, where nothing is left. A call that is refused changes nothing.
func (m *Images) changeTags(c *call, set bool) (rest params, err error) {
	p := params(c.Form)
	ids := p.list("ResourceId")
	mine := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !shelved.MatchString(id) })
	changed := map[string]map[string]string{}
	for _, id := range mine {
		tags, err := m.tagsBy(id)
		if err != nil {
			return nil, err
		}
		for _, tag := range p.structs("Tag") {
			if !set && (!tag.has("Value") || tags[tag.get("Key")] == tag.get("Value")) {
				delete(tags, tag.get("Key"))
			} else if set {
				tags[tag.get("Key")] = tag.get("Value")
			}
		}
		if err := checkTags(tags); err != nil {
			return nil, err
		}
		changed[id] = tags
	}
	for id, tags := range changed {
		m.changeImage(id, func(i *Image) { i.Tags = tags })
		m.change(id, func(s *Snapshot) { s.Tags = tags })
	}
	if len(mine) == len(ids) && len(ids) > 0 {
		return nil, nil
	}
	rest = params(url.Values{})
	n := 0
	for name, values := range p {
		if !strings.HasPrefix(name, "ResourceId.") {
			rest[name] = values
		}
	}
	for _, id := range ids {
		if !shelved.MatchString(id) {
			n++
			rest["ResourceId."+strconv.Itoa(n)] = []string{id}
		}
	}
	return rest, nil
}

// tagsBy are the tags of an image or snapshot, to be changed.
func (m *Images) tagsBy(id string) (tags map[string]string, err error) {
	if strings.HasPrefix(id, "ami-") {
		i, err := m.own(id)
		tags = maps.Clone(i.Tags)
		if err != nil {
			return nil, err
		}
	} else {
		s, err := m.ownSnapshot(id)
		tags = maps.Clone(s.Tags)
		if err != nil {
			return nil, err
		}
	}
	if tags == nil {
		tags = map[string]string{}
	}
	return tags, nil
}
