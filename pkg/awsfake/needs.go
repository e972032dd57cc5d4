package awsfake

import (
	"encoding/json"
	"slices"
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
		n := need{action: action, arn: "arn:aws:autoscaling:" + HomeRegion + ":" + owner + ":autoScalingGroup:*:autoScalingGroupName/" + name}
		if g, ok := s.groups[name]; ok {
			n.arn, n.context = g.arn, tagContext("autoscaling", g.Tags)
		}
		needs = append(needs, n)
	}
	return needs
}

// needs of EC2: describe calls take no resource, the others are about each machine that they name.
func (e *EC2) needs(c *call) []need {
	action := "ec2:" + c.Action
	p := params(c.Form)
	ids := p.list("InstanceId")
	if needs, ok := e.volumeNeeds(c, action, p); ok {
		return needs
	}
	switch {
	case strings.HasPrefix(c.Action, "Describe"):
		return []need{{action: action, arn: "*"}}
	case c.Action == "RunInstances":
		return []need{{action: action, arn: machineARN("*")}}
	case strings.Contains(c.Action, "LaunchTemplate"):
		return []need{e.templateNeed(action, p)}
	case len(ids) == 0:
		return []need{{action: action, arn: "*"}}
	}
	var needs []need
	for _, id := range ids {
		needs = append(needs, e.machineNeed(action, id))
	}
	return needs
}

// needs of SQS: every call is about a queue but ListQueues.
func (s *SQS) needs(c *call) []need {
	var in struct{ QueueUrl, QueueName string }
	_ = json.Unmarshal(c.Body, &in) // serve refuses what cannot be read
	name := in.QueueName
	if in.QueueUrl != "" {
		name = in.QueueUrl[strings.LastIndexByte(in.QueueUrl, '/')+1:]
	}
	n := need{action: "sqs:" + c.Action, arn: "*"}
	if name != "" {
		n.arn = "arn:aws:sqs:" + HomeRegion + ":" + owner + ":" + name
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
