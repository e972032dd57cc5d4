package awsfake

import (
	"cmp"
	"maps"
	"net/http"
	"strings"
)

// launch is what the permissions to run machines are about, whoever calls RunInstances.
type launch struct {
	image, kind, zone string
	// subnets and groups are IDs; none means any.
	subnets, groups []string
	// tags are those of the new resources, by their kind.
	tags map[string]map[string]string
	// template is the launch template with the data of its version; both are nil without one.
	template *LaunchTemplate
	data     *LaunchData
}

// requested reads a call of RunInstances, which names no launch template here.
func requested(p params) launch {
	l := launch{image: p.get("ImageId"), kind: p.get("InstanceType"), zone: p.get("Placement.AvailabilityZone"), groups: p.list("SecurityGroupId"), tags: map[string]map[string]string{}}
	if id := p.get("SubnetId"); id != "" {
		l.subnets = []string{id}
	}
	for _, spec := range p.structs("TagSpecification") {
		if spec.get("ResourceType") != "instance" {
			continue // no other resource gets tags from the call here
		}
		l.tags["instance"] = map[string]string{}
		for _, tag := range spec.structs("Tag") {
			l.tags["instance"][tag.get("Key")] = tag.get("Value")
		}
	}
	return l
}

// launchNeeds are the permissions that AutoScaling asks of who has a group launch from a launch template: those of RunInstances on all that
// the template and the subnets name (Amazon EC2 Auto Scaling User Guide, "Control Amazon EC2 launch template usage in Auto Scaling groups").
// AWS also asks for iam:PassRole, which is not modelled. A call that does not name a template asks for nothing more. The refusal is the one
// of "Troubleshoot Amazon EC2 Auto Scaling: Launch templates".
func (s *AutoScaling) launchNeeds(p params) []need {
	t, v, err := s.ec2().resolved(cmp.Or(launchRef(p, "LaunchTemplate."), launchRef(p, "MixedInstancesPolicy.LaunchTemplate.LaunchTemplateSpecification.")))
	if err != nil {
		return nil // there is no template, or serve refuses it
	}
	l := launch{kind: v.Data.Type, zone: p.get("AvailabilityZones.member.1"), groups: v.Data.SecurityGroups, tags: map[string]map[string]string{}, template: t, data: &v.Data}
	l.image, _ = s.ec2().image(v.Data.Image) // serve refuses what names no image
	g, known := s.groups[p.get("AutoScalingGroupName")]
	switch subnets := p.get("VPCZoneIdentifier"); {
	case subnets != "":
		l.subnets = strings.Split(subnets, ",")
	case known && g.Subnet != "":
		l.subnets = strings.Split(g.Subnet, ",")
	}
	for _, spec := range v.Data.Tags {
		l.tags[spec.Resource] = v.Data.tags(spec.Resource)
	}
	needs := s.ec2().runNeeds(l)
	for i := range needs {
		needs[i] = inRegion(needs[i], HomeRegion)
		needs[i].refusal = &Error{Status: http.StatusForbidden, Code: "AccessDenied", Message: "You are not authorized to use launch template: " + t.ID}
	}
	return needs
}

// launchRef is the launch template that a call names below a prefix; the zero value if it names none.
func launchRef(p params, prefix string) LaunchRef {
	return LaunchRef{p.get(prefix + "LaunchTemplateId"), p.get(prefix + "LaunchTemplateName"), p.get(prefix + "Version")}
}

// runNeeds are the permissions to run machines: the image, the launch template if there is one, and all that a machine comes with, each
// with ec2:CreateTags where it gets tags. What the launch does not name is "*".
func (e *EC2) runNeeds(l launch) []need {
	const action = "ec2:RunInstances"
	named := func(kind, id string) string {
		return "arn:aws:ec2:" + HomeRegion + ":" + owner + ":" + kind + "/" + cmp.Or(id, "*")
	}
	if len(l.subnets) == 0 {
		l.subnets = []string{""}
	}
	if len(l.groups) == 0 {
		l.groups = []string{""}
	}
	var needs []need
	add := func(arn string, context map[string][]string) {
		needs = append(needs, need{action: action, arn: arn, context: context})
	}
	image := e.account.Images().need(action, l.image, nil)
	add(image.arn, image.context)
	for _, id := range l.subnets {
		subnet, _ := e.network.subnet(strings.TrimSpace(id))
		zone := cmp.Or(subnet.Zone, l.zone, HomeRegion+"a")
		vpc := map[string][]string{"ec2:AvailabilityZone": {zone}, "ec2:Subnet": {named("subnet", subnet.ID)}, "ec2:SubnetID": {subnet.ID}, "ec2:Vpc": {named("vpc", subnet.VPC)}}
		add(named("subnet", subnet.ID), vpc)
		add(named("network-interface", ""), merged(vpc, taggedContext(l.tags["network-interface"])))
		add(machineARN("*"), merged(machineContext(Machine{Type: l.kind, Zone: zone, Launch: l.data}), taggedContext(l.tags["instance"])))
	}
	for _, id := range l.groups {
		add(named("security-group", id), nil)
	}
	add(volumeARN("*"), taggedContext(l.tags["volume"]))
	if t := l.template; t != nil {
		add(templateARN(t.ID), tagContext("ec2", t.Tags))
		for i := range needs {
			needs[i].context = merged(needs[i].context, map[string][]string{"ec2:LaunchTemplate": {templateARN(t.ID)}})
		}
	}
	for _, kind := range sortedKeys(l.tags) {
		if len(l.tags[kind]) > 0 {
			needs = append(needs, need{action: "ec2:CreateTags", arn: named(kind, ""), context: merged(taggedContext(l.tags[kind]), map[string][]string{"ec2:CreateAction": {"RunInstances"}})})
		}
	}
	return needs
}

// merged are the condition keys of both; more wins.
func merged(context, more map[string][]string) map[string][]string {
	out := maps.Clone(context)
	if out == nil {
		out = map[string][]string{}
	}
	maps.Copy(out, more)
	return out
}
