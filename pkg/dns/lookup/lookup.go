// Package lookup asks name servers directly, as dig does: every address, how long an answer is kept, and how long a "no" is.
//
// Its rule: what a server says is an Answer, an error to reach it included; nothing is tried again, and no cache is between.
package lookup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const (
	// udpSize is what passes every network without fragments (DNS flag day 2020).
	udpSize = 1232
	// patience is for one question by one protocol.
	patience = 5 * time.Second
)

// Answer is what one server says of one name and type.
type Answer struct {
	Server        string `json:"server"`
	Name          string `json:"name"`
	Type          string `json:"type"`
	Code          string `json:"code"`
	Authoritative bool   `json:"authoritative"`
	// TTLSeconds is how long the answer is kept from now on, by a cache in between as well.
	TTLSeconds uint32   `json:"ttl_seconds"`
	Values     []string `json:"values"`
	// NegativeSeconds is how much longer the "no" is kept; NegativeAgeSeconds how long a cache has had
	// it already, as far as the SOA's own figures tell.
	NegativeSeconds    uint32 `json:"negative_seconds,omitempty"`
	NegativeAgeSeconds uint32 `json:"negative_age_seconds,omitempty"`
	Error              string `json:"error,omitempty"`
}

// All asks every server, host or host:port, for every name, for the types that such a name has in a cluster: addresses, SRV
// records of names with an underscore, and the text of the control record.
func All(ctx context.Context, servers, names []string) []Answer {
	answers := []Answer{}
	for _, server := range servers {
		for _, name := range names {
			for _, kind := range typesOf(name) {
				answers = append(answers, ask(ctx, withPort(server), name, kind))
			}
		}
	}
	return answers
}

// SystemServers are the name servers of /etc/resolv.conf.
func SystemServers() ([]string, error) {
	conf, err := dns.ClientConfigFromFile("/etc/resolv.conf")
	if err != nil {
		return nil, fmt.Errorf("reading which name servers to ask: %w", err)
	}
	return conf.Servers, nil
}

func withPort(server string) string {
	if _, _, err := net.SplitHostPort(server); err == nil {
		return server
	}
	return net.JoinHostPort(strings.Trim(server, "[]"), "53")
}

func typesOf(name string) []uint16 {
	if strings.HasPrefix(name, "_hardtack.") {
		return []uint16{dns.TypeTXT}
	}
	if strings.HasPrefix(name, "_") {
		return []uint16{dns.TypeSRV}
	}
	return []uint16{dns.TypeA, dns.TypeAAAA}
}

func ask(ctx context.Context, server, name string, kind uint16) Answer {
	a := Answer{Server: server, Name: dns.Fqdn(name), Type: dns.TypeToString[kind], Values: []string{}}
	reply, err := exchange(ctx, server, name, kind)
	if err != nil {
		a.Error = err.Error()
		return a
	}
	a.Code, a.Authoritative = dns.RcodeToString[reply.Rcode], reply.Authoritative
	for _, rr := range reply.Answer {
		if rr.Header().Rrtype == kind {
			a.Values = append(a.Values, strings.TrimPrefix(rr.String(), rr.Header().String()))
			a.TTLSeconds = rr.Header().Ttl
		}
	}
	slices.Sort(a.Values)
	if len(a.Values) == 0 {
		a.negative(reply)
	}
	return a
}

// exchange sends one question by UDP, and again by TCP where the answer does not fit.
func exchange(ctx context.Context, server, name string, kind uint16) (*dns.Msg, error) {
	q := new(dns.Msg).SetQuestion(dns.Fqdn(name), kind)
	q.SetEdns0(udpSize, false)
	for _, network := range []string{"udp", "tcp"} {
		client := dns.Client{Net: network, Timeout: patience, UDPSize: udpSize}
		reply, _, err := client.ExchangeContext(ctx, q, server)
		if err != nil {
			return nil, fmt.Errorf("asking %s: %w (is it a name server, and does a firewall let port 53 through?)", server, err)
		}
		if !reply.Truncated {
			return reply, nil
		}
	}
	return nil, errors.New("the answer is cut off over TCP too")
}

// negative reads how long a "no" is kept (RFC 2308): an authority's SOA says the lower of its TTL and
// minimum; a cache counts the TTL down.
func (a *Answer) negative(reply *dns.Msg) {
	for _, rr := range reply.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			a.NegativeSeconds = min(soa.Hdr.Ttl, soa.Minttl)
			if !reply.Authoritative {
				a.NegativeAgeSeconds = soa.Minttl - a.NegativeSeconds
			}
		}
	}
}
