package awsfake

import (
	"errors"
	"slices"
	"strconv"
)

type groupRule struct {
	Protocol    string `cfn:"IpProtocol,required" update:"replace"`
	From        *int   `cfn:"FromPort" update:"replace"`
	To          *int   `cfn:"ToPort" update:"replace"`
	CIDR        string `cfn:"CidrIp" update:"replace"`
	CIDR6       string `cfn:"CidrIpv6" update:"replace"`
	Description string `cfn:"Description"`
}

// rule is what EC2 makes of it; a rule of all protocols has no ports.
func (r groupRule) rule(group, prefix string) SecurityRule {
	out := SecurityRule{Protocol: r.Protocol, From: -1, To: -1, CIDR: r.CIDR, CIDR6: r.CIDR6, Group: group, PrefixList: prefix, Description: r.Description}
	if r.From != nil && r.Protocol != "-1" {
		out.From = *r.From
	}
	if r.To != nil && r.Protocol != "-1" {
		out.To = *r.To
	}
	return out
}

type ingressRule struct {
	groupRule
	Source string `cfn:"SourceSecurityGroupId" update:"replace"`
	Prefix string `cfn:"SourcePrefixListId" update:"replace"`
}

func (r ingressRule) rule() SecurityRule { return r.groupRule.rule(r.Source, r.Prefix) }

type egressRule struct {
	groupRule
	Destination string `cfn:"DestinationSecurityGroupId" update:"replace"`
	Prefix      string `cfn:"DestinationPrefixListId" update:"replace"`
}

func (r egressRule) rule() SecurityRule { return r.groupRule.rule(r.Destination, r.Prefix) }

type ingressShape struct {
	ingressRule
	Group string `cfn:"GroupId,required" update:"replace"`
}

type egressShape struct {
	egressRule
	Group string `cfn:"GroupId,required" update:"replace"`
}

type securityGroupShape struct {
	Description string        `cfn:"GroupDescription,required" update:"replace"`
	Name        string        `cfn:"GroupName" update:"replace"`
	VPC         string        `cfn:"VpcId,required" update:"replace"`
	Ingress     []ingressRule `cfn:"SecurityGroupIngress"`
	Egress      []egressRule  `cfn:"SecurityGroupEgress"`
	Tags        []LaunchTag   `cfn:"Tags"`
}

func networkKinds() map[string]resourceKind {
	return map[string]resourceKind{
		"AWS::EC2::SecurityGroup": kind[securityGroupShape]{
			attributes: []string{"GroupId", "Id", "VpcId"}, name: "GroupName",
			make: func(p *provision, want *securityGroupShape) error {
				g, err := p.network().createGroup(SecurityGroup{Name: p.or(want.Name), Description: want.Description, VPC: want.VPC, Tags: p.tagged(want.Tags)})
				if err != nil {
					return err
				}
				p.is(g.ID, "GroupId", g.ID, "Id", g.ID, "VpcId", want.VPC)
				if err := p.inline(g, want, &securityGroupShape{}); err != nil {
					return errors.Join(err, p.cf.account.regional.ec2.dropGroup(g.ID))
				}
				return nil
			},
			change: func(p *provision, want, was *securityGroupShape) error {
				g, err := p.network().group(p.physical)
				if err != nil {
					return err
				}
				g.Tags = p.tagged(want.Tags)
				return p.inline(g, want, was)
			},
			drop: func(p *provision, _ *securityGroupShape) (bool, error) {
				return true, p.cf.account.regional.ec2.dropGroup(p.physical)
			},
		},
		"AWS::EC2::SecurityGroupIngress": kind[ingressShape]{
			make: func(p *provision, want *ingressShape) error {
				return p.allow(want.Group, want.rule(), (*SecurityGroup).ingress)
			},
			change: func(p *provision, want, was *ingressShape) error {
				return p.redescribe(want.Group, was.rule(), want.Description, (*SecurityGroup).ingress)
			},
			drop: func(p *provision, was *ingressShape) (bool, error) {
				return true, p.revoke(was.Group, was.rule(), (*SecurityGroup).ingress)
			},
		},
		"AWS::EC2::SecurityGroupEgress": kind[egressShape]{
			make: func(p *provision, want *egressShape) error {
				return p.allow(want.Group, want.rule(), (*SecurityGroup).egress)
			},
			change: func(p *provision, want, was *egressShape) error {
				return p.redescribe(want.Group, was.rule(), want.Description, (*SecurityGroup).egress)
			},
			drop: func(p *provision, was *egressShape) (bool, error) {
				return true, p.revoke(was.Group, was.rule(), (*SecurityGroup).egress)
			},
		},
	}
}

