package preflight

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
)

// Network is the VPC as machines in it see it.
type Network struct {
	VPC string
	// DNS are whether the VPC answers names at all (enableDnsSupport), and gives its machines names (enableDnsHostnames).
	DNS doctor.Known[DNS]
	// Subnets are those of the cluster, by id.
	Subnets doctor.Known[map[string]Subnet]
	// Ranges are the VPC's own blocks of IPv4 addresses; they are known where Subnets are.
	Ranges    []string
	Endpoints doctor.Known[[]Endpoint]
	// Zones are the private zones that the VPC's resolver answers from.
	Zones doctor.Known[[]Zone]
}

// DNS are a VPC's two attributes about names.
type DNS struct{ Support, Hostnames bool }

// Subnet is a subnet and how its machines reach what is outside the VPC.
type Subnet struct {
	VPC string
	// Free is how many addresses are left.
	Free int
	// RouteTable is the id of its route table, and Way what its route to everywhere leads to, such as igw-…; empty for no such route. Lost is whether that is gone.
	RouteTable, Way string
	Lost            bool
	// PublicAddresses is whether machines get a public address, without which an internet gateway forwards nothing.
	PublicAddresses bool
}

// Endpoint is an endpoint of a service in the VPC.
type Endpoint struct {
	ID string
	// Service is the last part of its name: ssm. Gateway is whether it is in route tables, and not an interface.
	Service string
	Gateway bool
	// Available is whether it works, and PrivateNames whether the service's own name leads to it.
	Available, PrivateNames bool
	RouteTables             []string
	// Policy is its policy as JSON; empty for one that allows everything.
	Policy string
}

// Zone is a private zone of a VPC. Owner is the account or the service that it belongs to.
type Zone struct{ ID, Name, Owner string }

func (l *list) network(n Network, w Wanted) {
	if n.VPC == "" {
		l.add("network", doctor.Warning, "name it with --vpc and --subnets", "not known: nobody has said in which VPC the cluster is to be")
		return
	}
	l.names(n)
	l.zone(n, w)
	l.subnets(n, w)
	l.ranges(n, w)
	l.policies(n, w)
}

// names checks the VPC's attributes. A private zone needs both ("Considerations when working with a private hosted zone", Route 53
// Developer Guide).
func (l *list) names(n Network) {
	const name = "network.dns"
	if l.unread(name, n.DNS.Err) {
		return
	}
	var off []string
	for attribute, on := range map[string]bool{"enableDnsSupport": n.DNS.Value.Support, "enableDnsHostnames": n.DNS.Value.Hostnames} {
		if !on {
			off = append(off, attribute)
		}
	}
	if slices.Sort(off); len(off) == 0 {
		l.ok(name, "%s answers names from private zones", n.VPC)
		return
	}
	var next []string
	for _, attribute := range off {
		next = append(next, fmt.Sprintf("aws ec2 modify-vpc-attribute --vpc-id %s --%s Value=true", n.VPC, map[string]string{"enableDnsSupport": "enable-dns-support", "enableDnsHostnames": "enable-dns-hostnames"}[attribute]))
	}
	l.add(name, doctor.Error, strings.Join(next, "; "), "%s has %s off: machines find no name of the private zone", n.VPC, strings.Join(off, " and "))
}

// zone checks that the VPC has the cluster's zone, or room for it: "you can't associate a VPC with two hosted zones of one name"
// (AssociateVPCWithHostedZone, ConflictingDomainExists).
func (l *list) zone(n Network, w Wanted) {
	const name = "network.zone"
	if l.unread(name, n.Zones.Err) {
		return
	}
	i := slices.IndexFunc(n.Zones.Value, func(z Zone) bool { return strings.TrimSuffix(z.Name, ".") == strings.TrimSuffix(w.Zone, ".") })
	switch {
	case w.ZoneID == "" && i < 0 && w.Made:
		l.add(name, doctor.Error, "aws route53 associate-vpc-with-hosted-zone, or hardtack stack apply if the zone is gone", "%s has no private zone %s, which the stack made for it", n.VPC, w.Zone)
	case w.ZoneID == "" && i >= 0 && !w.Made:
		z := n.Zones.Value[i]
		l.add(name, doctor.Error, "give --zone-id "+z.ID+" if it is another cluster's of Hardtack, or take another VPC", "%s has a private zone %s already, %s of %s: Route 53 takes no second one", n.VPC, w.Zone, z.ID, z.Owner)
	case w.ZoneID == "" && i < 0:
		l.ok(name, "%s has no private zone %s yet: the stack makes it", n.VPC, w.Zone)
	case w.ZoneID == "":
		l.ok(name, "%s has the private zone %s, %s", n.VPC, w.Zone, n.Zones.Value[i].ID)
	case i < 0:
		l.add(name, doctor.Error, fmt.Sprintf("aws route53 associate-vpc-with-hosted-zone --hosted-zone-id %s --vpc VPCRegion=REGION,VPCId=%s", w.ZoneID, n.VPC), "%s is not associated with zone %s: machines find no name of it", n.VPC, w.ZoneID)
	case n.Zones.Value[i].ID != w.ZoneID:
		l.add(name, doctor.Error, "give --zone-id "+n.Zones.Value[i].ID, "%s answers %s from zone %s, and not from %s", n.VPC, w.Zone, n.Zones.Value[i].ID, w.ZoneID)
	default:
		l.ok(name, "%s answers %s from zone %s", n.VPC, w.Zone, w.ZoneID)
	}
}

