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
	} `cfn:"LaunchTemplate" update:"perhaps"`
	Mixed *mixedShape `cfn:"MixedInstancesPolicy" update:"perhaps"`
	groupMore
	Subnets []string   `cfn:"VPCZoneIdentifier" update:"perhaps"`
	Hooks   []hookSpec `cfn:"LifecycleHookSpecificationList"`
	Tags    []groupTag `cfn:"Tags"`
	Targets []string   `cfn:"TargetGroupARNs"`
}

// groupMore are fields that only some groups have.
type groupMore struct {
	Rebalance bool `cfn:"CapacityRebalance"`
	Lifetime  int  `cfn:"MaxInstanceLifetime"`
	Metrics   []struct {
		Granularity string   `cfn:"Granularity,required"`
		Names       []string `cfn:"Metrics"`
	} `cfn:"MetricsCollection"`
}

// groupSizes are the fields that AutoScaling calls by the same names, but for Cooldown.
type groupSizes struct {
	Min     string `cfn:"MinSize,required"`
	Max     string `cfn:"MaxSize,required"`
	Desired string `cfn:"DesiredCapacity"`
	Health  string `cfn:"HealthCheckType"`
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

// form returns the parameters of AutoScaling's call for the group in the template.
func (g *groupShape) form(name string) params {
	p := params{}
	set := func(key, value string) {
		if value != "" {
			url.Values(p).Set(key, value)
		}
	}
	set("AutoScalingGroupName", name)
	for key, value := range map[string]string{
		"MinSize": g.Min, "MaxSize": g.Max, "DesiredCapacity": g.Desired, "HealthCheckType": g.Health,
		"VPCZoneIdentifier": strings.Join(g.Subnets, ","), "CapacityRebalance": strconv.FormatBool(g.Rebalance), "MaxInstanceLifetime": strconv.Itoa(g.Lifetime),
	} {
		set(key, value)
	}
	if t := g.Template; t != nil {
		set("LaunchTemplate.LaunchTemplateId", t.ID)
		set("LaunchTemplate.LaunchTemplateName", t.Name)
		set("LaunchTemplate.Version", t.Version)
	}
	g.Mixed.form(set)
	for i, arn := range g.Targets {
		set("TargetGroupARNs.member."+strconv.Itoa(i+1), arn)
	}
	return p
}

// checkGroup makes the checks that AutoScaling would fail after a part of the group was changed.
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
	for _, m := range want.Metrics {
		if m.Granularity != "1Minute" {
			return malformed("The only valid granularity is 1Minute")
		}
	}
	return p.cf.checkTargets(want.Targets)
}

// setTags gives a group its tags: the template's, the stack's and CloudFormation's own.
func (p *provision) setTags(g *group, want *groupShape) {
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

// setHooks sets a group's hooks to those of the template. Hooks that others have put stay.
func (p *provision) setHooks(name string, want, was []hookSpec) error {
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
	for hook := range left {
		p.groups().deleteHook(p.groups().groups[name], hook)
	}
	return nil
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
				p.setTags(g, want)
				return p.setHooks(p.physical, want.Hooks, was.Hooks)
			},
			drop: (*provision).dropGroup,
		},
	}
}

// makeGroup makes a group, and its hooks before its first machine, as the list of hooks in the call does.
func (p *provision) makeGroup(want *groupShape) error {
	name := p.nameOr(want.Name)
	if err := p.checkGroup(want); err != nil {
		return err
	}
	if _, err := p.groups().createGroup(want.form(name)); err != nil {
		return err
	}
	g := p.groups().groups[name]
	p.setID(name, "AutoScalingGroupARN", g.arn)
	p.setTags(g, want)
	return p.setHooks(name, want.Hooks, nil)
}

// dropGroup ends a group's machines, through their hooks, and then deletes the group.
func (p *provision) dropGroup(*groupShape) (bool, error) {
	g, ok := p.groups().groups[p.physical]
	if !ok {
		return true, nil
	}
	if len(g.instances) > 0 {
		if g.Max > 0 {
			g.Min, g.Max, g.Desired = 0, 0, 0
			p.groups().settle(g)
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
