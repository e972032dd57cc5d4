package zone

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// emptySet is a record that stands for a whole set in an update (RFC 2136, 2.4.1).
func emptySet(name string, kind uint16) dns.RR {
	return &dns.ANY{Hdr: dns.RR_Header{Name: name, Rrtype: kind}}
}

// newRRs are the records of a set. The update gives them their class.
func newRRs(s record.Set) ([]dns.RR, error) {
	if len(s.Values) == 0 {
		return nil, fmt.Errorf("%s has no values", setTitle(s))
	}
	if s.TTL < 0 || s.TTL%time.Second != 0 {
		return nil, fmt.Errorf("%s has TTL %s: whole seconds are needed", setTitle(s), s.TTL)
	}
	out := make([]dns.RR, 0, len(s.Values))
	for _, v := range s.Values {
		h := dns.RR_Header{Name: s.Name, Rrtype: dns.StringToType[s.Type], Ttl: uint32(s.TTL / time.Second)}
		rr, err := newRR(h, v)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", setTitle(s), v, err)
		}
		out = append(out, rr)
	}
	return out, nil
}

func newRR(h dns.RR_Header, value string) (dns.RR, error) {
	switch h.Rrtype {
	case dns.TypeA, dns.TypeAAAA:
		addr, err := netip.ParseAddr(value)
		if err != nil {
			return nil, err
		}
		if addr.Is4() != (h.Rrtype == dns.TypeA) {
			return nil, fmt.Errorf("the address is of the other family")
		}
		if addr.Is4() {
			return &dns.A{Hdr: h, A: addr.AsSlice()}, nil
		}
		return &dns.AAAA{Hdr: h, AAAA: addr.AsSlice()}, nil
	case dns.TypeTXT:
		if len(value) > 255 {
			return nil, fmt.Errorf("it has %d bytes and a string of a TXT record holds 255", len(value))
		}
		return &dns.TXT{Hdr: h, Txt: []string{strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value)}}, nil
	case dns.TypeSRV:
		return parseSRV(h, value)
	}
	return nil, fmt.Errorf("records of this type are not kept")
}

// parseSRV reads "priority weight port target".
func parseSRV(h dns.RR_Header, value string) (dns.RR, error) {
	fields := strings.Fields(value)
	if len(fields) != 4 {
		return nil, fmt.Errorf("priority, weight, port and target are expected")
	}
	var n [3]uint16
	for i := range n {
		v, err := strconv.ParseUint(fields[i], 10, 16)
		if err != nil {
			return nil, err
		}
		n[i] = uint16(v)
	}
	return &dns.SRV{Hdr: h, Priority: n[0], Weight: n[1], Port: n[2], Target: dns.CanonicalName(fields[3])}, nil
}

// valueOf is the presentation of a record's data; empty for types that no relevant set has.
func valueOf(rr dns.RR) string {
	switch rr := rr.(type) {
	case *dns.A:
		return rr.A.String()
	case *dns.AAAA:
		addr, _ := netip.AddrFromSlice(rr.AAAA)
		return addr.String()
	case *dns.TXT:
		return unescape(strings.Join(rr.Txt, ""))
	case *dns.SRV:
		return fmt.Sprintf("%d %d %d %s", rr.Priority, rr.Weight, rr.Port, dns.CanonicalName(rr.Target))
	}
	return ""
}

// unescape undoes the backslashes of a presentation format: \" \\ and \123.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		if i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 10, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		i++
		b.WriteByte(s[i])
	}
	return b.String()
}
