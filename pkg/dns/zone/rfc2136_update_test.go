package zone_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone/zonetest"
)

// lines are records of an update as text.
func lines(rrs []dns.RR) []string {
	var out []string
	for _, rr := range rrs {
		text := strings.Join(strings.Fields(rr.String()), " ")
		if h := rr.Header(); h.Class != dns.ClassINET { // without data
			text = fmt.Sprint(h.Name, " ", h.Ttl, " ", map[uint16]string{dns.ClassNONE: "NONE", dns.ClassANY: "ANY"}[h.Class], " ", dns.Type(h.Rrtype))
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// same compares records of an update, whose order says nothing.
func same(t *testing.T, what string, got []dns.RR, want ...string) {
	t.Helper()
	slices.Sort(want)
	if text := lines(got); !slices.Equal(text, want) {
		t.Errorf("%s: %q, want %q", what, text, want)
	}
}

// An update has all that is replaced as its condition, and of a new name that it has no CNAME, once.
func TestRFC2136Update(t *testing.T) {
	p := holding(t)
	six := record.Set{Name: "masters.demo.k8s.", Type: record.AAAA, TTL: time.Minute, Values: []string{"2001:db8::1"}}
	service := record.Set{Name: "x.demo.k8s.", Type: record.SRV, TTL: 0, Values: []string{"1 2 3 A.demo.k8s"}}
	text := record.Set{Name: "y.demo.k8s.", Type: record.TXT, TTL: 5 * time.Second, Values: []string{strings.Repeat("x", 255)}}
	err := at(t, p.addr, "", withKey).CompareAndSwap(t.Context(), zonetest.Cluster, []record.Set{zonetest.Control("1")},
		[]record.Set{zonetest.Control("2"), zonetest.Masters("10.0.0.1", "10.0.0.2"), six, service, text})
	if err != nil {
		t.Fatal(err)
	}
	m := p.updates()[0]
	if m.Question[0].Name != "k8s." || m.IsTsig() == nil {
		t.Errorf("an update of %s, signed by %v", m.Question[0].Name, m.IsTsig())
	}
	same(t, "conditions", m.Answer,
		`_hardtack.demo.k8s. 0 IN TXT "generation=1"`, `_hardtack.demo.k8s. 0 IN TXT "owner=hardtack"`,
		"masters.demo.k8s. 0 NONE A", "masters.demo.k8s. 0 NONE CNAME", "masters.demo.k8s. 0 NONE AAAA",
		"x.demo.k8s. 0 NONE SRV", "x.demo.k8s. 0 NONE CNAME", `y.demo.k8s. 0 NONE TXT`, "y.demo.k8s. 0 NONE CNAME")
	same(t, "changes", m.Ns, "_hardtack.demo.k8s. 0 ANY TXT",
		`_hardtack.demo.k8s. 5 IN TXT "generation=2"`, `_hardtack.demo.k8s. 5 IN TXT "owner=hardtack"`,
		"masters.demo.k8s. 5 IN A 10.0.0.1", "masters.demo.k8s. 5 IN A 10.0.0.2", "masters.demo.k8s. 60 IN AAAA 2001:db8::1",
		"x.demo.k8s. 0 IN SRV 1 2 3 a.demo.k8s.", `y.demo.k8s. 5 IN TXT "`+text.Values[0]+`"`)
}

// large are so many addresses in sets of a hundred.
func large(values int, label string) []record.Set {
	var out []record.Set
	for i := range values {
		if i%100 == 0 {
			out = append(out, record.Set{Name: fmt.Sprintf("%s-%d.demo.k8s.", label, i/100), Type: record.AAAA, TTL: 5 * time.Second})
		}
		last := &out[len(out)-1]
		last.Values = append(last.Values, fmt.Sprintf("2001:db8::%x", i+1))
	}
	return out
}

// As many values as the limits allow fit one message; what does not fit is not sent.
func TestRFC2136FitsOneMessage(t *testing.T) {
	p := holding(t)
	z := at(t, p.addr, "", withKey)
	most := z.Limits().BatchValues
	if most < 1000 {
		t.Fatalf("a batch holds %d values", most)
	}
	if err := z.CompareAndSwap(t.Context(), zonetest.Cluster, nil, large(most, strings.Repeat("m", 60))); err != nil {
		t.Fatal(err)
	}
	err := z.CompareAndSwap(t.Context(), zonetest.Cluster, nil, large(3000, "minions"))
	says(t, err, []string{zonetest.Cluster, "65535"})
	if n := len(p.updates()); n != 1 {
		t.Errorf("%d updates were sent", n)
	}
}

// soaPeer is a peer whose zone has this SOA, and that answers updates with a code.
func soaPeer(t *testing.T, rcode int, soa string) *peer {
	t.Helper()
	return newPeer(t, func(q *dns.Msg) []*dns.Msg {
		if q.Opcode == dns.OpcodeUpdate {
			return []*dns.Msg{reply(q, rcode)}
		}
		return []*dns.Msg{reply(q, dns.RcodeSuccess, rrs(t, soa)...)}
	})
}

// The minimum is lowered where a resolver would keep a "no such name" for longer, on the condition that the SOA is what was
// read.
func TestRFC2136LowersWhatIsTooLong(t *testing.T) {
	const soa = "k8s. %d IN SOA ns.k8s. hostmaster.k8s. %d 3600 600 86400 %d"
	for _, tc := range []struct {
		ttl          int
		serial       uint32
		minimum      int
		kept         time.Duration
		next         uint32 // 0: no update
		rcode        int
		isAConflict  bool
		someProblems bool
	}{
		{ttl: 60, serial: 7, minimum: 900, kept: time.Minute, next: 8},
		{ttl: 900, serial: 7, minimum: 6, kept: 6 * time.Second, next: 8},
		{ttl: 60, serial: 4294967295, minimum: 900, kept: time.Minute, next: 1},
		{ttl: 5, serial: 7, minimum: 900, kept: 5 * time.Second},
		{ttl: 900, serial: 7, minimum: 5, kept: 5 * time.Second},
		{ttl: 900, serial: 7, minimum: 0, kept: 0},
		{ttl: 60, serial: 7, minimum: 900, kept: time.Minute, next: 8, rcode: dns.RcodeNXRrset, isAConflict: true, someProblems: true},
		{ttl: 60, serial: 7, minimum: 900, kept: time.Minute, next: 8, rcode: dns.RcodeRefused, someProblems: true},
	} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			was := fmt.Sprintf(soa, tc.ttl, tc.serial, tc.minimum)
			p := soaPeer(t, tc.rcode, was)
			z := at(t, p.addr, "", withKey)
			if kept, err := z.NegativeTTL(t.Context()); err != nil || kept != tc.kept {
				t.Errorf("a resolver keeps it for %s, %v", kept, err)
			}
			if asked := p.questions(dns.TypeSOA); len(asked) != 1 || asked[0].IsTsig() != nil {
				t.Errorf("no resolver asks like this: %v", asked)
			}
			err := z.LowerMinimum(t.Context())
			if errors.Is(err, reconcile.ErrConflict) != tc.isAConflict || (err != nil) != tc.someProblems {
				t.Errorf("%v", err)
			}
			sent := p.updates()
			if len(sent) == 0 && tc.next == 0 {
				return
			}
			if len(sent) != 1 || tc.next == 0 {
				t.Fatalf("%d updates", len(sent))
			}
			if sent[0].Question[0].Name != "k8s." {
				t.Errorf("an update of %s", sent[0].Question[0].Name)
			}
			same(t, "conditions", sent[0].Answer, fmt.Sprintf(soa, 0, tc.serial, tc.minimum))
			same(t, "changes", sent[0].Ns, fmt.Sprintf(soa, tc.ttl, tc.next, 5))
		})
	}
}

