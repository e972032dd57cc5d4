package awsfake_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

func TestZones(t *testing.T) {
	_, c := serve(t, awsfake.Options{Rates: unlimited})
	id := createZone(t, c, "Demo.K8s")
	got, err := c.GetHostedZone(t.Context(), &route53.GetHostedZoneInput{Id: &id})
	if err != nil {
		t.Fatal(err)
	}
	if z := got.HostedZone; *z.Name != "demo.k8s." || *z.ResourceRecordSetCount != 2 || !z.Config.PrivateZone || *z.Config.Comment != "made by TestZones" {
		t.Errorf("zone is %+v", z)
	}
	if len(got.VPCs) != 1 || *got.VPCs[0].VPCId != *vpc.VPCId || got.VPCs[0].VPCRegion != vpc.VPCRegion {
		t.Errorf("VPCs are %+v", got.VPCs)
	}
	createZone(t, c, "a.k8s")
	createZone(t, c, "k8s")
	createZone(t, c, "zz.example")

	var names []string
	in := &route53.ListHostedZonesByNameInput{DNSName: aws.String("a.k8s"), MaxItems: aws.Int32(1)}
	for {
		page, err := c.ListHostedZonesByName(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		for _, z := range page.HostedZones {
			names = append(names, *z.Name)
		}
		if !page.IsTruncated {
			break
		}
		in.DNSName, in.HostedZoneId = page.NextDNSName, page.NextHostedZoneId
	}
	// example.zz. sorts before k8s., and the list goes on after the zone that was asked for.
	if want := []string{"a.k8s.", "demo.k8s."}; !slices.Equal(names, want) {
		t.Errorf("zones by name from a.k8s are %v, want %v", names, want)
	}

	names = nil
	pages := route53.NewListHostedZonesPaginator(c, &route53.ListHostedZonesInput{MaxItems: aws.Int32(3)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, z := range page.HostedZones {
			names = append(names, *z.Name)
		}
	}
	slices.Sort(names) // their identifiers are random
	if want := []string{"a.k8s.", "demo.k8s.", "k8s.", "zz.example."}; !slices.Equal(names, want) {
		t.Errorf("all zones are %v, want %v", names, want)
	}
}

func TestZoneRefusals(t *testing.T) {
	_, c := serve(t, awsfake.Options{Rates: unlimited})
	createZone(t, c, "demo.k8s")
	create := func(name, reference string, vpc *types.VPC) error {
		_, err := c.CreateHostedZone(t.Context(), &route53.CreateHostedZoneInput{Name: &name, CallerReference: &reference, VPC: vpc})
		return err
	}
	wantRefusal(t, create("x.k8s", t.Name()+"demo.k8s", nil), "HostedZoneAlreadyExists", "A hosted zone has already been created with the specified caller reference.")
	var conflict *types.ConflictingDomainExists
	if err := create("demo.k8s.", "2", &vpc); !errors.As(err, &conflict) {
		t.Errorf("a second zone of the name in the VPC: %v", err)
	}
	if err := create("demo.k8s", "3", &types.VPC{VPCId: aws.String("vpc-00000000"), VPCRegion: vpc.VPCRegion}); err != nil {
		t.Errorf("a second zone of the name in another VPC: %v", err)
	}
	var vpcID *types.InvalidVPCId
	if err := create("demo.k8s", "4", &types.VPC{VPCId: aws.String("vpc-nope"), VPCRegion: vpc.VPCRegion}); !errors.As(err, &vpcID) {
		t.Errorf("a VPC that is none: %v", err)
	}
	var domain *types.InvalidDomainName
	if err := create("demo..k8s", "5", nil); !errors.As(err, &domain) {
		t.Errorf("an empty label: %v", err)
	}
	_, err := c.GetHostedZone(t.Context(), &route53.GetHostedZoneInput{Id: aws.String("Z0")})
	wantRefusal(t, err, "NoSuchHostedZone", "No hosted zone found with ID: Z0")
}

func address(name string, values ...string) types.Change { return create(set(name, "A", 5, values...)) }

// listAll reads the zone by the SDK's own paginator.
func listAll(t *testing.T, c *route53.Client, zone string, perPage int32) (sets []types.ResourceRecordSet, pages int) {
	t.Helper()
	p := route53.NewListResourceRecordSetsPaginator(c, &route53.ListResourceRecordSetsInput{HostedZoneId: &zone, MaxItems: &perPage})
	for p.HasMorePages() {
		page, err := p.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sets, pages = append(sets, page.ResourceRecordSets...), pages+1
	}
	return sets, pages
}

func TestListing(t *testing.T) {
	_, c := serve(t, awsfake.Options{Rates: unlimited})
	zone := createZone(t, c, "k8s")
	var changes []types.Change
	for i := range 20 {
		changes = append(changes, address(fmt.Sprintf("n%02d.b.k8s", i), "10.0.0.1"))
	}
	changes = append(changes, address("b.k8s", "10.0.0.2"), address("a-b.k8s", "10.0.0.3"), address("x.a.k8s", "10.0.0.4"),
		create(set("b.k8s", "TXT", 5, `"one"`)), address("*.b.k8s", "10.0.0.5"))
	if _, err := change(t.Context(), c, zone, changes...); err != nil {
		t.Fatal(err)
	}
	whole, _ := listAll(t, c, zone, 300)
	for _, perPage := range []int32{1, 2, 7} {
		paged, pages := listAll(t, c, zone, perPage)
		if want := (len(whole) + int(perPage) - 1) / int(perPage); pages != want {
			t.Errorf("%d a page makes %d pages, want %d", perPage, pages, want)
		}
		if diff := cmp.Diff(whole, paged, ignoreSerde); diff != "" {
			t.Errorf("%d a page differs from the whole (-whole +paged):\n%s", perPage, diff)
		}
	}
	var names []string
	for _, s := range whole {
		names = append(names, *s.Name+" "+string(s.Type))
	}
	want := []string{"k8s. NS", "k8s. SOA", "x.a.k8s. A", "a-b.k8s. A", "b.k8s. A", "b.k8s. TXT", `\052.b.k8s. A`, "n00.b.k8s. A"}
	// "k8s.a-b." sorts before "k8s.a.x.", as hyphen comes before the dot (API reference, "Sort order").
	want[2], want[3] = want[3], want[2]
	if got := names[:len(want)]; !slices.Equal(got, want) {
		t.Errorf("order is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	from, err := c.ListResourceRecordSets(t.Context(), &route53.ListResourceRecordSetsInput{HostedZoneId: &zone, StartRecordName: aws.String("b.k8s"), StartRecordType: types.RRTypeMx})
	if err != nil || *from.ResourceRecordSets[0].Name != "b.k8s." || from.ResourceRecordSets[0].Type != types.RRTypeTxt {
		t.Errorf("from b.k8s MX on: %v, %v", from, err)
	}
	_, err = c.ListResourceRecordSets(t.Context(), &route53.ListResourceRecordSetsInput{HostedZoneId: &zone, StartRecordType: types.RRTypeA})
	var input *types.InvalidInput
	if !errors.As(err, &input) {
		t.Errorf("a type without a name: %v", err)
	}
}

func TestPagesStopAt300(t *testing.T) {
	_, c := serve(t, awsfake.Options{Rates: unlimited})
	zone := createZone(t, c, "k8s")
	var changes []types.Change
	for i := range 600 {
		changes = append(changes, address(fmt.Sprintf("n%d.k8s", i), "10.0.0.1"))
	}
	if _, err := change(t.Context(), c, zone, changes...); err != nil {
		t.Fatal(err)
	}
	if sets, pages := listAll(t, c, zone, 1000); len(sets) != 602 || pages != 3 {
		t.Errorf("%d sets in %d pages, want 602 in 3", len(sets), pages)
	}
}
