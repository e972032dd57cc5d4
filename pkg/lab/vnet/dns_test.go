package vnet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// aZone is a zone "k8s." with a few names.
type aZone struct{}

func (aZone) Resolve(_ context.Context, q Question) (Reply, error) {
	const noTTL = 900
	many := make([]string, 60)
	for i := range many {
		many[i] = fmt.Sprintf("10.1.0.%d", 10+i)
	}
	sets := map[string]Reply{
		"k8s. SOA":                 {Values: []string{"ns.k8s. root.k8s. 1 7200 900 1209600 30"}, TTL: noTTL},
		"masters.demo.k8s. A":      {Values: []string{"10.1.0.10", "10.1.0.11"}, TTL: 5},
		"many.demo.k8s. A":         {Values: many, TTL: 5},
		"_etcd._tcp.demo.k8s. SRV": {Values: []string{"0 0 2380 etcd-a.demo.k8s."}, TTL: 5},
		"info.demo.k8s. TXT":       {Values: []string{`"a b" "c"`}, TTL: 5},
		"alias.demo.k8s. A":        {Alias: "masters.demo.k8s.", TTL: 7},
		"out.demo.k8s. A":          {Alias: "www.example.com", TTL: 7},
		"round.demo.k8s. A":        {Alias: "round.demo.k8s.", TTL: 7},
		"nonsense.demo.k8s. A":     {Values: []string{"10.1.0.10", "no address"}, TTL: 7},
	}
	switch r, ok := sets[q.Name+" "+q.Type]; {
	case ok:
		return r, nil
	case q.Name == "broken.demo.k8s.":
		return Reply{}, errors.New("no answer")
	case !strings.HasSuffix(q.Name, ".k8s.") && q.Name != "k8s.":
		return Reply{Unknown: true}, nil
	}
	for set := range sets {
		if name, _, _ := strings.Cut(set, " "); dns.IsSubDomain(q.Name, name) {
			return Reply{TTL: 30}, nil
		}
	}
	return Reply{NXDomain: true, TTL: 30}, nil
}

// exchange asks the resolver as a machine does.
func exchange(t *testing.T, g *guest, proto string, m *dns.Msg) *dns.Msg {
	t.Helper()
	conn := &dns.Conn{UDPSize: dns.MaxMsgSize}
	if proto == "tcp" {
		c, err := g.dial(within(t), "10.1.0.2:53")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		conn.Conn = c
	} else {
		conn.Conn = g.dialUDP(t, "10.1.0.2:53")
	}
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := conn.WriteMsg(m); err != nil {
		t.Fatal(err)
	}
	answer, err := conn.ReadMsg()
	if err != nil {
		t.Fatal(err)
	}
	if answer.Id != m.Id {
		t.Errorf("answer to another question")
	}
	return answer
}

// lines are an answer as dig prints it, shortened.
func lines(m *dns.Msg) []string {
	out := []string{dns.RcodeToString[m.Rcode]}
	for _, rr := range m.Answer {
		out = append(out, strings.ReplaceAll(rr.String(), "\t", " "))
	}
	for _, rr := range m.Ns {
		out = append(out, "may keep "+rr.Header().Name+" "+fmt.Sprint(rr.Header().Ttl)+" "+fmt.Sprint(rr.(*dns.SOA).Minttl))
	}
	return out
}

