package zone_test

import (
	"net"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone/zonetest"
)

// Of all that a zone has, a reading has what may be the cluster's, whatever the case and the order of its names.
func TestRFC2136Reads(t *testing.T) {
	p := holding(t,
		"masters.demo.k8s. 5 IN A 10.0.0.2", "masters.demo.k8s. 60 IN AAAA 2001:db8::1", "MASTERS.demo.K8S. 5 IN A 10.0.0.1",
		"masters.demo.k8s. 5 IN MX 10 mail.k8s.", "a.masters.demo.k8s. 5 IN A 10.0.0.9", "masters.demo2.k8s. 5 IN A 10.0.0.9",
		"blog.demo.k8s. 5 IN CNAME elsewhere.example.", `_hardtack.demo.k8s. 5 IN TXT "owner=" "x"`, `_hardtack.demo.k8s. 5 IN TXT "a"`,
		"_etcd-server-ssl._tcp.demo.k8s. 5 IN SRV 1 2 2380 Etcd-A.demo.k8s.", "etcd.demo.k8s. 5 IN A 10.0.0.3")
	got, err := at(t, p.addr, "", withKey).Read(t.Context(), zonetest.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	set := func(name, kind string, ttl time.Duration, values ...string) record.Set {
		return record.Set{Name: name + ".demo.k8s.", Type: kind, TTL: ttl, Values: values}
	}
	exactly(t, got,
		set("_etcd-server-ssl._tcp", record.SRV, 5*time.Second, "1 2 2380 etcd-a.demo.k8s."),
		set("_hardtack", record.TXT, 5*time.Second, "a", "owner=x"),
		set("etcd", record.A, 5*time.Second, "10.0.0.3"),
		set("masters", record.A, 5*time.Second, "10.0.0.1", "10.0.0.2"),
		set("masters", record.AAAA, time.Minute, "2001:db8::1"))
}

// exactly compares sets, also the order of their values.
func exactly(t *testing.T, got []record.Set, want ...record.Set) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
}

