package awsfake

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// LoadBalancer is a load balancer of a stack: it is recorded, and balances nothing.
type LoadBalancer struct {
	ARN, Name, DNSName, Scheme, Kind string
	Subnets, SecurityGroups          []string
	Attributes                       map[string]string
	Tags                             map[string]string
}

// TargetGroup is what a listener forwards to.
type TargetGroup struct {
	ARN, Name, Protocol, VPC, TargetType string
	Port                                 int
	Health                               map[string]string
}

// Listener is one port of a load balancer.
type Listener struct {
	ARN, Balancer, Protocol, Target string
	Port                            int
}

// balancers are what Elastic Load Balancing has.
type balancers struct {
	balancers map[string]LoadBalancer
	targets   map[string]TargetGroup
	listeners map[string]Listener
}

// Balancers lists the load balancers, target groups and listeners of the account's stacks.
func (c *CloudFormation) Balancers() (lbs []LoadBalancer, groups []TargetGroup, listeners []Listener) {
	c.account.locked(func() {
		for _, arn := range sortedKeys(c.balancers.balancers) {
			lbs = append(lbs, c.balancers.balancers[arn])
		}
		for _, arn := range sortedKeys(c.targets) {
			groups = append(groups, c.targets[arn])
		}
		for _, arn := range sortedKeys(c.listeners) {
			listeners = append(listeners, c.listeners[arn])
		}
	})
	return lbs, groups, listeners
}

// checkTargets refuses target groups that are not there.
func (c *CloudFormation) checkTargets(arns []string) error {
	for _, arn := range arns {
		if _, ok := c.targets[arn]; !ok {
			return malformed("One or more target groups not found. Validating load balancer configuration failed.")
		}
	}
	return nil
}

type balancerShape struct {
	Name       string      `cfn:"Name" update:"replace"`
	Kind       string      `cfn:"Type" update:"replace"`
	Scheme     string      `cfn:"Scheme" update:"replace"`
	Subnets    []string    `cfn:"Subnets,required"`
	Groups     []string    `cfn:"SecurityGroups"`
	Attributes []keyValue  `cfn:"LoadBalancerAttributes"`
	Addresses  string      `cfn:"IpAddressType"`
	Tags       []LaunchTag `cfn:"Tags"`
}

type keyValue struct {
	Key   string `cfn:"Key,required"`
	Value string `cfn:"Value,required"`
}

func pairs(list []keyValue) map[string]string {
	m := map[string]string{}
	for _, kv := range list {
		m[kv.Key] = kv.Value
	}
	return m
}

type targetShape struct {
	Name     string `cfn:"Name" update:"replace"`
	Protocol string `cfn:"Protocol,required" update:"replace"`
	Port     *int   `cfn:"Port,required" update:"replace"`
	VPC      string `cfn:"VpcId,required" update:"replace"`
	Type     string `cfn:"TargetType" update:"replace"`
	targetHealth
	Attributes []keyValue  `cfn:"TargetGroupAttributes"`
	Tags       []LaunchTag `cfn:"Tags"`
}

type targetHealth struct {
	Protocol2 string `cfn:"HealthCheckProtocol"`
	Port2     string `cfn:"HealthCheckPort"`
	Path      string `cfn:"HealthCheckPath"`
	Interval  *int   `cfn:"HealthCheckIntervalSeconds"`
	Timeout   *int   `cfn:"HealthCheckTimeoutSeconds"`
	Healthy   *int   `cfn:"HealthyThresholdCount"`
	Unhealthy *int   `cfn:"UnhealthyThresholdCount"`
}

type listenerShape struct {
	Balancer string `cfn:"LoadBalancerArn,required" update:"replace"`
	Protocol string `cfn:"Protocol,required"`
	Port     *int   `cfn:"Port,required"`
	Actions  []struct {
		Type   string `cfn:"Type,required"`
		Target string `cfn:"TargetGroupArn,required"`
	} `cfn:"DefaultActions,required"`
}

// balancerARN makes an ARN of Elastic Load Balancing: the last parts are the resource's own.
func (p *provision) balancerARN(kind, name string) string {
	p.cf.serial++
	return fmt.Sprintf("arn:aws:elasticloadbalancing:%s:%s:%s/%s/%s", homeRegion, owner, kind, name, hexID(kind, p.cf.serial, 16))
}

