package record

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Guard decides which of the desired sets are published, given those that are published now. In doubt it keeps what is
// published:
//
//   - a name that would lose its last address while its groups want machines keeps its addresses;
//   - records of another owner, of another program, or without a control record are not changed (checkOwner);
//   - if a group is no longer found, the names of its role do not change for VanishAfter, since a reading may have missed
//     it, or somebody is replacing its tags. In between the control record remembers the group (vanished=); a group that is
//     there and has lost its role is not forgotten at all;
//   - an SRV record never loses a member while etcd's groups want machines;
//   - if a fleet with groups has no desired sets (Desired found errors), or a needed name has a foreign record, nothing
//     changes;
//   - a cluster without groups and without records gets no records.
//
// Kept sets never include addresses of machines that are leaving (Lifecycle.Leaving), so that even the last machine can
// be drained, nor addresses that another machine has now.
func Guard(want, have []Set, f Fleet, p Policy) ([]Set, problem.List) {
	f, without := f.withoutRole()
	g := newGuard(want, have, f, p)
	g.addLeaving(without)
	if g.checkOwner(have); g.found.Err() != nil {
		return managed(have, g.domain), g.found
	}
	switch {
	case len(want) == 0 && len(f.Groups) > 0:
		return managed(have, g.domain), g.found
	case len(f.Groups) == 0 && len(g.published[controlLabel]) == 0:
		g.warn("no-groups", "cluster "+f.Cluster, "the cluster has neither groups nor records: nothing is published",
			"set the tag KubernetesCluster="+f.Cluster+" on its groups, or create the cluster's records first")
		return nil, g.found
	case len(f.Groups) == 0:
		g.want = byLabel(Placeholders(f.Cluster, p), g.domain)
	}
	if g.findConflicts(have) {
		return managed(have, g.domain), g.found
	}
	g.findVanished(without)
	g.decideSRV()
	for _, label := range g.labels() {
		g.decide(label)
	}
	g.addControl()
	sortSets(g.out)
	g.found.Sort()
	return g.out, g.found
}

// guard is the state of one call of Guard. Its sets are grouped by label: one name with its shards and its count.
type guard struct {
	policy          Policy
	domain          string
	fleet           Fleet
	want, published map[string][]Set
	wanted          map[role.Role]int    // the desired capacity of the role's groups
	frozen          map[role.Role]bool   // a group of the role has vanished in this sweep
	missing         map[string]time.Time // the groups that have vanished, by their keys, and since when
	unroled         []string             // keys of the groups that are there and have lost their role
	targets         map[string]bool      // labels that an SRV record points to
	owners          map[string]owner
	out             []Set
	found           problem.List
}

func newGuard(want, have []Set, f Fleet, p Policy) *guard {
	g := &guard{policy: p.complete(), domain: p.Domain(f.Cluster), fleet: f}
	g.want, g.published = byLabel(want, g.domain), byLabel(have, g.domain)
	g.wanted, g.frozen, g.targets = map[role.Role]int{}, map[role.Role]bool{}, map[string]bool{}
	g.missing = map[string]time.Time{}
	for _, group := range f.Groups {
		g.wanted[group.Role] += group.Desired
	}
	g.owners = ownersOf(f)
	return g
}

func (g *guard) warn(rule, field, text, hint string) {
	g.found.Add(problem.Problem{Severity: problem.Warning, Rule: rule, Field: field, Text: text, Hint: hint})
}

// managed returns the sets of the domain that Hardtack manages.
func managed(have []Set, domain string) []Set {
	var out []Set
	claimed := claims(have, domain)
	for _, s := range have {
		if ours(s, domain, claimed) {
			out = append(out, s)
		}
	}
	sortSets(out)
	return out
}

// byLabel groups sets by the label of their name, and shards by their role.
func byLabel(sets []Set, domain string) map[string][]Set {
	units := map[string][]Set{}
	for _, s := range managed(sets, domain) {
		label := strings.TrimSuffix(s.Name, "."+domain)
		if k, r := identify(s, domain); k == kindShard {
			label = string(r)
		}
		units[label] = append(units[label], s)
	}
	return units
}

// labels returns the labels of address records that are published or wanted, sorted.
func (g *guard) labels() []string {
	all := maps.Clone(g.want)
	maps.Copy(all, g.published)
	for l := range g.targets {
		all[l] = nil
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(l string) bool {
		return l == controlLabel || l == serverSRV || l == clientSRV
	})
}

