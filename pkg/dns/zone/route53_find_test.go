package zone_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/aws/smithy-go"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
)

// hostedZone is a zone as Route 53 lists it; config is nil where it says nothing.
func hostedZone(id, name string, config *types.HostedZoneConfig) types.HostedZone {
	return types.HostedZone{Id: aws.String("/hostedzone/" + id), Name: &name, Config: config}
}

// Zones are found on all pages, and among those of the name alone.
func TestFindZonePages(t *testing.T) {
	private, public := &types.HostedZoneConfig{PrivateZone: true}, &types.HostedZoneConfig{}
	pages := []route53.ListHostedZonesByNameOutput{
		{HostedZones: []types.HostedZone{hostedZone("Z1", "k8s.", private), hostedZone("Z2", "k8s.", nil)}, IsTruncated: true,
			NextDNSName: aws.String("k8s."), NextHostedZoneId: aws.String("Z3")},
		{HostedZones: []types.HostedZone{hostedZone("Z3", "k8s.", private), hostedZone("Z4", "a.k8s.", private), hostedZone("Z5", "k8s.", public)}, IsTruncated: true},
	}
	vpcs := map[string]string{"/hostedzone/Z1": "vpc-1", "/hostedzone/Z3": "vpc-3", "/hostedzone/Z4": "vpc-3"}
	for name, tc := range map[string]struct {
		q    zone.Query
		want string
		got  []string // the zones that were read one by one
	}{
		"the first's VPC":  {q: zone.Query{Name: "k8s", VPC: "vpc-1"}, want: "Z1", got: []string{"/hostedzone/Z1", "/hostedzone/Z3"}},
		"the third's VPC":  {q: zone.Query{VPC: "vpc-3"}, want: "Z3", got: []string{"/hostedzone/Z1", "/hostedzone/Z3"}},
		"the public one":   {q: zone.Query{Name: "k8s.", Public: true}, want: "Z2"},
		"whatever the VPC": {q: zone.Query{Name: "k8s.", Public: true, VPC: "vpc-1"}, want: "Z2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &stub{t: t, zones: pages, vpcs: vpcs}
			got, err := zone.FindZone(t.Context(), s, tc.q)
			if err != nil || got != tc.want || !slices.Equal(s.got, tc.got) {
				t.Errorf("%s, %v, having read %v", got, err, s.got)
			}
			if len(s.found) != 2 || aws.ToString(s.found[0].DNSName) != "k8s." || s.found[0].HostedZoneId != nil || aws.ToString(s.found[1].HostedZoneId) != "Z3" || aws.ToString(s.found[1].DNSName) != "k8s." {
				t.Errorf("asked for %+v", s.found)
			}
		})
	}
	s := &stub{t: t, zones: pages}
	_, err := zone.FindZone(t.Context(), s, zone.Query{Name: "k8s"})
	says(t, err, []string{"Z1", "Z3"})
	_, err = zone.FindZone(t.Context(), &stub{t: t, zones: pages, get: errors.New("no idea")}, zone.Query{Name: "k8s", VPC: "vpc-1"})
	says(t, err, []string{"Z1", "no idea"})
	_, err = zone.FindZone(t.Context(), &stub{t: t, find: errors.New("no idea")}, zone.Query{Name: "k8s", VPC: "vpc-1"})
	says(t, err, []string{"private zone k8s. of vpc-1", "no idea"})
	if errors.Is(err, zone.ErrNoZone) {
		t.Errorf("nothing is known of a zone: %v", err)
	}
}

// A query is named by what tells its zone from others.
func TestQueryString(t *testing.T) {
	for want, q := range map[string]zone.Query{
		"private zone k8s.": {}, "public zone example.org.": {Name: "Example.org", Public: true}, "private zone k8s. of vpc-1": {Name: "k8s", VPC: "vpc-1"},
	} {
		if got := q.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// What is asked for is the zone of the query and nothing else, and a failure is no zone.
func TestCreateZone(t *testing.T) {
	refuse := func(err error) func(*route53.CreateHostedZoneInput) (*route53.CreateHostedZoneOutput, error) {
		return func(*route53.CreateHostedZoneInput) (*route53.CreateHostedZoneOutput, error) { return nil, err }
	}
	soa := page("", plain("example.org.", types.RRTypeSoa, 900, "a. b. 1 2 3 4 5"))
	for name, q := range map[string]zone.Query{
		"private": {Name: "example.org", VPC: "vpc-1", Region: "eu-west-1"}, "public": {Name: "Example.org.", Public: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &stub{t: t, pages: []route53.ListResourceRecordSetsOutput{soa}, create: func(in *route53.CreateHostedZoneInput) (*route53.CreateHostedZoneOutput, error) {
				if aws.ToString(in.Name) != "example.org." || aws.ToString(in.CallerReference) != "ref" || in.HostedZoneConfig.PrivateZone == q.Public || aws.ToString(in.HostedZoneConfig.Comment) == "" {
					t.Errorf("asked for %+v", in)
				}
				if q.Public != (in.VPC == nil) || in.VPC != nil && (aws.ToString(in.VPC.VPCId) != "vpc-1" || in.VPC.VPCRegion != types.VPCRegionEuWest1) {
					t.Errorf("asked for %+v", in.VPC)
				}
				return &route53.CreateHostedZoneOutput{HostedZone: &types.HostedZone{Id: aws.String("/hostedzone/Z1")}}, nil
			}}
			id, err := zone.CreateZone(t.Context(), s, q, "ref")
			if id != "Z1" || err != nil || len(s.sent) != 1 || aws.ToString(s.sent[0].HostedZoneId) != "Z1" {
				t.Errorf("%q, %v, sent %v", id, err, s.sent)
			}
		})
	}
	for name, tc := range map[string]struct {
		q    zone.Query
		err  error
		says string
	}{
		"no VPC":     {q: zone.Query{Region: "eu-west-1"}, says: "name a VPC and its region"},
		"no region":  {q: zone.Query{VPC: "vpc-1"}, says: "name a VPC and its region"},
		"denied":     {q: private, err: answered(403, &smithy.GenericAPIError{Code: "AccessDenied"}), says: "ec2:DescribeVpcs"},
		"not denied": {q: private, err: answered(400, &smithy.GenericAPIError{Code: "TooManyHostedZones"}), says: "TooManyHostedZones"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &stub{t: t, zones: []route53.ListHostedZonesByNameOutput{{}}, create: refuse(tc.err)}
			id, err := zone.CreateZone(t.Context(), s, tc.q, "ref")
			says(t, err, []string{"private zone k8s.", tc.says})
			got, created, err := zone.EnsureZone(t.Context(), s, tc.q, "ref")
			says(t, err, []string{"private zone k8s.", tc.says})
			if id != "" || got != "" || created {
				t.Errorf("%q, %q, %v", id, got, created)
			}
		})
	}
}

// A zone that was created and whose minimum could not be lowered is there: whoever tries again must know it.
func TestEnsureZoneHalfDone(t *testing.T) {
	s := &stub{t: t, zones: []route53.ListHostedZonesByNameOutput{{}}, list: errors.New("no idea"), create: func(*route53.CreateHostedZoneInput) (*route53.CreateHostedZoneOutput, error) {
		return &route53.CreateHostedZoneOutput{HostedZone: &types.HostedZone{Id: aws.String("/hostedzone/Z1")}}, nil
	}}
	id, created, err := zone.EnsureZone(t.Context(), s, private, "ref")
	if id != "Z1" || !created || err == nil {
		t.Errorf("%q, %v, %v", id, created, err)
	}
}
