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
	case "DeleteHostedZone":
		change, err := r.remove(c.pathID(), c.Now)
		return changed(change, err)
	case "ListHostedZones", "ListHostedZonesByName":
		return r.serveZones(c)
	case "ListHostedZonesByVPC":
		return r.serveByVPC(c)
	case "ListResourceRecordSets":
		return r.serveList(c)
	case "ChangeResourceRecordSets":
		return r.serveChange(c)
	case "GetChange":
		change, err := r.change(c.pathID(), c.Now)
		return changed(change, err)
	}
	return nil, refuse("InvalidAction", "awsfake does not model %s", c.Action)
}

// needs of Route 53 (Service Authorization Reference, "Actions, resources, and condition keys for Amazon Route 53").
func (r *Route53) needs(c *call) []need {
	n := need{action: "route53:" + c.Action, arn: "*"}
	switch c.Action {
	case "GetChange":
		n.arn = "arn:aws:route53:::change/" + c.pathID()
	case "GetHostedZone", "DeleteHostedZone", "ListResourceRecordSets":
		n.arn = "arn:aws:route53:::hostedzone/" + c.pathID()
	case "ChangeResourceRecordSets":
		n.arn, n.context = "arn:aws:route53:::hostedzone/"+c.pathID(), changeAttributes(c)
	}
	return []need{n}
}

// changeAttributes are the condition keys of a batch. A normalized name has no final dot.
func changeAttributes(c *call) map[string][]string {
	changes, err := readChanges(c)
	if err != nil {
		return nil // serve refuses it for what it is
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

type changeAnswer struct{ ChangeInfo wireChangeInfo }

func changed(change ChangeInfo, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return changeAnswer{toWireChangeInfo(change)}, nil
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

// serveZones lists by name or, for ListHostedZones, by the order of creation.
func (r *Route53) serveZones(c *call) (any, error) {
	limit, err := c.limit(maxListedZones)
	if err != nil {
		return nil, err
	}
	byName := c.Action == "ListHostedZonesByName"
	a := zonesAnswer{MaxItems: limit}
	zones := r.byName()
	var before func(*zone) bool
	if byName {
		a.DNSName, a.HostedZoneID = c.Query.Get("dnsname"), c.Query.Get("hostedzoneid")
		if before, err = beforeName(a.DNSName, a.HostedZoneID); err != nil {
			return nil, err
		}
	} else {
		a.Marker = c.Query.Get("marker")
		slices.SortFunc(zones, func(x, y *zone) int { return strings.Compare(x.ID, y.ID) })
		before = func(z *zone) bool { return z.ID < a.Marker }
	}
	zones = slices.DeleteFunc(zones, before)
	if len(zones) > limit {
		a.IsTruncated = true
		next := zones[limit]
		if byName {
			a.NextDNSName, a.NextHostedZoneID = next.Name, next.ID
		} else {
			a.NextMarker = next.ID
		}
		zones = zones[:limit]
	}
	for _, z := range zones {
		a.HostedZones = append(a.HostedZones, toWireZone(z.view()))
	}
	return a, nil
}

// beforeName is whether a zone comes before the start of ListHostedZonesByName. Zones of other names
// after the start are listed too: a caller that looks for one name must compare it.
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

type zoneSummary struct {
	HostedZoneID string `xml:"HostedZoneId"`
	Name         string
	Owner        struct{ OwningAccount string }
}

func (r *Route53) serveByVPC(c *call) (any, error) {
	id, region := c.Query.Get("vpcid"), c.Query.Get("vpcregion")
	if !vpcID.MatchString(id) || region == "" {
		return nil, refuse("InvalidInput", "The VPC ID or its region is invalid.")
	}
	limit, err := c.limit(maxListedZones)
	if err != nil {
		return nil, err
	}
	var a struct {
		HostedZoneSummaries []zoneSummary `xml:"HostedZoneSummaries>HostedZoneSummary"`
		MaxItems            int
		NextToken           string `xml:",omitempty"`
	}
	a.MaxItems = limit
	after := c.Query.Get("nexttoken")
	zones := slices.DeleteFunc(r.byName(), func(z *zone) bool {
		return !slices.Contains(z.VPCs, VPC{id, region})
	})
	first := slices.IndexFunc(zones, func(z *zone) bool { return after == "" || z.ID == after })
	if first < 0 && after != "" {
		return nil, refuse("InvalidPaginationToken", "The value that you specified to get the second or subsequent page of results is invalid.")
	}
	for _, z := range zones[max(first, 0):] {
		if len(a.HostedZoneSummaries) == limit {
			a.NextToken = z.ID
			break
		}
		s := zoneSummary{HostedZoneID: z.ID, Name: z.Name}
		s.Owner.OwningAccount = owner
		a.HostedZoneSummaries = append(a.HostedZoneSummaries, s)
	}
	return a, nil
}

func (r *Route53) serveList(c *call) (any, error) {
	limit, err := c.limit(maxListedSets)
	if err != nil {
		return nil, err
	}
	from := Start{c.Query.Get("name"), c.Query.Get("type"), c.Query.Get("identifier")}
	page, err := r.list(c.pathID(), from, limit)
	if err != nil {
		return nil, err
	}
	var a struct {
		ResourceRecordSets   []wireSet `xml:"ResourceRecordSets>ResourceRecordSet"`
		IsTruncated          bool
		MaxItems             int
		NextRecordName       string `xml:",omitempty"`
		NextRecordType       string `xml:",omitempty"`
		NextRecordIdentifier string `xml:",omitempty"`
	}
	a.MaxItems, a.IsTruncated = limit, page.Next != nil
	for _, s := range page.Sets {
		a.ResourceRecordSets = append(a.ResourceRecordSets, toWireSet(s))
	}
	if page.Next != nil {
		a.NextRecordName, a.NextRecordType, a.NextRecordIdentifier = page.Next.Name, page.Next.Type, page.Next.Identifier
	}
	return a, nil
}

func (r *Route53) serveChange(c *call) (any, error) {
	changes, err := readChanges(c)
	if err != nil {
		return nil, err
	}
	change, err := r.apply(c.pathID(), changes, c.Now)
	return changed(change, err)
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

// limit reads maxitems; more than most is most.
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
