package awsfake

import (
	"cmp"
	"maps"
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
	needs := []need{{action: action, arn: "*"}}
	if !strings.HasPrefix(c.Action, "Describe") || strings.HasSuffix(c.Action, "Attribute") {
		needs = known.needs(images, c, action)
	}
	for i := range needs {
		needs[i] = inRegion(needs[i], c.Region)
	}
	return needs
}

// need returns the permission for an action on an image, snapshot or volume, whether or not it exists. requested are the
// tags of the request.
func (m *Images) need(action, id string, requested []params) need {
	if strings.HasPrefix(id, "vol-") {
		v, _ := m.account.regional.ec2.volume(id)
		context := volumeContext(v)
		maps.Copy(context, requestContext(requested))
		return need{action: action, arn: volumeARN(id), context: context}
	}
	var n need
	switch kind, _, _ := strings.Cut(id, "-"); kind {
	case "snap":
		n = m.snapshotNeed(id)
	case "i":
		n = m.account.regional.ec2.machineNeed(action, id)
	case "lt":
		n = m.account.regional.ec2.templateNeed(action, params{"LaunchTemplateId": {id}})
	default:
		i, _ := m.image(id)
		n = need{arn: m.imageARN(cmp.Or(id, "*")), context: tagContext("ec2", i.Tags)}
		maps.Copy(n.context, map[string][]string{
			"ec2:ImageID": {id}, "ec2:Owner": {owner}, "ec2:ImageType": {"machine"}, "ec2:Public": {"false"}, "ec2:RootDeviceType": {"ebs"}})
	}
	if n.context == nil {
		n.context = map[string][]string{}
	}
	n.action = action
	maps.Copy(n.context, requestContext(requested))
	return n
}

func (m *Images) snapshotNeed(id string) need {
	s, _ := m.snapshot(id)
	n := need{arn: m.snapshotARN(id), context: tagContext("ec2", s.Tags)}
	maps.Copy(n.context, map[string][]string{
		"ec2:SnapshotID": {id}, "ec2:Owner": {owner}, "ec2:VolumeSize": {strconv.Itoa(s.Size)}, "ec2:SnapshotTime": {stamp(s.Started)}, "ec2:Encrypted": {strconv.FormatBool(s.Key != "")}})
	return n
}

// requestContext are the tags of a request as condition keys.
func requestContext(tags []params) map[string][]string {
	context := map[string][]string{}
	for _, tag := range tags {
		context["aws:RequestTag/"+tag.get("Key")] = []string{tag.get("Value")}
		context["aws:TagKeys"] = append(context["aws:TagKeys"], tag.get("Key"))
	}
	return context
}

// needs of a call that names an image or a snapshot, or makes one. What does not exist yet is "image/*" and
// "snapshot/*", as in EC2's own refusals. CopyImage needs the permission on its source too ("Grant permissions to copy
// Amazon EC2 AMIs", since October 2024), which may be in another region. ec2:CreateAction is only there where a call
// that makes something also tags it: CreateTags alone has the tags of the request like those, but not that key.
func (known imageCall) needs(m *Images, c *call, action string) []need {
	p := params(c.Form)
	var needs []need
	for _, id := range append(p.list("ResourceId"), p.get("ImageId"), p.get("SnapshotId")) {
		if id != "" {
			needs = append(needs, m.need(action, id, p.structs("Tag")))
		}
	}
	requested := map[string][]params{}
	for _, spec := range p.structs("TagSpecification") {
		requested[spec.get("ResourceType")] = append(requested[spec.get("ResourceType")], spec.structs("Tag")...)
	}
	fresh := func(arn, kind string) {
		context := requestContext(requested[kind])
		context["ec2:Owner"] = []string{owner}
		needs = append(needs, need{action: action, arn: arn, context: context})
	}
	switch c.Action {
	case "RegisterImage":
		fresh(m.imageARN("*"), "image")
		for _, mapping := range p.structs("BlockDeviceMapping") {
			if id := mapping.get("Ebs.SnapshotId"); id != "" {
				needs = append(needs, m.need(action, id, nil))
			}
		}
	case "CopyImage":
		fresh(m.imageARN("*"), "image")
		fresh(m.snapshotARN("*"), "snapshot")
		if there, err := m.from(p.get("SourceRegion")); err == nil {
			needs = append(needs, there.need(action, p.get("SourceImageId"), nil))
		}
	}
	for _, kind := range sortedKeys(requested) {
		context := requestContext(requested[kind])
		context["ec2:CreateAction"] = []string{c.Action}
		arn := m.imageARN("*")
		if kind == "snapshot" {
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
	needs := []need{d.need(action, c.pathPart(at), nil)}
	if s, _ := d.snapshot(c.pathPart(at)); s.Key != "" && s.Key != d.defaultKey() && c.Action != "CompleteSnapshot" {
		needs = append(needs, d.keyNeed("kms:Decrypt", s.Key))
	}
	return needs
}

// startNeeds are those of StartSnapshot. The Service Authorization Reference lists ec2:CreateTags beside it and no
// ec2:CreateAction, and no permission on the parent: here there are neither.
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
		context["aws:TagKeys"] = append(context["aws:TagKeys"], tag.Key)
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
		needs = append(needs, d.keyNeed("kms:GenerateDataKeyWithoutPlaintext", key), d.keyNeed("kms:Encrypt", key))
	}
	return needs
}

func (d directAPI) keyNeed(action, arn string) need {
	context := map[string][]string{"kms:CallerAccount": {owner}, "kms:EncryptionAlgorithm": {"SYMMETRIC_DEFAULT"}}
	return need{action: action, arn: arn, context: context, refusal: &Error{
		Status: 403, Code: "AccessDeniedException", Reason: "DEPENDENCY_ACCESS_DENIED", Message: "You are not allowed to use the KMS key of the snapshot.",
	}}
}
