package zone_test

import (
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/prepare"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
)

// What in a zone is another's is found on every page, and the cluster's own is not among it.
func TestOthers(t *testing.T) {
	server := httptest.NewServer(awsfake.New(awsfake.Options{Rates: map[string]float64{"route53": 0}}).Handler())
	t.Cleanup(server.Close)
	api := route53.New(route53.Options{Region: "us-west-2", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")})
	id, err := zone.CreateZone(t.Context(), api, zone.Query{VPC: "vpc-0123456789abcdef0", Region: "us-west-2"}, "1")
	if err != nil {
		t.Fatal(err)
	}
	policy := record.DefaultPolicy()
	z, err := zone.NewRoute53(api, id, policy)
	if err != nil {
		t.Fatal(err)
	}
	check := func(want ...string) {
		t.Helper()
		got, err := zone.ForeignNames(t.Context(), api, id, "demo", policy)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	check()
	if _, err := prepare.Placeholders(t.Context(), z, "demo", policy, reconcile.NewGeneration(time.Now(), 1)); err != nil {
		t.Fatal(err)
	}
	check()
	// A mark of external-dns on a name of the cluster is read, and is not the cluster's.
	const mark = "a-masters.demo.k8s."
	if err := z.CompareAndSwap(t.Context(), "demo", nil, []record.Set{{Name: mark, Type: record.TXT, TTL: time.Minute, Values: []string{"heritage=external-dns,external-dns/owner=x"}}}); err != nil {
		t.Fatal(err)
	}
	if have, err := z.Read(t.Context(), "demo"); err != nil || !slices.ContainsFunc(have, func(s record.Set) bool { return record.Marks(s, "demo", policy) }) ||
		len(record.ManagedSets(have, "demo", policy)) != len(have)-1 {
		t.Errorf("read %v, %v", have, err)
	}
	want := []string{mark}
	for n := range 350 { // a page has at most 300
		name := "h" + string(rune('a'+n/26)) + string(rune('a'+n%26)) + ".k8s."
		_, err := api.ChangeResourceRecordSets(t.Context(), &route53.ChangeResourceRecordSetsInput{HostedZoneId: &id, ChangeBatch: &types.ChangeBatch{Changes: []types.Change{{
			Action: types.ChangeActionCreate, ResourceRecordSet: &types.ResourceRecordSet{Name: &name, Type: types.RRTypeA, TTL: aws.Int64(5), ResourceRecords: []types.ResourceRecord{{Value: aws.String("10.0.0.1")}}},
		}}}})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, name)
	}
	if _, err := prepare.Placeholders(t.Context(), z, "other", policy, reconcile.NewGeneration(time.Now(), 2)); err != nil {
		t.Fatal(err)
	}
	for _, s := range record.Placeholders("other", policy) {
		if !slices.Contains(want, s.Name) {
			want = append(want, s.Name)
		}
	}
	slices.Sort(want)
	check(want...)
}
