package awsfake_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

var ignoreSerde = cmpopts.IgnoreUnexported(types.ResourceRecordSet{}, types.ResourceRecord{})

// TestBatches runs batches that AWS refuses, each with one good change that must not be made.
func TestBatches(t *testing.T) {
	addresses := func(n int) []string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("10.1.%d.%d", i/250, i%250))
		}
		return all
	}
	long := `"` + strings.Repeat("x", 250) + `" "` + strings.Repeat("y", 250) + `"`
	tests := []struct {
		name    string
		changes []types.Change
		want    string
	}{
		{"create twice", []types.Change{address("x.k8s", "10.0.0.9")},
			"[Tried to create resource record set [name='x.k8s.', type='A'] but it already exists]"},
		{"delete with other values", []types.Change{remove(set("x.k8s", "A", 5, "10.0.0.9"))},
			"[Tried to delete resource record set [name='x.k8s.', type='A'] but the values provided do not match the current values]"},
		{"delete with another TTL", []types.Change{remove(set("x.k8s", "A", 6, "10.0.0.1", "10.0.0.2"))},
			"[Tried to delete resource record set [name='x.k8s.', type='A'] but the values provided do not match the current values]"},
		{"delete with some of the values", []types.Change{remove(set("x.k8s", "A", 5, "10.0.0.1"))},
			"[Tried to delete resource record set [name='x.k8s.', type='A'] but the values provided do not match the current values]"},
		{"delete what is not there", []types.Change{remove(set("y.k8s", "A", 5, "10.0.0.1"))},
			"[Tried to delete resource record set [name='y.k8s.', type='A'] but it was not found]"},
		{"two problems", []types.Change{address("x.k8s", "10.0.0.9"), remove(set("y.k8s", "A", 5, "10.0.0.1"))},
			"[Tried to create resource record set [name='x.k8s.', type='A'] but it already exists, Tried to delete resource record set [name='y.k8s.', type='A'] but it was not found]"},
		{"delete twice", []types.Change{remove(set("x.k8s", "A", 5, "10.0.0.1", "10.0.0.2")), remove(set("x.k8s", "A", 5, "10.0.0.1", "10.0.0.2"))},
			"[The request contains an invalid set of changes for a resource record set 'A x.k8s.']"},
		{"upsert twice", []types.Change{upsert(set("x.k8s", "A", 5, "10.0.0.1")), upsert(set("x.k8s", "A", 5, "10.0.0.2"))},
			"[The request contains an invalid set of changes for a resource record set 'A x.k8s.']"},
		{"A beside CNAME", []types.Change{address("c.k8s", "10.0.0.9")},
			"[RRSet of type A with DNS name c.k8s. is not permitted because a conflicting RRSet of type CNAME with the same DNS name already exists in zone k8s.]"},
		{"CNAME beside A", []types.Change{create(set("x.k8s", "CNAME", 5, "c.k8s"))},
			"[RRSet of type CNAME with DNS name x.k8s. is not permitted as it conflicts with other records with the same DNS name in zone k8s.]"},
		{"CNAME at the apex", []types.Change{create(set("k8s", "CNAME", 5, "c.k8s"))},
			"[RRSet of type CNAME with DNS name k8s. is not permitted at apex in zone k8s.]"},
		{"another zone's name", []types.Change{address("x.example", "10.0.0.9")},
			"[RRSet with DNS name x.example. is not permitted in zone k8s.]"},
		{"a suffix that is no parent", []types.Change{address("xk8s", "10.0.0.9")},
			"[RRSet with DNS name xk8s. is not permitted in zone k8s.]"},
		{"the zone's SOA", []types.Change{remove(set("k8s", "SOA", 900, "ns-1536.awsdns-00.co.uk. awsdns-hostmaster.amazon.com. 1 7200 900 1209600 86400"))},
			"[A HostedZone must contain exactly one SOA record.]"},
		{"no address", []types.Change{address("y.k8s", "10.0.0.256")},
			"[Invalid Resource Record: 'FATAL problem: ARRDATAIllegalIPv4Address (Value is not a valid IPv4 address) encountered with '10.0.0.256'']"},
		{"two addresses in one value", []types.Change{address("y.k8s", "10.0.0.1, 10.0.0.2")},
			"[Invalid Resource Record: 'FATAL problem: ARRDATANotSingleField (Value contains spaces) encountered with '10.0.0.1, 10.0.0.2'']"},
		{"IPv4 as AAAA", []types.Change{create(set("y.k8s", "AAAA", 5, "10.0.0.1"))},
			"[Invalid Resource Record: 'FATAL problem: AAAARRDATAIllegalIPv6Address (Value is not a valid IPv6 address) encountered with '10.0.0.1'']"},
		{"a value twice", []types.Change{address("y.k8s", "10.0.0.1", "10.0.0.1")},
			"[Duplicate Resource Record: '10.0.0.1']"},
		{"TXT without quotes", []types.Change{create(set("y.k8s", "TXT", 5, "generation"))},
			"[Invalid Resource Record: 'FATAL problem: InvalidCharacterString (Value should be enclosed in quotation marks) encountered with 'generation'']"},
		{"long TXT", []types.Change{create(set("y.k8s", "TXT", 5, `"`+strings.Repeat("x", 256)+`"`))},
			"[Invalid Resource Record: 'FATAL problem: CharacterStringTooLong (Value is too long) encountered with '\"" + strings.Repeat("x", 256) + "\"'']"},
		{"401 values", []types.Change{address("y.k8s", addresses(401)...)},
			"[Cannot have more than 400 records in a RRSet.]"},
		{"1001 values", []types.Change{address("y.k8s", addresses(400)...), address("z.k8s", addresses(400)...), address("w.k8s", addresses(200)...)},
			"[Number of records limit of 1000 exceeded.]"},
		{"500 values upserted", []types.Change{upsert(set("y.k8s", "A", 5, addresses(400)...)), upsert(set("z.k8s", "A", 5, addresses(100)...))},
			"[Number of records limit of 1000 exceeded.]"},
		{"more than 32,000 characters", manyTXT(long, 64),
			"[RDATA character limit of 32000 exceeded.]"},
		{"empty label", []types.Change{address("y..k8s", "10.0.0.1")},
			"[FATAL problem: DomainLabelEmpty (Domain label is empty) encountered with 'y..k8s']"},
		{"long label", []types.Change{address(strings.Repeat("y", 64)+".k8s", "10.0.0.1")},
			"[FATAL problem: DomainLabelTooLong (Domain label is too long) encountered with '" + strings.Repeat("y", 64) + ".k8s']"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, c := serve(t, awsfake.Options{Rates: unlimited})
			zone := createZone(t, c, "k8s")
			if _, err := change(t.Context(), c, zone, address("x.k8s", "10.0.0.1", "10.0.0.2"), create(set("c.k8s", "CNAME", 5, "x.k8s"))); err != nil {
				t.Fatal(err)
			}
			before, _ := listAll(t, c, zone, 300)
			_, err := change(t.Context(), c, zone, append([]types.Change{address("good.k8s", "10.0.0.1")}, tt.changes...)...)
			wantRefusal(t, err, "InvalidChangeBatch", tt.want)
			after, _ := listAll(t, c, zone, 300)
			if diff := cmp.Diff(before, after, ignoreSerde); diff != "" {
				t.Errorf("a refused batch changed the zone:\n%s", diff)
			}
		})
	}
}

