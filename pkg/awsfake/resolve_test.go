package awsfake_test

import (
	"testing"

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
		create(set("api.demo.k8s", "CNAME", 60, "masters.demo.k8s."))); err != nil {
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
		{"other.k8s", "A", *vpc.VPCId, awsfake.Answer{NXDomain: true, TTL: 900}},
		{"masters.demo.k8s", "A", "", awsfake.Answer{Refused: true}},
		{"masters.demo.k8s", "A", "vpc-00000000", awsfake.Answer{Refused: true}},
		{"masters.demo.example", "A", *vpc.VPCId, awsfake.Answer{Refused: true}},
	}
	for _, tt := range tests {
		got := account.Route53().Resolve(awsfake.Query{Name: tt.name, Type: tt.kind, VPC: tt.vpc})
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
	if got := account.Route53().Resolve(awsfake.Query{Name: "minions.demo.k8s", Type: "A", VPC: *vpc.VPCId}); !cmp.Equal(want, got) {
		t.Errorf("with a lowered minimum: %+v, want %+v", got, want)
	}
}
