package zone

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// ForeignNames lists the names in a hosted zone that have records which Hardtack does not manage for the cluster,
// sorted. The zone's own SOA and NS do not count.
func ForeignNames(ctx context.Context, api RecordsAPI, id, cluster string, p record.Policy) ([]string, error) {
	z, err := NewRoute53(api, id, p)
	if err != nil {
		return nil, err
	}
	var out []string
	var sets []record.Set // those that may be the cluster's
	in := &route53.ListResourceRecordSetsInput{HostedZoneId: &z.id}
	for {
		page, err := api.ListResourceRecordSets(ctx, in, noRetries)
		if err != nil {
			return nil, fmt.Errorf("listing zone %s: %w", z.id, z.explain(err))
		}
		for _, s := range page.ResourceRecordSets {
			name := unescapeOctal(aws.ToString(s.Name))
			if "."+name == p.Domain("") && (s.Type == types.RRTypeSoa || s.Type == types.RRTypeNs) {
				continue
			}
			// What stands in the place of a record of the cluster is not the cluster's either.
			set, ours, _ := z.set(name, s, cluster)
			if ours {
				sets = append(sets, set)
			} else {
				out = append(out, name)
			}
		}
		if !page.IsTruncated {
			kept := record.ManagedSets(sets, cluster, p)
			for _, s := range sets {
				if !slices.ContainsFunc(kept, func(k record.Set) bool { return k.Name == s.Name && k.Type == s.Type }) {
					out = append(out, s.Name)
				}
			}
			slices.Sort(out)
			return slices.Compact(out), nil
		}
		if aws.ToString(page.NextRecordName) == "" {
			return nil, fmt.Errorf("listing zone %s: the list ends in its middle", z.id)
		}
		in.StartRecordName, in.StartRecordType, in.StartRecordIdentifier = page.NextRecordName, page.NextRecordType, page.NextRecordIdentifier
	}
}
