package record

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Guard decides what of the desired sets is published, given what is published now. It fails static:
//
//   - a name that would lose its last address while its groups want machines keeps what it has;
//   - a group that is no longer there freezes the names of its role for one sweep, since a reading may
//     have missed it; the sweep after it that misses it too lets go. Between the two the control record
//     remembers it (vanished=);
//   - an SRV record never loses a member while etcd's groups want machines;
//   - without desired sets for a fleet that has groups (Desired found errors), and where another's
//     record has a name that is needed, all stays as it is;
//   - a cluster that has no groups and no records gets none.
//
// What it keeps is always less the addresses of machines that are leaving (Lifecycle.Leaving), so that
// a machine can drain even when it is the last one, and less addresses that another machine has by now.
func Guard(want, have []Set, f Fleet, p Policy) ([]Set, problem.List) {
	g := newGuard(want, have, f, p)
	switch {
	case len(want) == 0 && len(f.Groups) > 0:
		return kept(have, g.domain), g.found
	case len(f.Groups) == 0 && len(g.last[controlLabel]) == 0:
		g.warn("no-groups", "cluster "+f.Cluster, "the cluster has neither groups nor records: nothing is published",
			"set the tag KubernetesCluster="+f.Cluster+" on its groups, or create the cluster's records first")
		return nil, g.found
	case len(f.Groups) == 0:
		g.want = byUnit(Placeholders(f.Cluster, p), g.domain)
	}
	if g.taken(have) {
		return kept(have, g.domain), g.found
	}
	g.vanish()
	g.services()
	for _, label := range g.labels() {
		g.unit(label)
	}
	g.control()
	sortSets(g.out)
	g.found.Sort()
	return g.out, g.found
}

// guard is one decision. Its sets are by unit: what one name says, with its shards and its count.
type guard struct {
	policy     Policy
	domain     string
	fleet      Fleet
	want, last map[string][]Set
	wanted     map[role.Role]int  // machines that the role's groups want
	frozen     map[role.Role]bool // a group of the role is missing for the first time
	missing    []string           // keys of the groups that are
	targets    map[string]bool    // labels that a kept SRV record points to
	holders    map[string]holder
	out        []Set
	found      problem.List
}

func newGuard(want, have []Set, f Fleet, p Policy) *guard {
	g := &guard{policy: p.complete(), domain: p.Domain(f.Cluster), fleet: f}
	g.want, g.last = byUnit(want, g.domain), byUnit(have, g.domain)
	g.wanted, g.frozen, g.targets = map[role.Role]int{}, map[role.Role]bool{}, map[string]bool{}
	for _, group := range f.Groups {
		g.wanted[group.Role] += group.Desired
	}
	g.holders = holdersOf(f)
	return g
}

func (g *guard) warn(rule, field, text, hint string) {
	g.found.Add(problem.Problem{Severity: problem.Warning, Rule: rule, Field: field, Text: text, Hint: hint})
}

// kept returns the sets that are kept in the domain, as they are.
func kept(have []Set, domain string) []Set {
	var out []Set
	for _, s := range have {
		if k, _ := identify(s, domain); k != foreign {
			out = append(out, s)
		}
	}
	sortSets(out)
	return out
}

// byUnit groups sets by the label of the name that they belong to: shards by their role.
func byUnit(sets []Set, domain string) map[string][]Set {
	units := map[string][]Set{}
	for _, s := range kept(sets, domain) {
		label := strings.TrimSuffix(s.Name, "."+domain)
		if k, r := identify(s, domain); k == shard {
			label = string(r)
		}
		units[label] = append(units[label], s)
	}
	return units
}

// labels are the units of address records that there are or should be, sorted.
func (g *guard) labels() []string {
	all := maps.Clone(g.want)
	maps.Copy(all, g.last)
	for l := range g.targets {
		all[l] = nil
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(l string) bool {
		return l == controlLabel || l == serverSRV || l == clientSRV
	})
}

// taken reports records of other kinds that stand where one of ours must be.
func (g *guard) taken(have []Set) (any bool) {
	names := map[string]bool{}
	for _, sets := range g.want {
		for _, s := range sets {
			names[s.Name], names[s.Name+" "+s.Type] = true, true
		}
	}
	for _, s := range have {
		if k, _ := identify(s, g.domain); k == foreign && (s.Type == "CNAME" && names[s.Name] || names[s.Name+" "+s.Type]) {
			g.found.Add(problem.Problem{Rule: "name-taken", Field: s.Name,
				Text: fmt.Sprintf("a %s record that is not Hardtack's has this name", s.Type),
				Hint: "remove or rename it: the cluster's own record cannot be published beside it, and nothing is changed until then"})
			any = true
		}
	}
	return any
}

// vanish finds the groups that the last reading had and this one has not.
func (g *guard) vanish() {
	last, now := first(g.last[controlLabel]), first(g.want[controlLabel])
	groups, before := last.valuesWith(groupPrefix), last.valuesWith(vanishedPrefix)
	here := now.valuesWith(groupPrefix)
	for _, key := range groups {
		if !slices.Contains(here, key) {
			g.missing = append(g.missing, key)
		}
	}
	// Addresses of a role that nobody remembers a group of: the control record was removed by hand.
	remembered := slices.Concat(groups, before, here)
	for _, r := range role.All() {
		knows := slices.ContainsFunc(remembered, func(key string) bool { return keyRole(key) == r })
		if !knows && g.published(r) {
			g.missing = append(g.missing, string(r)+"/")
		}
	}
	for _, key := range g.missing {
		g.frozen[keyRole(key)] = true
		g.warn("group-vanished", "group "+key, "the group is not there any more; the records of its role stay as they are until the next sweep misses it too",
			"nothing to do when it was deleted; else see whether its tags were edited")
	}
	for _, key := range before {
		if !slices.Contains(here, key) {
			g.warn("group-removed", "group "+key, "two sweeps have not found the group: it has left the records", "")
		}
	}
}

func first(sets []Set) Set {
	if len(sets) == 0 {
		return Set{}
	}
	return sets[0]
}

// published reports whether the role has addresses in the records now.
func (g *guard) published(r role.Role) bool {
	for _, sets := range g.last {
		if _, of := identify(sets[0], g.domain); of == r && g.real(sets) {
			return true
		}
	}
	return false
}

// real reports whether any of the sets lists an address that is not the placeholder.
func (g *guard) real(sets []Set) bool {
	return slices.ContainsFunc(sets, func(s Set) bool {
		return (s.Type == A || s.Type == AAAA) && slices.ContainsFunc(s.Values, func(v string) bool {
			return v != g.policy.Placeholder.String()
		})
	})
}

// control adds the control record: the groups of this reading and those that it misses.
func (g *guard) control() {
	s := first(g.want[controlLabel])
	s.Values = slices.Clone(s.Values)
	if len(g.missing) > maxVanished { // only that they are missing matters, so their roles are enough
		for i, key := range g.missing {
			g.missing[i] = string(keyRole(key)) + "/"
		}
		slices.Sort(g.missing)
		g.missing = slices.Compact(g.missing)
	}
	for _, key := range g.missing {
		s.Values = append(s.Values, vanishedPrefix+key)
	}
	slices.Sort(s.Values)
	g.out = append(g.out, s)
}
