package awsfake

import (
	"cmp"
	"slices"
	"strconv"
)

// VPCAttributes are a VPC's two attributes about names, and its own addresses. A VPC that is not the account's default one answers names,
// and gives its machines none, until somebody says otherwise (API reference, ModifyVpcAttribute).
type VPCAttributes struct {
	Support, Hostnames bool
	// Ranges are its blocks of IPv4 addresses; none stands for madeUpRange.
	Ranges []string
}

// RouteTable is a route table beside the local routes of its VPC.
type RouteTable struct {
	ID, VPC string
	// Main is whether subnets without a table of their own have it; Subnets are those that have it.
	Main    bool
	Subnets []string
	// Way is what its route to everywhere leads to, by its id, such as igw-…; empty for none. Lost is whether that is gone.
	Way  string
	Lost bool
}

// Endpoint is an endpoint of a service in a VPC.
type Endpoint struct {
	ID, VPC string
	// Service is its name, such as com.amazonaws.us-west-2.ssm, Type is Interface or Gateway, and State such as available.
	Service, Type, State string
	PrivateNames         bool
	RouteTables          []string
	// Policy is its policy as JSON; empty for the one that an endpoint has without one, which allows everything.
	Policy string
}

// fullAccess is the policy of an endpoint that was made without one ("Default endpoint policy", AWS PrivateLink guide).
const fullAccess = `{"Statement": [{"Action": "*", "Effect": "Allow", "Principal": "*", "Resource": "*"}]}`

// SetVPC changes the attributes of a VPC.
func (e *EC2) SetVPC(id string, attributes VPCAttributes) {
	e.account.locked(func() {
		if e.network.vpcs == nil {
			e.network.vpcs = map[string]VPCAttributes{}
		}
		e.network.vpcs[id] = attributes
	})
}

// AddRouteTable makes a route table. A VPC without a main one has one with the local routes alone.
func (e *EC2) AddRouteTable(t RouteTable) {
	e.account.locked(func() { e.network.tables = append(e.network.tables, t) })
}

// AddEndpoint makes an endpoint.
func (e *EC2) AddEndpoint(p Endpoint) {
	e.account.locked(func() { e.network.endpoints = append(e.network.endpoints, p) })
}

func (e *EC2) describeVPCAttribute(p params) (any, error) {
	id := p.get("VpcId")
	if !slices.ContainsFunc(e.network.subnets, func(s Subnet) bool { return s.VPC == id }) {
		return nil, refuse("InvalidVpcID.NotFound", "The vpc ID '%s' does not exist", id)
	}
	of, ok := e.network.vpcs[id]
	if !ok {
		of.Support = true
	}
	type value struct {
		Value bool `xml:"value"`
	}
	out := struct {
		ID        string `xml:"vpcId"`
		Support   *value `xml:"enableDnsSupport"`
		Hostnames *value `xml:"enableDnsHostnames"`
	}{ID: id}
	switch name := p.get("Attribute"); name {
	case "enableDnsSupport":
		out.Support = &value{of.Support}
	case "enableDnsHostnames":
		out.Hostnames = &value{of.Hostnames}
	default:
		return nil, refuse("InvalidParameterValue", "Value (%s) for parameter attribute is invalid.", name)
	}
	return out, nil
}

type xmlRoute struct {
	Destination string `xml:"destinationCidrBlock"`
	Gateway     string `xml:"gatewayId,omitempty"`
	NAT         string `xml:"natGatewayId,omitempty"`
	Transit     string `xml:"transitGatewayId,omitempty"`
	State       string `xml:"state"`
	Origin      string `xml:"origin"`
}

type xmlAssociation struct {
	Main   bool   `xml:"main"`
	Table  string `xml:"routeTableId"`
	Subnet string `xml:"subnetId,omitempty"`
}

type xmlRouteTable struct {
	ID           string           `xml:"routeTableId"`
	VPC          string           `xml:"vpcId"`
	Routes       []xmlRoute       `xml:"routeSet>item"`
	Associations []xmlAssociation `xml:"associationSet>item"`
}

// xml is the table of a VPC with these ranges: it has a local route for each of them, whoever made the table and whatever else is in it
// (VPC user guide, "Configure route tables", Routes).
func (t RouteTable) xml(ranges []string) xmlRouteTable {
	x := xmlRouteTable{ID: t.ID, VPC: t.VPC}
	for _, own := range ranges {
		x.Routes = append(x.Routes, xmlRoute{Destination: own, Gateway: "local", State: "active", Origin: "CreateRouteTable"})
	}
	if t.Way != "" {
		r := xmlRoute{Destination: "0.0.0.0/0", State: "active", Origin: "CreateRoute"}
		switch t.Way[:min(len(t.Way), 4)] {
		case "nat-":
			r.NAT = t.Way
		case "tgw-":
			r.Transit = t.Way
		default:
			r.Gateway = t.Way
		}
		if t.Lost {
			r.State = "blackhole"
		}
		x.Routes = append(x.Routes, r)
	}
	if t.Main {
		x.Associations = append(x.Associations, xmlAssociation{Main: true, Table: t.ID})
	}
	for _, s := range t.Subnets {
		x.Associations = append(x.Associations, xmlAssociation{Table: t.ID, Subnet: s})
	}
	return x
}

