package awsfake

import (
	"encoding/xml"
	"slices"
	"strconv"
	"strings"
)

// serve carries out one call of the wire protocol.
func (r *Route53) serve(c *call) (any, error) {
	switch c.Action {
	case "CreateHostedZone":
		return r.serveCreate(c)
	case "GetHostedZone":
		return r.serveGet(c)
	case "ListHostedZones", "ListHostedZonesByName":
		return r.serveZones(c)
	case "ListHostedZonesByVPC":
		return r.serveByVPC(c)
	case "GetAccountLimit":
		return r.serveLimit(c)
	case "ListResourceRecordSets":
		return r.serveList(c)
	case "ChangeResourceRecordSets":
		return r.serveChange(c)
	}
	return nil, refuse("InvalidAction", "awsfake does not model %s", c.Action)
}

// needs of Route 53 (Service Authorization Reference, "Actions, resources, and condition keys for Amazon Route 53").
func (r *Route53) needs(c *call) []need {
	n := need{action: "route53:" + c.Action, arn: "*"}
	switch c.Action {
	case "CreateHostedZone":
		return r.createNeeds(c, n)
	case "ListHostedZonesByVPC":
		n.context = map[string][]string{"route53:VPCs": {"VPCId=" + c.Query.Get("vpcid") + ",VPCRegion=" + c.Query.Get("vpcregion")}}
		return []need{n, inRegion(need{action: "ec2:DescribeVpcs", arn: "*"}, c.Query.Get("vpcregion"))}
	case "GetHostedZone", "ListResourceRecordSets":
		n.arn = "arn:aws:route53:::hostedzone/" + c.pathID()
	case "ChangeResourceRecordSets":
		n.arn, n.context = "arn:aws:route53:::hostedzone/"+c.pathID(), changeAttributes(c)
	}
	return []need{n}
}

// createNeeds are those of CreateHostedZone: with a VPC, it is a condition key, and the caller must be allowed to look for it.
func (r *Route53) createNeeds(c *call, n need) []need {
	var in struct {
		VPC *wireVPC
	}
	if err := xml.Unmarshal(c.Body, &in); err != nil || in.VPC == nil {
		return []need{n} // serve refuses what cannot be read
	}
	n.context = map[string][]string{"route53:VPCs": {"VPCId=" + in.VPC.VPCID + ",VPCRegion=" + in.VPC.VPCRegion}}
	return []need{n, inRegion(need{action: "ec2:DescribeVpcs", arn: "*"}, in.VPC.VPCRegion)}
}

// changeAttributes are the condition keys of a batch. A normalized name has no final dot.
func changeAttributes(c *call) map[string][]string {
	changes, err := readChanges(c)
	if err != nil {
		return nil // serve refuses it
	}
	const key = "route53:ChangeResourceRecordSets"
	attributes := map[string][]string{}
	for _, change := range changes {
		name, problem := normalName(change.Set.Name)
		if problem != "" {
			name = change.Set.Name
		}
		attributes[key+"NormalizedRecordNames"] = append(attributes[key+"NormalizedRecordNames"], strings.TrimSuffix(name, "."))
		attributes[key+"RecordTypes"] = append(attributes[key+"RecordTypes"], change.Set.Type)
		attributes[key+"Actions"] = append(attributes[key+"Actions"], change.Action)
	}
	return attributes
}

type createAnswer struct {
	HostedZone    wireZone
	ChangeInfo    wireChangeInfo
	DelegationSet *wireDelegation
	VPC           *wireVPC
	where         string
}

func (a createAnswer) location() string { return a.where }

func (r *Route53) serveCreate(c *call) (any, error) {
	var in struct {
		XMLName          xml.Name `xml:"CreateHostedZoneRequest"`
		Name             string
		CallerReference  string
		HostedZoneConfig wireZoneConfig
		VPC              *wireVPC
	}
	if err := c.readXML(&in); err != nil {
		return nil, err
	}
	zone := HostedZone{Name: in.Name, CallerReference: in.CallerReference, Comment: in.HostedZoneConfig.Comment}
	if in.VPC != nil {
		zone.VPCs = []VPC{{in.VPC.VPCID, in.VPC.VPCRegion}}
	}
	if in.HostedZoneConfig.PrivateZone && in.VPC == nil {
		return nil, refuse("InvalidInput", "When you create a private hosted zone, you must specify a VPC.")
	}
	created, change, err := r.create(zone, c.Now)
	if err != nil {
		return nil, err
	}
	return createAnswer{toWireZone(created), toWireChangeInfo(change), toWireDelegation(created), in.VPC,
		"https://route53.amazonaws.com/2013-04-01/hostedzone/" + created.ID}, nil
}

func (r *Route53) serveGet(c *call) (any, error) {
	z, err := r.find(c.pathID())
	if err != nil {
		return nil, err
	}
	return struct {
		HostedZone    wireZone
		DelegationSet *wireDelegation
		VPCs          *wireVPCs
	}{toWireZone(z.view()), toWireDelegation(z.HostedZone), toWireVPCs(z.VPCs)}, nil
}

