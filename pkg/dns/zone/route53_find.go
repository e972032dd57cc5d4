package zone

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// ZonesAPI is what of Route 53's client finding and making zones needs.
type ZonesAPI interface {
	RecordsAPI
	ListHostedZonesByName(ctx context.Context, in *route53.ListHostedZonesByNameInput, opts ...func(*route53.Options)) (*route53.ListHostedZonesByNameOutput, error)
	GetHostedZone(ctx context.Context, in *route53.GetHostedZoneInput, opts ...func(*route53.Options)) (*route53.GetHostedZoneOutput, error)
	CreateHostedZone(ctx context.Context, in *route53.CreateHostedZoneInput, opts ...func(*route53.Options)) (*route53.CreateHostedZoneOutput, error)
}

// Query selects a zone.
type Query struct {
	// Name is the zone's, with or without the final dot; empty is record.DefaultSuffix.
	Name string
	// VPC is a VPC that the private zone is associated with; empty is any, if the name has only one zone.
	VPC string
	// Region is the VPC's region; only needed to create the zone.
	Region string
	// Public selects the public zone of the name instead of a private one.
	Public bool
}

func (q Query) name() string { return record.Policy{Suffix: q.Name}.Zone() }

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

// ErrNoZone means that no zone matches the query.
var ErrNoZone = errors.New("there is no such zone")

// FindZone returns the id of the hosted zone that the query selects. Two matching zones are an error that names both,
// since machines might use either.
func FindZone(ctx context.Context, api ZonesAPI, q Query) (string, error) {
	var found []string
	in := &route53.ListHostedZonesByNameInput{DNSName: aws.String(q.name())}
	for {
		page, err := api.ListHostedZonesByName(ctx, in, noRetries)
		if err != nil {
			return "", fmt.Errorf("looking for the %s: %w", q, (&Route53{}).explain(err))
		}
		for _, z := range page.HostedZones {
			if aws.ToString(z.Name) != q.name() {
				return q.only(found) // sorted by name, the rest is of other names
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
			return q.only(found)
		}
		in.DNSName, in.HostedZoneId = page.NextDNSName, page.NextHostedZoneId
	}
}

func (q Query) only(found []string) (string, error) {
	switch len(found) {
	case 0:
		return "", fmt.Errorf("looking for the %s: %w in this account", q, ErrNoZone)
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
	full, err := api.GetHostedZone(ctx, &route53.GetHostedZoneInput{Id: z.Id}, noRetries)
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

// CreateZone creates the zone and lowers the SOA's TTL and minimum to record.NegativeTTL. The reference identifies the
// request: a second call with the same one creates no second zone, but is an error. If lowering fails, the id of the
// zone is returned with the error: LowerMinimum can be called again.
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
	out, err := api.CreateHostedZone(ctx, in, noRetries)
	if awserr.KindOf(err) == awserr.Denied { // Route 53 looks for the VPC in its caller's name
		return "", fmt.Errorf("creating the %s: %w", q, awserr.Explain(err, "route53:CreateHostedZone, and for a VPC ec2:DescribeVpcs, in IAM"))
	}
	if err != nil {
		return "", fmt.Errorf("creating the %s: %w", q, (&Route53{}).explain(err))
	}
	id := strings.TrimPrefix(aws.ToString(out.HostedZone.Id), "/hostedzone/")
	return id, (&Route53{api: api, id: id, policy: record.Policy{Suffix: q.name()}}).LowerMinimum(ctx)
}