// subnets checks that the subnets have room, and that machines in each reach the services.
func (l *list) subnets(n Network, w Wanted) {
	if l.unread("network.subnets", n.Subnets.Err) {
		return
	}
	free := 0
	for _, id := range slices.Compact(slices.Sorted(slices.Values(w.Subnets))) {
		s, ok := n.Subnets.Value[id]
		switch {
		case !ok:
			l.add("network.subnets", doctor.Error, "name another one", "there is no subnet %s", id)
			continue
		case s.VPC != n.VPC:
			l.add("network.subnets", doctor.Error, "name a subnet of "+n.VPC, "subnet %s is of %s, and not of %s", id, s.VPC, n.VPC)
		}
		free += s.Free
		l.reaches(id, s, n, w)
	}
	if free < w.Machines {
		l.add("network.addresses", doctor.Error, "name more or larger subnets, or make the cluster smaller", "the subnets have %d free addresses, and the cluster has up to %d machines", free, w.Machines)
		return
	}
	l.ok("network.addresses", "the subnets have %d free addresses, and the cluster has up to %d machines", free, w.Machines)
}

// ranges checks that no pod and no Service would have an address of the VPC: what a machine sends there stays within the cluster.
func (l *list) ranges(n Network, w Wanted) {
	const name = "network.ranges"
	if n.Subnets.Err != nil {
		return // it was said of the subnets
	}
	apart := true
	for _, field := range slices.Sorted(maps.Keys(w.Ranges)) {
		for _, text := range n.Ranges {
			own, err1 := netip.ParsePrefix(text)
			wanted, err2 := netip.ParsePrefix(w.Ranges[field])
			if err1 == nil && err2 == nil && own.Overlaps(wanted) {
				apart = false
				l.add(name, doctor.Error, "write another "+field+" in the document, which no cluster with machines can change, or take another VPC",
					"%s %s overlaps %s of %s: what machines send to each other there would go to pods or Services", field, wanted, own, n.VPC)
			}
		}
	}
	if apart {
		l.ok(name, "pods and Services have no addresses of %s (%s)", n.VPC, strings.Join(n.Ranges, ", "))
	}
}

// reaches checks the way from one subnet to the services.
func (l *list) reaches(id string, s Subnet, n Network, w Wanted) {
	name := "network.reach." + id
	internet := strings.HasPrefix(s.Way, "igw-")
	if s.Way != "" && !s.Lost && (!internet || s.PublicAddresses) {
		l.ok(name, "its machines reach AWS by %s", s.Way)
		return
	}
	why, next := "it has no route to everywhere", "add a NAT gateway to route table "+s.RouteTable
	switch {
	case s.Lost:
		why, next = "its route to everywhere leads to "+s.Way+", which is gone", "repair the route in "+s.RouteTable
	case s.Way != "":
		why, next = "its route to everywhere leads to "+s.Way+", and its machines get no public address", "aws ec2 modify-subnet-attribute --subnet-id "+id+" --map-public-ip-on-launch, or a NAT gateway"
	}
	if l.unread(name, n.Endpoints.Err) {
		return
	}
	missing := map[string]string{}
	for _, service := range services(w.Calls) {
		if problem := s.endpoint(service, n.Endpoints.Value); problem != "" {
			missing[service] = problem
		}
	}
	if len(missing) == 0 {
		l.ok(name, "its machines reach %s by endpoints in the VPC", strings.Join(services(w.Calls), ", "))
		return
	}
	var problems []string
	for _, service := range slices.Sorted(maps.Keys(missing)) {
		problems = append(problems, service+" ("+missing[service]+")")
	}
	l.add(name, doctor.Error, next+"; or make the endpoints in "+n.VPC, "%s, and there is no way to %s: its machines would never come up", why, strings.Join(problems, ", "))
}

// endpoint says why the subnet's machines do not reach a service by an endpoint; empty if they do.
func (s Subnet) endpoint(service string, all []Endpoint) (problem string) {
	problem = "no endpoint"
	for _, e := range all {
		switch {
		case e.Service != service:
		case !e.Available:
			problem = e.ID + " is not available"
		case e.Gateway && slices.Contains(e.RouteTables, s.RouteTable):
			return ""
		case e.Gateway:
			problem = e.ID + " is not in route table " + s.RouteTable
		case !e.PrivateNames:
			problem = e.ID + " has private DNS names off"
		default:
			return ""
		}
	}
	return problem
}