type zonesAnswer struct {
	HostedZones      []wireZone `xml:"HostedZones>HostedZone"`
	DNSName          string     `xml:",omitempty"`
	HostedZoneID     string     `xml:"HostedZoneId,omitempty"`
	Marker           string     `xml:",omitempty"`
	IsTruncated      bool
	NextDNSName      string `xml:",omitempty"`
	NextHostedZoneID string `xml:"NextHostedZoneId,omitempty"`
	NextMarker       string `xml:",omitempty"`
	MaxItems         int
}

// serveZones lists zones by name or, for ListHostedZones, which external-dns calls, by identifier.
func (r *Route53) serveZones(c *call) (any, error) {
	limit, err := c.limit(maxListedZones)
	if err != nil {
		return nil, err
	}
	a := zonesAnswer{MaxItems: limit, Marker: c.Query.Get("marker"), DNSName: c.Query.Get("dnsname"), HostedZoneID: c.Query.Get("hostedzoneid")}
	zones := r.byName()
	before := func(z *zone) bool { return z.ID < a.Marker }
	if c.Action == "ListHostedZones" {
		slices.SortFunc(zones, func(x, y *zone) int { return strings.Compare(x.ID, y.ID) })
	} else if before, err = beforeName(a.DNSName, a.HostedZoneID); err != nil {
		return nil, err
	}
	zones = slices.DeleteFunc(zones, before)
	if len(zones) > limit {
		next := zones[limit]
		a.IsTruncated = true
		if c.Action == "ListHostedZones" {
			a.NextMarker = next.ID
		} else {
			a.NextDNSName, a.NextHostedZoneID = next.Name, next.ID
		}
		zones = zones[:limit]
	}
	for _, z := range zones {
		a.HostedZones = append(a.HostedZones, toWireZone(z.view()))
	}
	return a, nil
}

// beforeName returns a function that reports whether a zone comes before the start of ListHostedZonesByName. Zones of
// other names after the start are listed too, so a caller that looks for one name must compare it.
func beforeName(name, id string) (func(*zone) bool, error) {
	if name == "" {
		if id != "" {
			return nil, refuse("InvalidInput", "A hosted zone ID needs a DNS name.")
		}
		return func(*zone) bool { return false }, nil
	}
	normal, problem := normalName(name)
	if problem != "" {
		return nil, refuse("InvalidDomainName", "%s", problem)
	}
	id = strings.TrimPrefix(id, "/hostedzone/")
	return func(z *zone) bool {
		order := compareNames(z.Name, normal)
		return order < 0 || order == 0 && z.ID < id
	}, nil
}

func (r *Route53) serveList(c *call) (any, error) {
	limit, err := c.limit(maxListedSets)
	if err != nil {
		return nil, err
	}
	from := Start{c.Query.Get("name"), c.Query.Get("type")}
	page, err := r.list(c.pathID(), from, limit)
	if err != nil {
		return nil, err
	}
	var a struct {
		ResourceRecordSets []wireSet `xml:"ResourceRecordSets>ResourceRecordSet"`
		IsTruncated        bool
		MaxItems           int
		NextRecordName     string `xml:",omitempty"`
		NextRecordType     string `xml:",omitempty"`
	}
	a.MaxItems, a.IsTruncated = limit, page.Next != nil
	for _, s := range page.Sets {
		a.ResourceRecordSets = append(a.ResourceRecordSets, toWireSet(s))
	}
	if page.Next != nil {
		a.NextRecordName, a.NextRecordType = page.Next.Name, page.Next.Type
	}
	return a, nil
}

func (r *Route53) serveChange(c *call) (any, error) {
	changes, err := readChanges(c)
	if err != nil {
		return nil, err
	}
	change, err := r.apply(c.pathID(), changes, c.Now)
	if err != nil {
		return nil, err
	}
	return struct{ ChangeInfo wireChangeInfo }{toWireChangeInfo(change)}, nil
}

func readChanges(c *call) ([]Change, error) {
	var in struct {
		XMLName xml.Name     `xml:"ChangeResourceRecordSetsRequest"`
		Changes []wireChange `xml:"ChangeBatch>Changes>Change"`
	}
	if err := c.readXML(&in); err != nil {
		return nil, err
	}
	changes := make([]Change, len(in.Changes))
	for i, w := range in.Changes {
		change, err := w.change()
		if err != nil {
			return nil, err
		}
		changes[i] = change
	}
	return changes, nil
}

// limit reads maxitems; a value above most is reduced to most.
func (c *call) limit(most int) (int, error) {
	value := c.Query.Get("maxitems")
	if value == "" {
		return most, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return 0, refuse("InvalidInput", "1 validation error detected: Value '%s' at 'maxItems' failed to satisfy constraint: Member must have value greater than or equal to 1", value)
	}
	return min(n, most), nil
}
