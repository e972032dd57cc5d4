package zone_test

import (
	"testing"

	"github.com/miekg/dns"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone/zonetest"
)

func soaOf(t *testing.T, server string) *dns.SOA {
	t.Helper()
	client := dns.Client{Net: "tcp"}
	reply, _, err := client.ExchangeContext(t.Context(), new(dns.Msg).SetQuestion("k8s.", dns.TypeSOA), server)
	if err != nil || len(reply.Answer) != 1 {
		t.Fatalf("%v, %v", reply, err)
	}
	soa, ok := reply.Answer[0].(*dns.SOA)
	if !ok {
		t.Fatal(reply)
	}
	return soa
}

// The minimum is lowered once, and nothing else of the SOA changes but its serial.
func TestRFC2136LowersTheMinimum(t *testing.T) {
	b := zonetest.StartBIND(t, zonetest.BINDOptions{Minimum: 900})
	first := soaOf(t, b.Addr)
	says(t, at(t, b.Addr, b.OtherFile).LowerMinimum(t.Context()), []string{"k8s.", b.Addr, "REFUSED", "allow-update", "set it to 5"})
	says(t, at(t, b.Addr, "").LowerMinimum(t.Context()), []string{"REFUSED", "give a key"})
	if after := soaOf(t, b.Addr); after.String() != first.String() {
		t.Errorf("a refused update changed the SOA to %s", after)
	}
	z := at(t, b.Addr, b.KeyFile)
	for range 2 {
		if err := z.LowerMinimum(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want := *first
	want.Minttl, want.Serial = 5, first.Serial+1
	if after := soaOf(t, b.Addr); after.String() != want.String() {
		t.Errorf("the SOA is %s, want %s", after, &want)
	}
	if err := z.CompareAndSwap(t.Context(), zonetest.Cluster, nil, before); err != nil {
		t.Errorf("after that, a change: %v", err)
	}
	says(t, at(t, "127.0.0.1:1", b.KeyFile).LowerMinimum(t.Context()), []string{"127.0.0.1:1", "is the server running"})
	says(t, at(t, b.Addr, b.KeyFile, func(c *zone.RFC2136Config) { c.Policy.Suffix = "example." }).LowerMinimum(t.Context()), []string{"no authority over zone example."})
}

// An update without a signature is tried without changing anything.
func TestRFC2136FindsAnOpenServer(t *testing.T) {
	for name, open := range map[string]bool{"a key is needed": false, "addresses are trusted": true} {
		t.Run(name, func(t *testing.T) {
			b := zonetest.StartBIND(t, zonetest.BINDOptions{Unsigned: open})
			before := soaOf(t, b.Addr)
			for _, key := range []string{b.KeyFile, b.OtherFile, ""} {
				if got, err := at(t, b.Addr, key).AcceptsUnsigned(t.Context()); err != nil || got != open {
					t.Errorf("%v, %v", got, err)
				}
			}
			if after := soaOf(t, b.Addr); after.Serial != before.Serial {
				t.Errorf("the zone has changed: serial %d, then %d", before.Serial, after.Serial)
			}
		})
	}
	if _, err := at(t, "127.0.0.1:1", "").AcceptsUnsigned(t.Context()); err == nil {
		t.Error("a server that does not run has answered")
	}
}

func TestRFC2136NeedsTransfers(t *testing.T) {
	b := zonetest.StartBIND(t, zonetest.BINDOptions{NoTransfer: true})
	_, err := at(t, b.Addr, b.KeyFile).Read(t.Context(), zonetest.Cluster)
	says(t, err, []string{"k8s.", "AXFR", `allow-transfer { key "hardtack."; };`})
}