// Lowering the minimum is a change as well, after which the zone is read again.
func TestRFC2136ReadsAgainAfterLowering(t *testing.T) {
	p := newPeer(t, func(q *dns.Msg) []*dns.Msg {
		soa := rrs(t, "k8s. 60 IN SOA ns.k8s. hostmaster.k8s. 7 3600 600 86400 900")
		switch {
		case q.Opcode == dns.OpcodeUpdate:
			return []*dns.Msg{reply(q, dns.RcodeSuccess)}
		case q.Question[0].Qtype == dns.TypeSOA:
			return []*dns.Msg{reply(q, dns.RcodeSuccess, soa...)}
		}
		return []*dns.Msg{reply(q, dns.RcodeSuccess, soa[0], soa[0])}
	})
	z := at(t, p.addr, "")
	for i := range 2 {
		if _, err := z.Read(t.Context(), zonetest.Cluster); err != nil {
			t.Fatal(err)
		}
		if n := len(p.questions(dns.TypeAXFR)); n != i+1 {
			t.Errorf("%d transfers, want %d", n, i+1)
		}
		if err := z.LowerMinimum(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// Who asks for the serial learns it from the zone's own server, or why not.
func TestRFC2136Serial(t *testing.T) {
	other := "other. 60 IN SOA ns.other. hostmaster.other. 9 3600 600 86400 5"
	for name, tc := range map[string]struct {
		answer func(q *dns.Msg) *dns.Msg
		key    bool
		says   []string // nil: it is 7
		not    string
	}{
		"an answer":       {answer: func(q *dns.Msg) *dns.Msg { return reply(q, dns.RcodeSuccess, rrs(t, soaLine)...) }},
		"a signed answer": {answer: func(q *dns.Msg) *dns.Msg { return reply(q, dns.RcodeSuccess, rrs(t, soaLine)...) }, key: true},
		"beside others": {answer: func(q *dns.Msg) *dns.Msg {
			return reply(q, dns.RcodeSuccess, rrs(t, "k8s. 5 IN A 10.0.0.1", soaLine)...)
		}},
		"of another server": {answer: func(q *dns.Msg) *dns.Msg {
			m := reply(q, dns.RcodeSuccess, rrs(t, soaLine)...)
			m.Authoritative = false
			return m
		}, says: []string{"no authority over zone k8s."}},
		"of another server, beside": {answer: func(q *dns.Msg) *dns.Msg {
			m := reply(q, dns.RcodeNameError)
			m.Ns, m.Authoritative = rrs(t, "k8s. 60 IN SOA a. b. 1 2 3 4 5"), false
			return m
		},
			says: []string{"no authority over zone k8s."}, not: "--suffix"},
		"no such zone": {answer: func(q *dns.Msg) *dns.Msg {
			m := reply(q, dns.RcodeNameError)
			m.Ns = rrs(t, "k8s. 5 IN NS ns.k8s.", other)
			return m
		},
			says: []string{"no authority over zone k8s."}, not: "--suffix"},
		"a zone around": {answer: func(q *dns.Msg) *dns.Msg {
			m := reply(q, dns.RcodeNameError)
			m.Ns = rrs(t, "k8s. 5 IN NS ns.k8s.", "k8s. 60 IN SOA a. b. 1 2 3 4 5")
			return m
		},
			says: []string{"--suffix k8s."}},
		"another's reply":  {answer: func(q *dns.Msg) *dns.Msg { m := reply(q, dns.RcodeSuccess, rrs(t, soaLine)...); m.Id++; return m }, says: []string{"no reply"}},
		"no reply":         {answer: func(*dns.Msg) *dns.Msg { return nil }, says: []string{"no reply", "EOF"}},
		"nobody signed it": {answer: func(q *dns.Msg) *dns.Msg { return unsigned(reply(q, dns.RcodeSuccess, rrs(t, soaLine)...)) }, key: true, says: []string{"verifying the reply"}},
		"signed by somebody": {answer: func(q *dns.Msg) *dns.Msg {
			return failed(reply(q, dns.RcodeSuccess, rrs(t, soaLine)...), dns.RcodeBadSig)
		}, key: true, says: []string{"verifying the reply"}},
		"another clock":           {answer: func(q *dns.Msg) *dns.Msg { return failed(reply(q, dns.RcodeNotAuth), dns.RcodeBadTime) }, key: true, says: []string{"BADTIME"}},
		"a key that is not known": {answer: func(q *dns.Msg) *dns.Msg { return failed(reply(q, dns.RcodeNotAuth), dns.RcodeBadKey) }, key: true, says: []string{"BADKEY", "hardtack."}},
		"a refusal without a key": {answer: func(q *dns.Msg) *dns.Msg { return reply(q, dns.RcodeNotAuth) }, says: []string{"no authority over zone k8s."}},
		"a refusal nobody signed": {answer: func(q *dns.Msg) *dns.Msg { return unsigned(reply(q, dns.RcodeRefused)) }, key: true, says: []string{"no authority over zone k8s."}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, func(q *dns.Msg) []*dns.Msg { return []*dns.Msg{tc.answer(q)} })
			z := at(t, p.addr, "", func(c *zone.RFC2136Config) {
				if tc.key {
					withKey(c)
				}
			})
			serial, err := z.Serial(t.Context())
			if asked := p.questions(dns.TypeSOA); len(asked) != 1 || (asked[0].IsTsig() != nil) != tc.key {
				t.Errorf("asked %v", asked)
			}
			if tc.says == nil {
				if err != nil || serial != 7 {
					t.Errorf("%d, %v", serial, err)
				}
				return
			}
			says(t, err, tc.says)
			hasForm(t, err)
			if serial != 0 || tc.not != "" && strings.Contains(err.Error(), tc.not) {
				t.Errorf("%d, %v", serial, err)
			}
			if kept, err := z.NegativeTTL(t.Context()); err == nil && !tc.key {
				t.Errorf("and yet a resolver keeps it for %s", kept)
			}
		})
	}
}

// Whether a server takes updates from anybody is seen by one without effect, which is never signed.
func TestRFC2136AcceptsUnsigned(t *testing.T) {
	for rcode, want := range map[int]struct{ open, problem bool }{
		dns.RcodeSuccess: {open: true}, dns.RcodeRefused: {}, dns.RcodeNotAuth: {}, dns.RcodeNotImplemented: {}, dns.RcodeServerFailure: {problem: true},
	} {
		t.Run(dns.RcodeToString[rcode], func(t *testing.T) {
			p := newPeer(t, func(q *dns.Msg) []*dns.Msg { return []*dns.Msg{reply(q, rcode)} })
			open, err := at(t, p.addr, "", withKey).AcceptsUnsigned(t.Context())
			if open != want.open || (err != nil) != want.problem {
				t.Errorf("%v, %v", open, err)
			}
			sent := p.updates()
			if len(sent) != 1 || sent[0].IsTsig() != nil || sent[0].Question[0].Name != "k8s." {
				t.Fatalf("sent %v", sent)
			}
			same(t, "conditions", sent[0].Answer, "_hardtack-unsigned.k8s. 0 NONE TXT")
			same(t, "changes", sent[0].Ns, "_hardtack-unsigned.k8s. 0 ANY TXT")
		})
	}
}
