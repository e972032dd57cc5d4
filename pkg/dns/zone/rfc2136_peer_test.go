package zone_test

import (
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone/zonetest"
)

// peerKey is the key that a peer knows.
var peerKey = zone.Key{Name: "hardtack.", Algorithm: dns.HmacSHA256, Secret: "c2VjcmV0LXNlY3JldC1zZWNyZXQ="}

func withKey(c *zone.RFC2136Config) { c.Key = peerKey }

// peer is a name server that answers as the test says, also what no real one would. What it was asked can be read
// at any time.
type peer struct {
	addr  string
	mu    sync.Mutex
	asked []*dns.Msg
}

// newPeer starts a peer; answer has the messages that follow on one, of which nil ends the connection.
func newPeer(t *testing.T, answer func(q *dns.Msg) []*dns.Msg) *peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{addr: l.Addr().String()}
	s := &dns.Server{
		Listener: l, TsigSecret: map[string]string{peerKey.Name: peerKey.Secret},
		MsgAcceptFunc: func(dns.Header) dns.MsgAcceptAction { return dns.MsgAccept },
		Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
			p.mu.Lock()
			p.asked = append(p.asked, q)
			p.mu.Unlock()
			for i, m := range answer(q) {
				if m == nil {
					_ = w.Close()
					return
				}
				w.TsigTimersOnly(i > 0)
				_ = w.WriteMsg(m)
			}
		}),
	}
	ended := make(chan struct{})
	go func() { _ = s.ActivateAndServe(); close(ended) }()
	t.Cleanup(func() { _ = l.Close(); <-ended })
	return p
}

// questions returns what the peer was asked of a type.
func (p *peer) questions(kind uint16) []*dns.Msg {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.asked), func(m *dns.Msg) bool {
		return m.Opcode != dns.OpcodeQuery || m.Question[0].Qtype != kind
	})
}

// updates returns the updates that the peer was sent.
func (p *peer) updates() []*dns.Msg {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.asked), func(m *dns.Msg) bool { return m.Opcode != dns.OpcodeUpdate })
}

// reply answers with a code and records, signed if the question is.
func reply(q *dns.Msg, rcode int, rrs ...dns.RR) *dns.Msg {
	m := new(dns.Msg).SetRcode(q, rcode)
	m.Authoritative, m.Answer = true, rrs
	if k := q.IsTsig(); k != nil {
		m.SetTsig(k.Hdr.Name, k.Algorithm, 300, time.Now().Unix())
	}
	return m
}

// unsigned takes the signature away.
func unsigned(m *dns.Msg) *dns.Msg {
	m.Extra = slices.DeleteFunc(m.Extra, func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeTSIG })
	return m
}

// failed sets the error in a reply's signature.
func failed(m *dns.Msg, code uint16) *dns.Msg {
	if s := m.IsTsig(); s != nil {
		s.Error = code
	}
	return m
}

// rrs reads records as a zone file has them.
func rrs(t *testing.T, lines ...string) []dns.RR {
	t.Helper()
	var out []dns.RR
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rr)
	}
	return out
}

const soaLine = "k8s. 60 IN SOA ns.k8s. hostmaster.k8s. 7 3600 600 86400 5"

// holding is a peer with a zone that has the records, and takes every update without doing it.
func holding(t *testing.T, lines ...string) *peer {
	t.Helper()
	return newPeer(t, func(q *dns.Msg) []*dns.Msg {
		soa := rrs(t, soaLine)
		switch {
		case q.Opcode == dns.OpcodeUpdate:
			return []*dns.Msg{reply(q, dns.RcodeSuccess)}
		case q.Question[0].Qtype == dns.TypeSOA:
			return []*dns.Msg{reply(q, dns.RcodeSuccess, soa...)}
		}
		return []*dns.Msg{reply(q, dns.RcodeSuccess, soa...), reply(q, dns.RcodeSuccess, rrs(t, lines...)...), reply(q, dns.RcodeSuccess, soa...)}
	})
}

// hasForm is that an error is one, and that nothing in its text is missing.
func hasForm(t *testing.T, err error) {
	t.Helper()
	if err == nil || strings.Contains(err.Error(), "%!") || strings.Contains(err.Error(), "<nil>") {
		t.Errorf("the error is %v", err)
	}
}

