package awsfake

import (
	"strconv"
	"strings"
)

func (m *Images) imageARN(id string) string { return "arn:aws:ec2:" + m.region + "::image/" + id }

func (m *Images) snapshotARN(id string) string { return "arn:aws:ec2:" + m.region + "::snapshot/" + id }

// needs of EC2's calls about images and snapshots: describe calls take no resource. What is made or used is a
// resource of its own, so that RegisterImage takes the permission on the image and on each snapshot.
func (e computing) needs(c *call) []need {
	images := e.account.place(c.Region).images
	known, ok := images.calls()[c.Action]
	if !ok && (c.Action == "CreateTags" || c.Action == "DeleteTags") {
		return append(images.tagNeeds(c), e.tagged(c)...)
	}
	if !ok {
		return e.EC2.needs(c)
	}
	action := "ec2:" + c.Action
	if strings.HasPrefix(c.Action, "Describe") && !strings.HasSuffix(c.Action, "Attribute") {
		return []need{{action: action, arn: "*"}}
	}
	return known.needs(images, c, action)
}

// tagged is what the rest of a call about tags needs.
func (e computing) tagged(c *call) []need {
	var needs []need
	for _, n := range e.EC2.needs(c) {
		id := n.arn[strings.LastIndexByte(n.arn, '/')+1:]
		if !shelved.MatchString(id) && n.arn != "*" {
			needs = append(needs, n)
		}
	}
	return needs
}

func (m *Images) tagNeeds(c *call) []need {
	var needs []need
	for _, id := range params(c.Form).list("ResourceId") {
		if shelved.MatchString(id) {
			needs = append(needs, m.need("ec2:"+c.Action, id))
		}
	}
	return needs
}

// need is the permission of an action on an image or snapshot that there is, or may be.
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
	for _, field := range []string{"ImageId", "SnapshotId"} {
		if id := p.get(field); id != "" {
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
	case "CopySnapshot":
		needs = append(needs, need{action: action, arn: m.snapshotARN("*")})
	case "DeregisterImage":
		if i, ok := m.image(p.get("ImageId")); ok && p.get("DeleteAssociatedSnapshots") == "true" {
			for _, d := range i.Disks {
				needs = append(needs, m.need("ec2:DeleteSnapshot", d.Snapshot))
			}
		}
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
	var needs []need
	for _, id := range []string{c.pathPart(at), c.Query.Get("firstSnapshotId")} {
		if id == "" {
			continue
		}
		n := d.need(action, id)
		needs = append(needs, n)
		if s, _ := d.snapshot(id); s.Key != "" && s.Key != d.defaultKey() && c.Action != "CompleteSnapshot" {
			needs = append(needs, d.keyNeed("kms:Decrypt", s.Key))
		}
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