// findConflicts reports foreign records at names that Hardtack needs.
func (g *guard) findConflicts(have []Set) (any bool) {
	names := map[string]bool{}
	for _, sets := range g.want {
		for _, s := range sets {
			names[s.Name], names[s.Name+" "+s.Type] = true, true
		}
	}
	claimed := claims(have, g.domain)
	for _, s := range have {
		if !ours(s, g.domain, claimed) && (s.Type == "CNAME" && names[s.Name] || names[s.Name+" "+s.Type]) {
			g.found.Add(problem.Problem{Rule: "name-taken", Field: s.Name,
				Text: fmt.Sprintf("a %s record that is not Hardtack's has this name", s.Type),
				Hint: "remove or rename it: the cluster's own record cannot be published beside it, and nothing is changed until then"})
			any = true
		}
	}
	return any
}

// findVanished finds the groups that an earlier sweep had and this one has not. Of these, some are there and have lost their
// role.
func (g *guard) findVanished(without []Group) {
	last, now := firstOrNone(g.published[controlLabel]), firstOrNone(g.want[controlLabel])
	groups, before := last.valuesWith(groupPrefix), last.vanished()
	if g.policy.TakeOver && !slices.Contains(last.Values, g.claim()) { // the groups of the owner before are not ours to wait for
		groups, before = nil, map[string]time.Time{}
	}
	here := now.valuesWith(groupPrefix)
	at := g.fleet.At.UTC().Truncate(time.Second)
	if g.fleet.At.IsZero() {
		at = time.Unix(0, 0).UTC()
	}
	for _, key := range groups {
		before[key] = at
	}
	// A role with addresses but without any known group: the control record was removed by hand.
	for _, r := range role.All() {
		ofRole := func(key string) bool { return keyRole(key) == r }
		if !slices.ContainsFunc(here, ofRole) && !slices.ContainsFunc(slices.Collect(maps.Keys(before)), ofRole) && g.roleHasAddresses(r) {
			before[string(r)+"/"] = at
		}
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		lost := func(group Group) bool { return keyName(key) == keyName(g.policy.groupKey("", group.Name)) }
		switch since := before[key]; {
		case slices.Contains(here, key):
		case slices.ContainsFunc(without, lost):
			g.unroled = append(g.unroled, key)
			g.frozen[keyRole(key)] = true
		case at.Sub(since) < VanishAfter:
			g.missing[key] = since
			g.frozen[keyRole(key)] = true
			g.warn("group-vanished", "group "+key, "the group is not there any more; the records of its role stay as they are until "+
				since.Add(VanishAfter).Format(time.TimeOnly)+" UTC", "nothing to do when it was deleted; else see whether its tags were edited")
		default:
			g.warn("group-removed", "group "+key, fmt.Sprintf("the group has been missing for %s: it has left the records", VanishAfter), "")
		}
	}
}

// addLeaving adds the machines that leave, of groups whose role is not known: their addresses are not kept. The others'
// are, which the records of the group's former role may hold.
func (g *guard) addLeaving(without []Group) {
	for _, group := range without {
		group.Members = slices.DeleteFunc(slices.Clone(group.Members), func(m Member) bool { return !m.Lifecycle.Leaving() })
		for address, o := range ownersOf(Fleet{Groups: []Group{group}}) {
			if _, known := g.owners[address]; !known {
				g.owners[address] = o
			}
		}
	}
}

func firstOrNone(sets []Set) Set {
	if len(sets) == 0 {
		return Set{}
	}
	return sets[0]
}

// roleHasAddresses reports whether addresses of the role are published now.
func (g *guard) roleHasAddresses(r role.Role) bool {
	for _, sets := range g.published {
		if _, of := identify(sets[0], g.domain); of == r && g.hasAddress(sets) {
			return true
		}
	}
	return false
}

// hasAddress reports whether any of the sets lists an address other than the placeholder.
func (g *guard) hasAddress(sets []Set) bool {
	return slices.ContainsFunc(sets, func(s Set) bool {
		return (s.Type == A || s.Type == AAAA) && slices.ContainsFunc(s.Values, func(v string) bool {
			return v != g.policy.Placeholder.String()
		})
	})
}

// addControl adds the control record: the groups that were found and those that have vanished.
func (g *guard) addControl() {
	s := firstOrNone(g.want[controlLabel])
	s.Values = slices.DeleteFunc(slices.Clone(s.Values), func(v string) bool { return strings.HasPrefix(v, ownerPrefix) })
	s.Values = append(s.Values, g.claim())
	if len(g.missing) > maxVanished { // their roles, and the last of their times, are enough to remember that they are missing
		roles := map[string]time.Time{}
		for key, since := range g.missing {
			if of := string(keyRole(key)) + "/"; since.After(roles[of]) {
				roles[of] = since
			}
		}
		g.missing = roles
	}
	for key, since := range g.missing {
		s.Values = append(s.Values, fmt.Sprintf("%s%s@%d", vanishedPrefix, key, since.Unix()))
	}
	for _, key := range g.unroled {
		s.Values = append(s.Values, groupPrefix+key)
	}
	slices.Sort(s.Values)
	g.out = append(g.out, s)
}