// The zone and the names in it are those of the policy, which a person may write without the final dot.
func TestRFC2136ReadsAnotherZone(t *testing.T) {
	p := newPeer(t, func(q *dns.Msg) []*dns.Msg {
		if q.Question[0].Name != "dns.example." {
			return []*dns.Msg{reply(q, dns.RcodeNotAuth)}
		}
		soa := "dns.example. 60 IN SOA ns.example. hostmaster.example. 7 3600 600 86400 5"
		return []*dns.Msg{reply(q, dns.RcodeSuccess, rrs(t, soa, "masters.demo.dns.example. 5 IN A 10.0.0.1", "masters.demo.k8s. 5 IN A 10.0.0.2", soa)...)}
	})
	z := at(t, p.addr, "", func(c *zone.RFC2136Config) { c.Policy.Suffix = "DNS.Example" })
	got, err := z.Read(t.Context(), zonetest.Cluster)
	if want := []record.Set{{Name: "masters.demo.dns.example.", Type: record.A, TTL: 5 * time.Second, Values: []string{"10.0.0.1"}}}; err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

// A transfer that ends too early, or whose signatures do, is none.
func TestRFC2136ReadsNoPart(t *testing.T) {
	for name, second := range map[string]func(q *dns.Msg) *dns.Msg{
		"it ends":          func(*dns.Msg) *dns.Msg { return nil },
		"nobody signed it": func(q *dns.Msg) *dns.Msg { return unsigned(reply(q, dns.RcodeSuccess, rrs(t, soaLine)...)) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, func(q *dns.Msg) []*dns.Msg {
				return []*dns.Msg{reply(q, dns.RcodeSuccess, rrs(t, soaLine, "masters.demo.k8s. 5 IN A 10.0.0.1")...), second(q), nil}
			})
			z := at(t, p.addr, "", withKey)
			if got, err := z.Read(t.Context(), zonetest.Cluster); err == nil || got != nil {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// A server may be slower than a program expects that knows nothing of the configured time.
func TestRFC2136WaitsForASlowTransfer(t *testing.T) {
	t.Parallel()
	p := newPeer(t, func(q *dns.Msg) []*dns.Msg {
		time.Sleep(2200 * time.Millisecond)
		return []*dns.Msg{reply(q, dns.RcodeSuccess, rrs(t, soaLine, soaLine)...)}
	})
	if _, err := at(t, p.addr, "").Read(t.Context(), zonetest.Cluster); err != nil {
		t.Error(err)
	}
}

// A transfer is used again for as long as the serial is the same, but not for ever, and not after a change of one's own:
// a server may change a zone without another serial.
func TestRFC2136TransfersAgain(t *testing.T) {
	p := holding(t, "masters.demo.k8s. 5 IN A 10.0.0.1")
	synctest.Test(t, func(t *testing.T) {
		z := at(t, p.addr, "") // no signature fits the time in here
		reads := func(total int) {
			t.Helper()
			if got, err := z.Read(t.Context(), zonetest.Cluster); err != nil || len(got) != 1 {
				t.Errorf("%v, %v", got, err)
			}
			if n := len(p.questions(dns.TypeAXFR)); n != total {
				t.Errorf("%d transfers, want %d", n, total)
			}
		}
		reads(1)
		time.Sleep(5*time.Minute - time.Nanosecond)
		reads(1)
		time.Sleep(time.Nanosecond)
		reads(2)
		if err := z.CompareAndSwap(t.Context(), zonetest.Cluster, nil, before); err != nil {
			t.Error(err)
		}
		reads(3)
		reads(3)
	})
}

// A server that says nothing of the serial, and one whose serial is another, is asked for the whole zone each time.
func TestRFC2136TransfersWithoutASerial(t *testing.T) {
	p := newPeer(t, func(q *dns.Msg) []*dns.Msg {
		if q.Question[0].Qtype == dns.TypeSOA {
			return []*dns.Msg{reply(q, dns.RcodeRefused)}
		}
		return []*dns.Msg{reply(q, dns.RcodeSuccess, rrs(t, soaLine, soaLine)...)}
	})
	z := at(t, p.addr, "")
	for range 2 {
		if _, err := z.Read(t.Context(), zonetest.Cluster); err != nil {
			t.Error(err)
		}
	}
	if n := len(p.questions(dns.TypeAXFR)); n != 2 {
		t.Errorf("%d transfers", n)
	}
}

// What a TXT record holds is written and read as it is.
func TestRFC2136KeepsEveryText(t *testing.T) {
	values := []string{"", `"`, `"a`, `"abc`, `a"`, `\`, `a\`, `\a\`, `\065`, `\\065`, "\x01\x02", "a\x07", "caf\xc3\xa9", "\xff", "a b;c"}
	slices.Sort(values)
	want := []record.Set{{Name: "_hardtack.demo.k8s.", Type: record.TXT, TTL: 5 * time.Second, Values: values}}
	var written atomic.Value
	p := newPeer(t, func(q *dns.Msg) []*dns.Msg {
		if q.Opcode == dns.OpcodeUpdate {
			written.Store(q.Ns)
			return []*dns.Msg{reply(q, dns.RcodeSuccess)}
		}
		return []*dns.Msg{reply(q, dns.RcodeSuccess, slices.Concat(rrs(t, soaLine), written.Load().([]dns.RR), rrs(t, soaLine))...)}
	})
	z := at(t, p.addr, "")
	if err := z.CompareAndSwap(t.Context(), zonetest.Cluster, nil, want); err != nil {
		t.Fatal(err)
	}
	got, err := z.Read(t.Context(), zonetest.Cluster)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

// No call leaves a connection behind, also where the server refuses.
func TestRFC2136LeavesNoConnection(t *testing.T) {
	b := zonetest.StartBIND(t, zonetest.BINDOptions{})
	var open atomic.Int32
	addr := between(t, b.Addr, func(client, up net.Conn) {
		open.Add(1)
		go func() {
			pass(client, up, new(atomic.Int32)) // until the client ends
			open.Add(-1)
			_ = up.Close()
		}()
		go func() { pass(up, client, new(atomic.Int32)) }()
	})
	for name, do := range map[string]func(z *zone.RFC2136) error{
		"read":   func(z *zone.RFC2136) error { _, err := z.Read(t.Context(), zonetest.Cluster); return err },
		"serial": func(z *zone.RFC2136) error { _, err := z.Serial(t.Context()); return err },
		"swap":   func(z *zone.RFC2136) error { return z.CompareAndSwap(t.Context(), zonetest.Cluster, before, after) },
	} {
		for _, key := range []string{b.KeyFile, b.OtherFile} {
			_ = do(at(t, addr, key))
			for end := time.Now().Add(10 * time.Second); open.Load() > 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%s: %d connections are open", name, open.Load())
				}
			}
		}
	}
}