func (e *EC2) describeRouteTables(p params) (any, error) {
	tables := slices.Clone(e.network.tables)
	var vpcs []string
	for _, s := range e.network.subnets {
		has := func(t RouteTable) bool { return t.VPC == s.VPC && t.Main }
		if !slices.ContainsFunc(tables, has) {
			vpcs = append(vpcs, s.VPC)
			tables = append(tables, RouteTable{ID: "rtb-" + hexID("main", len(vpcs), 17), VPC: s.VPC, Main: true})
		}
	}
	filters := filtersOf(p.structs("Filter"), "Value", true)
	var kept []xmlRouteTable
	for _, t := range tables {
		ok, err := passAll(filters, map[string][]string{"vpc-id": {t.VPC}, "route-table-id": {t.ID}}, nil)
		if err != nil {
			return nil, err
		}
		if ok {
			ranges := e.network.vpcs[t.VPC].Ranges
			if len(ranges) == 0 {
				ranges = []string{madeUpRange.String()}
			}
			kept = append(kept, t.xml(ranges))
		}
	}
	kept, token, err := paged(p, "RouteTableId", "routeTableIdSet", kept)
	return struct {
		Tables    []xmlRouteTable `xml:"routeTableSet>item"`
		NextToken string          `xml:"nextToken,omitempty"`
	}{kept, token}, err
}

type xmlEndpoint struct {
	ID           string   `xml:"vpcEndpointId"`
	Type         string   `xml:"vpcEndpointType"`
	VPC          string   `xml:"vpcId"`
	Service      string   `xml:"serviceName"`
	State        string   `xml:"state"`
	PrivateNames bool     `xml:"privateDnsEnabled"`
	RouteTables  []string `xml:"routeTableIdSet>item"`
	Policy       string   `xml:"policyDocument"`
}

func (e *EC2) describeEndpoints(p params) (any, error) {
	filters := filtersOf(p.structs("Filter"), "Value", true)
	var kept []xmlEndpoint
	for _, one := range e.network.endpoints {
		ok, err := passAll(filters, map[string][]string{"vpc-id": {one.VPC}, "service-name": {one.Service}, "vpc-endpoint-id": {one.ID}}, nil)
		if err != nil {
			return nil, err
		}
		if ok {
			kept = append(kept, xmlEndpoint{one.ID, one.Type, one.VPC, one.Service, one.State, one.PrivateNames, one.RouteTables, cmp.Or(one.Policy, fullAccess)})
		}
	}
	kept, token, err := paged(p, "VpcEndpointId", "vpcEndpointIdSet", kept)
	return struct {
		Endpoints []xmlEndpoint `xml:"vpcEndpointSet>item"`
		NextToken string        `xml:"nextToken,omitempty"`
	}{kept, token}, err
}

// freeAddresses is how many addresses a subnet has left: of a /24, EC2 keeps five ("Subnet CIDR blocks", VPC User Guide).
func (e *EC2) freeAddresses(s Subnet) int {
	if s.Free > 0 {
		return s.Free
	}
	return 251
}

// groupLimits are the account's limits of AutoScaling groups ("Quotas for Auto Scaling resources and groups").
func (s *AutoScaling) groupLimits(params) (any, error) {
	limit := int(quotaDefaults["L-CDE20ADC"].value)
	if own, ok := s.account.quotas["L-CDE20ADC"]; ok {
		limit = int(own)
	}
	return struct{ MaxNumberOfAutoScalingGroups, NumberOfAutoScalingGroups, MaxNumberOfLaunchConfigurations, NumberOfLaunchConfigurations int }{limit, len(s.groups), 200, 0}, nil
}

// serveLimit answers the account's limit of hosted zones (API reference, GetAccountLimit; "Quotas", Route 53 Developer Guide: 500).
func (r *Route53) serveLimit(c *call) (any, error) {
	const kind, zones = "MAX_HOSTED_ZONES_BY_OWNER", 500
	if c.pathID() != kind {
		return nil, refuse("InvalidInput", "awsfake knows no limit %s", c.pathID())
	}
	type limit struct {
		Type  string
		Value int
	}
	return struct {
		Limit limit
		Count int
	}{limit{kind, zones}, len(r.zones)}, nil
}

// serveByVPC lists the private zones of a VPC (API reference, ListHostedZonesByVPC).
func (r *Route53) serveByVPC(c *call) (any, error) {
	vpc := VPC{c.Query.Get("vpcid"), c.Query.Get("vpcregion")}
	if vpc.ID == "" || vpc.Region == "" {
		return nil, refuse("InvalidInput", "The request must specify the VPC and its region.")
	}
	limit, err := c.limit(maxListedZones)
	if err != nil {
		return nil, err
	}
	from := 0
	if token := c.Query.Get("nexttoken"); token != "" {
		if from, err = strconv.Atoi(token); err != nil {
			return nil, refuse("InvalidPaginationToken", "%s", token)
		}
	}
	type summary struct {
		ID    string `xml:"HostedZoneId"`
		Name  string
		Owner string `xml:"Owner>OwningAccount"`
	}
	var all []summary
	for _, z := range r.byName() {
		if slices.Contains(z.VPCs, vpc) {
			all = append(all, summary{z.ID, z.Name, owner})
		}
	}
	out := struct {
		Summaries []summary `xml:"HostedZoneSummaries>HostedZoneSummary"`
		MaxItems  int
		NextToken string `xml:",omitempty"`
	}{MaxItems: limit}
	all = all[min(from, len(all)):]
	if len(all) > limit {
		all, out.NextToken = all[:limit], strconv.Itoa(from+limit)
	}
	out.Summaries = all
	return out, nil
}
