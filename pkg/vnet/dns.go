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

// Question is one question of a machine. Name is absolute, in lower case and with its final dot; Type is as zone
// files write it ("A", "SRV").
type Question struct {
	Machine    string
	Name, Type string
}

// Reply is what a zone says about a name. Exactly one of its kinds holds: Values, Alias, NXDomain, Unknown, or none
// (the name exists without the type).
type Reply struct {
	// Values are the records' data as zone files write them: "10.1.0.10", "0 0 2380 etcd-a.demo.k8s.".
	Values []string
	// TTL is how long they may be kept, and a "no" too, in seconds.
	TTL int64
	// Alias is the name's CNAME; its target is asked for in turn.
	Alias string
	// NXDomain: the name does not exist, nor anything below it.
	NXDomain bool
	// Unknown: no zone holds the name. Machines are told that it does not exist, since outside nothing does.
	Unknown bool
}

// Resolver answers for the zones that machines see, as their authoritative servers would at this moment. It is
// asked by several goroutines at once, and for the type SOA of a name and of those above it when a "no" has to be
// vouched for. An error is told to the machine as SERVFAIL.
type Resolver interface {
	Resolve(ctx context.Context, q Question) (Reply, error)
}

const (
	// maxAliases is how long a chain of CNAMEs may be.
	maxAliases = 8
	// ownTTL is how long the machines' own names may be kept, and that there is no outside, in seconds; EC2's names
	// are kept for 60.
	ownTTL = 60
	// maxUDP is the largest answer by UDP, in bytes, whatever the client would take: RFC 9715's bound.
	maxUDP = 1400
)

// serveDNS starts the resolver on UDP and TCP.
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
	// Not by ctx itself, whose end would make the last answers SERVFAIL.
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
			_ = s.Shutdown() // that one has ended already is what is wanted
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
	_ = w.WriteMsg(m) // a machine that is gone asks no more
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

// resolve fills in the answer to one question, through its aliases.
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
	m.Rcode = dns.RcodeServerFailure // a chain without an end
}

// append adds a record; data that is none fails the whole answer.
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

// authority adds the SOA by which a "no" may be kept (RFC 2308, 3): that of the zone, or one of ours where there is
// no zone.
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
