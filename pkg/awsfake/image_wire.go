package awsfake

import (
	"maps"
	"slices"
	"strings"
)

// imageCall is an EC2 call about images and snapshots, and the parameters it accepts; others are refused. A name ends
// before its first dot.
type imageCall struct {
	do     func(*call) (any, error)
	params []string
}

func (m *Images) calls() map[string]imageCall {
	return map[string]imageCall{
		"RegisterImage": {m.register, []string{
			"Name", "Description", "Architecture", "BootMode", "ImdsSupport", "TpmSupport", "UefiData", "EnaSupport", "VirtualizationType", "RootDeviceName", "BlockDeviceMapping", "TagSpecification"}},
		"DeregisterImage":   {m.deregister, []string{"ImageId"}},
		"DisableImage":      {m.disableImage, []string{"ImageId"}},
		"EnableImage":       {m.enableImage, []string{"ImageId"}},
		"DescribeImages":    {m.describeImages, []string{"ImageId", "Owner", "Filter", "IncludeDeprecated", "IncludeDisabled", "MaxResults", "NextToken"}},
		"DescribeSnapshots": {m.describeSnapshots, []string{"SnapshotId", "Owner", "Filter", "MaxResults", "NextToken"}},
		"DeleteSnapshot":    {m.deleteSnapshotCall, []string{"SnapshotId"}},
		"CopyImage": {m.copyImage, []string{
			"Name", "Description", "SourceImageId", "SourceRegion", "ClientToken", "Encrypted", "KmsKeyId", "TagSpecification"}},
		"ModifyImageAttribute":   {m.modifyImage, []string{"ImageId", "LaunchPermission"}},
		"DescribeImageAttribute": {m.describeImage, []string{"ImageId", "Attribute"}},
		"CreateTags":             {m.createTags, []string{"ResourceId", "Tag"}},
		"DeleteTags":             {m.deleteTags, []string{"ResourceId", "Tag"}},
	}
}

// computing is EC2: machines and volumes in the home region, images and snapshots in each.
type computing struct{ *EC2 }

func (e computing) serve(c *call) (any, error) {
	images := e.account.place(c.Region).images
	if known, ok := images.calls()[c.Action]; ok {
		return known.serve(c)
	}
	return e.EC2.serve(c)
}

func (known imageCall) serve(c *call) (any, error) {
	for name := range c.Form {
		plain, _, _ := strings.Cut(name, ".")
		if !slices.Contains(known.params, plain) && plain != "Action" && plain != "Version" {
			return nil, refuse("UnknownParameter", "The parameter %s is not recognized (or awsfake does not model it)", name)
		}
	}
	return known.do(c)
}

// taggable returns the images, snapshots and volumes of a call that changes tags, all of which must exist.
func (m *Images) taggable(p params) ([]string, error) {
	ids := p.list("ResourceId")
	for _, id := range ids {
		var err error
		switch kind, _, _ := strings.Cut(id, "-"); kind {
		case "snap":
			_, err = m.ownSnapshot(id)
		case "vol":
			if _, ok := m.account.regional.ec2.volume(id); !ok {
				err = noVolume(id)
			}
		default:
			_, err = m.own(id)
		}
		if err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// createTags gives images, snapshots and volumes tags, in the place of those with the same keys.
func (m *Images) createTags(c *call) (any, error) {
	p := params(c.Form)
	ids, err := m.taggable(p)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		for _, tag := range p.structs("Tag") {
			put := func(tags map[string]string) map[string]string {
				if tags == nil {
					tags = map[string]string{}
				}
				tags[tag.get("Key")] = tag.get("Value")
				return tags
			}
			m.changeImage(id, func(i *Image) { i.Tags = put(i.Tags) })
			m.change(id, func(s *Snapshot) { s.Tags = put(s.Tags) })
			m.account.regional.ec2.changeVolume(id, func(v *Volume) { v.Tags = put(v.Tags) })
		}
	}
	return xmlReturn{true}, nil
}

// deleteTags takes tags from images, snapshots and volumes: all of a key, or those with a value. A call that is refused changes
// nothing.
func (m *Images) deleteTags(c *call) (any, error) {
	p := params(c.Form)
	ids, err := m.taggable(p)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		for _, tag := range p.structs("Tag") {
			gone := func(key, value string) bool {
				return key == tag.get("Key") && (!tag.has("Value") || value == tag.get("Value"))
			}
			m.changeImage(id, func(i *Image) { maps.DeleteFunc(i.Tags, gone) })
			m.change(id, func(s *Snapshot) { maps.DeleteFunc(s.Tags, gone) })
			m.account.regional.ec2.changeVolume(id, func(v *Volume) { maps.DeleteFunc(v.Tags, gone) })
		}
	}
	return xmlReturn{true}, nil
}
