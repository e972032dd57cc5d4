package awsfake

import (
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"
)

type groupShape struct {
	Name string `cfn:"AutoScalingGroupName" update:"replace"`
	groupSizes
	Template *struct {
		ID      string `cfn:"LaunchTemplateId"`
		Name    string `cfn:"LaunchTemplateName"`
		Version string `cfn:"Version,required"`
	} `cfn:"LaunchTemplate,required"`
	Subnets []string    `cfn:"VPCZoneIdentifier"`
	Zones   []string    `cfn:"AvailabilityZones"`
	Hooks   []hookSpec  `cfn:"LifecycleHookSpecificationList"`
	Tags    []groupTag  `cfn:"Tags"`
	Targets []string    `cfn:"TargetGroupARNs"`
	Policy  *maintained `cfn:"InstanceMaintenancePolicy"`
}

// groupSizes are the fields that AutoScaling calls by the same names, but for Cooldown.
type groupSizes struct {
	Min         string   `cfn:"MinSize,required"`
	Max         string   `cfn:"MaxSize,required"`
	Desired     string   `cfn:"DesiredCapacity"`
	Health      string   `cfn:"HealthCheckType"`
	Grace       string   `cfn:"HealthCheckGracePeriod"`
	Cooldown    string   `cfn:"Cooldown"`
	Warmup      string   `cfn:"DefaultInstanceWarmup"`
	Protected   string   `cfn:"NewInstancesProtectedFromScaleIn"`
	Termination []string `cfn:"TerminationPolicies"`
}

type maintained struct {
	Min string `cfn:"MinHealthyPercentage,required"`
	Max string `cfn:"MaxHealthyPercentage,required"`
}

type groupTag struct {
	Key       string `cfn:"Key,required"`
	Value     string `cfn:"Value,required"`
	Propagate bool   `cfn:"PropagateAtLaunch,required"`
}

type hookSpec struct {
	Name string `cfn:"LifecycleHookName,required"`
	hookRest
}

type hookRest struct {
	Transition string `cfn:"LifecycleTransition,required"`
	Default    string `cfn:"DefaultResult"`
	Heartbeat  *int   `cfn:"HeartbeatTimeout"`
	Metadata   string `cfn:"NotificationMetadata"`
	Target     string `cfn:"NotificationTargetARN"`
	Role       string `cfn:"RoleARN"`
}

func (h hookRest) hook(name string) Hook {
	hook := Hook{Name: name, Transition: h.Transition, Default: h.Default, Metadata: h.Metadata, Target: h.Target, Role: h.Role}
	if h.Heartbeat != nil {
		hook.Heartbeat = time.Duration(*h.Heartbeat) * time.Second
	}
	return hook
}

type hookShape struct {
	Name  string `cfn:"LifecycleHookName" update:"replace"`
	Group string `cfn:"AutoScalingGroupName,required" update:"replace"`
	hookRest
}

// form is the call of AutoScaling that makes the group what the template says.
func (g *groupShape) form(name string) params {
	p := params{}
	set := func(key, value string) {
		if value != "" {
			url.Values(p).Set(key, value)
		}
	}
	list := func(key string, values []string) {
		for i, value := range values {
			set(key+".member."+strconv.Itoa(i+1), value)
		}
	}
	set("AutoScalingGroupName", name)
	for key, value := range map[string]string{
		"MinSize": g.Min, "MaxSize": g.Max, "DesiredCapacity": g.Desired, "HealthCheckType": g.Health, "HealthCheckGracePeriod": g.Grace,
		"DefaultCooldown": g.Cooldown, "DefaultInstanceWarmup": g.Warmup, "NewInstancesProtectedFromScaleIn": g.Protected,
		"LaunchTemplate.LaunchTemplateId": g.Template.ID, "LaunchTemplate.LaunchTemplateName": g.Template.Name, "LaunchTemplate.Version": g.Template.Version,
		"VPCZoneIdentifier": strings.Join(g.Subnets, ","),
	} {
		set(key, value)
	}
	if g.Policy != nil {
		set("InstanceMaintenancePolicy.MinHealthyPercentage", g.Policy.Min)
		set("InstanceMaintenancePolicy.MaxHealthyPercentage", g.Policy.Max)
	}
	list("AvailabilityZones", g.Zones)
	list("TerminationPolicies", g.Termination)
	list("TargetGroupARNs", g.Targets)
	return p
}

