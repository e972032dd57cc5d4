package zone_test

import (
	"errors"
	"net/http/httptest"
	"strconv"
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
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone/zonetest"
)

const vpc = "vpc-0123456789abcdef0"

// account is a fake account at an address, without a limit of requests.
func account(t *testing.T) (*awsfake.Account, func(key string) *route53.Client) {
	t.Helper()
	a := awsfake.New(awsfake.Options{Rates: map[string]float64{"route53": 0}})
	server := httptest.NewServer(a.Handler())
	t.Cleanup(server.Close)
	return a, func(key string) *route53.Client {
		return route53.New(route53.Options{Region: "eu-central-1", BaseEndpoint: &server.URL,
			Credentials: credentials.NewStaticCredentialsProvider(key, "secret", "")})
	}
}

func create(t *testing.T, api zone.ZonesAPI, q zone.Query, reference string) string {
	t.Helper()
	id, err := zone.CreateZone(t.Context(), api, q, reference)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func in(t *testing.T, api zone.RecordsAPI, id string) *zone.Route53 {
	t.Helper()
	z, err := zone.NewRoute53(api, id, record.DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	return z
}

var private = zone.Query{Name: "k8s", VPC: vpc, Region: "eu-central-1"}

func TestRoute53OnTheFake(t *testing.T) {
	zonetest.Run(t, func(t *testing.T) zonetest.Subject {
		t.Helper()
		a, client := account(t)
		id := create(t, client("AKIDADMIN"), private, "1")
		a.SetPolicy("AKIDOTHER", awsfake.Policy{})
		return zonetest.Subject{
			Zone:       in(t, client("AKIDADMIN"), id),
			WrongKey:   in(t, client("AKIDOTHER"), id),
			MatchesTTL: true,
			LoseReply: func() reconcile.Zone {
				s := &awsfake.Script{}
				s.Add("ChangeResourceRecordSets", awsfake.Fault{LoseReply: true})
				a.SetFaults(s)
				return in(t, client("AKIDADMIN"), id)
			},
		}
	})
}

// The zone of a name is found by the VPC that sees it; where two could be meant, both are named.
func TestFindZone(t *testing.T) {
	_, client := account(t)
	api := client("AKIDADMIN")
	if _, err := zone.FindZone(t.Context(), api, private); !errors.Is(err, zone.ErrNoZone) {
		t.Fatalf("an empty account: %v", err)
	}
	other := private
	other.VPC = "vpc-0fffffffffffffff0"
	one, two := create(t, api, private, "1"), create(t, api, other, "2")
	public := create(t, api, zone.Query{Name: "k8s.", Public: true}, "3")
	create(t, api, zone.Query{Name: "k8s.example.", VPC: vpc, Region: "eu-central-1"}, "4")
	for _, tc := range []struct {
		q    zone.Query
		want string
	}{
		{private, one},
		{other, two},
		{zone.Query{Name: "K8S", Public: true}, public},
	} {
		if got, err := zone.FindZone(t.Context(), api, tc.q); err != nil || got != tc.want {
			t.Errorf("%s: %s, %v; want %s", tc.q, got, err, tc.want)
		}
	}
	_, err := zone.FindZone(t.Context(), api, zone.Query{Name: "k8s"})
	says(t, err, []string{one, two, "name the VPC"})
	_, err = zone.FindZone(t.Context(), api, zone.Query{Name: "nowhere"})
	says(t, err, []string{"private zone nowhere.", "in this account"})
	if !errors.Is(err, zone.ErrNoZone) {
		t.Errorf("%v is no ErrNoZone, for which the command line has a hint", err)
	}
}

func TestCreateZoneLowersTheMinimum(t *testing.T) {
	a, client := account(t)
	api := client("AKIDADMIN")
	id := create(t, api, private, "1")
	sets, err := api.ListResourceRecordSets(t.Context(), &route53.ListResourceRecordSetsInput{HostedZoneId: &id})
	if err != nil {
		t.Fatal(err)
	}
	soa := sets.ResourceRecordSets[1]
	if soa.Type != types.RRTypeSoa || aws.ToInt64(soa.TTL) != 5 || *soa.ResourceRecords[0].Value != "ns-1536.awsdns-00.co.uk. awsdns-hostmaster.amazon.com. 1 7200 900 1209600 5" {
		t.Errorf("the SOA is %s %d %s", soa.Type, aws.ToInt64(soa.TTL), aws.ToString(soa.ResourceRecords[0].Value))
	}
	before := a.Calls()
	if err := in(t, api, id).LowerMinimum(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := a.Calls()["route53:ChangeResourceRecordSets"] - before["route53:ChangeResourceRecordSets"]; n != 0 {
		t.Errorf("%d changes where nothing is to do", n)
	}
	_, err = zone.CreateZone(t.Context(), api, zone.Query{Name: "k8s"}, "2")
	says(t, err, []string{"name a VPC and its region"})
}

// EnsureZone may be called again and again; a zone of the name that the VPC sees and that is not ours is named.
func TestEnsureZone(t *testing.T) {
	a, client := account(t)
	api := client("AKIDADMIN")
	id, created, err := zone.EnsureZone(t.Context(), api, private, "1")
	if err != nil || !created {
		t.Fatalf("%s, %v, %v", id, created, err)
	}
	again, created, err := zone.EnsureZone(t.Context(), api, private, "2")
	if err != nil || created || again != id {
		t.Errorf("the second call: %s, %v, %v", again, created, err)
	}
	taken := awsfake.Fault{Refuse: &awsfake.Error{Status: 400, Code: "ConflictingDomainExists",
		Message: "The VPC vpc-0fffffffffffffff0 in region eu-central-1 has already been associated with the hosted zone Z9 with the same domain name."}}
	s := &awsfake.Script{}
	s.Add("CreateHostedZone", taken)
	a.SetFaults(s)
	other := private
	other.VPC = "vpc-0fffffffffffffff0"
	_, created, err = zone.EnsureZone(t.Context(), api, other, "3")
	says(t, err, []string{"not this account's", "list-hosted-zones-by-vpc --vpc-id vpc-0fffffffffffffff0", "choose another name"})
	if created {
		t.Error("it says that it created another account's zone")
	}
	// Somebody else's call comes between looking and creating.
	a.SetFaults(awsfake.FaultFunc(func(c awsfake.Call) awsfake.Fault {
		if c.Action == "CreateHostedZone" && c.Number == 3 {
			create(t, api, other, "4")
		}
		return awsfake.Fault{}
	}))
	id, created, err = zone.EnsureZone(t.Context(), api, other, "5")
	if found, _ := zone.FindZone(t.Context(), api, other); err != nil || created || id != found || id == "" {
		t.Errorf("%s, %v, %v", id, created, err)
	}
	a.SetPolicy("AKIDOTHER", awsfake.Policy{})
	_, _, err = zone.EnsureZone(t.Context(), client("AKIDOTHER"), private, "6")
	says(t, err, []string{"AccessDenied", "IAM"})
}

func TestPrepareOnce(t *testing.T) {
	_, client := account(t)
	z := in(t, client("AKIDADMIN"), create(t, client("AKIDADMIN"), private, "1"))
	for i, want := range []bool{true, false} {
		got, err := prepare.Placeholders(t.Context(), z, "demo", record.DefaultPolicy(), "g")
		if err != nil || got != want {
			t.Errorf("call %d: %v, %v", i, got, err)
		}
	}
	have, err := z.Read(t.Context(), "demo")
	if err != nil || len(have) < 4 {
		t.Errorf("%v, %v", have, err)
	}
}

// A list of several pages is read whole, and only as far as the cluster's names go.
func TestRoute53ReadsPages(t *testing.T) {
	a, client := account(t)
	api := client("AKIDADMIN")
	id := create(t, api, private, "1")
	z := in(t, api, id)
	for c := range 2 {
		var sets []record.Set
		for i := range 350 {
			sets = append(sets, record.Set{Name: "minions-" + strconv.Itoa(i) + "." + []string{"demo", "zoo"}[c] + ".k8s.", Type: record.A,
				TTL: 5 * time.Second, Values: []string{"10.0.0.1"}})
		}
		if err := z.CompareAndSwap(t.Context(), "demo", nil, sets); err != nil {
			t.Fatal(err)
		}
	}
	before := a.Calls()["route53:ListResourceRecordSets"]
	got, err := z.Read(t.Context(), "demo")
	if err != nil || len(got) != 350 {
		t.Errorf("%d sets, %v", len(got), err)
	}
	if n := a.Calls()["route53:ListResourceRecordSets"] - before; n != 2 {
		t.Errorf("%d calls (%v)", n, a.Calls())
	}
}

// What Route 53 answers becomes an error for a decision or for a person.
func TestRoute53Errors(t *testing.T) {
	throttled, prior, busy := awsfake.Throttled(), awsfake.PriorRequestNotComplete(), awsfake.Unavailable()
	for _, tc := range []struct {
		name   string
		refuse *awsfake.Error
		want   error
	}{
		{"throttled", throttled, reconcile.ErrThrottled},
		{"prior request", prior, reconcile.ErrThrottled},
		{"an answer that says nothing", busy, reconcile.ErrUnknownOutcome},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, client := account(t)
			z := in(t, client("AKIDADMIN"), create(t, client("AKIDADMIN"), private, "1"))
			s := &awsfake.Script{}
			s.Add("ChangeResourceRecordSets", awsfake.Fault{Refuse: tc.refuse})
			a.SetFaults(s)
			count := a.Calls()["route53:ChangeResourceRecordSets"]
			if err := z.CompareAndSwap(t.Context(), "demo", nil, before); !errors.Is(err, tc.want) {
				t.Errorf("%v", err)
			}
			if n := a.Calls()["route53:ChangeResourceRecordSets"] - count; n != 1 {
				t.Errorf("%d calls: another try is the caller's decision", n)
			}
		})
	}
	_, client := account(t)
	_, err := in(t, client("AKIDADMIN"), "Z0000000000099").Read(t.Context(), "demo")
	says(t, err, []string{"Z0000000000099", "find the zone by its name"})
}

// Someone else's record at one of our names is named, and not changed.
func TestRoute53LeavesForeignRecords(t *testing.T) {
	_, client := account(t)
	api := client("AKIDADMIN")
	id := create(t, api, private, "1")
	_, err := api.ChangeResourceRecordSets(t.Context(), &route53.ChangeResourceRecordSetsInput{HostedZoneId: &id, ChangeBatch: &types.ChangeBatch{
		Changes: []types.Change{{Action: types.ChangeActionCreate, ResourceRecordSet: &types.ResourceRecordSet{
			Name: aws.String("masters.demo.k8s."), Type: types.RRTypeCname, TTL: aws.Int64(60),
			ResourceRecords: []types.ResourceRecord{{Value: aws.String("elsewhere.example.")}}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	z := in(t, api, id)
	_, err = z.Read(t.Context(), "demo")
	says(t, err, []string{"masters.demo.k8s.", "CNAME", "remove it"})
	says(t, z.CompareAndSwap(t.Context(), "demo", nil, before), []string{"masters.demo.k8s.", "remove the record"})
}

func TestRoute53Unreachable(t *testing.T) {
	api := route53.New(route53.Options{Region: "eu-central-1", BaseEndpoint: aws.String("http://127.0.0.1:1"),
		Credentials: credentials.NewStaticCredentialsProvider("k", "s", "")})
	says(t, in(t, api, "Z1").CompareAndSwap(t.Context(), "demo", nil, before), []string{"connection refused"})
}
