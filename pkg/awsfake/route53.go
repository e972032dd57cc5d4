package awsfake

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Route 53's figures, from its Developer Guide, "Quotas".
const (
	route53Rate = 5 // requests a second, for all calls of an account

	maxBatchValues     = 1000  // ResourceRecord elements a request; those of an UPSERT count twice
	maxBatchCharacters = 32000 // characters of all Values a request; those of an UPSERT count twice
	maxSetValues       = 400   // values a record set
	maxZoneSets        = 10000 // record sets a zone

	maxListedSets  = 300 // API reference, ListResourceRecordSets
	maxListedZones = 100 // API reference, ListHostedZonesByName

)

// vpcID is the form of a VPC's identifier.
var vpcID = regexp.MustCompile(`^vpc-([0-9a-f]{8}|[0-9a-f]{17})$`)

// Route53 is the account's DNS service. Several goroutines may call its methods. Methods with a context are API calls
// and pass the account's gate; the others read the state directly.
type Route53 struct {
	account *Account
	zones   map[string]*zone
}

// VPC is a VPC that a private zone is associated with.
type VPC struct{ ID, Region string }

// HostedZone is a hosted zone.
type HostedZone struct {
	ID      string // "Z0000000000001", without "/hostedzone/"
	Name    string // "demo.k8s.", as Route 53 spells it
	Comment string
	// CallerReference is chosen by the creator and unique in the account.
	CallerReference string
	// VPCs are empty for a public zone.
	VPCs []VPC
	// Sets is the number of record sets in the zone.
	Sets int
}

// Private reports whether the zone answers only in its VPCs.
func (z HostedZone) Private() bool { return len(z.VPCs) > 0 }

// RecordSet is one resource record set with simple routing. Alias targets and the other routing policies are not
// modelled.
type RecordSet struct {
	Name string // "masters.demo.k8s."
	Type string
	TTL  int64 // seconds
	// Values are in presentation format, TXT with its quotes.
	Values []string
}

// ChangeInfo describes a batch that was accepted.
type ChangeInfo struct {
	ID          string // "C0000000000001", without "/change/"
	SubmittedAt time.Time
}

// zone is a HostedZone with its record sets, which are in Route 53's order. A batch replaces the slice and never changes
// it.
type zone struct {
	HostedZone
	sets []RecordSet
}

func newRoute53(a *Account) *Route53 { return &Route53{account: a, zones: map[string]*zone{}} }

// Route53 returns the account's DNS service.
func (a *Account) Route53() *Route53 { return a.route53 }

// CreateHostedZone creates a zone from its name, comment, caller reference and, for a private zone, one VPC. An *Error
// says why the call was refused.
func (r *Route53) CreateHostedZone(ctx context.Context, in HostedZone) (created HostedZone, err error) {
	err = r.account.do(ctx, "route53", "CreateHostedZone", func(now time.Time) error {
		created, _, err = r.create(in, now)
		return err
	})
	return created, err
}

func (r *Route53) create(in HostedZone, now time.Time) (HostedZone, ChangeInfo, error) {
	name, problem := normalName(in.Name)
	if problem != "" || name == "." {
		return HostedZone{}, ChangeInfo{}, refuse("InvalidDomainName", "%s is not a valid domain name", in.Name)
	}
	if in.CallerReference == "" {
		return HostedZone{}, ChangeInfo{}, refuse("InvalidInput", "1 validation error detected: Value '' at 'callerReference' failed to satisfy constraint: Member must have length greater than or equal to 1")
	}
	for _, vpc := range in.VPCs {
		if !vpcID.MatchString(vpc.ID) {
			return HostedZone{}, ChangeInfo{}, refuse("InvalidVPCId", "The VPC ID is invalid.")
		}
	}
	if err := r.taken(name, in); err != nil {
		return HostedZone{}, ChangeInfo{}, err
	}
	id := r.account.serialID("Z")
	z := &zone{HostedZone: HostedZone{ID: id, Name: name, Comment: in.Comment, CallerReference: in.CallerReference, VPCs: slices.Clone(in.VPCs)}}
	z.sets = apex(name)
	r.zones[id] = z
	return z.view(), r.submitted(now), nil
}

// taken refuses a caller reference used before and a second zone of one name in one VPC.
func (r *Route53) taken(name string, in HostedZone) error {
	for _, z := range r.zones {
		if z.CallerReference == in.CallerReference {
			return &Error{Status: 409, Code: "HostedZoneAlreadyExists", Message: "A hosted zone has already been created with the specified caller reference."}
		}
		for _, vpc := range in.VPCs {
			if z.Name == name && slices.Contains(z.VPCs, vpc) {
				return refuse("ConflictingDomainExists", "The VPC %s in region %s has already been associated with the hosted zone %s with the same domain name.", vpc.ID, vpc.Region, z.ID)
			}
		}
	}
	return nil
}

// apex returns the sets that Route 53 puts into a new zone (Developer Guide, "NS and SOA records that Amazon Route 53
// creates"). The name servers are those of a private zone.
func apex(name string) []RecordSet {
	servers := nameServers()
	return []RecordSet{
		{Name: name, Type: "NS", TTL: 172800, Values: servers},
		{Name: name, Type: "SOA", TTL: 900, Values: []string{servers[0] + " awsdns-hostmaster.amazon.com. 1 7200 900 1209600 86400"}},
	}
}

func nameServers() []string {
	return []string{"ns-1536.awsdns-00.co.uk.", "ns-0.awsdns-00.com.", "ns-1024.awsdns-00.org.", "ns-512.awsdns-00.net."}
}

// view returns a copy of the zone for callers.
func (z *zone) view() HostedZone {
	v := z.HostedZone
	v.VPCs = slices.Clone(z.VPCs)
	v.Sets = len(z.sets)
	return v
}

// submitted makes a change that is PENDING.
func (r *Route53) submitted(now time.Time) ChangeInfo {
	return ChangeInfo{ID: r.account.serialID("C"), SubmittedAt: now}
}

// find is the zone, or the refusal of one that does not exist.
func (r *Route53) find(id string) (*zone, error) {
	z, ok := r.zones[strings.TrimPrefix(id, "/hostedzone/")]
	if !ok {
		return nil, &Error{Status: 404, Code: "NoSuchHostedZone", Message: "No hosted zone found with ID: " + id}
	}
	return z, nil
}

// remove deletes a zone that has no sets but its own NS and SOA.
func (r *Route53) remove(id string) error {
	z, err := r.find(id)
	if err != nil {
		return err
	}
	if len(z.sets) > 2 {
		return refuse("HostedZoneNotEmpty", "The specified hosted zone contains non-required resource record sets and so cannot be deleted.")
	}
	delete(r.zones, z.ID)
	return nil
}

// RecordSets returns a zone's sets in Route 53's order, or the error NoSuchHostedZone. It is no API call.
func (r *Route53) RecordSets(zoneID string) ([]RecordSet, error) {
	r.account.mu.Lock()
	defer r.account.mu.Unlock()
	z, err := r.find(zoneID)
	if err != nil {
		return nil, err
	}
	return slices.Clone(z.sets), nil
}

// serialID makes an identifier in Route 53's style.
func (a *Account) serialID(prefix string) string {
	a.tally.serial++
	return fmt.Sprintf("%s%013X", prefix, a.tally.serial)
}
