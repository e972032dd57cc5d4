package zone

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/prepare"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// Route 53's quotas (its Developer Guide, "Quotas": values a set, values and characters a request).
const (
	route53SetValues       = 400
	route53BatchValues     = 1000
	route53BatchCharacters = 32000
)

// RecordsAPI is the part of Route 53's client that reads and changes records.
type RecordsAPI interface {
	ListResourceRecordSets(ctx context.Context, in *route53.ListResourceRecordSetsInput, opts ...func(*route53.Options)) (*route53.ListResourceRecordSetsOutput, error)
	ChangeResourceRecordSets(ctx context.Context, in *route53.ChangeResourceRecordSetsInput, opts ...func(*route53.Options)) (*route53.ChangeResourceRecordSetsOutput, error)
}

// Route53 is a Zone in one hosted zone of Route 53. Every request is sent once: the retry of a change whose reply was
// lost would result in a false conflict, and the caller has a budget of requests.
type Route53 struct {
	api    RecordsAPI
	id     string
	policy record.Policy
}

var _ prepare.Zone = (*Route53)(nil)

// NewRoute53 returns the Zone of the hosted zone with this id, with or without "/hostedzone/" (see FindZone). The
// policy's suffix is the zone's name.
func NewRoute53(api RecordsAPI, id string, p record.Policy) (*Route53, error) {
	id = strings.TrimPrefix(id, "/hostedzone/")
	if id == "" {
		return nil, errors.New("choosing a Route 53 zone: its id is empty")
	}
	return &Route53{api: api, id: id, policy: p}, nil
}

// noRetries disables the SDK's retries, which are the caller's decision.
func noRetries(o *route53.Options) { o.Retryer = aws.NopRetryer{} }

// ID is the hosted zone's.
func (z *Route53) ID() string { return z.id }

// Signer says how requests are signed.
func (z *Route53) Signer() string { return "AWS credentials" }

// Limits are Route 53's.
func (z *Route53) Limits() record.Limits {
	return record.Limits{SetValues: route53SetValues, BatchValues: route53BatchValues, BatchCharacters: route53BatchCharacters}
}

// Read lists from the cluster's name on until another name's records begin: Route 53 sorts names by
// their labels from the right, so that everything at and below a name is together.
func (z *Route53) Read(ctx context.Context, cluster string) ([]record.Set, error) {
	domain := z.policy.Domain(cluster)
	var out []record.Set
	in := &route53.ListResourceRecordSetsInput{HostedZoneId: &z.id, StartRecordName: &domain}
	for {
		page, err := z.api.ListResourceRecordSets(ctx, in, noRetries)
		if err != nil {
			return nil, fmt.Errorf("reading the records of %s: %w", cluster, z.explain(err))
		}
		for _, s := range page.ResourceRecordSets {
			name := unescapeOctal(aws.ToString(s.Name))
			if !below(name, domain) {
				return sortSets(out), nil
			}
			set, ours, err := z.set(name, s, cluster)
			if err != nil {
				return nil, fmt.Errorf("reading the records of %s in zone %s: %w", cluster, z.id, err)
			}
			if ours {
				out = append(out, set)
			}
		}
		if !page.IsTruncated {
			return sortSets(out), nil
		}
		if aws.ToString(page.NextRecordName) == "" {
			return nil, fmt.Errorf("reading the records of %s: the list of zone %s ends in its middle", cluster, z.id)
		}
		in.StartRecordName, in.StartRecordType, in.StartRecordIdentifier = page.NextRecordName, page.NextRecordType, page.NextRecordIdentifier
	}
}

// set is one of the cluster's sets; false for one that is not kept. What stands in the place of one
// that is kept and is no plain set is an error.
func (z *Route53) set(name string, s types.ResourceRecordSet, cluster string) (record.Set, bool, error) {
	out := record.Set{Name: name, Type: string(s.Type), TTL: time.Duration(aws.ToInt64(s.TTL)) * time.Second}
	for _, r := range s.ResourceRecords {
		value := aws.ToString(r.Value)
		if out.Type == record.TXT {
			value = unquote(value)
		}
		out.Values = append(out.Values, value)
	}
	slices.Sort(out.Values)
	switch {
	case s.Type == types.RRTypeCname && mayBeManaged(name, cluster, z.policy):
		return record.Set{}, false, foreignError(name, "a CNAME")
	case !record.Relevant(out, cluster, z.policy):
		return record.Set{}, false, nil
	case (s.AliasTarget != nil || s.SetIdentifier != nil) && !record.Managed(out, cluster, z.policy):
		return record.Set{}, false, nil // no record of an operator's own role: those that Hardtack makes are plain
	case s.AliasTarget != nil:
		return record.Set{}, false, foreignError(name, "an alias of type "+out.Type)
	case s.SetIdentifier != nil:
		return record.Set{}, false, foreignError(name, "a routing policy for type "+out.Type)
	}
	return out, true, nil
}

