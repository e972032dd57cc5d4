package record

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Desired computes the records that a cluster should have from one reading of its groups, sorted by
// name and type. When the findings contain an error there are no sets and nothing may be published.
// A fleet without groups has no sets either: what then stays is Guard's decision.
func Desired(f Fleet, p Policy, l Limits) ([]Set, problem.List) {
	found := check(f, p)
	if found.Err() != nil || len(f.Groups) == 0 {
		return nil, found
	}
	in := listed(f, p, &found)
	b := newBuilder(f.Cluster, p, l, &found)
	b.control(f.Groups)
	b.checkControl(len(f.Groups))
	if p.Outputs.Roles {
		for _, r := range role.All() {
			b.addresses(string(r), in[r], privateAddrs)
		}
		b.etcd(f, in[role.Etcd])
	}
	b.api(in[role.Masters])
	found.Sort()
	if found.Err() != nil {
		return nil, found
	}
	return b.sorted(), found
}

// listed returns each role's members that its record lists: each instance once, in the order of ids.
func listed(f Fleet, p Policy, found *problem.List) map[role.Role][]Member {
	in := map[role.Role][]Member{}
	for _, g := range f.Groups {
		for _, m := range g.Members {
			if m.passes(g.Role) {
				in[g.Role] = append(in[g.Role], cleaned(g, m, p, found))
			}
		}
	}
	for r, members := range in {
		slices.SortFunc(members, compareMembers)
		in[r] = slices.CompactFunc(members, func(a, b Member) bool { return a.InstanceID == b.InstanceID })
	}
	return in
}

// passes reports whether the role's gate lets the member in. etcd's members have to find each other
// before they can be healthy, so they are let in while their launch hook waits.
func (m Member) passes(r role.Role) bool {
	ready := m.Lifecycle == InService ||
		r == role.Etcd && (m.Lifecycle == PendingWait || m.Lifecycle == PendingProceed)
	return ready && m.Healthy && m.Running
}

// compareMembers orders by id; the rest decides between two readings of one instance, in the same way
// whichever was read first.
func compareMembers(a, b Member) int {
	return cmp.Or(cmp.Compare(a.InstanceID, b.InstanceID),
		cmp.Compare(b.EtcdMember, a.EtcdMember),
		b.Private.Compare(a.Private), b.Private6.Compare(a.Private6), b.Public.Compare(a.Public))
}

// builder collects the sets of one cluster.
type builder struct {
	domain string
	policy Policy
	limits Limits
	found  *problem.List
	sets   []Set
}

func newBuilder(cluster string, p Policy, l Limits, found *problem.List) *builder {
	return &builder{domain: p.Domain(cluster), policy: p.complete(), limits: l, found: found}
}

func (b *builder) sorted() []Set {
	sortSets(b.sets)
	return b.sets
}

func sortSets(sets []Set) {
	slices.SortFunc(sets, compareSets)
}

func compareSets(x, y Set) int {
	return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Type, y.Type))
}

// add appends a set unless it would be empty.
func (b *builder) add(label, kind string, values []string) {
	if len(values) == 0 {
		return
	}
	slices.Sort(values)
	b.sets = append(b.sets, Set{Name: label + "." + b.domain, Type: kind, TTL: b.policy.TTL, Values: slices.Compact(values)})
}

func (b *builder) control(groups []Group) {
	values := []string{ownerValue}
	for _, g := range groups {
		values = append(values, groupPrefix+groupKey(g.Role, g.Name))
	}
	b.add(controlLabel, TXT, values)
}

// checkControl makes sure that the control record has room for the groups, the owner, the generation and
// the groups that a sweep may miss.
func (b *builder) checkControl(groups int) {
	if most := b.limits.SetValues - 2 - maxVanished; b.limits.SetValues > 0 && groups > most {
		b.found.Add(problem.Problem{Rule: "too-many-groups", Field: "cluster",
			Text: fmt.Sprintf("%d groups are more than the %d that the control record remembers, since the DNS service takes %d values in a set", groups, most, b.limits.SetValues),
			Hint: "merge groups, or raise the DNS service's limit (BIND: max-records-per-type)"})
	}
}

func (b *builder) api(masters []Member) {
	if b.policy.Outputs.APIInternal {
		b.addresses(apiInternal, masters, privateAddrs)
	}
	if b.policy.Outputs.APIPublic {
		b.addresses(apiPublic, masters, publicAddrs)
	}
}