func manyTXT(value string, n int) []types.Change {
	var changes []types.Change
	for i := range n {
		changes = append(changes, create(set(fmt.Sprintf("t%d.k8s", i), "TXT", 5, value)))
	}
	return changes
}

// TestReplacing checks that a batch can replace a set, which compare-and-swap relies on.
func TestReplacing(t *testing.T) {
	_, c := serve(t, awsfake.Options{Rates: unlimited})
	zone := createZone(t, c, "k8s")
	one, two := set("x.k8s", "A", 5, "10.0.0.1", "10.0.0.2"), set("x.k8s", "A", 5, "10.0.0.3")
	steps := []struct {
		name    string
		changes []types.Change
	}{
		{"create", []types.Change{create(one)}},
		{"replace, the values in another order", []types.Change{remove(set("X.k8s.", "A", 5, "10.0.0.2", "10.0.0.1")), create(two)}},
		{"and back (A to B to A)", []types.Change{remove(two), create(one)}},
		{"A by CNAME", []types.Change{remove(one), create(set("x.k8s", "CNAME", 5, "y.k8s"))}},
		{"lower the SOA", []types.Change{upsert(set("k8s", "SOA", 60, "ns-1536.awsdns-00.co.uk. awsdns-hostmaster.amazon.com. 2 7200 900 1209600 5"))}},
		{"upsert what is not there", []types.Change{upsert(set("many.k8s", "A", 5, "10.0.0.1"))}},
	}
	for _, s := range steps {
		if _, err := change(t.Context(), c, zone, s.changes...); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
	}
	_, err := change(t.Context(), c, zone, remove(one), create(two))
	var batch *types.InvalidChangeBatch
	if !errors.As(err, &batch) {
		t.Errorf("a stale base: %v, want InvalidChangeBatch", err)
	}
}

