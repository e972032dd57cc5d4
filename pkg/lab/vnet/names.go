package vnet

import (
	"context"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// lookup looks a name up among the machines' own names first, as a VPC's resolver does, then in the Resolver.
func (n *Network) lookup(ctx context.Context, q Question) (Reply, error) {
	if reply, ours := n.ownName(q); ours {
		return reply, nil
	}
	if n.config.Resolver == nil {
		return Reply{Unknown: true}, nil
	}
	return n.config.Resolver.Resolve(ctx, q)
}

// soaData is the SOA of names that are not the Resolver's. Its last number is the TTL of negative answers in seconds.
const soaData = "ns.hardtack.invalid. nobody.hardtack.invalid. 1 3600 600 86400 60"

// ownName answers for <hostname>.<domain> and for the subnet's addresses.
func (n *Network) ownName(q Question) (Reply, bool) {
	domain := dns.CanonicalName(n.config.Domain)
	if q.Name == domain {
		return ownReply(q, "SOA", soaData), true
	}
	if host, ok := strings.CutSuffix(q.Name, "."+domain); ok {
		for _, p := range n.ports() {
			if strings.EqualFold(p.machine.Hostname, host) {
				return ownReply(q, "A", p.machine.Addr.String()), true
			}
		}
		return Reply{NXDomain: true, TTL: ownTTL}, true
	}
	labels, ok := strings.CutSuffix(q.Name, ".in-addr.arpa.")
	if !ok {
		return Reply{}, false
	}
	parts := strings.Split(labels, ".")
	if len(parts) != 4 {
		return Reply{}, false
	}
	addr, err := netip.ParseAddr(parts[3] + "." + parts[2] + "." + parts[1] + "." + parts[0])
	if err != nil {
		return Reply{}, false
	}
	m, ok := n.MachineAt(addr)
	if !ok {
		return Reply{}, false
	}
	return ownReply(q, "PTR", m.Hostname+"."+domain), true
}

func ownReply(q Question, kind, value string) Reply {
	if q.Type != kind {
		return Reply{TTL: ownTTL}
	}
	return Reply{Values: []string{value}, TTL: ownTTL}
}

func validName(name string) bool {
	_, ok := dns.IsDomainName(name)
	return ok && name != ""
}

// validLabel reports whether a host name is one label of letters, digits and hyphens (RFC 1123, 2.1).
func validLabel(label string) bool {
	if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	return strings.Trim(strings.ToLower(label), "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}