// short is a name of at most 32 characters, which is the most that Elastic Load Balancing takes.
func (p *provision) short(name string) (string, error) {
	if len(name) > 32 {
		return "", malformed("The name '%s' cannot be longer than '32' characters", name)
	}
	if name != "" {
		return name, nil
	}
	made := p.or("")
	return strings.Trim(made[:min(6, len(made))], "-") + "-" + made[strings.LastIndexByte(made, '-')+1:], nil
}

func balancerKinds() map[string]resourceKind {
	return map[string]resourceKind{
		"AWS::ElasticLoadBalancingV2::LoadBalancer": kind[balancerShape]{
			name:       "Name",
			attributes: []string{"DNSName", "LoadBalancerArn", "LoadBalancerName", "LoadBalancerFullName", "CanonicalHostedZoneID"},
			make:       (*provision).makeBalancer,
			change: func(p *provision, want, _ *balancerShape) error {
				b := p.cf.balancers.balancers[p.physical]
				b.Subnets, b.SecurityGroups, b.Attributes, b.Tags = want.Subnets, want.Groups, pairs(want.Attributes), p.tagged(want.Tags)
				p.cf.balancers.balancers[p.physical] = b
				return nil
			},
			drop: func(p *provision, _ *balancerShape) (bool, error) {
				delete(p.cf.balancers.balancers, p.physical)
				return true, nil
			},
		},
		"AWS::ElasticLoadBalancingV2::TargetGroup": targetKind(),
		"AWS::ElasticLoadBalancingV2::Listener":    listenerKind(),
	}
}

func (p *provision) makeBalancer(want *balancerShape) error {
	name, err := p.short(want.Name)
	if err != nil {
		return err
	}
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
	arn := p.balancerARN("loadbalancer/net", name)
	b := LoadBalancer{
		ARN: arn, Name: name, Scheme: want.Scheme, Kind: want.Kind, Subnets: want.Subnets, SecurityGroups: want.Groups,
		Attributes: pairs(want.Attributes), Tags: p.tagged(want.Tags),
		DNSName: fmt.Sprintf("%s-%s.elb.%s.amazonaws.com", name, arn[strings.LastIndexByte(arn, '/')+1:], homeRegion),
	}
	p.cf.balancers.balancers = with(p.cf.balancers.balancers, arn, b)
	full := arn[strings.Index(arn, "net/"):]
	p.is(arn, "LoadBalancerArn", arn, "DNSName", b.DNSName, "LoadBalancerName", name, "LoadBalancerFullName", full, "CanonicalHostedZoneID", "Z18D5FSROUN65G")
	return nil
}

// with is m with another entry; m may be nil.
func with[V any](m map[string]V, key string, value V) map[string]V {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]V{}
	}
	m[key] = value
	return m
}

func (h targetHealth) health() map[string]string {
	m := map[string]string{"protocol": h.Protocol2, "port": h.Port2, "path": h.Path}
	for name, n := range map[string]*int{"interval": h.Interval, "timeout": h.Timeout, "healthy": h.Healthy, "unhealthy": h.Unhealthy} {
		if n != nil {
			m[name] = fmt.Sprint(*n)
		}
	}
	maps.DeleteFunc(m, func(_, v string) bool { return v == "" })
	return m
}

func (h targetHealth) check() error {
	switch {
	case h.Interval != nil && (*h.Interval < 5 || *h.Interval > 300):
		return malformed("Health check interval must be between 5 and 300 seconds")
	case h.Healthy != nil && (*h.Healthy < 2 || *h.Healthy > 10):
		return malformed("Healthy threshold must be between 2 and 10")
	case h.Path != "" && (h.Protocol2 == "TCP" || h.Protocol2 == ""):
		return malformed("Health check path is not supported for health checks with protocol 'TCP'")
	}
	return nil
}

