package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/miekg/dns"
	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// udpSize is what passes every network without fragments (DNS flag day 2020).
const udpSize = 1232

// answer is what one server says of one name and type.
type answer struct {
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

func dnsLookupCommand() *cli.Command {
	return &cli.Command{
		Name:      "lookup",
		Usage:     "ask name servers directly: every address, how long it is kept, and how long a \"no\" is",
		ArgsUsage: "[name ...]",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "cluster", Usage: "the cluster's `NAME`; names that end without a dot are below it"},
			&cli.StringFlag{Name: "suffix", Value: record.DefaultSuffix, Usage: "the `ZONE` below which the cluster's name is"},
			&cli.StringSliceFlag{Name: "server", Usage: "a name server, `HOST[:PORT]`, as often as there are some; left out, those of /etc/resolv.conf"},
			&cli.BoolFlag{Name: "json", Usage: "print JSON"},
		},
		Action: func(c *cli.Context) error {
			names, err := lookupNames(c)
			if err != nil {
				return err
			}
			servers, err := lookupServers(c)
			if err != nil {
				return err
			}
			var answers []answer
			for _, server := range servers {
				for _, name := range names {
					for _, kind := range typesOf(name) {
						answers = append(answers, lookup(c.Context, server, name, kind))
					}
				}
			}
			if c.Bool("json") {
				err = printJSON(c.App.Writer, answers)
			} else {
				err = printAnswers(c.App.Writer, answers)
			}
			if i := slices.IndexFunc(answers, func(a answer) bool { return a.Error != "" }); err == nil && i >= 0 {
				return fmt.Errorf("asking %s for %s: %s", answers[i].Server, answers[i].Name, answers[i].Error)
			}
			return err
		},
	}
}

// lookupNames are the arguments, or what every cluster has.
func lookupNames(c *cli.Context) ([]string, error) {
	p := record.DefaultPolicy()
	p.Suffix = c.String("suffix")
	names := c.Args().Slice()
	if len(names) == 0 {
		for _, r := range role.All() {
			names = append(names, string(r))
		}
	}
	for i, n := range names {
		if strings.HasSuffix(n, ".") {
			continue
		}
		if c.String("cluster") == "" {
			return nil, usagef("%s is below a cluster: name it with --cluster, or end the name with a dot", n)
		}
		names[i] = n + "." + p.Domain(c.String("cluster"))
	}
	return names, nil
}

func lookupServers(c *cli.Context) ([]string, error) {
	servers := c.StringSlice("server")
	if len(servers) == 0 {
		conf, err := dns.ClientConfigFromFile("/etc/resolv.conf")
		if err != nil {
			return nil, fmt.Errorf("reading which name servers to ask: %w (name one with --server)", err)
		}
		servers = conf.Servers
	}
	for i, s := range servers {
		servers[i] = withPort(s)
	}
	return servers, nil
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

// ask sends one question by UDP, and again by TCP where the answer does not fit.
func ask(ctx context.Context, server, name string, kind uint16) (*dns.Msg, error) {
	q := new(dns.Msg).SetQuestion(dns.Fqdn(name), kind)
	q.SetEdns0(udpSize, false)
	for _, network := range []string{"udp", "tcp"} {
		client := dns.Client{Net: network, Timeout: 5 * time.Second, UDPSize: udpSize}
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

func lookup(ctx context.Context, server, name string, kind uint16) answer {
	a := answer{Server: server, Name: dns.Fqdn(name), Type: dns.TypeToString[kind], Values: []string{}}
	reply, err := ask(ctx, server, name, kind)
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

// negative reads how long a "no" is kept (RFC 2308): an authority's SOA says the lower of its TTL and
// minimum; a cache counts the TTL down.
func (a *answer) negative(reply *dns.Msg) {
	for _, rr := range reply.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			a.NegativeSeconds = min(soa.Hdr.Ttl, soa.Minttl)
			if !reply.Authoritative {
				a.NegativeAgeSeconds = soa.Minttl - a.NegativeSeconds
			}
		}
	}
}

func printAnswers(w io.Writer, answers []answer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, a := range answers {
		source := "cached"
		if a.Authoritative {
			source = "authoritative"
		}
		switch {
		case a.Error != "":
			fmt.Fprintf(tw, "%s\t%s\t%s\t\terror: %s\n", a.Server, a.Name, a.Type, a.Error)
		case len(a.Values) == 0:
			text := fmt.Sprintf("none (%s, %s)", cmp.Or(map[string]string{"NOERROR": "the name has no such record"}[a.Code], a.Code), source)
			if a.NegativeSeconds > 0 {
				text += fmt.Sprintf(", kept as a no for %d s, of which %d s are over", a.NegativeSeconds+a.NegativeAgeSeconds, a.NegativeAgeSeconds)
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t\t%s\n", a.Server, a.Name, a.Type, text)
		}
		for _, v := range a.Values {
			fmt.Fprintf(tw, "%s\t%s\t%s\t%d s\t%s\t(%s)\n", a.Server, a.Name, a.Type, a.TTLSeconds, v, source)
		}
	}
	return tw.Flush()
}

// askNegative asks the zone's server itself how long its "no such name" is kept.
func askNegative(ctx context.Context, server string, p record.Policy) (time.Duration, error) {
	reply, err := ask(ctx, withPort(server), fqdn(p.Suffix), dns.TypeSOA)
	if err != nil {
		return 0, err
	}
	for _, rr := range reply.Answer {
		if soa, ok := rr.(*dns.SOA); ok && reply.Authoritative {
			return time.Duration(min(soa.Hdr.Ttl, soa.Minttl)) * time.Second, nil
		}
	}
	return 0, fmt.Errorf("%s has no authority over zone %s (name the zone's primary with --zone-server, its name with --suffix)", server, fqdn(p.Suffix))
}
