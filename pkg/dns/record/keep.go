package record

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// owner describes the machines that have an address now.
type owner struct {
	staying bool               // at least one of them is not leaving
	roles   map[role.Role]bool // roles of the machines
	leaving map[string]bool    // ids of the machines that are leaving
}

func ownersOf(f Fleet) map[string]owner {
	all := map[string]owner{}
	for _, group := range f.Groups {
		for _, m := range group.Members {
			for _, a := range []netip.Addr{m.Private, m.Private6, m.Public} {
				if !a.IsValid() {
					continue
				}
				key := a.Unmap().String()
				h, ok := all[key]
				if !ok {
					h = owner{roles: map[role.Role]bool{}, leaving: map[string]bool{}}
				}
				if m.Lifecycle.Leaving() {
					h.leaving[m.InstanceID] = true
				} else {
					h.staying = true
				}
				h.roles[group.Role] = true
				all[key] = h
			}
		}
	}
	return all
}

// decideSRV decides about etcd's SRV records. It comes before the names, since an SRV record needs the names that it
// points to.
func (g *guard) decideSRV() {
	for _, label := range []string{serverSRV, clientSRV} {
		last, want := g.published[label], g.want[label]
		if !g.policy.Outputs.Roles {
			continue
		}
		switch lost := missingTargets(firstOrNone(last), firstOrNone(want)); {
		case g.frozen[role.Etcd]:
			want = last
		case g.wanted[role.Etcd] > 0 && len(lost) > 0:
			g.srvKept(label, lost)
			want = last
		}
		for _, s := range want {
			s.TTL = g.policy.TTL
			g.out = append(g.out, s)
			for _, v := range s.Values {
				if l := strings.TrimSuffix(target(v), "."+g.domain); isMember(l) {
					g.targets[l] = true
				}
			}
		}
	}
}

// srvKept warns that an SRV record stays as it was read, and says why.
func (g *guard) srvKept(label string, lost []string) {
	if len(g.want[label]) > 0 {
		g.warn("srv-kept", label+"."+g.domain, "the groups do not declare "+strings.Join(lost, ", ")+" any more; the record stays as it is",
			"when they have been removed from etcd itself, delete the two SRV records by hand: the next sweep publishes those that are left")
		return
	}
	var without []string
	for _, name := range etcdMembers(g.fleet) {
		if !g.hasAddress(g.want[memberPrefix+name]) {
			without = append(without, memberPrefix+name)
		}
	}
	g.warn("srv-kept", label+"."+g.domain, "the record stays as it is, since not every member has a machine (missing: "+
		cmp.Or(strings.Join(without, ", "), "the groups declare no members")+")", "nothing to do while a machine is replaced")
}

// target returns the name in an SRV value.
func target(value string) string { return value[strings.LastIndex(value, " ")+1:] }

// missingTargets lists the names that last points to and want does not.
func missingTargets(last, want Set) []string {
	var lost []string
	for _, v := range last.Values {
		if !slices.ContainsFunc(want.Values, func(w string) bool { return target(w) == target(v) }) {
			lost = append(lost, target(v))
		}
	}
	return lost
}

// decide decides about one label.
func (g *guard) decide(label string) {
	want, last := g.want[label], g.published[label]
	r := g.roleOf(label)
	switch {
	case len(want) == 0 && g.targets[label]:
		want = g.keepPublished(label, last)
	case !g.hasAddress(last) || !g.hasOutput(label):
		// Nothing is published that could be kept.
	case g.frozen[r]:
		want = g.keepPublished(label, last)
	case g.hasAddress(want) || g.wanted[r] == 0 || !g.expected(label):
		// The reading is published as it is.
	default:
		want = g.keepPublished(label, last)
		if g.hasAddress(want) {
			g.warn(RuleKept, label+"."+g.domain,
				fmt.Sprintf("no machine is left for this name, though the groups of %s want %d: the last addresses stay", r, g.wanted[r]),
				"see why the machines are not in service and healthy; set the desired capacity to 0 if that is meant")
		} else {
			g.warn(RuleEmpty, label+"."+g.domain,
				fmt.Sprintf("no machine is left for this name, though the groups of %s want %d, and its last addresses are not theirs to keep", r, g.wanted[r]),
				"nothing to do while machines are replaced")
		}
	}
	g.out = append(g.out, want...)
}

func isMember(label string) bool {
	k, _ := identifyLabel(label)
	return k == kindMember
}

// roleOf returns the role that a label belongs to.
func (g *guard) roleOf(label string) role.Role {
	_, r := identifyLabel(label)
	return r
}

func (g *guard) hasOutput(label string) bool {
	switch label {
	case apiInternal:
		return g.policy.Outputs.APIInternal
	case apiPublic:
		return g.policy.Outputs.APIPublic
	}
	return g.policy.Outputs.Roles
}

// expected reports whether the name should exist at all: an etcd member that the groups do not declare should not.
func (g *guard) expected(label string) bool {
	return !isMember(label) || len(g.want[label]) > 0 || len(etcdMembers(g.fleet)) == 0
}

// keepPublished returns the published sets of a label without the addresses of machines that are leaving and those that
// belong to another machine now. A name without addresses gets the placeholder.
func (g *guard) keepPublished(label string, last []Set) []Set {
	b := &builder{domain: g.domain, policy: g.policy}
	gone := map[string]bool{}
	byName := map[string]map[string][]string{}
	var names []string
	for _, s := range last {
		name := strings.TrimSuffix(s.Name, "."+g.domain)
		if byName[name] == nil {
			byName[name] = map[string][]string{}
			names = append(names, name)
		}
		if s.Type == TXT {
			continue
		}
		for _, v := range s.Values {
			if g.mayKeep(label, v) {
				byName[name][s.Type] = append(byName[name][s.Type], v)
			} else {
				g.noteLeaving(v, gone)
			}
		}
	}
	if len(names) == 0 {
		names = []string{label}
	}
	for _, name := range names {
		if a, aaaa := byName[name][A], byName[name][AAAA]; len(a)+len(aaaa) > 0 {
			b.add(name, A, a)
			b.add(name, AAAA, aaaa)
		} else {
			b.addAddressSets(name, nil, privateAddrs)
		}
	}
	for _, s := range last {
		if s.Type == TXT {
			b.add(label, TXT, recount(s.Values, len(gone)))
		}
	}
	return b.sets
}

// noteLeaving adds the machines of an address that is not kept to gone.
func (g *guard) noteLeaving(address string, gone map[string]bool) {
	ids := g.owners[address].leaving
	if len(ids) == 0 {
		gone[address] = true
	}
	for id := range ids {
		gone[id] = true
	}
}

// mayKeep reports whether an address may stay published for the label.
func (g *guard) mayKeep(label, address string) bool {
	if isMember(label) && g.otherMember(label, address) {
		return false
	}
	h, known := g.owners[address]
	return !known || h.staying && h.roles[g.roleOf(label)]
}

// otherMember reports whether the address belongs to another etcd member now.
func (g *guard) otherMember(label, address string) bool {
	for other, sets := range g.want {
		if isMember(other) && other != label && slices.ContainsFunc(sets, func(s Set) bool { return slices.Contains(s.Values, address) }) {
			return true
		}
	}
	return false
}

// recount lowers the count in a count record by the number of machines that left.
func recount(values []string, gone int) []string {
	out := slices.Clone(values)
	for i, v := range out {
		if text, ok := strings.CutPrefix(v, countPrefix); ok {
			n, _ := strconv.Atoi(text)
			out[i] = countPrefix + strconv.Itoa(max(0, n-gone))
		}
	}
	return out
}
