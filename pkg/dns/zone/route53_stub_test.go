package zone_test

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
)

// stub is Route 53 as a test says, for what the stand-in would never answer. What a test does not set, it does not
// expect to be called.
type stub struct {
	t      *testing.T
	pages  []route53.ListResourceRecordSetsOutput
	list   error
	listed []route53.ListResourceRecordSetsInput
	change error
	sent   []route53.ChangeResourceRecordSetsInput
	zones  []route53.ListHostedZonesByNameOutput
	find   error
	found  []route53.ListHostedZonesByNameInput
	vpcs   map[string]string // zone to VPC
	get    error
	got    []string
	create func(in *route53.CreateHostedZoneInput) (*route53.CreateHostedZoneOutput, error)
}

var _ zone.ZonesAPI = (*stub)(nil)

// once reports whether the SDK would try a request once, as the caller has a budget of them.
func (s *stub) once(opts []func(*route53.Options)) {
	s.t.Helper()
	var o route53.Options
	for _, f := range opts {
		f(&o)
	}
	if o.Retryer == nil || o.Retryer.MaxAttempts() != 1 {
		s.t.Error("the SDK repeats the request")
	}
}

func (s *stub) ListResourceRecordSets(_ context.Context, in *route53.ListResourceRecordSetsInput, opts ...func(*route53.Options)) (*route53.ListResourceRecordSetsOutput, error) {
	s.once(opts)
	s.listed = append(s.listed, *in)
	if s.list != nil {
		return nil, s.list
	}
	if len(s.listed) > len(s.pages) {
		s.t.Fatalf("page %d is asked for", len(s.listed))
	}
	return &s.pages[len(s.listed)-1], nil
}

func (s *stub) ChangeResourceRecordSets(_ context.Context, in *route53.ChangeResourceRecordSetsInput, opts ...func(*route53.Options)) (*route53.ChangeResourceRecordSetsOutput, error) {
	s.once(opts)
	s.sent = append(s.sent, *in)
	return &route53.ChangeResourceRecordSetsOutput{}, s.change
}

func (s *stub) ListHostedZonesByName(_ context.Context, in *route53.ListHostedZonesByNameInput, opts ...func(*route53.Options)) (*route53.ListHostedZonesByNameOutput, error) {
	s.once(opts)
	s.found = append(s.found, *in)
	if s.find != nil {
		return nil, s.find
	}
	if len(s.found) > len(s.zones) {
		s.t.Fatalf("page %d of the zones is asked for", len(s.found))
	}
	return &s.zones[len(s.found)-1], nil
}

func (s *stub) GetHostedZone(_ context.Context, in *route53.GetHostedZoneInput, opts ...func(*route53.Options)) (*route53.GetHostedZoneOutput, error) {
	s.once(opts)
	s.got = append(s.got, aws.ToString(in.Id))
	if s.get != nil {
		return nil, s.get
	}
	return &route53.GetHostedZoneOutput{VPCs: []types.VPC{{VPCId: aws.String(s.vpcs[aws.ToString(in.Id)])}}}, nil
}

func (s *stub) CreateHostedZone(_ context.Context, in *route53.CreateHostedZoneInput, opts ...func(*route53.Options)) (*route53.CreateHostedZoneOutput, error) {
	s.once(opts)
	return s.create(in)
}

// plain is a set as Route 53 lists it.
func plain(name string, kind types.RRType, ttl int64, values ...string) types.ResourceRecordSet {
	out := types.ResourceRecordSet{Name: &name, Type: kind, TTL: &ttl}
	for _, v := range values {
		out.ResourceRecords = append(out.ResourceRecords, types.ResourceRecord{Value: &v})
	}
	return out
}

// page is a page of sets; next names where the following one begins.
func page(next string, sets ...types.ResourceRecordSet) route53.ListResourceRecordSetsOutput {
	out := route53.ListResourceRecordSetsOutput{ResourceRecordSets: sets}
	if next != "" {
		out.IsTruncated, out.NextRecordName, out.NextRecordType = true, &next, types.RRTypeA
		out.NextRecordIdentifier = aws.String("id of " + next)
	}
	return out
}
