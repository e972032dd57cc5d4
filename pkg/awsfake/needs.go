package awsfake

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The permissions that each service's calls need are from the Service Authorization Reference, "Actions, resources, and
// condition keys" of the service.

func machineARN(id string) string {
	return "arn:aws:ec2:" + HomeRegion + ":" + owner + ":instance/" + id
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

// taggedContext are the tags of a request as condition keys.
func taggedContext(tags map[string]string) map[string][]string {
	context := map[string][]string{}
	for _, key := range sortedKeys(tags) {
		context["aws:RequestTag/"+key] = []string{tags[key]}
		context["aws:TagKeys"] = append(context["aws:TagKeys"], key)
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
	if c.Action == "CreateAutoScalingGroup" || c.Action == "UpdateAutoScalingGroup" {
		return append([]need{s.shapeNeed(action, p)}, s.launchNeeds(p)...)
	}
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
		needs = append(needs, s.groupNeed(action, name))
	}
	return needs
}

func (s *AutoScaling) groupNeed(action, name string) need {
	n := need{action: action, arn: "arn:aws:autoscaling:" + HomeRegion + ":" + owner + ":autoScalingGroup:*:autoScalingGroupName/" + name}
	if g, ok := s.groups[name]; ok {
		n.arn, n.context = g.arn, tagContext("autoscaling", g.Tags)
	}
	return n
}

// shapeNeed is the permission to make or change a group, with what the request says of it. A new group has no tags but the request's.
func (s *AutoScaling) shapeNeed(action string, p params) need {
	n := s.groupNeed(action, p.get("AutoScalingGroupName"))
	if n.context == nil {
		n.context = map[string][]string{}
	}
	for key, field := range map[string]string{"MaxSize": "MaxSize", "MinSize": "MinSize", "LaunchConfigurationName": "LaunchConfigurationName"} {
		if p.has(field) {
			n.context["autoscaling:"+key] = []string{p.get(field)}
		}
	}
	if p.get("VPCZoneIdentifier") != "" {
		n.context["autoscaling:VPCZoneIdentifiers"] = strings.Split(p.get("VPCZoneIdentifier"), ",")
	}
	if arns := p.list("TargetGroupARNs.member"); len(arns) > 0 {
		n.context["autoscaling:TargetGroupARNs"] = arns
	}
	if p.has("LaunchTemplate.LaunchTemplateId") || p.has("LaunchTemplate.LaunchTemplateName") {
		n.context["autoscaling:LaunchTemplateVersionSpecified"] = []string{strconv.FormatBool(p.has("LaunchTemplate.Version"))}
	}
	maps.Copy(n.context, requestContext(p.structs("Tags.member")))
	return n
}

// needs of EC2, which hands the region to each.
func (e *EC2) needs(c *call) []need {
	needs := e.plainNeeds(c)
	for i := range needs {
		needs[i] = inRegion(needs[i], HomeRegion)
	}
	return needs
}

// inRegion adds the condition key of EC2's region.
func inRegion(n need, region string) need {
	n.context = maps.Clone(n.context)
	if n.context == nil {
		n.context = map[string][]string{}
	}
	n.context["ec2:Region"] = []string{region}
	return n
}

// plainNeeds: describe calls take no resource, the others are about each machine that they name.
func (e *EC2) plainNeeds(c *call) []need {
	action := "ec2:" + c.Action
	p := params(c.Form)
	ids := p.list("InstanceId")
	if needs, ok := e.volumeNeeds(c, action, p); ok {
		return needs
	}
	switch {
	case c.Action == "DescribeVpcAttribute":
		return []need{{action: action, arn: "arn:aws:ec2:" + HomeRegion + ":" + owner + ":vpc/" + p.get("VpcId"), context: map[string][]string{"ec2:VpcID": {p.get("VpcId")}}}}
	case strings.HasPrefix(c.Action, "Describe"):
		return []need{{action: action, arn: "*"}}
	case c.Action == "RunInstances":
		return e.runNeeds(requested(p))
	case strings.Contains(c.Action, "LaunchTemplate"):
		return e.templateNeeds(action, p)
	case len(ids) == 0:
		return []need{{action: action, arn: "*"}}
	}
	var needs []need
	for _, id := range ids {
		needs = append(needs, e.machineNeed(action, id))
	}
	return needs
}

// machineContext are a machine's condition keys beside its tags, with EC2's defaults where its launch says nothing (API reference,
// InstanceMetadataOptionsRequest).
func machineContext(m Machine) map[string][]string {
	context := tagContext("ec2", m.Tags)
	options := MetadataOptions{}
	if m.Launch != nil && m.Launch.Metadata != nil {
		options = *m.Launch.Metadata
	}
	hops := 1
	if options.HopLimit != nil {
		hops = *options.HopLimit
	}
	maps.Copy(context, map[string][]string{
		"ec2:AvailabilityZone": {m.Zone}, "ec2:InstanceID": {m.ID}, "ec2:InstanceType": {m.Type}, "ec2:RootDeviceType": {"ebs"}, "ec2:Tenancy": {"default"},
		"ec2:MetadataHttpEndpoint": {cmp.Or(options.Endpoint, "enabled")}, "ec2:MetadataHttpTokens": {cmp.Or(options.Tokens, "optional")},
		"ec2:MetadataHttpPutResponseHopLimit": {strconv.Itoa(hops)}, "ec2:InstanceMetadataTags": {cmp.Or(options.Tags, "disabled")},
	})
	if m.Role != "" {
		context["ec2:InstanceProfile"] = []string{"arn:aws:iam::" + owner + ":instance-profile/" + m.Role}
	}
	return context
}

// needs of SQS: every call is about a queue but ListQueues.
func (s *SQS) needs(c *call) []need {
	var in struct {
		QueueUrl, QueueName string
		Tags                map[string]string `json:"tags"`
	}
	_ = json.Unmarshal(c.Body, &in) // serve refuses what cannot be read
	name := in.QueueName
	if in.QueueUrl != "" {
		name = in.QueueUrl[strings.LastIndexByte(in.QueueUrl, '/')+1:]
	}
	n := need{action: "sqs:" + c.Action, arn: "*"}
	if name != "" {
		n.arn = "arn:aws:sqs:" + HomeRegion + ":" + owner + ":" + name
	}
	if c.Action == "CreateQueue" {
		n.context = taggedContext(in.Tags)
	}
	return []need{n}
}

// needs of Parameter Store: each parameter that is named, or the path alone.
func (s *SSM) needs(c *call) []need {
	var in struct {
		Name, Path, DataType string
		Names                []string
		Recursive, Overwrite bool
	}
	_ = json.Unmarshal(c.Body, &in) // serve refuses what cannot be read
	action := "ssm:" + c.Action
	if c.Action == "GetParametersByPath" {
		return []need{{action: action, arn: s.arn(strings.TrimSuffix(in.Path, "/")), context: flagContext("ssm:Recursive", in.Recursive)}}
	}
	var needs []need
	for _, name := range append(in.Names, in.Name) {
		if name == "" {
			continue
		}
		plain, _, _ := strings.Cut(name, ":")
		n := need{action: action, arn: s.arn(plain)}
		if c.Action == "PutParameter" {
			n.context = flagContext("ssm:Overwrite", in.Overwrite)
		}
		needs = append(needs, n)
	}
	if c.Action == "PutParameter" && in.DataType == dataImage {
		// "Native parameter support for Amazon Machine Image IDs": who puts one must be allowed to look for it.
		needs = append(needs, need{action: "ec2:DescribeImages", arn: "*"})
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
