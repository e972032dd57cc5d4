package awsfake

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// balancers are the resources of Elastic Load Balancing that stacks have made, by ARN. They are recorded and carry no
// traffic.
type balancers struct {
	balancers map[string]bool
	// targets are the target groups.
	targets   map[string]bool
	listeners map[string]listener
}

// listener is what a listener is of, and the target group that it forwards to.
type listener struct{ balancer, target string }

func newBalancers() balancers {
	return balancers{balancers: map[string]bool{}, targets: map[string]bool{}, listeners: map[string]listener{}}
}

// checkTargets refuses unknown target groups.
func (c *CloudFormation) checkTargets(arns []string) error {
	for _, arn := range arns {
		if !c.targets[arn] {
			return malformed("One or more target groups not found. Validating load balancer configuration failed.")
		}
	}
	return nil
}

type balancerShape struct {
	Kind       string      `cfn:"Type" update:"replace"`
	Scheme     string      `cfn:"Scheme" update:"replace"`
	Subnets    []string    `cfn:"Subnets,required"`
	Groups     []string    `cfn:"SecurityGroups"`
	Addresses  string      `cfn:"IpAddressType"`
	Attributes []LaunchTag `cfn:"LoadBalancerAttributes"`
	Tags       []LaunchTag `cfn:"Tags"`
}

type targetShape struct {
	Protocol string      `cfn:"Protocol,required" update:"replace"`
	Port     int         `cfn:"Port,required" update:"replace"`
	VPC      string      `cfn:"VpcId,required" update:"replace"`
	Type     string      `cfn:"TargetType" update:"replace"`
	By       string      `cfn:"HealthCheckProtocol"`
	Path     string      `cfn:"HealthCheckPath"`
	Interval int         `cfn:"HealthCheckIntervalSeconds"`
	Healthy  int         `cfn:"HealthyThresholdCount"`
	Failing  int         `cfn:"UnhealthyThresholdCount"`
	Tags     []LaunchTag `cfn:"Tags"`
}

type listenerShape struct {
	Balancer string `cfn:"LoadBalancerArn,required" update:"replace"`
	Protocol string `cfn:"Protocol,required"`
	Port     int    `cfn:"Port,required"`
	Actions  []struct {
		Type   string `cfn:"Type,required"`
		Target string `cfn:"TargetGroupArn,required"`
	} `cfn:"DefaultActions,required"`
}

// balancing makes the name and the ARN of a resource of Elastic Load Balancing, whose names have at most 32 characters.
func (p *provision) balancing(kind string) (name, arn string) {
	made := p.nameOr("")
	name = strings.Trim(made[:min(6, len(made))], "-") + "-" + made[strings.LastIndexByte(made, '-')+1:]
	p.cf.serial++
	return name, fmt.Sprintf("arn:aws:elasticloadbalancing:%s:%s:%s/%s/%s", HomeRegion, owner, kind, name, hexID(kind, p.cf.serial, 16))
}

func balancerKinds() map[string]resourceKind {
	return map[string]resourceKind{
		"AWS::ElasticLoadBalancingV2::LoadBalancer": kind[balancerShape]{
			attributes: []string{"DNSName"},
			make: func(p *provision, want *balancerShape) error {
				if err := p.checkBalancer(want); err != nil {
					return err
				}
				name, arn := p.balancing("loadbalancer/net")
				p.cf.balancers.balancers[arn] = true
				p.setID(arn, "DNSName", fmt.Sprintf("%s-%s.elb.%s.amazonaws.com", name, arn[strings.LastIndexByte(arn, '/')+1:], HomeRegion))
				return nil
			},
			change: func(p *provision, want, _ *balancerShape) error { return p.checkBalancer(want) },
			drop: func(p *provision, _ *balancerShape) (bool, error) {
				delete(p.cf.balancers.balancers, p.physical)
				return true, nil
			},
		},
		"AWS::ElasticLoadBalancingV2::TargetGroup": kind[targetShape]{
			make: func(p *provision, want *targetShape) error {
				if err := errors.Join(p.network().hasVPC(want.VPC), want.check()); err != nil {
					return err
				}
				_, arn := p.balancing("targetgroup")
				p.cf.targets[arn] = true
				p.setID(arn)
				return nil
			},
			change: func(_ *provision, want, _ *targetShape) error { return want.check() },
			drop: func(p *provision, _ *targetShape) (bool, error) {
				for _, l := range p.cf.listeners {
					if l.target == p.physical {
						return true, refuse("ResourceInUse", "Target group '%s' is currently in use by a listener or a rule", p.physical)
					}
				}
				delete(p.cf.targets, p.physical)
				return true, nil
			},
		},
		"AWS::ElasticLoadBalancingV2::Listener": kind[listenerShape]{
			make: func(p *provision, want *listenerShape) error {
				_, arn := p.balancing("listener/net")
				p.setID(arn)
				return p.listen(want)
			},
			change: func(p *provision, want, _ *listenerShape) error { return p.listen(want) },
			drop: func(p *provision, _ *listenerShape) (bool, error) {
				delete(p.cf.listeners, p.physical)
				return true, nil
			},
		},
	}
}

func (p *provision) checkBalancer(want *balancerShape) error {
	for _, id := range want.Subnets {
		if _, err := p.network().subnet(id); err != nil {
			return err
		}
	}
	for _, id := range want.Groups {
		if err := p.network().hasGroup(id); err != nil {
			return err
		}
	}
	switch {
	case want.Kind != "network":
		return malformed("awsfake does not model load balancers of the type %s", want.Kind)
	case !slices.Contains([]string{"", "internal", "internet-facing"}, want.Scheme):
		return malformed("Scheme '%s' must be one of internal, internet-facing", want.Scheme)
	}
	return nil
}

func (t *targetShape) check() error {
	switch {
	case t.Interval != 0 && (t.Interval < 5 || t.Interval > 300):
		return malformed("Health check interval must be between 5 and 300 seconds")
	case t.Healthy != 0 && (t.Healthy < 2 || t.Healthy > 10):
		return malformed("Healthy threshold must be between 2 and 10")
	case t.Path != "" && (t.By == "TCP" || t.By == ""):
		return malformed("Health check path is not supported for health checks with protocol 'TCP'")
	}
	return nil
}

// listen sets the target group of a listener.
func (p *provision) listen(want *listenerShape) error {
	if len(want.Actions) != 1 || want.Actions[0].Type != "forward" {
		return malformed("awsfake only models listeners that forward to one target group")
	}
	if !p.cf.balancers.balancers[want.Balancer] {
		return refuse("LoadBalancerNotFound", "Load balancer '%s' not found", want.Balancer)
	}
	if err := p.cf.checkTargets([]string{want.Actions[0].Target}); err != nil {
		return err
	}
	to := listener{want.Balancer, want.Actions[0].Target}
	for _, l := range p.cf.listeners {
		if l.target == to.target && l.balancer != to.balancer {
			return refuse("TargetGroupAssociationLimit", "The following target groups cannot be associated with more than one load balancer: %s", to.target)
		}
	}
	p.cf.listeners[p.physical] = to
	return nil
}
