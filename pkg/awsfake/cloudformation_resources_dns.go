package awsfake

import "strconv"

type zoneShape struct {
	Name   string `cfn:"Name,required" update:"replace"`
	Config *struct {
		Comment string `cfn:"Comment"`
	} `cfn:"HostedZoneConfig"`
	VPCs []struct {
		ID     string `cfn:"VPCId,required"`
		Region string `cfn:"VPCRegion,required"`
	} `cfn:"VPCs"`
}

func (z *zoneShape) vpcs() []VPC {
	var list []VPC
	for _, v := range z.VPCs {
		list = append(list, VPC{v.ID, v.Region})
	}
	return list
}

func (z *zoneShape) comment() string {
	if z.Config == nil {
		return ""
	}
	return z.Config.Comment
}

type recordShape struct {
	Zone    string   `cfn:"HostedZoneId,required" update:"replace"`
	Name    string   `cfn:"Name,required" update:"replace"`
	Type    string   `cfn:"Type,required"`
	TTL     string   `cfn:"TTL,required"`
	Records []string `cfn:"ResourceRecords,required"`
}

func (r *recordShape) set() (RecordSet, error) {
	ttl, err := strconv.ParseInt(r.TTL, 10, 64)
	if err != nil {
		return RecordSet{}, malformed("Value of property TTL must be a number, is %s", r.TTL)
	}
	return RecordSet{Name: r.Name, Type: r.Type, TTL: ttl, Values: r.Records}, nil
}

func dnsKinds() map[string]resourceKind {
	return map[string]resourceKind{
		"AWS::Route53::HostedZone": kind[zoneShape]{
			attributes: []string{"Id"},
			make: func(p *provision, want *zoneShape) error {
				z, _, err := p.cf.account.route53.create(HostedZone{Name: want.Name, Comment: want.comment(), CallerReference: p.nameOr(""), VPCs: want.vpcs()}, p.cf.now())
				if err == nil {
					p.setID(z.ID, "Id", z.ID)
				}
				return err
			},
			change: func(p *provision, want, _ *zoneShape) error {
				z, err := p.cf.account.route53.find(p.physical)
				if err != nil {
					return err
				}
				if z.Private() != (len(want.VPCs) > 0) {
					return refuse("InvalidRequest", "A hosted zone cannot be changed from public to private, or back.")
				}
				z.Comment, z.VPCs = want.comment(), want.vpcs()
				return nil
			},
			drop: func(p *provision, _ *zoneShape) (bool, error) {
				return true, p.cf.account.route53.remove(p.physical)
			},
		},
		"AWS::Route53::RecordSet": kind[recordShape]{
			make: func(p *provision, want *recordShape) error {
				p.setID(want.Name)
				return p.record("CREATE", want)
			},
			change: func(p *provision, want, was *recordShape) error {
				if want.Type != was.Type {
					if err := p.record("DELETE", was); err != nil {
						return err
					}
				}
				return p.record("UPSERT", want)
			},
			drop: func(p *provision, was *recordShape) (bool, error) { return true, p.record("DELETE", was) },
		},
	}
}

// record makes one change of a zone.
func (p *provision) record(action string, r *recordShape) error {
	set, err := r.set()
	if err != nil {
		return err
	}
	_, err = p.cf.account.route53.apply(r.Zone, []Change{{Action: action, Set: set}}, p.cf.now())
	return err
}
