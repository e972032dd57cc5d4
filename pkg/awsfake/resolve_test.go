package awsfake_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

func TestResolve(t *testing.T) {
	account, c := serve(t, awsfake.Options{Clock: awsfake.NewVirtualClock(start), Rates: unlimited})
	createZone(t, c, "k8s")
	zone := createZone(t, c, "demo.k8s")
	if _, err := change(t.Context(), c, zone,
		address("masters.demo.k8s", "10.0.0.2", "10.0.0.1"),
		create(set("_etcd-server-ssl._tcp.demo.k8s", "SRV", 5, "0 0 2380 etcd-a.demo.k8s.")),
		create(set("api.demo.k8s", "CNAME", 60, "masters.demo.k8s.")),
		address("*.wild.demo.k8s", "10.0.0.9")); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, kind, vpc string
		want            awsfake.Answer
	}{
		{"masters.demo.k8s", "A", *vpc.VPCId, awsfake.Answer{Values: []string{"10.0.0.2", "10.0.0.1"}, TTL: 5}},
		{"MASTERS.demo.k8s.", "A", *vpc.VPCId, awsfake.Answer{Values: []string{"10.0.0.2", "10.0.0.1"}, TTL: 5}},
		{"masters.demo.k8s", "AAAA", *vpc.VPCId, awsfake.Answer{TTL: 900}},
		{"minions.demo.k8s", "A", *vpc.VPCId, awsfake.Answer{NXDomain: true, TTL: 900}},
		{"_tcp.demo.k8s", "A", *vpc.VPCId, awsfake.Answer{TTL: 900}},
		{"api.demo.k8s", "A", *vpc.VPCId, awsfake.Answer{Alias: "masters.demo.k8s.", TTL: 60}},
		{"x.wild.demo.k8s", "A", *vpc.VPCId, awsfake.Answer{Values: []string{"10.0.0.9"}, TTL: 5}},
		{"x.wild.demo.k8s", "TXT", *vpc.VPCId, awsfake.Answer{TTL: 900}},
		{"other.k8s", "A", *vpc.VPCId, awsfake.Answer{NXDomain: true, TTL: 900}},
		{"masters.demo.k8s", "A", "", awsfake.Answer{Refused: true}},
		{"masters.demo.k8s", "A", "vpc-00000000", awsfake.Answer{Refused: true}},
		{"masters.demo.example", "A", *vpc.VPCId, awsfake.Answer{Refused: true}},
	}
	for _, tt := range tests {
		got := account.Route53().Resolve(awsfake.Query{Name: tt.name, Type: tt.kind, VPC: tt.vpc, At: start})
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s %s from %q (-want +got):\n%s", tt.name, tt.kind, tt.vpc, diff)
		}
	}
	// A lowered SOA minimum shortens the life of a "no".
	soa := "ns-1536.awsdns-00.co.uk. awsdns-hostmaster.amazon.com. 2 7200 900 1209600 5"
	if _, err := change(t.Context(), c, zone, upsert(set("demo.k8s", "SOA", 900, soa))); err != nil {
		t.Fatal(err)
	}
	want := awsfake.Answer{NXDomain: true, TTL: 5}
	if got := account.Route53().Resolve(awsfake.Query{Name: "minions.demo.k8s", Type: "A", VPC: *vpc.VPCId, At: start}); !cmp.Equal(want, got) {
		t.Errorf("with a lowered minimum: %+v, want %+v", got, want)
	}
}

func TestPropagation(t *testing.T) {
	clock := awsfake.NewVirtualClock(start)
	account, c := serve(t, awsfake.Options{Clock: clock, Rates: unlimited, Propagation: 40 * time.Second})
	zone := createZone(t, c, "k8s")
	clock.Advance(time.Hour)
	sent, err := change(t.Context(), c, zone, address("a.k8s", "10.0.0.1"))
	if err != nil || sent.Status != types.ChangeStatusPending || !sent.SubmittedAt.Equal(clock.Now()) {
		t.Fatalf("the change is %+v, %v", sent, err)
	}
	if sets, _ := listAll(t, c, zone, 300); len(sets) != 3 {
		t.Errorf("a pending set is not listed")
	}
	steps := []struct {
		after   time.Duration
		servers int
		status  types.ChangeStatus
	}{
		{0, 0, types.ChangeStatusPending},
		{10 * time.Second, 1, types.ChangeStatusPending},
		{39 * time.Second, 3, types.ChangeStatusPending},
		{40 * time.Second, 4, types.ChangeStatusInsync},
	}
	for _, s := range steps {
		clock.Advance(sent.SubmittedAt.Add(s.after).Sub(clock.Now()))
		know := 0
		for server := range 4 {
			a := account.Route53().Resolve(awsfake.Query{Name: "a.k8s", Type: "A", VPC: *vpc.VPCId, Server: server, At: clock.Now()})
			if len(a.Values) == 1 {
				know++
			}
		}
		got, err := c.GetChange(t.Context(), &route53.GetChangeInput{Id: sent.Id})
		if err != nil {
			t.Fatal(err)
		}
		if know != s.servers || got.ChangeInfo.Status != s.status {
			t.Errorf("after %v %d servers know and the status is %s, want %d and %s", s.after, know, got.ChangeInfo.Status, s.servers, s.status)
		}
	}
	_, err = c.GetChange(t.Context(), &route53.GetChangeInput{Id: aws.String("C0")})
	wantRefusal(t, err, "NoSuchChange", "Could not find resource with ID: C0")
	history, err := account.Route53().History(zone)
	if err != nil || len(history) != 2 || !history[1].Committed.Equal(*sent.SubmittedAt) || len(history[1].Sets) != 3 {
		t.Errorf("history is %+v, %v", history, err)
	}
}