func (g *SecurityGroup) ingress() *[]SecurityRule { return &g.Ingress }
func (g *SecurityGroup) egress() *[]SecurityRule  { return &g.Egress }

func (p *provision) network() *network { return &p.cf.account.regional.ec2.network }

func (p *provision) allow(group string, r SecurityRule, side func(*SecurityGroup) *[]SecurityRule) error {
	g, err := p.network().group(group)
	if err != nil {
		return err
	}
	p.cf.serial++
	id := "sgr-" + hexID("rule", p.cf.serial, 17)
	p.is(id, "Id", id)
	return p.network().allow(side(g), r)
}

func (p *provision) redescribe(group string, r SecurityRule, text string, side func(*SecurityGroup) *[]SecurityRule) error {
	g, err := p.network().group(group)
	if err != nil {
		return err
	}
	for i, other := range *side(g) {
		if other.same(r) {
			(*side(g))[i].Description = text
		}
	}
	return nil
}

func (p *provision) revoke(group string, r SecurityRule, side func(*SecurityGroup) *[]SecurityRule) error {
	g, err := p.network().group(group)
	if err != nil {
		return err
	}
	*side(g) = slices.DeleteFunc(*side(g), r.same)
	return nil
}

// inline makes a group's own rules what the template says. Without rules for the way out, everything may go out.
func (p *provision) inline(g *SecurityGroup, want, was *securityGroupShape) (err error) {
	before := *g
	before.Ingress, before.Egress = slices.Clone(g.Ingress), slices.Clone(g.Egress)
	defer func() {
		if err != nil {
			g.Ingress, g.Egress = before.Ingress, before.Egress
		}
	}()
	for _, r := range was.Ingress {
		g.Ingress = slices.DeleteFunc(g.Ingress, r.rule().same)
	}
	for _, r := range was.Egress {
		g.Egress = slices.DeleteFunc(g.Egress, r.rule().same)
	}
	everywhere := SecurityRule{Protocol: "-1", From: -1, To: -1, CIDR: "0.0.0.0/0"}
	switch {
	case len(want.Egress) > 0 && len(was.Egress) == 0:
		g.Egress = slices.DeleteFunc(g.Egress, everywhere.same)
	case len(want.Egress) == 0 && len(was.Egress) > 0:
		g.Egress = append(g.Egress, everywhere)
	}
	for _, r := range want.Ingress {
		if err := p.network().allow(&g.Ingress, r.rule()); err != nil {
			return err
		}
	}
	for _, r := range want.Egress {
		if err := p.network().allow(&g.Egress, r.rule()); err != nil {
			return err
		}
	}
	return nil
}

type templateShape struct {
	Name        string       `cfn:"LaunchTemplateName" update:"replace"`
	Data        *LaunchData  `cfn:"LaunchTemplateData,required"`
	Description string       `cfn:"VersionDescription"`
	Tags        []LaunchTags `cfn:"TagSpecifications"`
}

func (t *templateShape) tags() []LaunchTag {
	for _, spec := range t.Tags {
		if spec.Resource == "launch-template" {
			return spec.Tags
		}
	}
	return nil
}

// launchTemplateKind makes launch templates. An update is another version; the default stays the first.
func launchTemplateKind() resourceKind {
	return kind[templateShape]{
		attributes: []string{"LaunchTemplateId", "LatestVersionNumber", "DefaultVersionNumber"}, name: "LaunchTemplateName",
		make: func(p *provision, want *templateShape) error {
			t, err := p.cf.account.regional.ec2.createTemplate(p.or(want.Name), want.Description, *want.Data, p.tagged(want.tags()))
			if err == nil {
				p.template(t)
			}
			return err
		},
		change: func(p *provision, want, _ *templateShape) error {
			e := p.cf.account.regional.ec2
			t, err := e.template(p.physical, "")
			if err != nil {
				return err
			}
			if err := want.Data.check(); err != nil {
				return err
			}
			t.Tags = p.tagged(want.tags())
			t.add(want.Description, *want.Data, p.cf.now())
			p.template(t)
			return nil
		},
		drop: func(p *provision, _ *templateShape) (bool, error) {
			e := p.cf.account.regional.ec2
			t, err := e.template(p.physical, "")
			if err == nil {
				e.dropTemplate(t)
			}
			return true, err
		},
	}
}

func (p *provision) template(t *LaunchTemplate) {
	p.is(t.ID, "LaunchTemplateId", t.ID, "LatestVersionNumber", strconv.Itoa(t.last), "DefaultVersionNumber", strconv.Itoa(t.Default))
}
