package role

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Opening is a port that a unit of an image has opened to other machines, beside the ports of Hardtack's own units.
type Opening struct {
	// Role is the role whose machines listen; empty is every machine.
	Role Role `json:"role,omitempty"`
	// Protocol is "tcp" or "udp". First and Last are the ports; they are the same for a single one.
	Protocol string `json:"protocol"`
	First    int    `json:"first"`
	Last     int    `json:"last"`
	// From are the roles whose machines connect, and Ranges the addresses of others, as CIDR.
	From   Set      `json:"from,omitempty"`
	Ranges []string `json:"ranges,omitempty"`
	// Unit is the unit that says so; empty where it is not known.
	Unit string `json:"unit,omitempty"`
}

// The parts of an opening in a line of text. Tags of AWS may have each of these characters ("Tag your Amazon EC2 resources").
const (
	anyRole     = "any"
	noOpenings  = "none"
	sourceSign  = "="
	anotherSign = "+"
)

// ParseOpening parses what a unit says of itself: "80/tcp minions 10.0.0.0/8", or "30000-32767/tcp ingress". Role and Unit are the
// caller's to set.
func ParseOpening(text string) (Opening, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return Opening{}, fmt.Errorf("%q has no port: write 80/tcp, and who connects to it", text)
	}
	o, err := parsePort(words[0])
	if err != nil {
		return Opening{}, err
	}
	if len(words) == 1 {
		return Opening{}, fmt.Errorf("%s: nobody connects to it: add roles of the cluster, or ranges of addresses such as 10.0.0.0/8", words[0])
	}
	var from []Role
	for _, w := range words[1:] {
		if !strings.Contains(w, "/") {
			r, err := Parse(w)
			if err != nil {
				return Opening{}, fmt.Errorf("%s: %w; a range of addresses is written as 10.0.0.0/8", words[0], err)
			}
			from = append(from, r)
			continue
		}
		p, err := netip.ParsePrefix(w)
		if err != nil || p.Masked() != p || p.String() != w {
			return Opening{}, fmt.Errorf("%s: %q is no range of addresses, as 10.0.0.0/8 or 2001:db8::/32, or does not begin with its first address", words[0], w)
		}
		o.Ranges = append(o.Ranges, w)
	}
	slices.Sort(o.Ranges)
	o.From, o.Ranges = NewSet(from...), slices.Compact(o.Ranges)
	return o, nil
}

func parsePort(text string) (Opening, error) {
	numbers, protocol, _ := strings.Cut(text, "/")
	if protocol != "tcp" && protocol != "udp" {
		return Opening{}, fmt.Errorf("%q is no port: write 80/tcp or 53/udp", text)
	}
	first, last, several := strings.Cut(numbers, "-")
	if !several {
		last = first
	}
	o := Opening{Protocol: protocol}
	var ok [2]bool
	o.First, ok[0] = portNumber(first)
	o.Last, ok[1] = portNumber(last)
	if !ok[0] || !ok[1] {
		return Opening{}, fmt.Errorf("%q: ports are numbers from 1 to 65535", text)
	}
	if o.First > o.Last || several && o.First == o.Last {
		return Opening{}, fmt.Errorf("%q: the first port of several comes before the last", text)
	}
	return o, nil
}

func portNumber(text string) (int, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return int(n), err == nil && n > 0 && strconv.FormatUint(n, 10) == text
}

// Port is the port in text: "80/tcp" or "30000-32767/tcp".
func (o Opening) Port() string {
	if o.First == o.Last {
		return fmt.Sprintf("%d/%s", o.First, o.Protocol)
	}
	return fmt.Sprintf("%d-%d/%s", o.First, o.Last, o.Protocol)
}

// Sources are the roles and then the ranges that connect.
func (o Opening) Sources() []string {
	var names []string
	for _, r := range o.From {
		names = append(names, string(r))
	}
	return append(names, o.Ranges...)
}

// Overlaps reports whether a machine could have both, and they have a port of one protocol in common.
func (o Opening) Overlaps(p Opening) bool {
	return (o.Role == p.Role || o.Role == "" || p.Role == "") && o.Protocol == p.Protocol && o.First <= p.Last && p.First <= o.Last
}

// FormatOpenings is a list in one line, without the units: "ingress:80/tcp=10.0.0.0/8+minions any:9100/tcp=minions", or "none".
func FormatOpenings(list []Opening) string {
	if len(list) == 0 {
		return noOpenings
	}
	words := make([]string, len(list))
	for i, o := range list {
		r := string(o.Role)
		if r == "" {
			r = anyRole
		}
		words[i] = r + ":" + o.Port() + sourceSign + strings.Join(o.Sources(), anotherSign)
	}
	return strings.Join(words, " ")
}

// ParseOpenings parses what FormatOpenings has written.
func ParseOpenings(text string) ([]Opening, error) {
	list := []Opening{}
	if text == noOpenings {
		return list, nil
	}
	for word := range strings.FieldsSeq(text) {
		of, rest, _ := strings.Cut(word, ":")
		port, sources, _ := strings.Cut(rest, sourceSign)
		o, err := ParseOpening(port + " " + strings.ReplaceAll(sources, anotherSign, " "))
		if err == nil && of != anyRole {
			o.Role, err = Parse(of)
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", word, err)
		}
		list = append(list, o)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%q lists no ports, and is not %q", text, noOpenings)
	}
	return list, nil
}
