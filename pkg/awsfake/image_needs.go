package awsfake

import (
	"strconv"
	"strings"
)

func (m *Images) imageARN(id string) string { return "arn:aws:ec2:" + m.region + "::image/" + id }

func (m *Images) snapshotARN(id string) string { return "arn:aws:ec2:" + m.region + "::snapshot/" + id }

// needs of EC2's calls about images and snapshots: describe calls name no resource. RegisterImage requires the
// permission on the new image and on each snapshot.
func (e computing) needs(c *call) []need {
	images := e.account.place(c.Region).images
	known, ok := images.calls()[c.Action]
	if !ok {
		return e.EC2.needs(c)
	}
	action := "ec2:" + c.Action
	if strings.HasPrefix(c.Action, "Describe") && !strings.HasSuffix(c.Action, "Attribute") {
		return []need{{action: action, arn: "*"}}
	}
	return known.needs(images, c, action)
}

// need returns the permission for an action on an image or snapshot, whether or not it exists.
func (m *Images) need(action, id string) need {
	if strings.HasPrefix(id, "snap-") {
		s, _ := m.snapshot(id)
		return need{action: action, arn: m.snapshotARN(id), context: tagContext("ec2", s.Tags)}
	}
	i, _ := m.image(id)
	return need{action: action, arn: m.imageARN(id), context: tagContext("ec2", i.Tags)}
}

// needs of a call that names an image or a snapshot, or makes one.
func (known imageCall) needs(m *Images, c *call, action string) []need {
	p := params(c.Form)
	var needs []need
	for _, id := range append(p.list("ResourceId"), p.get("ImageId"), p.get("SnapshotId")) {
		if id != "" {
			needs = append(needs, m.need(action, id))
		}
	}
	switch c.Action {
	case "RegisterImage":
		needs = append(needs, need{action: action, arn: m.imageARN("*")})
		for _, mapping := range p.structs("BlockDeviceMapping") {
			if id := mapping.get("Ebs.SnapshotId"); id != "" {
				needs = append(needs, m.need(action, id))
			}
		}
	case "CopyImage":
		needs = append(needs, need{action: action, arn: m.imageARN("*")})
	}
	for _, spec := range p.structs("TagSpecification") {
		context := map[string][]string{"ec2:CreateAction": {c.Action}}
		for _, tag := range spec.structs("Tag") {
			context["aws:RequestTag/"+tag.get("Key")] = []string{tag.get("Value")}
		}
		arn := m.imageARN("*")
		if spec.get("ResourceType") == "snapshot" {
			arn = m.snapshotARN("*")
		}
		needs = append(needs, need{action: "ec2:CreateTags", arn: arn, context: context})
	}
	return needs
}

// needs of the EBS direct APIs: the snapshot, and for a key of one's own the permission to use it ("Permissions for
// EBS direct APIs", "Permissions to use AWS KMS keys").
func (d directAPI) needs(c *call) []need {
	action := "ebs:" + c.Action
	if c.Action == "StartSnapshot" {
		return d.startNeeds(c, action)
	}
	at := 1
	if c.Action == "CompleteSnapshot" {
		at = 2
	}
	needs := []need{d.need(action, c.pathPart(at))}
	if s, _ := d.snapshot(c.pathPart(at)); s.Key != "" && s.Key != d.defaultKey() && c.Action != "CompleteSnapshot" {
		needs = append(needs, d.keyNeed("kms:Decrypt", s.Key))
	}
	return needs
}

func (d directAPI) startNeeds(c *call, action string) []need {
	in := startInput{}
	if err := decode(c.Body, &in); err != nil {
		return []need{{action: action, arn: d.snapshotARN("*")}} // serve refuses what cannot be read
	}
	context := map[string][]string{"ebs:VolumeSize": {strconv.Itoa(in.VolumeSize)}, "ebs:Description": {in.Description}}
	if in.ParentSnapshotId != "" {
		context["ebs:ParentSnapshot"] = []string{d.snapshotARN(in.ParentSnapshotId)}
	}
	for _, tag := range in.Tags {
		context["aws:RequestTag/"+tag.Key] = []string{tag.Value}
	}
	needs := []need{{action: action, arn: d.snapshotARN("*"), context: context}}
	if len(in.Tags) > 0 {
		needs = append(needs, need{action: "ec2:CreateTags", arn: d.snapshotARN("*"), context: context})
	}
	key := in.KmsKeyArn
	if in.ParentSnapshotId != "" {
		parent, _ := d.snapshot(in.ParentSnapshotId)
		key = parent.Key
	}
	if key != "" && key != d.defaultKey() {
		needs = append(needs, d.keyNeed("kms:GenerateDataKeyWithoutPlaintext", key))
	}
	return needs
}

func (d directAPI) keyNeed(action, arn string) need {
	return need{action: action, arn: arn, refusal: &Error{
		Status: 403, Code: "AccessDeniedException", Reason: "DEPENDENCY_ACCESS_DENIED", Message: "You are not allowed to use the KMS key of the snapshot.",
	}}
}
