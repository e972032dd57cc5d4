package awsfake

import (
	"slices"
	"strconv"
	"strings"
)

// Query is a question to the name servers.
type Query struct {
	Name, Type string
	// VPC is the VPC that asks; empty is the internet, which sees only public zones.
	VPC string
}

// Answer is a name server's answer. At most one of Values, Alias, NXDomain and Refused is set; none means that the
// name exists without the type.
type Answer struct {
	// Values are the set's. TTL, in seconds, is how long the answer may be cached, negative answers included.
	Values []string
	TTL    int64
	// Alias is the CNAME under which the name has been answered; its target is not followed.
	Alias string
	// NXDomain means that neither the name nor a name below it exists.
	NXDomain bool
	// Refused means that no zone visible from the VPC contains the name.
	Refused bool
}

// Resolve answers as the zone's name servers would once the last change has reached them. It is no API call. Wildcards
// are not modelled.
func (r *Route53) Resolve(q Query) Answer {
	r.account.mu.Lock()
	defer r.account.mu.Unlock()
	name, problem := normalName(q.Name)
	if problem != "" {
		return Answer{Refused: true}
	}
	z := r.authority(name, q.VPC)
	if z == nil {
		return Answer{Refused: true}
	}
	return answer(z.sets, z.Name, name, q.Type)
}

// authority returns the zone with the longest name that contains name; a private zone of the VPC comes before a public
// one of the same name.
func (r *Route53) authority(name, vpc string) *zone {
	var best *zone
	for _, z := range r.byName() {
		seen := !z.Private() || slices.ContainsFunc(z.VPCs, func(v VPC) bool { return v.ID == vpc })
		if !seen || !within(name, z.Name) {
			continue
		}
		if best == nil || len(z.Name) > len(best.Name) || len(z.Name) == len(best.Name) && z.Private() && !best.Private() {
			best = z
		}
	}
	return best
}

func answer(sets []RecordSet, zone, name, kind string) Answer {
	if a, ok := lookup(sets, name, kind); ok {
		return a
	}
	return Answer{NXDomain: !exists(sets, name), TTL: negativeTTL(sets, zone)}
}

// lookup finds the set of that name and type, or the name's CNAME.
func lookup(sets []RecordSet, name, kind string) (Answer, bool) {
	for _, s := range sets {
		switch {
		case s.Name != name:
		case s.Type == kind:
			return Answer{Values: slices.Clone(s.Values), TTL: s.TTL}, true
		case s.Type == "CNAME": // no other set has its name
			return Answer{Alias: s.Values[0], TTL: s.TTL}, true
		}
	}
	return Answer{}, false
}

// exists reports whether the name or anything below it has a set.
func exists(sets []RecordSet, name string) bool {
	return slices.ContainsFunc(sets, func(s RecordSet) bool { return within(s.Name, name) })
}

// negativeTTL is how long a "no" may be kept: the lesser of the SOA's TTL and minimum (RFC 2308, 5).
func negativeTTL(sets []RecordSet, zone string) int64 {
	for _, s := range sets {
		if s.Name != zone || s.Type != "SOA" {
			continue
		}
		fields := strings.Fields(s.Values[0])
		minimum, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
		if err != nil {
			return s.TTL // checkSOA has let no such value in
		}
		return min(s.TTL, minimum)
	}
	return 0
}
