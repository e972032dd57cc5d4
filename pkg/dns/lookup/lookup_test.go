package lookup_test

import (
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/lookup"
)

// serve answers by both protocols on one port: with one address for masters, with what does not fit UDP for minions, and else
// with a "no" that a cache has had for 40 s.
func serve(t *testing.T) string {
	t.Helper()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", udp.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		_, isUDP := w.RemoteAddr().(*net.UDPAddr)
		m := new(dns.Msg).SetReply(q)
		record := func(text string) dns.RR {
			rr, err := dns.NewRR(text)
			if err != nil {
				panic(err)
			}
			return rr
		}
		switch question := q.Question[0]; {
		case strings.HasPrefix(question.Name, "masters") && question.Qtype == dns.TypeA:
			m.Authoritative = true
			m.Answer = []dns.RR{record("masters.demo.k8s. 5 A 10.0.0.2"), record("masters.demo.k8s. 5 A 10.0.0.1")}
		case strings.HasPrefix(question.Name, "minions") && isUDP:
			m.Truncated = true
		case strings.HasPrefix(question.Name, "minions") && question.Qtype == dns.TypeA:
			m.Answer = []dns.RR{record("minions.demo.k8s. 3 A 10.0.0.3")}
		default:
			m.Rcode = dns.RcodeNameError
			m.Ns = []dns.RR{record("k8s. 20 SOA ns. admin. 1 2 3 4 60")}
		}
		_ = w.WriteMsg(m)
	})
	for _, s := range []*dns.Server{{PacketConn: udp, Handler: handler}, {Listener: tcp, Handler: handler}} {
		go func() { _ = s.ActivateAndServe() }()
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return udp.LocalAddr().String()
}

func TestAll(t *testing.T) {
	server := serve(t)
	got := lookup.All(t.Context(), []string{server}, []string{"masters.demo.k8s.", "minions.demo.k8s.", "_etcd._tcp.demo.k8s.", "_hardtack.demo.k8s."})
	no := func(name, kind string) lookup.Answer {
		return lookup.Answer{Server: server, Name: name, Type: kind, Code: "NXDOMAIN", Values: []string{}, NegativeSeconds: 20, NegativeAgeSeconds: 40}
	}
	want := []lookup.Answer{
		{Server: server, Name: "masters.demo.k8s.", Type: "A", Code: "NOERROR", Authoritative: true, TTLSeconds: 5, Values: []string{"10.0.0.1", "10.0.0.2"}},
		no("masters.demo.k8s.", "AAAA"),
		{Server: server, Name: "minions.demo.k8s.", Type: "A", Code: "NOERROR", TTLSeconds: 3, Values: []string{"10.0.0.3"}},
		no("minions.demo.k8s.", "AAAA"),
		no("_etcd._tcp.demo.k8s.", "SRV"),
		no("_hardtack.demo.k8s.", "TXT"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestNoServer: that nobody answers is an answer too, which says so.
func TestNoServer(t *testing.T) {
	gone, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := gone.LocalAddr().String()
	_ = gone.Close()
	got := lookup.All(t.Context(), []string{server}, []string{"_hardtack.demo.k8s."})
	if len(got) != 1 || !strings.Contains(got[0].Error, "asking "+server) {
		t.Errorf("%+v", got)
	}
}
