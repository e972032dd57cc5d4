package record

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Desired computes the records that a cluster should have, sorted by name and type. If the findings contain an error
// there are no sets, and nothing may be published. A fleet without groups has no sets either; Guard then decides what
// stays.
func Desired(f Fleet, p Policy, l Limits) ([]Set, problem.List) {
	found := validate(f, p)
	f, _ = f.withoutRole()
	if found.Err() != nil || len(f.Groups) == 0 {
		return nil, found
	}
	in := eligible(f, p, &found)
	b := newBuilder(f.Cluster, p, l, &found)
	b.addControl(f.Groups)
	if p.Outputs.Roles {
		var own []role.Role
		for _, g := range f.Groups {
			own = append(own, g.Role)
		}
		for _, r := range append(role.All(), role.Own(own)...) {
			b.addAddresses(string(r), in[r], privateAddrs)
		}
		b.addEtcd(f, in[role.Etcd])
	}
	b.addAPI(in[role.Masters])
	found.Sort()
	if found.Err() != nil {
		return nil, found
	}
	return b.sorted(), found
}

// eligible returns the members that each role's record lists: each instance once, ordered by id.
func eligible(f Fleet, p Policy, found *problem.List) map[role.Role][]Member {
	in := map[role.Role][]Member{}
	for _, g := range f.Groups {
		for _, m := range g.Members {
			if m.eligible(g.Role) {
				in[g.Role] = append(in[g.Role], normalized(g, m, p, found))
			}
		}
	}
	for r, members := range in {
		slices.SortFunc(members, compareMembers)
		in[r] = slices.CompactFunc(members, func(a, b Member) bool { return a.InstanceID == b.InstanceID })
	}
	return in
}

// eligible reports whether the member may be listed in the role's record. Members of etcd have to find each other
// before they can become healthy, so they are listed while their launch hook still waits.
func (m Member) eligible(r role.Role) bool {
	ready := m.Lifecycle == InService ||
		r == role.Etcd && (m.Lifecycle == PendingWait || m.Lifecycle == PendingProceed)
	return ready && m.Healthy && m.Running
}

// compareMembers orders by id. The other fields decide which of two readings of one instance is used, independent of
// the order in which they were read.
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
	// control is the size of a large control record, at most.
	control struct{ values, characters int }
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

// addControl adds the control record. Beside a small one every batch has room, in the tenth that replaceable leaves; for a large one
// room is kept, with the longest generation and as many vanished groups as it may get.
func (b *builder) addControl(groups []Group) {
	values := []string{ownerValue}
	for _, g := range groups {
		values = append(values, groupPrefix+b.policy.groupKey(g.Role, g.Name))
	}
	b.add(controlLabel, TXT, values)
	if v, c := (Change{Create: b.sets}).size(); v > smallControl || c > smallControl*longName {
		b.control.values = v + maxGenerationValues + maxVanished
		b.control.characters = c + (maxGenerationValues+maxVanished)*longestTXT
		b.checkBatch(len(groups))
	}
	b.checkControl(len(groups))
}

const (
	// smallControl is how many values a small control record has, and longName how many characters each, the mean of them: with a
	// generation and vanished groups beside them they are a tenth of Route 53's 1000 values when they are replaced.
	smallControl = 20
	longName     = 50
)

// longestTXT is the size of one string of a TXT record at most, with its quotes (RFC 1035, section 3.3).
const longestTXT = 255 + len(`""`)

// checkControl reports a fleet with too many groups for the control record, which also holds the owner, the generation
// and groups that have vanished.
func (b *builder) checkControl(groups int) {
	if most := b.limits.SetValues - 1 - maxGenerationValues - maxVanished; b.limits.SetValues > 0 && groups > most {
		b.found.Add(problem.Problem{Rule: "too-many-groups", Field: "cluster",
			Text: fmt.Sprintf("%d groups are more than the %d that the control record remembers, since the DNS service takes %d values in a set", groups, most, b.limits.SetValues),
			Hint: "merge groups, or raise the DNS service's limit (BIND: max-records-per-type)"})
	}
}

// checkBatch reports a control record that no batch can replace.
func (b *builder) checkBatch(groups int) {
	if l, again := b.limits, (Change{Remove: b.sets, Create: b.sets}); !l.fits(again) {
		values, characters := again.size()
		b.found.Add(problem.Problem{Rule: "too-many-groups", Field: "cluster",
			Text: fmt.Sprintf("to replace the control record of %d groups takes %d values and %d characters, and the DNS service takes %d and %d in a batch", groups, values, characters, l.BatchValues, l.BatchCharacters),
			Hint: "merge groups, or give them shorter names"})
	}
}

func (b *builder) addAPI(masters []Member) {
	if b.policy.Outputs.APIInternal {
		b.addAddresses(apiInternal, masters, privateAddrs)
	}
	if b.policy.Outputs.APIPublic {
		b.addAddresses(apiPublic, masters, publicAddrs)
	}
}

// addressPicker returns the addresses of a member that a record lists.
type addressPicker func(Member) []netip.Addr

func privateAddrs(m Member) []netip.Addr { return []netip.Addr{m.Private, m.Private6} }
func publicAddrs(m Member) []netip.Addr  { return []netip.Addr{m.Public} }

// addAddressSets adds the A and AAAA sets of one name, or the placeholder if there is no address.
func (b *builder) addAddressSets(label string, members []Member, pick addressPicker) {
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

// addEtcd adds the names of the members and, when every declared one has an address, the SRV records.
func (b *builder) addEtcd(f Fleet, in []Member) {
	declared := etcdMembers(f)
	holders := map[string][]Member{}
	for _, m := range in {
		if m.EtcdMember != "" && oneAddr(m)[0].IsValid() {
			holders[m.EtcdMember] = append(holders[m.EtcdMember], m)
		}
	}
	names := declared
	if len(declared) == 0 {
		names = slices.Collect(maps.Keys(holders))
	}
	complete := true
	for _, name := range names {
		b.addAddressSets(memberPrefix+name, b.pickClaim(name, holders[name]), oneAddr)
		complete = complete && len(holders[name]) > 0
	}
	b.warnUndeclared(declared, holders)
	if complete {
		b.addSRV(serverSRV, role.EtcdPeerPort, declared)
		b.addSRV(clientSRV, role.EtcdClientPort, declared)
	}
}

// oneAddr returns a single address: etcd only tries the first one of a name.
func oneAddr(m Member) []netip.Addr {
	if m.Private.IsValid() {
		return []netip.Addr{m.Private}
	}
	return []netip.Addr{m.Private6}
}

// pickClaim chooses among machines that claim to be the same member: machines in service first, then the lowest id.
func (b *builder) pickClaim(name string, claims []Member) []Member {
	if len(claims) < 2 {
		return claims
	}
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

func (b *builder) warnUndeclared(declared []string, holders map[string][]Member) {
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

// addSRV adds an SRV set: priority 0, weight 0.
func (b *builder) addSRV(label string, port int, members []string) {
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