func sortSets(sets []record.Set) []record.Set {
	slices.SortFunc(sets, func(a, b record.Set) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type))
	})
	return sets
}

// CompareAndSwap sends one batch: every set of remove is deleted as it was read, and those of create are created. Route
// 53 carries out a batch as a whole or not at all; a deletion must match values and TTL, and a creation fails if the
// set exists.
func (z *Route53) CompareAndSwap(ctx context.Context, cluster string, remove, create []record.Set) error {
	if len(remove) == 0 && len(create) == 0 {
		return nil
	}
	if err := z.fits(remove, create); err != nil {
		return fmt.Errorf("changing the records of %s: %w", cluster, err)
	}
	batch := &types.ChangeBatch{}
	for _, s := range remove {
		batch.Changes = append(batch.Changes, change(types.ChangeActionDelete, s))
	}
	for _, s := range create {
		batch.Changes = append(batch.Changes, change(types.ChangeActionCreate, s))
	}
	_, err := z.api.ChangeResourceRecordSets(ctx, &route53.ChangeResourceRecordSetsInput{HostedZoneId: &z.id, ChangeBatch: batch}, noRetries)
	if err != nil {
		return fmt.Errorf("changing the records of %s: %w", cluster, z.outcome(err))
	}
	return nil
}

// fits holds the batch to the quotas before it is sent, since a refusal costs a request of the account's five.
func (z *Route53) fits(remove, create []record.Set) error {
	l := z.Limits()
	if err := overLimit(create, l, "Route 53's limit"); err != nil {
		return err
	}
	values, characters := 0, 0
	for _, s := range slices.Concat(remove, create) {
		values += len(s.Values)
		for _, v := range s.Values {
			characters += len(v)
		}
	}
	if values > l.BatchValues || characters > l.BatchCharacters {
		return fmt.Errorf("the batch has %d values and %d characters, over Route 53's limit of %d and %d", values, characters, l.BatchValues, l.BatchCharacters)
	}
	return nil
}

func change(action types.ChangeAction, s record.Set) types.Change {
	out := &types.ResourceRecordSet{Name: aws.String(s.Name), Type: types.RRType(s.Type), TTL: aws.Int64(int64(s.TTL / time.Second))}
	for _, v := range s.Values {
		if s.Type == record.TXT {
			v = quote(v)
		}
		out.ResourceRecords = append(out.ResourceRecords, types.ResourceRecord{Value: &v})
	}
	return types.Change{Action: action, ResourceRecordSet: out}
}

func quote(v string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v) + `"`
}

// unquote joins the strings of a TXT value, "a" "b", and undoes what is escaped in them: \" and \\ and \052.
func unquote(v string) string {
	if !strings.HasPrefix(v, `"`) {
		return v
	}
	var b strings.Builder
	inside := false
	for i := 0; i < len(v); i++ {
		c, escaped := octal(v[i:])
		switch {
		case escaped:
			b.WriteByte(c)
			i += 3
		case v[i] == '\\' && i+1 < len(v):
			i++
			b.WriteByte(v[i])
		case v[i] == '"':
			inside = !inside
		case inside:
			b.WriteByte(v[i])
		}
	}
	return b.String()
}

// unescapeOctal undoes \052, as Route 53 writes what is no letter, digit, hyphen or underscore.
func unescapeOctal(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c, escaped := octal(s[i:])
		if escaped {
			i += 3
		} else {
			c = s[i]
		}
		b.WriteByte(c)
	}
	return b.String()
}

// octal is the byte that \052 at the head of s stands for; false if s does not begin so.
func octal(s string) (byte, bool) {
	if len(s) < 4 || s[0] != '\\' {
		return 0, false
	}
	n, err := strconv.ParseUint(s[1:4], 8, 8)
	return byte(n), err == nil
}
