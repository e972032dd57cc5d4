package awsfake

import (
	"encoding/json"
	"slices"
	"strings"
)

// What the calls of each service need is taken from the Service Authorization Reference, "Actions, resources, and
// condition keys" of the service.

func machineARN(id string) string {
	return "arn:aws:ec2:" + homeRegion + ":" + owner + ":instance/" + id
}

// tagContext are a resource's tags as condition keys, by the service's own name and the global one.
func tagContext(service string, tags map[string]string) map[string][]string {
	context := map[string][]string{}
	for key, value := range tags {
		context[service+":ResourceTag/"+key] = []string{value}
		context["aws:ResourceTag/"+key] = []string{value}
	}
	return context
}

// needs of AutoScaling: describe calls take no resource, the others are about a group.
func (s *AutoScaling) needs(c *call) []need {
	action := "autoscaling:" + c.Action
	if strings.HasPrefix(c.Action, "Describe") {
		return []need{{action: action, arn: "*"}}
	}
	p := params(c.Form)
	names := []string{p.get("AutoScalingGroupName")}
	for _, tag := range p.structs("Tags.member") {
		if id := tag.get("ResourceId"); id != "" && !slices.Contains(names, id) && c.Action != "CreateAutoScalingGroup" {
			names = append(names, id)
		}
	}
	if names[0] == "" {
		names = names[1:]
	}
	if g, _, err := s.byID(p.get("InstanceId")); err == nil && len(names) == 0 {
		names = append(names, g.Name)
	}
	if len(names) == 0 {
		names = []string{"*"}
	}
	var needs []need
	for _, name := range names {
		n := need{action: action, arn: "arn:aws:autoscaling:" + homeRegion + ":" + owner + ":autoScalingGroup:*:autoScalingGroupName/" + name}
		if g, ok := s.groups[name]; ok {
			n.arn, n.context = g.arn, tagContext("autoscaling", g.Tags)
		}
		needs = append(needs, n)
	}
	return needs
}

// needs of EC2: describe calls take no resource, the others are about each machine and volume that they name.
func (e *EC2) needs(c *call) []need {
	action := "ec2:" + c.Action
	p := params(c.Form)
	ids := append(p.list("InstanceId"), p.list("ResourceId")...)
	for _, field := range []string{"InstanceId", "VolumeId"} {
		if id := p.get(field); id != "" {
			ids = append(ids, id)
		}
	}
	switch {
	case strings.HasPrefix(c.Action, "Describe"):
		return []need{{action: action, arn: "*"}}
	case c.Action == "RunInstances":
		return []need{{action: action, arn: machineARN("*")}}
	case c.Action == "CreateVolume":
		return []need{{action: action, arn: volumeARN("*")}}
	case strings.Contains(c.Action, "LaunchTemplate"):
		return []need{e.templateNeed(action, p)}
	case len(ids) == 0:
		return []need{{action: action, arn: "*"}}
	}
	var needs []need
	for _, id := range ids {
		n := need{action: action, arn: machineARN(id)}
		if history, ok := e.machines[id]; ok {
			n.context = tagContext("ec2", history.last().Tags)
		}
		if strings.HasPrefix(id, "vol-") {
			n.arn = volumeARN(id)
			if history, ok := e.volumes[id]; ok {
				n.context = tagContext("ec2", history.last().Tags)
			}
		}
		needs = append(needs, n)
	}
	return needs
}

func volumeARN(id string) string { return "arn:aws:ec2:" + homeRegion + ":" + owner + ":volume/" + id }

// needs of SQS: every call is about a queue but ListQueues. A batch needs the permission of its single call.
func (s *SQS) needs(c *call) []need {
	var in struct{ QueueUrl, QueueName string }
	_ = json.Unmarshal(c.Body, &in) // serve refuses what cannot be read
	name := in.QueueName
	if in.QueueUrl != "" {
		name = in.QueueUrl[strings.LastIndexByte(in.QueueUrl, '/')+1:]
	}
	n := need{action: "sqs:" + strings.TrimSuffix(c.Action, "Batch"), arn: "*"}
	if name != "" {
		n.arn = "arn:aws:sqs:" + homeRegion + ":" + owner + ":" + name
	}
	return []need{n}
}

// needs of Parameter Store: each parameter that is named, or the path alone; and for a key of one's own the
// permission to use it ("How AWS Systems Manager Parameter Store uses AWS KMS").
func (s *SSM) needs(c *call) []need {
	var in struct {
		Name, Path, KeyId, Tier string
		DataType                string
		Names                   []string
		Recursive, Overwrite    bool
		WithDecryption          bool
	}
	_ = json.Unmarshal(c.Body, &in) // serve refuses what cannot be read
	action := "ssm:" + c.Action
	if c.Action == "GetParametersByPath" {
		needs := []need{{action: action, arn: s.arn(strings.TrimSuffix(in.Path, "/")), context: flagContext("ssm:Recursive", in.Recursive)}}
		if in.WithDecryption {
			for _, name := range s.below(in.Path) {
				needs = append(needs, s.decrypt(name)...)
			}
		}
		return needs
	}
	var needs []need
	for _, name := range append(in.Names, in.Name) {
		if name == "" {
			continue
		}
		plain, _ := s.split(name)
		n := need{action: action, arn: s.arn(plain)}
		if list := s.versions[plain]; len(list) > 0 {
			n.context = tagContext("ssm", list[len(list)-1].Tags)
		}
		if c.Action == "PutParameter" {
			n.context = flagContext("ssm:Overwrite", in.Overwrite)
		}
		needs = append(needs, n)
		if in.WithDecryption {
			needs = append(needs, s.decrypt(plain)...)
		}
	}
	if c.Action == "PutParameter" && in.DataType == dataImage {
		// "Native parameter support for Amazon Machine Image IDs": who puts one must be allowed to look for it.
		needs = append(needs, need{action: "ec2:DescribeImages", arn: "*"})
	}
	if arn := s.keyARN(in.KeyId); c.Action == "PutParameter" && arn != "" {
		use := "kms:Encrypt"
		if in.Tier == TierAdvanced {
			use = "kms:GenerateDataKey"
		}
		needs = append(needs, need{action: use, arn: arn, context: s.keyContext(in.Name)})
	}
	if len(needs) == 0 {
		needs = []need{{action: action, arn: "*"}}
	}
	return needs
}

func flagContext(key string, set bool) map[string][]string {
	if set {
		return map[string][]string{key: {"true"}}
	}
	return map[string][]string{key: {"false"}}
}

func (s *SSM) keyContext(name string) map[string][]string {
	return map[string][]string{
		"kms:ViaService":                      {"ssm." + s.region + ".amazonaws.com"},
		"kms:EncryptionContext:PARAMETER_ARN": {s.arn(name)},
	}
}

// decrypt is what reading a secret takes; the account's own key is for everyone who may read the parameter.
func (s *SSM) decrypt(name string) []need {
	list := s.versions[name]
	if len(list) == 0 {
		return nil
	}
	p := list[len(list)-1]
	arn := s.keyARN(p.Key)
	if p.Type != ParameterSecure || arn == "" {
		return nil
	}
	return []need{{action: "kms:Decrypt", arn: arn, context: s.keyContext(name), refusal: refuse("AccessDeniedException",
		"The ciphertext refers to a customer master key that does not exist, does not exist in this region, or you are not allowed to access.")}}
}
