package zone

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/record"
)

// NegativeTTL is what a zone's SOA should say at most: how long a resolver keeps a "no such name". A
// new zone of Route 53 has 900 s, and a machine that asks too early would wait for 15 minutes.
const NegativeTTL = 5 * time.Second

// ZonesAPI is what of Route 53's client finding and making zones needs.
type ZonesAPI interface {
	RecordsAPI
	ListHostedZonesByName(ctx context.Context, in *route53.ListHostedZonesByNameInput, opts ...func(*route53.Options)) (*route53.ListHostedZonesByNameOutput, error)
	GetHostedZone(ctx context.Context, in *route53.GetHostedZoneInput, opts ...func(*route53.Options)) (*route53.GetHostedZoneOutput, error)
	CreateHostedZone(ctx context.Context, in *route53.CreateHostedZoneInput, opts ...func(*route53.Options)) (*route53.CreateHostedZoneOutput, error)
}

// Query says which zone is meant.
type Query struct {
	// Name is the zone's, with or without the final dot; empty is record.DefaultSuffix.
	Name string
	// VPC is one that sees the private zone; empty: any, when there is only one of the name.
	VPC string
	// Region is the VPC's; only creating needs it.
	Region string
	// Public: the public zone of the name, and no private one.
	Public bool
}

func (q Query) name() string {
	return strings.ToLower(strings.TrimSuffix(cmp.Or(q.Name, record.DefaultSuffix), ".")) + "."
}

// String is the zone in errors.
func (q Query) String() string {
	kind := "private"
	if q.Public {
		kind = "public"
	}
	s := kind + " zone " + q.name()
	if q.VPC != "" {
		s += " of " + q.VPC
	}
	return s
}

// ErrNoZone is when no zone is as the query says.
var ErrNoZone = errors.New("there is no such zone")

// FindZone returns the id of the one hosted zone that the query names. Two are an error that names
// both: which one machines would ask cannot be guessed.
func FindZone(ctx context.Context, api ZonesAPI, q Query) (string, error) {
	var found []string
	in := &route53.ListHostedZonesByNameInput{DNSName: aws.String(q.name())}
	for {
		page, err := api.ListHostedZonesByName(ctx, in, once)
		if err != nil {
			return "", fmt.Errorf("looking for the %s: %w", q, (&Route53{}).explain(err))
		}
		for _, z := range page.HostedZones {
			if aws.ToString(z.Name) != q.name() {
				return q.one(found) // sorted by name, the rest is of other names
			}
			ok, err := q.matches(ctx, api, z)
			if err != nil {
				return "", err
			}
			if ok {
				found = append(found, strings.TrimPrefix(aws.ToString(z.Id), "/hostedzone/"))
			}
		}
		if !page.IsTruncated {
			return q.one(found)
		}
		in.DNSName, in.HostedZoneId = page.NextDNSName, page.NextHostedZoneId
	}
}

