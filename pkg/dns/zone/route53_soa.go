package zone

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// LowerMinimum sets the TTL and the minimum of the zone's SOA to record.NegativeTTL where they differ: a
// resolver keeps a "no such name" for the lower of the two (RFC 2308).
func (z *Route53) LowerMinimum(ctx context.Context) error {
	soa, fields, err := z.readSOA(ctx)
	if err != nil {
		return err
	}
	want := fmt.Sprint(int(record.NegativeTTL / time.Second))
	if fields[6] == want && aws.ToInt64(soa.TTL) == int64(record.NegativeTTL/time.Second) {
		return nil
	}
	fields[6] = want
	soa.ResourceRecords = []types.ResourceRecord{{Value: aws.String(strings.Join(fields, " "))}}
	soa.TTL = aws.Int64(int64(record.NegativeTTL / time.Second))
	// A SOA can be neither deleted nor created, so this one change is no compare-and-swap.
	_, err = z.api.ChangeResourceRecordSets(ctx, &route53.ChangeResourceRecordSetsInput{HostedZoneId: &z.id, ChangeBatch: &types.ChangeBatch{
		Changes: []types.Change{{Action: types.ChangeActionUpsert, ResourceRecordSet: &soa}},
	}}, noRetries)
	if err != nil {
		return fmt.Errorf("lowering the SOA minimum of zone %s: %w", z.id, z.outcome(err))
	}
	return nil
}

// NegativeTTL is how long a resolver keeps a "no such name" of the zone.
func (z *Route53) NegativeTTL(ctx context.Context) (time.Duration, error) {
	soa, fields, err := z.readSOA(ctx)
	if err != nil {
		return 0, err
	}
	minimum, err := strconv.ParseInt(fields[6], 10, 32)
	if err != nil {
		return 0, fmt.Errorf("reading the SOA of zone %s: %w", z.id, err)
	}
	return time.Duration(min(minimum, aws.ToInt64(soa.TTL))) * time.Second, nil
}

// readSOA returns the zone's SOA and its 7 fields.
func (z *Route53) readSOA(ctx context.Context) (types.ResourceRecordSet, []string, error) {
	name := z.policy.Zone()
	page, err := z.api.ListResourceRecordSets(ctx, &route53.ListResourceRecordSetsInput{
		HostedZoneId: &z.id, StartRecordName: &name, StartRecordType: types.RRTypeSoa, MaxItems: aws.Int32(1),
	}, noRetries)
	if err != nil {
		return types.ResourceRecordSet{}, nil, fmt.Errorf("reading the SOA of zone %s: %w", z.id, z.explain(err))
	}
	if len(page.ResourceRecordSets) == 1 && page.ResourceRecordSets[0].Type == types.RRTypeSoa && len(page.ResourceRecordSets[0].ResourceRecords) == 1 {
		soa := page.ResourceRecordSets[0]
		if fields := strings.Fields(aws.ToString(soa.ResourceRecords[0].Value)); len(fields) == 7 {
			return soa, fields, nil
		}
	}
	return types.ResourceRecordSet{}, nil, fmt.Errorf("reading the SOA of zone %s: there is none at %s (is this the zone's name?)", z.id, name)
}
