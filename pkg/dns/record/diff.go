package record

import (
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Change is one atomic change of record sets.
type Change struct {
	// Remove holds sets exactly as they were read, Create complete new ones; a set that changes is in both.
	Remove []Set `json:"remove"`
	Create []Set `json:"create"`
}

// Empty reports whether there is nothing to do.
func (c Change) Empty() bool { return len(c.Remove) == 0 && len(c.Create) == 0 }

// Equal reports whether two sets have the same name, type, TTL and values in any order.
func (s Set) Equal(o Set) bool {
	return s.Name == o.Name && s.Type == o.Type && s.TTL == o.TTL &&
		slices.Equal(slices.Sorted(slices.Values(s.Values)), slices.Sorted(slices.Values(o.Values)))
}

// Diff returns the change from have to want, in the order of names. want is the result of Guard; if it has no control
// record nothing changes. A change that is not empty also replaces the control record, exactly as it was read, by one
// with the new generation. The generation must be unique: otherwise a base from before this change could match again
// later. Sets of have that are not managed are left alone.
func Diff(have, want []Set, generation string) Change {
	i := slices.IndexFunc(want, isControl)
	if i < 0 {
		return Change{}
	}
	domain := strings.TrimPrefix(want[i].Name, controlLabel+".")
	old := map[[2]string]Set{}
	for _, s := range managed(have, domain) {
		old[[2]string{s.Name, s.Type}] = s
	}
	c := changes(old, want)
	before, known := old[[2]string{want[i].Name, TXT}]
	_, stamped := before.generation()
	if c.Empty() && stamped && before.TTL == want[i].TTL && slices.Equal(before.withoutGeneration(), want[i].withoutGeneration()) {
		return Change{}
	}
	after := want[i]
	after.Values = slices.Sorted(slices.Values(append(after.withoutGeneration(), generationValues(generation)...)))
	c.Create = append(c.Create, after)
	if known {
		c.Remove = append(c.Remove, before)
	}
	sortSets(c.Remove)
	sortSets(c.Create)
	return c
}

// Stamp returns the change that gives the published records another generation and changes nothing else: every change that
// was computed from them before is refused then. It is empty if there is no control record.
func Stamp(have []Set, cluster, generation string) Change {
	i := slices.IndexFunc(have, func(s Set) bool { return isControlOf(s, cluster) })
	if i < 0 {
		return Change{}
	}
	after := have[i]
	after.Values = slices.Sorted(slices.Values(append(after.withoutGeneration(), generationValues(generation)...)))
	return Change{Remove: []Set{have[i]}, Create: []Set{after}}
}

// LosesControlPlane reports whether an address of masters or etcd is in have and not in want. Clients that still get it may
// be talking to a dead machine, and everything else waits for these.
func LosesControlPlane(have, want []Set, cluster string, p Policy) bool {
	domain := p.Domain(cluster)
	of := func(sets []Set) map[string]bool {
		in := map[string]bool{}
		for _, s := range sets {
			if _, r := identify(s, domain); (r == role.Masters || r == role.Etcd) && (s.Type == A || s.Type == AAAA) {
				for _, v := range s.Values {
					in[string(r)+" "+v] = true
				}
			}
		}
		return in
	}
	after := of(want)
	for key := range of(have) {
		if !after[key] && !strings.HasSuffix(key, " "+p.Placeholder.String()) {
			return true
		}
	}
	return false
}

// isControl reports whether a managed set is the control record.
func isControl(s Set) bool { return strings.HasPrefix(s.Name, controlLabel+".") }

// isControlOf reports whether a set is the control record of the cluster in any zone.
func isControlOf(s Set, cluster string) bool {
	return s.Type == TXT && strings.HasPrefix(s.Name, controlLabel+"."+cluster+".")
}

// changes compares everything but the control record.
func changes(old map[[2]string]Set, want []Set) Change {
	var c Change
	keep := map[[2]string]bool{}
	for _, s := range want {
		if isControl(s) {
			continue
		}
		key := [2]string{s.Name, s.Type}
		keep[key] = true
		before, ok := old[key]
		if before.Equal(s) {
			continue
		}
		if ok {
			c.Remove = append(c.Remove, before)
		}
		c.Create = append(c.Create, s)
	}
	for key, s := range old {
		if !keep[key] && !isControl(s) {
			c.Remove = append(c.Remove, s)
		}
	}
	return c
}