// checkGroup refuses what AutoScaling would refuse once the group has been changed in part.
func (p *provision) checkGroup(want *groupShape) error {
	for _, tag := range want.Tags {
		if strings.HasPrefix(tag.Key, "aws:") {
			return malformed("Tag keys may not begin with aws: %s", tag.Key)
		}
	}
	for _, h := range want.Hooks {
		if _, err := h.hook(h.Name).checked(); err != nil {
			return err
		}
	}
	return p.cf.checkTargets(want.Targets)
}

// retag gives a group its tags: the template's, the stack's and CloudFormation's own.
func (p *provision) retag(g *group, want *groupShape) {
	tags, hidden := p.tagged(nil), map[string]bool{}
	for _, tag := range want.Tags {
		tags[tag.Key] = tag.Value
		if !tag.Propagate {
			hidden[tag.Key] = true
		}
	}
	g.Tags, g.Unpropagated = maps.Clone(tags), hidden
}

func (p *provision) groups() *AutoScaling { return p.cf.account.regional.autoscaling }

// rehook makes a group's hooks those of the template. Hooks that others have put stay.
func (p *provision) rehook(name string, want, was []hookSpec) error {
	left := map[string]bool{}
	for _, h := range was {
		left[h.Name] = true
	}
	for _, h := range want {
		delete(left, h.Name)
		if err := p.groups().putHook(name, h.hook(h.Name)); err != nil {
			return err
		}
	}
	for _, hook := range sortedKeys(left) {
		if _, there := p.groups().groups[name].hooks[hook]; !there {
			continue
		}
		if err := p.unhook(name, hook); err != nil {
			return err
		}
	}
	return nil
}

func (p *provision) unhook(group, hook string) error {
	_, err := p.groups().deleteHook(params{"AutoScalingGroupName": {group}, "LifecycleHookName": {hook}})
	return err
}

func scalingKinds() map[string]resourceKind {
	return map[string]resourceKind{
		"AWS::EC2::LaunchTemplate": launchTemplateKind(),
		"AWS::AutoScaling::AutoScalingGroup": kind[groupShape]{
			name: "AutoScalingGroupName", attributes: []string{"AutoScalingGroupARN"},
			make: (*provision).makeGroup,
			change: func(p *provision, want, was *groupShape) error {
				g, err := p.groups().find(p.physical)
				if err != nil {
					return err
				}
				if err := p.checkGroup(want); err != nil {
					return err
				}
				if _, err := p.groups().updateGroup(want.form(p.physical)); err != nil {
					return err
				}
				p.retag(g, want)
				return p.rehook(p.physical, want.Hooks, was.Hooks)
			},
			drop: (*provision).dropGroup,
		},
		"AWS::AutoScaling::LifecycleHook": kind[hookShape]{
			name: "LifecycleHookName",
			make: func(p *provision, want *hookShape) error {
				p.is(p.or(want.Name))
				return p.groups().putHook(want.Group, want.hook(p.physical))
			},
			change: func(p *provision, want, _ *hookShape) error {
				return p.groups().putHook(want.Group, want.hook(p.physical))
			},
			drop: func(p *provision, was *hookShape) (bool, error) { return true, p.unhook(was.Group, p.physical) },
		},
	}
}

// makeGroup makes a group with its hooks before it has machines, as the list of hooks in the call does.
func (p *provision) makeGroup(want *groupShape) error {
	name := p.or(want.Name)
	if err := p.checkGroup(want); err != nil {
		return err
	}
	if _, err := p.groups().createGroup(want.form(name)); err != nil {
		return err
	}
	g := p.groups().groups[name]
	p.is(name, "AutoScalingGroupARN", g.arn)
	p.retag(g, want)
	return p.rehook(name, want.Hooks, nil)
}

// dropGroup lets a group's machines go, through their hooks, and then deletes it.
func (p *provision) dropGroup(*groupShape) (bool, error) {
	g, ok := p.groups().groups[p.physical]
	if !ok {
		return true, nil
	}
	if len(g.instances) > 0 {
		g.pool = nil
		if g.Max > 0 {
			g.Min, g.Max, g.Desired = 0, 0, 0
			p.groups().settle(g)
		}
		for _, i := range g.instances {
			if i.State == StateStandby {
				p.groups().terminate(g, i)
			}
		}
		if len(g.instances) > 0 {
			return false, nil
		}
	}
	for _, m := range p.groups().ec2().visible() {
		if m.Tags["aws:autoscaling:groupName"] == p.physical && m.State != MachineTerminated {
			return false, nil
		}
	}
	return true, p.groups().remove(p.physical, false)
}