// What the server answers to an update decides whether another try helps, and whether anything is known at all.
func TestRFC2136Verdicts(t *testing.T) {
	conflict, unknown := reconcile.ErrConflict, reconcile.ErrUnknownOutcome
	code := func(rcode int) func(*dns.Msg) *dns.Msg {
		return func(q *dns.Msg) *dns.Msg { return reply(q, rcode) }
	}
	for name, tc := range map[string]struct {
		answer func(q *dns.Msg) *dns.Msg
		key    bool
		want   error    // nil: neither of the two
		says   []string // of an error that is neither
		not    string   // what it does not say
		ok     bool
	}{
		"done":                               {answer: code(dns.RcodeSuccess), ok: true},
		"done, signed":                       {answer: code(dns.RcodeSuccess), key: true, ok: true},
		"done, though nobody has signed it":  {answer: func(q *dns.Msg) *dns.Msg { return unsigned(reply(q, dns.RcodeSuccess)) }, key: true, want: unknown},
		"done, with a signature of an error": {answer: func(q *dns.Msg) *dns.Msg { return failed(reply(q, dns.RcodeSuccess), dns.RcodeBadSig) }, key: true, want: unknown},
		"a record is another one":            {answer: code(dns.RcodeNXRrset), want: conflict},
		"a record is there":                  {answer: code(dns.RcodeYXRrset), want: conflict},
		"a name is there":                    {answer: code(dns.RcodeYXDomain), want: conflict},
		"a name is gone":                     {answer: code(dns.RcodeNameError), want: conflict},
		"a conflict, signed":                 {answer: code(dns.RcodeNXRrset), key: true, want: conflict},
		"another message's reply":            {answer: func(q *dns.Msg) *dns.Msg { m := reply(q, dns.RcodeSuccess); m.Id++; return m }, want: unknown},
		"no reply":                           {answer: func(*dns.Msg) *dns.Msg { return nil }, want: unknown},
		"it has failed":                      {answer: code(dns.RcodeServerFailure), says: []string{"SERVFAIL", "masters.demo.k8s. A with 2 records"}},
		"an unsigned refusal":                {answer: func(q *dns.Msg) *dns.Msg { return unsigned(reply(q, dns.RcodeRefused)) }, key: true, says: []string{"REFUSED", "update-policy", `"hardtack."`}},
		"a name outside":                     {answer: code(dns.RcodeNotZone), says: []string{"NOTZONE", "k8s."}},
		"no updates":                         {answer: code(dns.RcodeNotImplemented), says: []string{"NOTIMP", "BIND"}},
		"a form it does not take":            {answer: code(dns.RcodeFormatError), says: []string{"FORMERR"}, not: "BIND"},
		"no authority":                       {answer: code(dns.RcodeNotAuth), says: []string{"NOTAUTH", "k8s."}},
		"another clock":                      {answer: func(q *dns.Msg) *dns.Msg { return failed(reply(q, dns.RcodeNotAuth), dns.RcodeBadTime) }, key: true, says: []string{"BADTIME", "clocks"}},
		"no such key":                        {answer: func(q *dns.Msg) *dns.Msg { return failed(reply(q, dns.RcodeNotAuth), dns.RcodeBadKey) }, key: true, says: []string{"BADKEY", "hardtack."}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, func(q *dns.Msg) []*dns.Msg { return []*dns.Msg{tc.answer(q)} })
			z := at(t, p.addr, "")
			if tc.key {
				z = at(t, p.addr, "", withKey)
			}
			err := z.CompareAndSwap(t.Context(), zonetest.Cluster, nil, []record.Set{zonetest.Masters("10.0.0.1", "10.0.0.2"), {Name: "etcd.demo.k8s.", Type: record.A, Values: []string{"10.0.0.3"}}})
			if n := len(p.updates()); n != 1 {
				t.Errorf("%d updates: another try is the caller's decision", n)
			}
			switch {
			case tc.ok && err != nil:
				t.Error(err)
			case tc.ok:
			case tc.want != nil:
				hasForm(t, err)
				if !errors.Is(err, tc.want) || errors.Is(err, conflict) && errors.Is(err, unknown) {
					t.Errorf("%v", err)
				}
			default:
				hasForm(t, err)
				says(t, err, tc.says)
				if tc.not != "" && strings.Contains(err.Error(), tc.not) {
					t.Errorf("%v", err)
				}
			}
		})
	}
}

// A server that fails at a removal is not told about the size of a set.
func TestRFC2136FailsAtARemoval(t *testing.T) {
	p := newPeer(t, func(q *dns.Msg) []*dns.Msg { return []*dns.Msg{reply(q, dns.RcodeServerFailure)} })
	err := at(t, p.addr, "").CompareAndSwap(t.Context(), zonetest.Cluster, before, nil)
	says(t, err, []string{"SERVFAIL", "the zone's directory"})
	if strings.Contains(err.Error(), "records") && strings.Contains(err.Error(), "max-records-per-type") {
		t.Errorf("nothing was to be kept: %v", err)
	}
}

