package vnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/miekg/dns"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
)

// Question is a machine's DNS question. Name is absolute, in lower case and with its final dot; Type is written as in
// zone files ("A", "SRV").
type Question struct {
	Machine    string
	Name, Type string
}

// Reply is a zone's answer for a name. At most one of Values, Alias, NXDomain and Unknown is set; if none is, the name
// exists without the type.
type Reply struct {
	// Values are the records' data as in zone files: "10.1.0.10", "0 0 2380 etcd-a.demo.k8s.".
	Values []string
	// TTL is how long the answer may be cached, a negative one too, in seconds.
	TTL int64
	// Alias is the name's CNAME, which is then looked up.
	Alias string
	// NXDomain: neither the name nor any name below it exists.
	NXDomain bool
	// Unknown: no zone has the name. Machines get NXDOMAIN, since the lab has no other zones.
	Unknown bool
}

// Resolver answers for the zones that machines see, as their authoritative servers would now. It must be safe for
// concurrent use. For a negative answer it is also asked for the SOA of the name and of the names above. On an error the
// machine gets SERVFAIL.
type Resolver interface {
	Resolve(ctx context.Context, q Question) (Reply, error)
}

const (
	// maxAliases is the maximum length of a chain of CNAMEs.
	maxAliases = 8
	// ownTTL is the TTL of the machines' own names, and of NXDOMAIN for unknown ones, in seconds; EC2's is 60.
	ownTTL = 60
	// maxUDP is the largest answer by UDP, in bytes, whatever the client offers: RFC 9715's bound.
	maxUDP = 1400
)

// serveDNS starts the DNS server on UDP and TCP.
func (n *Network) serveDNS(ctx context.Context) error {
	addr := netip.AddrPortFrom(n.DNS(), 53)
	local := fullAddress(addr)
	packets, err := gonet.DialUDP(n.gateway.stack, &local, nil, ipv4.ProtocolNumber)
	if err != nil {
		return fmt.Errorf("starting the resolver: %w", err)
	}
	streams, err := n.Listen(addr)
	if err != nil {
		return errors.Join(fmt.Errorf("starting the resolver: %w", err), packets.Close())
	}
	// Not ctx itself, whose end would turn the last answers into SERVFAIL.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) { n.answer(ctx, w, r) })
	servers := []*dns.Server{
		{PacketConn: packets, Handler: handler, UDPSize: dns.MaxMsgSize},
		{Listener: streams, Handler: handler},
	}
	var serving sync.WaitGroup
	for _, s := range servers {
		started := make(chan struct{})
		var once sync.Once
		s.NotifyStartedFunc = func() { once.Do(func() { close(started) }) }
		serving.Go(func() {
			if err := s.ActivateAndServe(); err != nil && !n.isClosed() {
				n.config.Log.Error("the resolver has ended", "error", err)
			}
			once.Do(func() { close(started) })
		})
		<-started
	}
	n.tasks.Go(func() {
		<-n.done
		cancel()
		_ = packets.Close()
		for _, s := range servers {
			_ = s.Shutdown() // an error means that it is down already
		}
		serving.Wait()
	})
	return nil
}

func (n *Network) isClosed() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// answer answers one message.
func (n *Network) answer(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) {
	m := new(dns.Msg).SetReply(r)
	m.RecursionAvailable = true
	machine := n.callerName(w.RemoteAddr())
	proto := w.RemoteAddr().Network()
	opt := r.IsEdns0()
	switch {
	case r.Opcode != dns.OpcodeQuery:
		m.Rcode = dns.RcodeNotImplemented
	case len(r.Question) != 1 || r.Question[0].Qclass != dns.ClassINET:
		m.Rcode = dns.RcodeRefused
	case opt != nil && opt.Version() != 0:
		m.Rcode = dns.RcodeBadVers
	default:
		q := Question{machine, strings.ToLower(r.Question[0].Name), dns.Type(r.Question[0].Qtype).String()}
		n.resolve(ctx, q, m)
		n.queries.add(q, proto, dns.RcodeToString[m.Rcode], len(m.Answer))
	}
	size := dns.MaxMsgSize
	if opt != nil {
		m.SetEdns0(maxUDP, false)
	}
	if proto == "udp" {
		size = dns.MinMsgSize
		if opt != nil {
			size = max(dns.MinMsgSize, min(int(opt.UDPSize()), maxUDP))
		}
	}
	m.Truncate(size)
	_ = w.WriteMsg(m) // a machine that is gone needs no answer
}

func (n *Network) callerName(addr net.Addr) string {
	host, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if m, ok := n.MachineAt(host.Addr()); ok {
		return m.Name
	}
	return host.Addr().String()
}

// resolve answers one question, following aliases.
func (n *Network) resolve(ctx context.Context, q Question, m *dns.Msg) {
	for range maxAliases {
		reply, err := n.lookup(ctx, q)
		switch {
		case err != nil:
			n.config.Log.Warn("resolving", "name", q.Name, "type", q.Type, "error", err)
			m.Rcode = dns.RcodeServerFailure
			return
		case reply.Alias != "":
			target := dns.Fqdn(strings.ToLower(reply.Alias))
			if !n.append(m, q.Name, "CNAME", target, reply.TTL) {
				return
			}
			q.Name = target
			continue
		case len(reply.Values) > 0:
			for _, v := range reply.Values {
				if !n.append(m, q.Name, q.Type, v, reply.TTL) {
					return
				}
			}
			return
		case reply.NXDomain || reply.Unknown:
			m.Rcode = dns.RcodeNameError
		}
		n.authority(ctx, q, reply, m)
		return
	}
	m.Rcode = dns.RcodeServerFailure // a CNAME loop
}

// append adds a record; invalid data fails the whole answer.
func (n *Network) append(m *dns.Msg, name, kind, data string, ttl int64) bool {
	rr, err := dns.NewRR(fmt.Sprintf("%s %d IN %s %s", name, ttl, kind, data))
	if err != nil || rr == nil {
		n.config.Log.Error("the zone has a record that is none", "name", name, "type", kind, "data", data, "error", err)
		m.Answer, m.Rcode = nil, dns.RcodeServerFailure
		return false
	}
	m.Answer = append(m.Answer, rr)
	return true
}

// authority adds the SOA of a negative answer (RFC 2308, 3): the zone's, or ours if there is no zone.
func (n *Network) authority(ctx context.Context, q Question, reply Reply, m *dns.Msg) {
	if reply.Unknown {
		if rr, err := dns.NewRR(fmt.Sprintf(". %d IN SOA %s", ownTTL, soaData)); err == nil {
			m.Ns = append(m.Ns, rr)
		}
		return
	}
	for name := q.Name; name != ""; _, name, _ = strings.Cut(name, ".") {
		soa, err := n.lookup(ctx, Question{q.Machine, name, "SOA"})
		if err != nil || soa.Unknown {
			return
		}
		if len(soa.Values) == 0 {
			continue
		}
		rr, err := dns.NewRR(fmt.Sprintf("%s %d IN SOA %s", name, min(soa.TTL, cmp.Or(reply.TTL, soa.TTL)), soa.Values[0]))
		if err == nil && rr != nil {
			m.Ns = append(m.Ns, rr)
		}
		return
	}
}