func (q Query) one(found []string) (string, error) {
	switch len(found) {
	case 0:
		return "", fmt.Errorf("looking for the %s: %w in this account (create it: hardtack dns zone create; or name another)", q, ErrNoZone)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("looking for the %s: there are %d, %s: name the VPC that sees the right one, or its id", q, len(found), strings.Join(found, " and "))
}

func (q Query) matches(ctx context.Context, api ZonesAPI, z types.HostedZone) (bool, error) {
	private := z.Config != nil && z.Config.PrivateZone
	if private == q.Public {
		return false, nil
	}
	if q.Public || q.VPC == "" {
		return true, nil
	}
	full, err := api.GetHostedZone(ctx, &route53.GetHostedZoneInput{Id: z.Id}, once)
	if err != nil {
		return false, fmt.Errorf("reading zone %s: %w", aws.ToString(z.Id), (&Route53{id: aws.ToString(z.Id)}).explain(err))
	}
	for _, v := range full.VPCs {
		if aws.ToString(v.VPCId) == q.VPC {
			return true, nil
		}
	}
	return false, nil
}

// CreateZone makes the zone and lowers the SOA's TTL and minimum to NegativeTTL. The reference is the
// caller's own: a second call with the same one makes no second zone, but is an error. When lowering
// fails, the id of the zone is returned with the error: LowerMinimum can be called again.
func CreateZone(ctx context.Context, api ZonesAPI, q Query, reference string) (string, error) {
	in := &route53.CreateHostedZoneInput{
		Name: aws.String(q.name()), CallerReference: &reference,
		HostedZoneConfig: &types.HostedZoneConfig{Comment: aws.String("made by hardtack"), PrivateZone: !q.Public},
	}
	if !q.Public {
		if q.VPC == "" || q.Region == "" {
			return "", fmt.Errorf("creating the %s: name a VPC and its region, which see it", q)
		}
		in.VPC = &types.VPC{VPCId: &q.VPC, VPCRegion: types.VPCRegion(q.Region)}
	}
	out, err := api.CreateHostedZone(ctx, in, once)
	if err != nil {
		return "", fmt.Errorf("creating the %s: %w", q, (&Route53{}).explain(err))
	}
	id := strings.TrimPrefix(aws.ToString(out.HostedZone.Id), "/hostedzone/")
	return id, LowerMinimum(ctx, api, id, q.name())
}

// LowerMinimum sets the TTL and the minimum of the zone's SOA to NegativeTTL where they differ: a
// resolver keeps a "no such name" for the lower of the two (RFC 2308).
func LowerMinimum(ctx context.Context, api RecordsAPI, id, name string) error {
	soa, fields, err := readSOA(ctx, api, id, name)
	if err != nil {
		return err
	}
	want := fmt.Sprint(int(NegativeTTL / time.Second))
	if fields[6] == want && aws.ToInt64(soa.TTL) == int64(NegativeTTL/time.Second) {
		return nil
	}
	fields[6] = want
	soa.ResourceRecords = []types.ResourceRecord{{Value: aws.String(strings.Join(fields, " "))}}
	soa.TTL = aws.Int64(int64(NegativeTTL / time.Second))
	// A SOA can be neither deleted nor created, so this one change is no compare-and-swap.
	_, err = api.ChangeResourceRecordSets(ctx, &route53.ChangeResourceRecordSetsInput{HostedZoneId: &id, ChangeBatch: &types.ChangeBatch{
		Changes: []types.Change{{Action: types.ChangeActionUpsert, ResourceRecordSet: &soa}},
	}}, once)
	if err != nil {
		return fmt.Errorf("lowering the SOA minimum of zone %s: %w", id, (&Route53{id: id}).outcome(err))
	}
	return nil
}

// NegativeTTLOf is how long a resolver keeps a "no such name" of the zone.
func NegativeTTLOf(ctx context.Context, api RecordsAPI, id, name string) (time.Duration, error) {
	soa, fields, err := readSOA(ctx, api, id, name)
	if err != nil {
		return 0, err
	}
	minimum, err := strconv.ParseInt(fields[6], 10, 32)
	if err != nil {
		return 0, fmt.Errorf("reading the SOA of zone %s: %w", id, err)
	}
	return time.Duration(min(minimum, aws.ToInt64(soa.TTL))) * time.Second, nil
}

// readSOA returns the zone's SOA and its 7 fields.
func readSOA(ctx context.Context, api RecordsAPI, id, name string) (types.ResourceRecordSet, []string, error) {
	page, err := api.ListResourceRecordSets(ctx, &route53.ListResourceRecordSetsInput{
		HostedZoneId: &id, StartRecordName: &name, StartRecordType: types.RRTypeSoa, MaxItems: aws.Int32(1),
	}, once)
	if err != nil {
		return types.ResourceRecordSet{}, nil, fmt.Errorf("reading the SOA of zone %s: %w", id, (&Route53{id: id}).explain(err))
	}
	if len(page.ResourceRecordSets) == 1 && page.ResourceRecordSets[0].Type == types.RRTypeSoa && len(page.ResourceRecordSets[0].ResourceRecords) == 1 {
		soa := page.ResourceRecordSets[0]
		if fields := strings.Fields(aws.ToString(soa.ResourceRecords[0].Value)); len(fields) == 7 {
			return soa, fields, nil
		}
	}
	return types.ResourceRecordSet{}, nil, fmt.Errorf("reading the SOA of zone %s: there is none at %s (is this the zone's name?)", id, name)
}