func TestResolver(t *testing.T) {
	n := newNetwork(t, Config{Domain: "eu-central-1.compute.internal", Resolver: aZone{}})
	g := newGuest(t, n, attach(t, n, "a", "10.1.0.10"))
	attach(t, n, "b", "10.1.0.11")
	cases := []struct {
		name, kind string
		want       []string
	}{
		{"Masters.demo.k8s.", "A", []string{"NOERROR", "masters.demo.k8s. 5 IN A 10.1.0.10", "masters.demo.k8s. 5 IN A 10.1.0.11"}},
		{"masters.demo.k8s.", "AAAA", []string{"NOERROR", "may keep k8s. 30 30"}},
		{"gone.demo.k8s.", "A", []string{"NXDOMAIN", "may keep k8s. 30 30"}},
		{"_etcd._tcp.demo.k8s.", "SRV", []string{"NOERROR", "_etcd._tcp.demo.k8s. 5 IN SRV 0 0 2380 etcd-a.demo.k8s."}},
		{"info.demo.k8s.", "TXT", []string{"NOERROR", `info.demo.k8s. 5 IN TXT "a b" "c"`}},
		{"alias.demo.k8s.", "A", []string{"NOERROR", "alias.demo.k8s. 7 IN CNAME masters.demo.k8s.", "masters.demo.k8s. 5 IN A 10.1.0.10", "masters.demo.k8s. 5 IN A 10.1.0.11"}},
		{"out.demo.k8s.", "A", []string{"NXDOMAIN", "out.demo.k8s. 7 IN CNAME www.example.com.", "may keep . 60 60"}},
		{"broken.demo.k8s.", "A", []string{"SERVFAIL"}},
		{"nonsense.demo.k8s.", "A", []string{"SERVFAIL"}},
		{"www.example.com.", "A", []string{"NXDOMAIN", "may keep . 60 60"}},
		{"ip-10-1-0-11.eu-central-1.compute.internal.", "A", []string{"NOERROR", "ip-10-1-0-11.eu-central-1.compute.internal. 60 IN A 10.1.0.11"}},
		{"ip-10-1-0-11.eu-central-1.compute.internal.", "AAAA", []string{"NOERROR", "may keep eu-central-1.compute.internal. 60 60"}},
		{"ip-10-1-0-12.eu-central-1.compute.internal.", "A", []string{"NXDOMAIN", "may keep eu-central-1.compute.internal. 60 60"}},
		{"11.0.1.10.in-addr.arpa.", "PTR", []string{"NOERROR", "11.0.1.10.in-addr.arpa. 60 IN PTR ip-10-1-0-11.eu-central-1.compute.internal."}},
		{"12.0.1.10.in-addr.arpa.", "PTR", []string{"NXDOMAIN", "may keep . 60 60"}},
	}
	for _, c := range cases {
		for _, proto := range []string{"udp", "tcp"} {
			t.Run(c.name+c.kind+" "+proto, func(t *testing.T) {
				m := exchange(t, g, proto, new(dns.Msg).SetQuestion(c.name, dns.StringToType[c.kind]))
				if diff := cmp.Diff(c.want, lines(m)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if !m.Response || !m.RecursionAvailable || m.Authoritative || m.Question[0].Name != c.name {
					t.Errorf("header %v", m.MsgHdr)
				}
			})
		}
	}
	if got := n.Asked("a", "masters.demo.k8s."); got != 4 {
		t.Errorf("asked %d times for masters, want 4", got)
	}
	queries := n.Queries()
	first := queries[0]
	first.Time = time.Time{}
	if want := (Query{Machine: "a", Name: "masters.demo.k8s.", Type: "A", Proto: "udp", Rcode: "NOERROR", Answers: 2}); first != want || len(queries) != 2*len(cases) {
		t.Errorf("%d queries, the first %+v", len(queries), first)
	}
	m := exchange(t, g, "udp", new(dns.Msg).SetQuestion("round.demo.k8s.", dns.TypeA))
	if m.Rcode != dns.RcodeServerFailure {
		t.Errorf("a chain without an end: %s", dns.RcodeToString[m.Rcode])
	}
}

// TestTruncation asks for more than a datagram holds.
func TestTruncation(t *testing.T) {
	n := newNetwork(t, Config{Resolver: aZone{}})
	g := newGuest(t, n, attach(t, n, "a", "10.1.0.10"))
	cases := []struct {
		proto     string
		edns      uint16
		limit     int
		truncated bool
	}{
		{"udp", 0, 512, true}, {"udp", 100, 512, true}, {"udp", 800, 800, true}, {"udp", 4096, 1400, false}, {"tcp", 0, 1 << 16, false},
	}
	for _, c := range cases {
		q := new(dns.Msg).SetQuestion("many.demo.k8s.", dns.TypeA)
		if c.edns > 0 {
			q.SetEdns0(c.edns, false)
		}
		m := exchange(t, g, c.proto, q)
		m.Compress = true
		if m.Truncated != c.truncated || m.Len() > c.limit || !c.truncated && len(m.Answer) != 60 || (m.IsEdns0() != nil) != (c.edns > 0) {
			t.Errorf("%+v: truncated %v, %d bytes, %d answers, EDNS %v", c, m.Truncated, m.Len(), len(m.Answer), m.IsEdns0())
		}
	}
}

// TestOddMessages sends queries that a resolver has to refuse.
func TestOddMessages(t *testing.T) {
	n := newNetwork(t, Config{Resolver: aZone{}})
	g := newGuest(t, n, attach(t, n, "a", "10.1.0.10"))
	chaos := new(dns.Msg).SetQuestion("version.bind.", dns.TypeTXT)
	chaos.Question[0].Qclass = dns.ClassCHAOS
	if m := exchange(t, g, "udp", chaos); m.Rcode != dns.RcodeRefused {
		t.Errorf("class CHAOS: %s", dns.RcodeToString[m.Rcode])
	}
	version := new(dns.Msg).SetQuestion("masters.demo.k8s.", dns.TypeA).SetEdns0(1232, false)
	version.IsEdns0().SetVersion(1)
	if m := exchange(t, g, "udp", version); m.Rcode != dns.RcodeBadVers {
		t.Errorf("EDNS version 1: %s", dns.RcodeToString[m.Rcode])
	}
	if m := exchange(t, g, "udp", new(dns.Msg).SetUpdate("k8s.")); m.Rcode != dns.RcodeNotImplemented {
		t.Errorf("an update: %s", dns.RcodeToString[m.Rcode])
	}
}

func TestQueriesAreBounded(t *testing.T) {
	n := &Network{}
	for i := range maxQueries + 10 {
		n.queries.add(Question{Machine: "a", Name: fmt.Sprint(i%100, ".")}, "udp", "NOERROR", i)
	}
	all := n.Queries()
	if len(all) != maxQueries || all[0].Answers != 10 || !slices.IsSortedFunc(all, func(a, b Query) int { return a.Answers - b.Answers }) {
		t.Errorf("%d queries from %d on", len(all), all[0].Answers)
	}
	if got := n.Asked("a", "1."); got != 101 {
		t.Errorf("counted %d, want 101", got)
	}
}
