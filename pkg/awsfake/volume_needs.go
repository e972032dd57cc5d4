package awsfake

import (
	"maps"
	"strconv"
	"strings"
)

func volumeARN(id string) string {
	return "arn:aws:ec2:" + HomeRegion + ":" + owner + ":volume/" + id
}

// volumeNeeds are the permissions of the calls about volumes (Service Authorization Reference, "Actions, resources, and
// condition keys for Amazon EC2"): AttachVolume and DetachVolume are about the volume and the instance, and each must be
// allowed by a statement whose conditions hold for that resource's own tags. ok is false for other calls.
func (e *EC2) volumeNeeds(c *call, action string, p params) (needs []need, ok bool) {
	if _, ok := e.volumeCalls()[c.Action]; !ok || strings.HasPrefix(c.Action, "Describe") {
		return nil, false
	}
	if c.Action == "CreateVolume" {
		return e.createNeeds(action, p), true
	}
	v, exists := e.volume(p.get("VolumeId"))
	n := need{action: action, arn: volumeARN(p.get("VolumeId"))}
	if exists {
		n.context = volumeContext(v)
	}
	needs = append(needs, n)
	if id := p.get("InstanceId"); id != "" || c.Action == "DetachVolume" {
		if id == "" {
			id = v.Attachment.Instance
		}
		needs = append(needs, e.machineNeed(action, id))
	}
	if c.Action == "AttachVolume" {
		needs = append(needs, e.grantNeeds(v.Key)...)
	}
	return needs, true
}

func (e *EC2) machineNeed(action, id string) need {
	n := need{action: action, arn: machineARN(id)}
	if m, ok := e.machine(id); ok {
		n.context = machineContext(m)
	}
	return n
}

// volumeContext are a volume's condition keys.
func volumeContext(v Volume) map[string][]string {
	context := tagContext("ec2", v.Tags)
	maps.Copy(context, map[string][]string{
		"ec2:VolumeID": {v.ID}, "ec2:AvailabilityZone": {v.Zone}, "ec2:Encrypted": {strconv.FormatBool(v.Key != "")},
		"ec2:VolumeSize": {strconv.Itoa(v.Size)}, "ec2:VolumeType": {v.Type}, "ec2:VolumeIops": {strconv.Itoa(v.IOPS)}, "ec2:VolumeThroughput": {strconv.Itoa(v.Throughput)},
	})
	return context
}

// createNeeds are those of CreateVolume: the new volume with the request's tags, and ec2:CreateTags where there are any.
func (e *EC2) createNeeds(action string, p params) []need {
	v, _, err := e.newVolume(p)
	if err != nil {
		return []need{{action: action, arn: volumeARN("*")}} // serve refuses what is not valid
	}
	var requested []params
	for _, spec := range p.structs("TagSpecification") {
		requested = append(requested, spec.structs("Tag")...)
	}
	made := Volume{Zone: v.Zone, VolumeSettings: v.VolumeSettings, Key: v.Key}
	context := volumeContext(made)
	delete(context, "ec2:VolumeID")
	if v.Key != "" {
		context["ec2:KmsKeyId"] = []string{v.Key}
	}
	maps.Copy(context, requestContext(requested))
	needs := []need{{action: action, arn: volumeARN("*"), context: context}}
	if len(requested) > 0 {
		context = requestContext(requested)
		context["ec2:CreateAction"] = []string{"CreateVolume"}
		needs = append(needs, need{action: "ec2:CreateTags", arn: volumeARN("*"), context: context})
	}
	if v.Key != "" && v.Key != e.account.Images().defaultKey() {
		needs = append(needs, need{action: "kms:GenerateDataKeyWithoutPlaintext", arn: v.Key, context: viaEC2()})
	}
	return needs
}

// grantNeeds are the permissions on a key of one's own that attaching a volume takes: EC2 makes a grant for the machine
// on the caller's behalf (EBS User Guide, "Permissions for KMS keys"; the key's state is checked asynchronously by AWS, and
// at once here). aws/ebs allows everybody in the account who comes through EC2.
func (e *EC2) grantNeeds(key string) []need {
	if key == "" || key == e.account.Images().defaultKey() {
		return nil
	}
	context := viaEC2()
	context["kms:GrantIsForAWSResource"] = []string{"true"}
	return []need{{action: "kms:CreateGrant", arn: key, context: context}, {action: "kms:Decrypt", arn: key, context: viaEC2()}}
}

// viaEC2 are the condition keys of a call that EC2 makes to KMS for its caller.
func viaEC2() map[string][]string {
	return map[string][]string{"kms:ViaService": {"ec2." + HomeRegion + ".amazonaws.com"}, "kms:CallerAccount": {owner}, "kms:EncryptionAlgorithm": {"SYMMETRIC_DEFAULT"}}
}
