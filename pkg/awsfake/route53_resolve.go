package awsfake

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Query is a question to the name servers.
type Query struct {
	Name, Type string
	// VPC is where it is asked from; empty is the internet, which sees public zones only.
	VPC string
	// Server is which of the zone's four name servers is asked, 0 to 3. A change reaches server n
	// after n+1 quarters of the propagation time; ask 3 for the slowest.
	Server int
	// At is when; a time before the zone's oldest known version is answered from that one.
	At time.Time
}

// Answer is what a name server says. Exactly one of its kinds holds: Values, NXDomain, Refused, or
// none (the name exists without the type).
type Answer struct {
	// Values are the set's; TTL is how long they may be kept, and a "no" too, in seconds.
	Values []string
	TTL    int64
	// Alias is the CNAME under which the name has been answered; its target is not followed.
	Alias string
	// NXDomain: the name does not exist, nor anything below it.
	NXDomain bool
	// Refused: no zone that is visible from there holds the name.
	Refused bool
}

// Resolve answers as the zone's name servers would. It is no API call. Of weighted sets it answers the
// one of the greatest weight; wildcards are matched as RFC 4592 says.
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
	sets := z.seen(q.At, r.propagation*time.Duration(min(max(q.Server, 0), 3)+1)/4)
	return answer(sets, z.Name, name, q.Type)
}

// authority is the zone with the longest name that holds name: a private one of the VPC before a
// public one of the same name.
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

// seen is what a server holds that every change reaches after delay.
func (z *zone) seen(at time.Time, delay time.Duration) []RecordSet {
	for _, v := range slices.Backward(z.versions) {
		if !at.Before(v.Committed.Add(delay)) {
			return v.Sets
		}
	}
	return z.versions[0].Sets
}

func answer(sets []RecordSet, zone, name, kind string) Answer {
	if a, ok := lookup(sets, name, kind); ok {
		return a
	}
	if !exists(sets, name) {
		if wild, ok := wildcard(sets, zone, name); ok {
			if a, ok := lookup(sets, wild, kind); ok {
				return a
			}
			return Answer{TTL: negativeTTL(sets, zone)}
		}
		return Answer{NXDomain: true, TTL: negativeTTL(sets, zone)}
	}
	return Answer{TTL: negativeTTL(sets, zone)}
}

// lookup finds the set of that name and type, or the name's CNAME.
func lookup(sets []RecordSet, name, kind string) (Answer, bool) {
	var found *RecordSet
	for i := range sets {
		s := &sets[i]
		if s.Name != name || s.Type != kind && s.Type != "CNAME" {
			continue
		}
		if found == nil || s.Weight > found.Weight {
			found = s
		}
	}
	switch {
	case found == nil:
		return Answer{}, false
	case found.Type == kind:
		return Answer{Values: slices.Clone(found.Values), TTL: found.TTL}, true
	default:
		return Answer{Alias: found.Values[0], TTL: found.TTL}, true
	}
}

// exists reports whether the name or anything below it has a set.
func exists(sets []RecordSet, name string) bool {
	return slices.ContainsFunc(sets, func(s RecordSet) bool { return within(s.Name, name) })
}

// wildcard is the wildcard below the closest name above that exists.
func wildcard(sets []RecordSet, zone, name string) (string, bool) {
	for name != zone {
		_, name, _ = strings.Cut(name, ".")
		if !exists(sets, name) {
			continue
		}
		wild := `\052.` + name
		return wild, slices.ContainsFunc(sets, func(s RecordSet) bool { return s.Name == wild })
	}
	return "", false
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