func TestFormRefusals(t *testing.T) {
	_, c := serve(t, awsfake.Options{Rates: unlimited})
	zone := createZone(t, c, "k8s")
	noTTL := set("y.k8s", "A", 5, "10.0.0.1")
	noTTL.TTL = nil
	alias := &types.ResourceRecordSet{Name: aws.String("y.k8s"), Type: types.RRTypeA, AliasTarget: &types.AliasTarget{DNSName: aws.String("x.k8s"), HostedZoneId: aws.String("Z1")}}
	identifier := set("y.k8s", "A", 5, "10.0.0.1")
	identifier.SetIdentifier = aws.String("one")
	for name, s := range map[string]*types.ResourceRecordSet{
		"no TTL": noTTL, "a negative TTL": set("y.k8s", "A", -1, "10.0.0.1"), "a TTL over 31 bits": set("y.k8s", "A", 1<<31, "10.0.0.1"),
		"no values": set("y.k8s", "A", 5), "a type that is not modelled": set("y.k8s", "CAA", 5, `0 issue "x"`),
		"an alias": alias, "a set of a routing policy": identifier,
	} {
		_, err := change(t.Context(), c, zone, create(s))
		var input *types.InvalidInput
		if !errors.As(err, &input) {
			t.Errorf("%s: %v, want InvalidInput", name, err)
		}
	}
	_, err := change(t.Context(), c, "Z0", address("y.k8s", "10.0.0.1"))
	wantRefusal(t, err, "NoSuchHostedZone", "No hosted zone found with ID: Z0")
}

func TestZoneQuota(t *testing.T) {
	r := awsfake.New(awsfake.Options{Rates: unlimited}).Route53()
	zone, err := r.CreateHostedZone(t.Context(), awsfake.HostedZone{Name: "k8s", CallerReference: "1"})
	if err != nil {
		t.Fatal(err)
	}
	for n := 2; n < 10_000; {
		var batch []awsfake.Change
		for ; n < 10_000 && len(batch) < 1000; n++ {
			batch = append(batch, awsfake.Change{Action: "CREATE", Set: awsfake.RecordSet{Name: fmt.Sprintf("n%d.k8s", n), Type: "A", TTL: 5, Values: []string{"10.0.0.1"}}})
		}
		if _, err := r.ChangeResourceRecordSets(t.Context(), zone.ID, batch); err != nil {
			t.Fatal(err)
		}
	}
	_, err = r.ChangeResourceRecordSets(t.Context(), zone.ID, []awsfake.Change{
		{Action: "CREATE", Set: awsfake.RecordSet{Name: "x.k8s", Type: "A", TTL: 5, Values: []string{"10.0.0.1"}}}})
	want := "InvalidChangeBatch: [Exceeded limit MAX_RRSETS_BY_ZONE for zone: " + zone.ID + "]"
	if err == nil || err.Error() != want {
		t.Errorf("the 10,001st set: %v, want %s", err, want)
	}
}
