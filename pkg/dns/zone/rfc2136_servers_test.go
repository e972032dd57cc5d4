package zone_test

import (
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone/zonetest"
)

func TestRFC2136OnKnot(t *testing.T)     { onServer(t, zonetest.StartKnot) }
func TestRFC2136OnPowerDNS(t *testing.T) { onServer(t, zonetest.StartPowerDNS) }

func onServer(t *testing.T, start func(testing.TB) zonetest.Server) {
	t.Helper()
	zonetest.Run(t, func(t *testing.T) zonetest.Subject {
		t.Helper()
		s := start(t)
		return zonetest.Subject{
			Zone:      at(t, s.Addr, s.KeyFile),
			WrongKey:  at(t, s.Addr, s.OtherFile),
			LoseReply: func() reconcile.Zone { return at(t, deaf(t, s.Addr), s.KeyFile) },
		}
	})
}

// Each server raises the serial with every update, by which its secondary servers get what was written.
func TestSerialRises(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) zonetest.Server{
		"BIND": func(t *testing.T) zonetest.Server {
			t.Helper()
			b := zonetest.StartBIND(t, zonetest.BINDOptions{})
			return zonetest.Server{Addr: b.Addr, KeyFile: b.KeyFile}
		},
		"Knot":     func(t *testing.T) zonetest.Server { t.Helper(); return zonetest.StartKnot(t) },
		"PowerDNS": func(t *testing.T) zonetest.Server { t.Helper(); return zonetest.StartPowerDNS(t) },
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			z := at(t, s.Addr, s.KeyFile)
			last := uint32(0)
			for i, change := range [][2][]record.Set{{nil, before}, {before, after}, {after, before}} {
				if err := z.CompareAndSwap(t.Context(), zonetest.Cluster, change[0], change[1]); err != nil {
					t.Fatal(err)
				}
				serial, err := z.Serial(t.Context())
				if err != nil || i > 0 && int32(serial-last) <= 0 {
					t.Errorf("change %d: serial %d after %d, %v", i, serial, last, err)
				}
				last = serial
			}
		})
	}
}

// A zone that has not changed is not transferred again; whoever changes it, the next reading has the change.
func TestRFC2136TransfersOnlyWhatHasChanged(t *testing.T) {
	b := zonetest.StartBIND(t, zonetest.BINDOptions{})
	addr, transfers := counting(t, b.Addr)
	z, other := at(t, addr, b.KeyFile), at(t, b.Addr, b.KeyFile)
	reads := func(want []record.Set, total int32) {
		t.Helper()
		got, err := z.Read(t.Context(), zonetest.Cluster)
		if err != nil || len(got) != len(want) || len(want) > 0 && !got[1].Equal(want[1]) {
			t.Fatalf("read %v, %v, want %v", got, err, want)
		}
		if n := transfers.Load(); n != total {
			t.Errorf("%d transfers, want %d", n, total)
		}
	}
	reads(nil, 1)
	reads(nil, 1)
	if err := other.CompareAndSwap(t.Context(), zonetest.Cluster, nil, before); err != nil {
		t.Fatal(err)
	}
	reads(before, 2)
	reads(before, 2)
	if err := z.CompareAndSwap(t.Context(), zonetest.Cluster, before, after); err != nil {
		t.Fatal(err)
	}
	reads(after, 3)
	// A reading is the caller's own: what it does to it changes nothing.
	got, err := z.Read(t.Context(), zonetest.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	got[1].Values[0] = "10.255.255.255"
	reads(after, 3)
}

// counting is a proxy that counts the questions for a transfer.
func counting(t *testing.T, server string) (string, *atomic.Int32) {
	t.Helper()
	var n atomic.Int32
	return between(t, server, func(client, up net.Conn) {
		go func() { _, _ = io.Copy(client, up); _ = client.Close() }()
		go func() { pass(client, up, &n); _ = up.Close() }()
	}), &n
}

// pass passes messages on.
func pass(from io.Reader, to io.Writer, n *atomic.Int32) {
	for {
		head := make([]byte, 2)
		if _, err := io.ReadFull(from, head); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint16(head))
		if _, err := io.ReadFull(from, body); err != nil {
			return
		}
		m := new(dns.Msg)
		if m.Unpack(body) == nil && len(m.Question) == 1 && m.Question[0].Qtype == dns.TypeAXFR {
			n.Add(1)
		}
		if _, err := to.Write(append(head, body...)); err != nil {
			return
		}
	}
}

// A suffix inside of a zone is told from a server that knows nothing of it.
func TestRFC2136NamesTheZone(t *testing.T) {
	b := zonetest.StartBIND(t, zonetest.BINDOptions{})
	z := at(t, b.Addr, b.KeyFile, func(c *zone.RFC2136Config) { c.Policy.Suffix = "inner.k8s." })
	_, err := z.Read(t.Context(), zonetest.Cluster)
	says(t, err, []string{"its zone k8s. has the name in it", "--suffix k8s."})
}