// addrs picks the addresses of a member that a record is about.
type addrs func(Member) []netip.Addr

func privateAddrs(m Member) []netip.Addr { return []netip.Addr{m.Private, m.Private6} }
func publicAddrs(m Member) []netip.Addr  { return []netip.Addr{m.Public} }

// place adds the A and AAAA sets of one name, or its placeholder when there is no address at all.
func (b *builder) place(label string, members []Member, pick addrs) {
	byType := map[string][]string{}
	for _, m := range members {
		for _, a := range pick(m) {
			if a.IsValid() {
				byType[typeOf(a)] = append(byType[typeOf(a)], a.String())
			}
		}
	}
	if len(byType) == 0 && b.policy.Placeholder.IsValid() {
		byType[typeOf(b.policy.Placeholder)] = []string{b.policy.Placeholder.String()}
	}
	b.add(label, A, byType[A])
	b.add(label, AAAA, byType[AAAA])
}

func typeOf(a netip.Addr) string {
	if a.Is4() {
		return A
	}
	return AAAA
}

// etcd adds the names of the members and, when every declared one has an address, the SRV records.
func (b *builder) etcd(f Fleet, in []Member) {
	declared := etcdMembers(f)
	holders := map[string][]Member{}
	for _, m := range in {
		if m.EtcdMember != "" && oneAddr(m)[0].IsValid() {
			holders[m.EtcdMember] = append(holders[m.EtcdMember], m)
		}
	}
	names := declared
	if len(declared) == 0 {
		for name := range holders {
			names = append(names, name)
		}
		slices.Sort(names)
	}
	complete := len(declared) > 0
	for _, name := range names {
		b.place(memberPrefix+name, b.holder(name, holders[name]), oneAddr)
		complete = complete && len(holders[name]) > 0
	}
	b.undeclared(declared, holders)
	if complete {
		b.service(serverSRV, peerPort, declared)
		b.service(clientSRV, clientPort, declared)
	}
}

// oneAddr is the one address by which etcd finds a member: it only tries the first one of a name.
func oneAddr(m Member) []netip.Addr {
	if m.Private.IsValid() {
		return []netip.Addr{m.Private}
	}
	return []netip.Addr{m.Private6}
}

// holder chooses among machines that claim the same member: one in service goes before one that is
// still starting, then the lower id.
func (b *builder) holder(name string, claims []Member) []Member {
	if len(claims) < 2 {
		return claims
	}
	claims = slices.Clone(claims)
	slices.SortStableFunc(claims, func(x, y Member) int {
		return cmp.Compare(boolInt(y.Lifecycle == InService), boolInt(x.Lifecycle == InService))
	})
	ids := make([]string, len(claims))
	for i, m := range claims {
		ids[i] = m.InstanceID
	}
	b.found.Add(problem.Problem{Severity: problem.Warning, Rule: "etcd-member-claimed-twice", Field: "etcd member " + name,
		Text: fmt.Sprintf("machines %s claim the same etcd member; %s%s lists %s", strings.Join(ids, ", "), memberPrefix, name, ids[0]),
		Hint: "a member's volume is attached to one machine: correct the member tag of the others"})
	return claims[:1]
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (b *builder) undeclared(declared []string, holders map[string][]Member) {
	if len(declared) == 0 {
		return
	}
	for name, claims := range holders {
		if !slices.Contains(declared, name) {
			b.found.Add(problem.Problem{Severity: problem.Warning, Rule: "etcd-member-unknown", Field: "etcd member " + name,
				Text: fmt.Sprintf("machine %s claims a member that no group declares (%s); it gets no name", claims[0].InstanceID, strings.Join(declared, ", ")),
				Hint: "add it to the groups' list of etcd members, or correct the machine's tag"})
		}
	}
}

// service adds an SRV set: priority 0, weight 0.
func (b *builder) service(label string, port int, members []string) {
	values := make([]string, len(members))
	for i, m := range members {
		values[i] = fmt.Sprintf("0 0 %d %s%s.%s", port, memberPrefix, m, b.domain)
	}
	b.add(label, SRV, values)
}

// etcdMembers is every member that the etcd groups declare, sorted, each once.
func etcdMembers(f Fleet) []string {
	var names []string
	for _, g := range f.Groups {
		if g.Role == role.Etcd {
			names = append(names, g.EtcdMembers...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
