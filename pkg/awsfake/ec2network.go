package awsfake

import (
	"slices"
	"strings"
)

// Subnet is a subnet that exists before the tests: awsfake has no calls that make VPCs and subnets. Until the first
// AddSubnet every subnet ID is accepted, but by DescribeSubnets; afterwards an unknown ID is refused.
type Subnet struct {
	ID, VPC, Zone string
	// Free is how many addresses are left, 0 for those of a /24; PublicAddresses is whether machines get a public one.
	Free            int
	PublicAddresses bool
}

// SecurityGroup is a security group with its rules.
type SecurityGroup struct {
	ID, Name, Description, VPC string
	Ingress                    []SecurityRule
	Tags                       map[string]string
}

// SecurityRule allows ingress from one peer: a CIDR, or Group, a security group's ID.
type SecurityRule struct {
	Protocol                 string // "tcp" or "udp"
	From, To                 int    // the ports
	CIDR, Group, Description string
	CIDR6                    string // a range of IPv6
}

// network holds the account's subnets and security groups.
type network struct {
	subnets []Subnet
	groups  []*SecurityGroup
	serial  int
	// vpcs are the attributes that were set, by the VPC's id.
	vpcs      map[string]VPCAttributes
	tables    []RouteTable
	endpoints []Endpoint
}

// AddSubnet makes a subnet known.
func (e *EC2) AddSubnet(s Subnet) {
	e.account.locked(func() { e.network.subnets = append(e.network.subnets, s) })
}

// AddSecurityGroup makes a security group of the account's owner, with the id that it has.
func (e *EC2) AddSecurityGroup(g SecurityGroup) {
	e.account.locked(func() { e.network.groups = append(e.network.groups, &g) })
}

// SecurityGroups lists the account's security groups, in the order of their creation.
func (e *EC2) SecurityGroups() (list []SecurityGroup) {
	e.account.locked(func() {
		for _, g := range e.network.groups {
			copied := *g
			copied.Ingress = slices.Clone(g.Ingress)
			list = append(list, copied)
		}
	})
	return list
}

// subnet finds a subnet by its ID; while the account has no subnets, it returns an empty one.
func (n *network) subnet(id string) (Subnet, error) {
	k := slices.IndexFunc(n.subnets, func(s Subnet) bool { return s.ID == id })
	switch {
	case k >= 0:
		return n.subnets[k], nil
	case len(n.subnets) == 0:
		return Subnet{ID: id}, nil
	}
	return Subnet{}, refuse("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", id)
}

func (n *network) hasVPC(id string) error {
	if len(n.subnets) > 0 && !slices.ContainsFunc(n.subnets, func(s Subnet) bool { return s.VPC == id }) {
		return refuse("InvalidVpcID.NotFound", "The vpc ID '%s' does not exist", id)
	}
	return nil
}

func (n *network) group(id string) (*SecurityGroup, error) {
	k := slices.IndexFunc(n.groups, func(g *SecurityGroup) bool { return g.ID == id })
	if k < 0 {
		return nil, refuse("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
	}
	return n.groups[k], nil
}

func (n *network) hasGroup(id string) error {
	_, err := n.group(id)
	return err
}

// createGroup makes a group, which allows all egress.
func (n *network) createGroup(g SecurityGroup) (*SecurityGroup, error) {
	switch {
	case g.Description == "":
		return nil, refuse("MissingParameter", "The request must contain the parameter GroupDescription")
	case strings.HasPrefix(g.Name, "sg-"):
		return nil, refuse("InvalidParameterValue", "Invalid value '%s' for groupName. It may not begin with 'sg-'.", g.Name)
	case slices.ContainsFunc(n.groups, func(other *SecurityGroup) bool { return other.Name == g.Name && other.VPC == g.VPC }):
		return nil, refuse("InvalidGroup.Duplicate", "The security group '%s' already exists for VPC '%s'", g.Name, g.VPC)
	}
	if err := n.hasVPC(g.VPC); err != nil {
		return nil, err
	}
	n.serial++
	g.ID = "sg-" + hexID("security group", n.serial, 17)
	n.groups = append(n.groups, &g)
	return &g, nil
}

// allow adds an ingress rule to a group.
func (n *network) allow(g *SecurityGroup, r SecurityRule) error {
	switch {
	case !oneOf(r.CIDR, r.CIDR6, r.Group):
		return refuse("InvalidParameterCombination", "Exactly one of CidrIp, CidrIpv6 and SourceSecurityGroupId must be given")
	case r.Protocol != "tcp" && r.Protocol != "udp":
		return refuse("InvalidParameterValue", "awsfake does not model rules of the protocol %s", r.Protocol)
	case r.From < 0 || r.To > 65535 || r.From > r.To:
		return refuse("InvalidParameterValue", "Invalid value 'Invalid range: %d-%d' for portRange. Must specify both from and to ports with TCP/UDP.", r.From, r.To)
	case slices.ContainsFunc(g.Ingress, r.same):
		return refuse("InvalidPermission.Duplicate", "the specified rule \"peer: %s, %s, from port: %d, to port: %d, ALLOW\" already exists", r.CIDR+r.CIDR6+r.Group, strings.ToUpper(r.Protocol), r.From, r.To)
	}
	if r.Group != "" {
		if err := n.hasGroup(r.Group); err != nil {
			return err
		}
	}
	g.Ingress = append(g.Ingress, r)
	return nil
}

// oneOf reports whether exactly one of the texts is not empty.
func oneOf(texts ...string) bool {
	n := 0
	for _, text := range texts {
		if text != "" {
			n++
		}
	}
	return n == 1
}

// same reports whether two rules allow the same, whatever their descriptions.
func (r SecurityRule) same(other SecurityRule) bool {
	r.Description, other.Description = "", ""
	return r == other
}

// dropGroup deletes a group, unless a machine or another group refers to it.
func (e *EC2) dropGroup(id string) error {
	g, err := e.network.group(id)
	if err != nil {
		return err
	}
	for _, other := range e.network.groups {
		refers := func(r SecurityRule) bool { return r.Group == id }
		if other != g && slices.ContainsFunc(other.Ingress, refers) {
			return dependent(id)
		}
	}
	for _, history := range e.machines {
		if m := history.last(); m.State != MachineTerminated && m.Launch != nil && slices.Contains(m.Launch.SecurityGroups, id) {
			return dependent(id)
		}
	}
	e.network.groups = slices.DeleteFunc(e.network.groups, func(other *SecurityGroup) bool { return other == g })
	return nil
}

func dependent(id string) error {
	return refuse("DependencyViolation", "resource %s has a dependent object", id)
}