func targetKind() resourceKind {
	return kind[targetShape]{
		name: "Name", attributes: []string{"TargetGroupArn", "TargetGroupName", "TargetGroupFullName"},
		make: func(p *provision, want *targetShape) error {
			name, err := p.short(want.Name)
			if err != nil {
				return err
			}
			if err := want.check(); err != nil {
				return err
			}
			if err := p.network().hasVPC(want.VPC); err != nil {
				return err
			}
			arn := p.balancerARN("targetgroup", name)
			p.cf.targets = with(p.cf.targets, arn, TargetGroup{ARN: arn, Name: name, Protocol: want.Protocol, VPC: want.VPC, TargetType: want.Type, Port: *want.Port, Health: want.health()})
			p.is(arn, "TargetGroupArn", arn, "TargetGroupName", name, "TargetGroupFullName", arn[strings.Index(arn, "targetgroup/"):])
			return nil
		},
		change: func(p *provision, want, _ *targetShape) error {
			if err := want.check(); err != nil {
				return err
			}
			t := p.cf.targets[p.physical]
			t.Health = want.health()
			p.cf.targets[p.physical] = t
			return nil
		},
		drop: func(p *provision, _ *targetShape) (bool, error) {
			for _, l := range p.cf.listeners {
				if l.Target == p.physical {
					return true, refuse("ResourceInUse", "Target group '%s' is currently in use by a listener or a rule", p.physical)
				}
			}
			delete(p.cf.targets, p.physical)
			return true, nil
		},
	}
}

func listenerKind() resourceKind {
	set := func(p *provision, want *listenerShape) error {
		if len(want.Actions) != 1 || want.Actions[0].Type != "forward" {
			return malformed("awsfake only models listeners that forward to one target group")
		}
		if _, ok := p.cf.balancers.balancers[want.Balancer]; !ok {
			return refuse("LoadBalancerNotFound", "Load balancer '%s' not found", want.Balancer)
		}
		if err := p.cf.checkTargets([]string{want.Actions[0].Target}); err != nil {
			return err
		}
		p.cf.listeners = with(p.cf.listeners, p.physical, Listener{ARN: p.physical, Balancer: want.Balancer, Protocol: want.Protocol, Target: want.Actions[0].Target, Port: *want.Port})
		return nil
	}
	return kind[listenerShape]{
		attributes: []string{"ListenerArn"},
		make: func(p *provision, want *listenerShape) error {
			arn := p.balancerARN("listener/net", want.Balancer[strings.LastIndexByte(want.Balancer, '/')+1:])
			p.is(arn, "ListenerArn", arn)
			return set(p, want)
		},
		change: func(p *provision, want, _ *listenerShape) error { return set(p, want) },
		drop: func(p *provision, _ *listenerShape) (bool, error) {
			delete(p.cf.listeners, p.physical)
			return true, nil
		},
	}
}

type parameterShape struct {
	Name    string `cfn:"Name" update:"replace"`
	Type    string `cfn:"Type,required"`
	Value   string `cfn:"Value,required"`
	Text    string `cfn:"Description"`
	Tier    string `cfn:"Tier"`
	Pattern string `cfn:"AllowedPattern"`
	Tags    any    `cfn:"Tags"`
}

func parameterKinds() map[string]resourceKind {
	put := func(p *provision, want *parameterShape, overwrite bool) error {
		if want.Type == ParameterSecure {
			return malformed("Value of property Type must be String or StringList: CloudFormation makes no SecureString")
		}
		_, err := p.cf.account.regional.ssm.put(Parameter{Name: p.physical, Type: want.Type, Value: want.Value, Tier: want.Tier, Pattern: want.Pattern}, overwrite)
		return err
	}
	return map[string]resourceKind{
		"AWS::SSM::Parameter": kind[parameterShape]{
			name: "Name", attributes: []string{"Type", "Value"},
			make: func(p *provision, want *parameterShape) error {
				p.is(p.or(want.Name), "Type", want.Type, "Value", want.Value)
				return put(p, want, false)
			},
			change: func(p *provision, want, _ *parameterShape) error {
				p.is(p.physical, "Type", want.Type, "Value", want.Value)
				return put(p, want, true)
			},
			drop: func(p *provision, _ *parameterShape) (bool, error) {
				delete(p.cf.account.regional.ssm.versions, p.physical)
				return true, nil
			},
		},
	}
}
