package awsfake

import (
	"fmt"
	"slices"
	"strings"
)

// Subnet is a subnet that the account's owner made elsewhere: VPCs and subnets are only looked up here. As long as
// no subnet is known, every name of one is taken; from the first on, those that are not known do not exist.
type Subnet struct{ ID, VPC, Zone, CIDR string }

// SecurityGroup is a security group with its rules.
type SecurityGroup struct {
	ID, Name, Description, VPC string
	Ingress, Egress            []SecurityRule
	Tags                       map[string]string
}

// SecurityRule allows one peer: exactly one of CIDR, CIDR6, PrefixList and Group, which is a group's id.
type SecurityRule struct {
	Protocol string // "tcp", "udp", "icmp", "-1" for all of them, or a number
	// From and To are the ports, both -1 where the protocol has none.
	From, To                                    int
	CIDR, CIDR6, PrefixList, Group, Description string
}

// network is what the account knows of its VPCs.
type network struct {
	subnets []Subnet
	groups  []*SecurityGroup
	serial  int
}

// AddSubnet makes a subnet known.
func (e *EC2) AddSubnet(s Subnet) {
	e.account.locked(func() { e.network.subnets = append(e.network.subnets, s) })
}

// SecurityGroups lists the account's security groups, in the order of their creation.
func (e *EC2) SecurityGroups() (list []SecurityGroup) {
	e.account.locked(func() {
		for _, g := range e.network.groups {
			copied := *g
			copied.Ingress, copied.Egress = slices.Clone(g.Ingress), slices.Clone(g.Egress)
			list = append(list, copied)
		}
	})
	return list
}

// subnet finds a subnet; an empty one where the account knows none at all.
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

// createGroup makes a group that lets everything out, as EC2 does, until it is given rules of its own.
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
	g.Egress = []SecurityRule{{Protocol: "-1", From: -1, To: -1, CIDR: "0.0.0.0/0"}}
	n.groups = append(n.groups, &g)
	return &g, nil
}

