package zone

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/miekg/dns"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// negativeTTL is how long a resolver keeps a "no such name": the lower of TTL and minimum (RFC 2308).
func negativeTTL(soa *dns.SOA) time.Duration {
	return time.Duration(min(soa.Hdr.Ttl, soa.Minttl)) * time.Second
}

// LowerMinimum sets the minimum of the zone's SOA to record.NegativeTTL where a "no such name" is kept for
// longer. The update needs that the SOA still is what was read; where it is not, since somebody else
// has updated the zone, the error is a conflict.
func (z *RFC2136) LowerMinimum(ctx context.Context) error {
	soa, err := z.soa(ctx)
	if err != nil || negativeTTL(soa) <= record.NegativeTTL {
		return err
	}
	lower := *soa
	lower.Minttl = uint32(record.NegativeTTL / time.Second)
	lower.Serial = max(1, soa.Serial+1) // a SOA that is not newer is passed over in silence (RFC 2136, 3.4.2.2)
	m := new(dns.Msg)
	m.SetUpdate(z.zone)
	m.Used([]dns.RR{soa})
	m.Insert([]dns.RR{&lower})
	defer z.forget()
	if err := z.commit(ctx, m, nil); err != nil {
		return fmt.Errorf("lowering the SOA minimum of zone %s on %s: %w (or set it to %d in the zone's file)", z.zone, z.server, err, lower.Minttl)
	}
	return nil
}

// NegativeTTL is how long a resolver keeps a "no such name" of the zone. It is asked for as a resolver does: unsigned.
func (z *RFC2136) NegativeTTL(ctx context.Context) (time.Duration, error) {
	unsigned := *z
	unsigned.key = Key{}
	soa, err := unsigned.soa(ctx)
	if err != nil {
		return 0, err
	}
	return negativeTTL(soa), nil
}

// soa asks the server for the zone's SOA.
func (z *RFC2136) soa(ctx context.Context) (*dns.SOA, error) {
	reply, err := z.ask(ctx, new(dns.Msg).SetQuestion(z.zone, dns.TypeSOA))
	if err != nil {
		return nil, fmt.Errorf("asking %s for the SOA of zone %s: %w", z.server, z.zone, err)
	}
	for _, rr := range reply.Answer {
		if soa, ok := rr.(*dns.SOA); ok && reply.Authoritative {
			return soa, nil
		}
	}
	for _, rr := range reply.Ns { // the zone that the name is in
		if soa, ok := rr.(*dns.SOA); ok && reply.Authoritative && below(z.zone, dns.CanonicalName(soa.Hdr.Name)) {
			return nil, fmt.Errorf("asking %s for the SOA of zone %s: the server has no zone of this name, and its zone %s has the name in it: give --suffix %s, the zone's own name",
				z.server, z.zone, soa.Hdr.Name, soa.Hdr.Name)
		}
	}
	return nil, fmt.Errorf("asking %s for the SOA of zone %s: %w", z.server, z.zone, z.refusal(&dns.Msg{MsgHdr: dns.MsgHdr{Rcode: dns.RcodeNotAuth}}))
}

// Serial returns the zone's serial, which secondary servers compare.
func (z *RFC2136) Serial(ctx context.Context) (uint32, error) {
	soa, err := z.soa(ctx)
	if err != nil {
		return 0, err
	}
	return soa.Serial, nil
}

// AcceptsUnsigned reports whether the server carries out an update from this machine without a signature. It sends an
// update without effect: the removal of a set that does not exist, on the condition that it does not exist.
func (z *RFC2136) AcceptsUnsigned(ctx context.Context) (bool, error) {
	m := new(dns.Msg)
	m.SetUpdate(z.zone)
	unused := "_hardtack-unsigned." + z.zone
	m.RRsetNotUsed([]dns.RR{emptySet(unused, dns.TypeTXT)})
	m.RemoveRRset([]dns.RR{emptySet(unused, dns.TypeTXT)})
	unsigned := *z
	unsigned.key = Key{}
	reply, err := unsigned.ask(ctx, m)
	if err != nil {
		return false, fmt.Errorf("sending %s an update without a signature: %w", z.server, err)
	}
	switch reply.Rcode {
	case dns.RcodeSuccess:
		return true, nil
	case dns.RcodeRefused, dns.RcodeNotAuth, dns.RcodeNotImplemented:
		return false, nil
	}
	return false, fmt.Errorf("sending %s an update without a signature: it answers %s", z.server, dns.RcodeToString[reply.Rcode])
}

// ask exchanges one message with the server. A refusal is a reply, too, but for one of the key; only a refusal may come
// without a signature where a key is used.
func (z *RFC2136) ask(ctx context.Context, m *dns.Msg) (*dns.Msg, error) {
	conn, end, err := z.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	z.sign(m)
	if err := conn.WriteMsg(m); err != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	reply, err := conn.ReadMsg()
	switch {
	case reply == nil || reply.Id != m.Id:
		return nil, errors.Join(ctx.Err(), err, errors.New("there is no reply"))
	case err != nil && reply.Rcode == dns.RcodeSuccess:
		return nil, fmt.Errorf("verifying the reply: %w", err)
	case z.key.Name != "" && reply.IsTsig() == nil && reply.Rcode == dns.RcodeSuccess:
		return nil, fmt.Errorf("verifying the reply: %w", errUnsigned)
	case reply.Rcode == dns.RcodeNotAuth && z.key.Name != "":
		return nil, z.refusal(reply)
	}
	return reply, nil
}
