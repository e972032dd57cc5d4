package awsfake

import (
	"slices"
	"strconv"
)

type ingressShape struct {
	Group       string `cfn:"GroupId,required" update:"replace"`
	Protocol    string `cfn:"IpProtocol,required" update:"replace"`
	From        int    `cfn:"FromPort,required" update:"replace"`
	To          int    `cfn:"ToPort,required" update:"replace"`
	CIDR        string `cfn:"CidrIp" update:"replace"`
	CIDR6       string `cfn:"CidrIpv6" update:"replace"`
	Source      string `cfn:"SourceSecurityGroupId" update:"replace"`
	Description string `cfn:"Description"`
}

func (r *ingressShape) rule() SecurityRule {
	return SecurityRule{Protocol: r.Protocol, From: r.From, To: r.To, CIDR: r.CIDR, CIDR6: r.CIDR6, Group: r.Source, Description: r.Description}
}

type securityGroupShape struct {
	Description string      `cfn:"GroupDescription,required" update:"replace"`
	VPC         string      `cfn:"VpcId,required" update:"replace"`
	Tags        []LaunchTag `cfn:"Tags"`
}

func networkKinds() map[string]resourceKind {
	return map[string]resourceKind{
		"AWS::EC2::SecurityGroup": kind[securityGroupShape]{
			attributes: []string{"GroupId"},
			make: func(p *provision, want *securityGroupShape) error {
				g, err := p.network().createGroup(SecurityGroup{Name: p.nameOr(""), Description: want.Description, VPC: want.VPC, Tags: p.tagged(want.Tags)})
				if err == nil {
					p.setID(g.ID, "GroupId", g.ID)
				}
				return err
			},
			change: func(p *provision, want, _ *securityGroupShape) error {
				g, err := p.network().group(p.physical)
				if err == nil {
					g.Tags = p.tagged(want.Tags)
				}
				return err
			},
			drop: func(p *provision, _ *securityGroupShape) (bool, error) {
				return true, p.cf.account.regional.ec2.dropGroup(p.physical)
			},
		},
		"AWS::EC2::SecurityGroupIngress": kind[ingressShape]{
			make: func(p *provision, want *ingressShape) error {
				g, err := p.network().group(want.Group)
				if err != nil {
					return err
				}
				p.cf.serial++
				p.setID("sgr-" + hexID("rule", p.cf.serial, 17))
				return p.network().allow(g, want.rule())
			},
			change: func(p *provision, want, was *ingressShape) error {
				g, err := p.network().group(want.Group)
				if err != nil {
					return err
				}
				if i := slices.IndexFunc(g.Ingress, was.rule().same); i >= 0 {
					g.Ingress[i].Description = want.Description
				}
				return nil
			},
			drop: func(p *provision, was *ingressShape) (bool, error) {
				g, err := p.network().group(was.Group)
				if err == nil {
					g.Ingress = slices.DeleteFunc(g.Ingress, was.rule().same)
				}
				return true, err
			},
		},
	}
}

func (p *provision) network() *network { return &p.cf.account.regional.ec2.network }

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
			t, err := p.cf.account.regional.ec2.createTemplate(p.nameOr(want.Name), want.Description, *want.Data, p.tagged(want.tags()))
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
	p.setID(t.ID, "LaunchTemplateId", t.ID, "LatestVersionNumber", strconv.Itoa(t.last), "DefaultVersionNumber", strconv.Itoa(t.Default))
}