// allow adds a rule to one of a group's lists.
func (n *network) allow(list *[]SecurityRule, r SecurityRule) error {
	if err := r.check(); err != nil {
		return err
	}
	if r.Group != "" {
		if err := n.hasGroup(r.Group); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(*list, r.same) {
		return refuse("InvalidPermission.Duplicate", "the specified rule \"peer: %s, %s, from port: %d, to port: %d, ALLOW\" already exists", r.peer(), strings.ToUpper(r.Protocol), r.From, r.To)
	}
	*list = append(*list, r)
	return nil
}

func (r SecurityRule) peer() string { return r.CIDR + r.CIDR6 + r.PrefixList + r.Group }

// same reports whether two rules allow the same, whatever they say about it.
func (r SecurityRule) same(other SecurityRule) bool {
	r.Description, other.Description = "", ""
	return r == other
}

func (r SecurityRule) check() error {
	peers := 0
	for _, text := range []string{r.CIDR, r.CIDR6, r.PrefixList, r.Group} {
		if text != "" {
			peers++
		}
	}
	ports := r.Protocol == "tcp" || r.Protocol == "udp" || r.Protocol == "6" || r.Protocol == "17"
	switch {
	case peers != 1:
		return refuse("InvalidParameterCombination", "Exactly one of CidrIp, CidrIpv6, SourcePrefixListId and SourceSecurityGroupId must be given")
	case r.Protocol == "":
		return refuse("MissingParameter", "The request must contain the parameter ipProtocol")
	case ports && (r.From < 0 || r.To > 65535 || r.From > r.To):
		return refuse("InvalidParameterValue", "Invalid value 'Invalid range: %d-%d' for portRange. Must specify both from and to ports with TCP/UDP.", r.From, r.To)
	}
	return nil
}

// dropGroup deletes a group that neither a machine nor another group needs.
func (e *EC2) dropGroup(id string) error {
	g, err := e.network.group(id)
	if err != nil {
		return err
	}
	for _, other := range e.network.groups {
		refers := func(r SecurityRule) bool { return r.Group == id }
		if other != g && (slices.ContainsFunc(other.Ingress, refers) || slices.ContainsFunc(other.Egress, refers)) {
			return dependent(id)
		}
	}
	for _, history := range e.machines {
		if m := history.last(); m.State != MachineTerminated && m.Launch != nil && slices.Contains(m.Launch.groups(), id) {
			return dependent(id)
		}
	}
	e.network.groups = slices.DeleteFunc(e.network.groups, func(other *SecurityGroup) bool { return other == g })
	return nil
}

func dependent(id string) error {
	return refuse("DependencyViolation", "resource %s has a dependent object", id)
}

type xmlPermission struct {
	Protocol string      `xml:"ipProtocol"`
	From     *int        `xml:"fromPort"`
	To       *int        `xml:"toPort"`
	Groups   []xmlPeer   `xml:"groups>item"`
	Ranges   []xmlRange  `xml:"ipRanges>item"`
	Ranges6  []xmlRange6 `xml:"ipv6Ranges>item"`
	Prefixes []xmlPrefix `xml:"prefixListIds>item"`
}

type xmlPeer struct {
	ID          string `xml:"groupId"`
	User        string `xml:"userId"`
	Description string `xml:"description,omitempty"`
}

type xmlRange struct {
	CIDR        string `xml:"cidrIp"`
	Description string `xml:"description,omitempty"`
}

type xmlRange6 struct {
	CIDR        string `xml:"cidrIpv6"`
	Description string `xml:"description,omitempty"`
}

type xmlPrefix struct {
	ID          string `xml:"prefixListId"`
	Description string `xml:"description,omitempty"`
}

// permissionsXML gathers rules by protocol and ports, as EC2 shows them.
func permissionsXML(rules []SecurityRule) []xmlPermission {
	var list []xmlPermission
	index := map[string]int{}
	for _, r := range rules {
		key := fmt.Sprint(r.Protocol, " ", r.From, " ", r.To)
		k, known := index[key]
		if !known {
			k = len(list)
			index[key] = k
			list = append(list, xmlPermission{Protocol: r.Protocol})
			if r.Protocol != "-1" {
				list[k].From, list[k].To = &r.From, &r.To
			}
		}
		switch {
		case r.CIDR != "":
			list[k].Ranges = append(list[k].Ranges, xmlRange{r.CIDR, r.Description})
		case r.CIDR6 != "":
			list[k].Ranges6 = append(list[k].Ranges6, xmlRange6{r.CIDR6, r.Description})
		case r.PrefixList != "":
			list[k].Prefixes = append(list[k].Prefixes, xmlPrefix{r.PrefixList, r.Description})
		default:
			list[k].Groups = append(list[k].Groups, xmlPeer{r.Group, owner, r.Description})
		}
	}
	return list
}

type xmlSecurityGroup struct {
	ID          string          `xml:"groupId"`
	Name        string          `xml:"groupName"`
	Description string          `xml:"groupDescription"`
	Owner       string          `xml:"ownerId"`
	VPC         string          `xml:"vpcId"`
	Ingress     []xmlPermission `xml:"ipPermissions>item"`
	Egress      []xmlPermission `xml:"ipPermissionsEgress>item"`
	Tags        []xmlTag        `xml:"tagSet>item"`
}

func (e *EC2) describeSecurityGroups(p params) (any, error) {
	ids, names := p.list("GroupId"), p.list("GroupName")
	size, err := p.integer("MaxResults", 1000)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if err := e.network.hasGroup(id); err != nil {
			return nil, err
		}
	}
	var kept []xmlSecurityGroup
	for _, g := range e.network.groups {
		fields := map[string][]string{"group-id": {g.ID}, "group-name": {g.Name}, "vpc-id": {g.VPC}, "description": {g.Description}}
		ok, err := passAll(filtersOf(p.structs("Filter"), "Value", true), fields, g.Tags)
		if err != nil {
			return nil, err
		}
		if ok && (len(ids) == 0 || slices.Contains(ids, g.ID)) && (len(names) == 0 || slices.Contains(names, g.Name)) {
			kept = append(kept, xmlSecurityGroup{
				ID: g.ID, Name: g.Name, Description: g.Description, Owner: owner, VPC: g.VPC,
				Ingress: permissionsXML(g.Ingress), Egress: permissionsXML(g.Egress), Tags: tagsXML(g.Tags),
			})
		}
	}
	kept, token, err := page(kept, size, p.get("NextToken"))
	if err != nil {
		return nil, err
	}
	return struct {
		Groups    []xmlSecurityGroup `xml:"securityGroupInfo>item"`
		NextToken string             `xml:"nextToken,omitempty"`
	}{kept, token}, nil
}

type xmlSubnet struct {
	ID    string `xml:"subnetId"`
	VPC   string `xml:"vpcId"`
	Zone  string `xml:"availabilityZone"`
	CIDR  string `xml:"cidrBlock"`
	State string `xml:"state"`
}

func (e *EC2) describeSubnets(p params) (any, error) {
	ids := p.list("SubnetId")
	for _, id := range ids {
		if !slices.ContainsFunc(e.network.subnets, func(s Subnet) bool { return s.ID == id }) {
			return nil, refuse("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", id)
		}
	}
	out := struct {
		Subnets []xmlSubnet `xml:"subnetSet>item"`
	}{}
	for _, s := range e.network.subnets {
		fields := map[string][]string{"subnet-id": {s.ID}, "vpc-id": {s.VPC}, "availability-zone": {s.Zone}, "cidr-block": {s.CIDR}, "state": {"available"}}
		ok, err := passAll(filtersOf(p.structs("Filter"), "Value", true), fields, nil)
		if err != nil {
			return nil, err
		}
		if ok && (len(ids) == 0 || slices.Contains(ids, s.ID)) {
			out.Subnets = append(out.Subnets, xmlSubnet{s.ID, s.VPC, s.Zone, s.CIDR, "available"})
		}
	}
	return out, nil
}
