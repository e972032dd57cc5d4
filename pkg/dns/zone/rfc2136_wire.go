package zone

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/miekg/dns"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// errUnsigned: a server signs what it answers to a signed message, unless it refuses.
var errUnsigned = errors.New("it is not signed")

// tsigFudge is how many seconds the two clocks may differ (RFC 8945 recommends 300).
const tsigFudge = 300

// dial opens a connection that ends with ctx.
func (z *RFC2136) dial(ctx context.Context) (*dns.Conn, func(), error) {
	d := net.Dialer{Timeout: z.timeout}
	conn, err := d.DialContext(ctx, "tcp", z.server)
	if err != nil {
		return nil, nil, fmt.Errorf("%w (is the server running, and does it listen on TCP?)", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(z.timeout)); err != nil {
		stop()
		_ = conn.Close()
		return nil, nil, err
	}
	c := &dns.Conn{Conn: conn, TsigSecret: z.secrets()}
	return c, func() { stop(); _ = conn.Close() }, nil
}

func (z *RFC2136) secrets() map[string]string {
	if z.key.Name == "" {
		return nil
	}
	return map[string]string{z.key.Name: z.key.Secret}
}

func (z *RFC2136) sign(m *dns.Msg) {
	if z.key.Name != "" {
		m.SetTsig(z.key.Name, z.key.Algorithm, tsigFudge, time.Now().Unix())
	}
}

// transfer returns every record of the zone, its SOA first, or an error: never a part.
func (z *RFC2136) transfer(ctx context.Context) ([]dns.RR, error) {
	conn, end, err := z.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	q := new(dns.Msg)
	q.SetAxfr(z.zone)
	z.sign(q)
	t := &dns.Transfer{Conn: conn, TsigSecret: z.secrets(), ReadTimeout: z.timeout}
	envelopes, err := t.In(q, z.server)
	if err != nil {
		return nil, err
	}
	var rrs []dns.RR
	for e := range envelopes {
		if e.Error != nil {
			err = e.Error // the channel is read to its end, else its sender would wait for ever
		}
		rrs = append(rrs, e.RR...)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, z.transferError(ctx, err)
	}
	return rrs, nil
}

// transferError explains a transfer that went wrong. The library hides what the server answered, so the
// question is put once more, for the answer's first message.
func (z *RFC2136) transferError(ctx context.Context, err error) error {
	conn, end, dialing := z.dial(ctx)
	if dialing != nil {
		return errors.Join(err, dialing)
	}
	defer end()
	q := new(dns.Msg)
	q.SetAxfr(z.zone)
	z.sign(q)
	if conn.WriteMsg(q) != nil {
		return err
	}
	reply, _ := conn.ReadMsg() // the signature of a refusal is often no signature at all
	switch {
	case reply == nil || reply.Id != q.Id || reply.Rcode == dns.RcodeSuccess:
		return fmt.Errorf("transferring: %w", err)
	case reply.Rcode == dns.RcodeRefused:
		return fmt.Errorf("the server refuses the transfer (REFUSED), and records are only read by transfer (AXFR): %s", z.allow("allow-transfer"))
	case reply.Rcode == dns.RcodeNotAuth && reply.IsTsig() == nil || reply.Rcode == dns.RcodeNotAuth && reply.IsTsig().Error == 0:
		if _, err := z.soa(ctx); err != nil {
			return err
		}
	case reply.Rcode == dns.RcodeNotImplemented:
		return errors.New("the server has no transfers (NOTIMP), and records are only read by transfer (AXFR): use a server that does, such as BIND")
	}
	return z.refusal(reply)
}

// allow is the statement of BIND's zone that grants what was refused.
func (z *RFC2136) allow(statement string) string {
	if z.key.Name == "" {
		return fmt.Sprintf("give a key that the zone's %s names", statement)
	}
	text := fmt.Sprintf("the zone needs %s { key %q; };", statement, z.key.Name)
	if statement == "allow-update" {
		text += fmt.Sprintf(" or, for one cluster alone, update-policy { grant %s subdomain CLUSTER.%s A AAAA SRV TXT; };", z.key.Name, z.zone)
	}
	return text
}

// commit sends an update and reads what became of it.
func (z *RFC2136) commit(ctx context.Context, m *dns.Msg, create []record.Set) error {
	conn, end, err := z.dial(ctx)
	if err != nil {
		return err // nothing was sent
	}
	defer end()
	z.sign(m)
	if err := conn.WriteMsg(m); err != nil {
		return z.unknown(ctx, "sending the update", err)
	}
	reply, err := conn.ReadMsg()
	if reply == nil {
		return z.unknown(ctx, "reading the reply", err)
	}
	if reply.Id != m.Id {
		return z.unknown(ctx, "reading the reply", dns.ErrId)
	}
	return z.verdict(ctx, reply, err, create)
}

func (z *RFC2136) unknown(ctx context.Context, doing string, err error) error {
	return fmt.Errorf("%s: %w: %w", doing, errors.Join(ctx.Err(), err), reconcile.ErrUnknownOutcome)
}

// verdict decides by the reply; verify is what came of checking its signature.
func (z *RFC2136) verdict(ctx context.Context, reply *dns.Msg, verify error, create []record.Set) error {
	signature := reply.IsTsig()
	if reply.Rcode == dns.RcodeSuccess && z.key.Name != "" && (signature == nil || verify != nil) {
		if verify == nil {
			verify = errUnsigned
		}
		return z.unknown(ctx, "verifying the reply", verify)
	}
	switch reply.Rcode {
	case dns.RcodeSuccess:
		return nil
	case dns.RcodeNXRrset, dns.RcodeYXRrset, dns.RcodeYXDomain, dns.RcodeNameError:
		return fmt.Errorf("%s: %w", dns.RcodeToString[reply.Rcode], reconcile.ErrConflict)
	case dns.RcodeServerFailure:
		return z.serverFailure(create)
	}
	return z.refusal(reply)
}

// serverFailure is what BIND answers for a set over its own limit, and for a journal it cannot write.
func (z *RFC2136) serverFailure(create []record.Set) error {
	most := record.Set{}
	for _, s := range create {
		if len(s.Values) > len(most.Values) {
			most = s
		}
	}
	if len(create) == 0 {
		return errors.New("the server could not carry out the update (SERVFAIL) and its log says why: the zone's directory may not be writable for the server")
	}
	return fmt.Errorf("the server could not carry out the update (SERVFAIL) and its log says why: "+
		"the largest set is %s with %d records (BIND's max-records-per-type is %d by default), or the zone's directory is not writable for the server",
		setTitle(most), len(most.Values), bindSetValues)
}

// refusal says what a response code, with the error in its signature, asks a person to do.
func (z *RFC2136) refusal(reply *dns.Msg) error {
	rcode, code := reply.Rcode, dns.RcodeToString[reply.Rcode]
	var tsig uint16
	if t := reply.IsTsig(); t != nil {
		tsig = t.Error
	}
	switch {
	case tsig == dns.RcodeBadKey:
		return fmt.Errorf("the server does not know the key %s (BADKEY): its name and algorithm must be those in the server's configuration", z.key.Name)
	case tsig == dns.RcodeBadSig:
		return fmt.Errorf("the secret of key %s is not the server's (BADSIG): copy the server's key file", z.key.Name)
	case tsig == dns.RcodeBadTime:
		return fmt.Errorf("the clocks of this machine and the server differ by more than %d s (BADTIME): set them", tsigFudge)
	case rcode == dns.RcodeNotAuth:
		return fmt.Errorf("the server has no authority over zone %s, or does not take the key (%s): name the zone's primary, and check the key", z.zone, code)
	case rcode == dns.RcodeNotZone:
		return fmt.Errorf("a name is outside of zone %s (%s)", z.zone, code)
	case rcode == dns.RcodeRefused:
		return fmt.Errorf("the server refuses the update (%s): %s", code, z.allow("allow-update"))
	case rcode == dns.RcodeNotImplemented:
		return fmt.Errorf("the server takes no updates (%s): use one that does, such as BIND", code)
	}
	return fmt.Errorf("the server answers %s", code)
}