// What a reading gets instead of a zone is told to a person.
func TestRFC2136TransferRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		answer func(t *testing.T, q *dns.Msg) *dns.Msg
		key    bool
		says   []string
		not    string
	}{
		"refused":       {answer: func(_ *testing.T, q *dns.Msg) *dns.Msg { return reply(q, dns.RcodeRefused) }, key: true, says: []string{"REFUSED", "allow-transfer", `"hardtack."`}, not: "update-policy"},
		"no transfers":  {answer: func(_ *testing.T, q *dns.Msg) *dns.Msg { return reply(q, dns.RcodeNotImplemented) }, says: []string{"NOTIMP", "AXFR"}},
		"it has failed": {answer: func(_ *testing.T, q *dns.Msg) *dns.Msg { return reply(q, dns.RcodeServerFailure) }, says: []string{"SERVFAIL"}},
		"nothing":       {answer: func(*testing.T, *dns.Msg) *dns.Msg { return nil }, says: []string{"EOF"}},
		"an empty zone": {answer: func(_ *testing.T, q *dns.Msg) *dns.Msg { return reply(q, dns.RcodeSuccess) }, says: []string{"SOA"}},
		"no SOA at its head": {answer: func(t *testing.T, q *dns.Msg) *dns.Msg {
			t.Helper()
			return reply(q, dns.RcodeSuccess, rrs(t, "k8s. 5 IN A 10.0.0.1", soaLine)...)
		}, says: []string{"SOA"}},
		"another's reply":      {answer: func(t *testing.T, q *dns.Msg) *dns.Msg { t.Helper(); m := reply(q, dns.RcodeRefused); m.Id++; return m }, says: []string{"transferring", dns.ErrId.Error()}},
		"another clock":        {answer: func(_ *testing.T, q *dns.Msg) *dns.Msg { return failed(reply(q, dns.RcodeNotAuth), dns.RcodeBadTime) }, key: true, says: []string{"BADTIME"}},
		"no authority, signed": {answer: func(_ *testing.T, q *dns.Msg) *dns.Msg { return reply(q, dns.RcodeNotAuth) }, key: true, says: []string{"NOTAUTH", "k8s."}},
		"nobody signed it": {answer: func(t *testing.T, q *dns.Msg) *dns.Msg {
			t.Helper()
			return unsigned(reply(q, dns.RcodeSuccess, rrs(t, soaLine, soaLine)...))
		}, key: true, says: []string{"transferring"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, func(q *dns.Msg) []*dns.Msg { return []*dns.Msg{tc.answer(t, q)} })
			z := at(t, p.addr, "")
			if tc.key {
				z = at(t, p.addr, "", withKey)
			}
			sets, err := z.Read(t.Context(), zonetest.Cluster)
			says(t, err, append(tc.says, "reading zone k8s.", p.addr))
			hasForm(t, err)
			if sets != nil || tc.not != "" && strings.Contains(err.Error(), tc.not) {
				t.Errorf("%v, %v", sets, err)
			}
		})
	}
}

// Where the server has no zone of the name, the reading says which one has the name in it; where it does not take the
// signature, that comes first.
func TestRFC2136AsksWhatZone(t *testing.T) {
	for name, tc := range map[string]struct {
		key, signed bool
		code        uint16 // in the signature
		says, not   string
	}{
		"without a key":    {says: "--suffix k8s.", not: "BADTIME"},
		"with a key":       {key: true, signed: true, says: "--suffix k8s.", not: "BADTIME"},
		"nobody signed it": {key: true, says: "--suffix k8s.", not: "BADTIME"},
		"another clock":    {key: true, signed: true, code: dns.RcodeBadTime, says: "BADTIME", not: "--suffix"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, func(q *dns.Msg) []*dns.Msg {
				if q.Question[0].Qtype == dns.TypeSOA {
					m := reply(q, dns.RcodeNameError)
					m.Ns = rrs(t, soaLine)
					return []*dns.Msg{m}
				}
				m := failed(reply(q, dns.RcodeNotAuth), tc.code)
				if !tc.signed {
					m = unsigned(m)
				}
				return []*dns.Msg{m}
			})
			z := at(t, p.addr, "", func(c *zone.RFC2136Config) {
				c.Policy.Suffix = "inner.k8s."
				if tc.key {
					withKey(c)
				}
			})
			_, err := z.Read(t.Context(), zonetest.Cluster)
			says(t, err, []string{tc.says})
			if strings.Contains(err.Error(), tc.not) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A server that ends in the middle of a transfer leaves an error of both.
func TestRFC2136LosesItsServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		c, err := l.Accept()
		_ = l.Close()
		if err == nil {
			_ = c.Close()
		}
	}()
	_, err = at(t, l.Addr().String(), "").Read(t.Context(), zonetest.Cluster)
	says(t, err, []string{"is the server running"})
}

// A secret that cannot sign is an error at once: nothing is waited for.
func TestRFC2136CannotSign(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	z := at(t, l.Addr().String(), "", withKey, func(c *zone.RFC2136Config) { c.Key.Secret, c.Timeout = "no base64!", time.Hour })
	if _, err := z.Read(t.Context(), zonetest.Cluster); err == nil {
		t.Error("it has read")
	}
	if _, err := z.Serial(t.Context()); err == nil {
		t.Error("there is a serial")
	}
	if err := z.CompareAndSwap(t.Context(), zonetest.Cluster, nil, before); err == nil {
		t.Error("it has changed the records")
	}
}
