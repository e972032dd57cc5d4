package record

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

var update = flag.Bool("update", false, "write the golden files")

// in is a machine in service.
func in(id, ip string) Member {
	return Member{InstanceID: id, Lifecycle: InService, Healthy: true, Running: true, Private: netip.MustParseAddr(ip)}
}

func (m Member) at(l Lifecycle) Member       { m.Lifecycle = l; return m }
func (m Member) holding(name string) Member  { m.EtcdMember = name; return m }
func (m Member) with6(ip string) Member      { m.Private6 = netip.MustParseAddr(ip); return m }
func (m Member) withPublic(ip string) Member { m.Public = netip.MustParseAddr(ip); return m }

func group(r role.Role, desired int, members ...Member) Group {
	return Group{Name: "demo-" + string(r), Cluster: "demo", Role: r, Desired: desired, Members: members}
}

func etcdGroup(desired int, members ...Member) Group {
	g := group(role.Etcd, desired, members...)
	g.EtcdMembers = []string{"a", "b", "c"}
	return g
}

func demo(groups ...Group) Fleet { return Fleet{Cluster: "demo", Groups: groups} }

// step is one sweep of a golden case.
type step struct {
	what  string
	fleet Fleet
	// takeOver: a person has asked for it.
	takeOver bool
}

// noon is the time of a golden case's first step; the others follow by the minute.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

var goldens = []struct {
	name   string
	policy func(*Policy)
	limits Limits
	have   []Set
	steps  []step
}{
	{name: "gates", steps: []step{
		{what: "a machine in each state", fleet: demo(
			group(role.Masters, 1, in("i-1", "10.0.0.1"), in("i-2", "10.0.0.2").at(PendingWait)),
			group(role.Minions, 9, in("i-3", "10.0.1.3"), in("i-4", "10.0.1.4").at("Standby"), in("i-5", "10.0.1.5").at(TerminatingWait),
				in("i-6", "10.0.1.6").at("Warmed:Running"), in("i-7", "10.0.1.7").at("NoSuchState"), unhealthy(in("i-8", "10.0.1.8")), stopped(in("i-9", "10.0.1.9"))),
			etcdGroup(3, in("i-10", "10.0.2.1").at(PendingWait).holding("a"), in("i-11", "10.0.2.2").at(PendingProceed).holding("b"), in("i-12", "10.0.2.3").at("Pending").holding("c")))},
	}},
	{name: "etcd", steps: []step{
		{what: "two of three: no SRV", fleet: demo(etcdGroup(3, in("i-1", "10.0.2.1").holding("a"), in("i-2", "10.0.2.2").holding("b")))},
		{what: "three: SRV", fleet: demo(etcdGroup(3, in("i-1", "10.0.2.1").holding("a"), in("i-2", "10.0.2.2").holding("b"), in("i-3", "10.0.2.3").at(PendingWait).holding("c")))},
		{what: "b is replaced: its old address drains, SRV stays", fleet: demo(etcdGroup(3, in("i-1", "10.0.2.1").holding("a"), in("i-2", "10.0.2.2").at(TerminatingWait).holding("b"), in("i-3", "10.0.2.3").holding("c")))},
		{what: "b is back elsewhere", fleet: demo(etcdGroup(3, in("i-1", "10.0.2.1").holding("a"), in("i-4", "10.0.2.4").at(PendingWait).holding("b"), in("i-3", "10.0.2.3").holding("c")))},
		{what: "c is not healthy: its address stays", fleet: demo(etcdGroup(3, in("i-1", "10.0.2.1").holding("a"), in("i-4", "10.0.2.4").holding("b"), unhealthy(in("i-3", "10.0.2.3").holding("c"))))},
		{what: "c's machine now holds b, too early", fleet: demo(etcdGroup(3, in("i-1", "10.0.2.1").holding("a"), in("i-3", "10.0.2.3").holding("b")))},
		{what: "scaled to 0", fleet: demo(etcdGroup(0))},
	}},
	{name: "fail-static", steps: []step{
		{what: "two masters", fleet: demo(group(role.Masters, 2, in("i-1", "10.0.0.1"), in("i-2", "10.0.0.2")))},
		{what: "none is healthy", fleet: demo(group(role.Masters, 2, unhealthy(in("i-1", "10.0.0.1")), unhealthy(in("i-2", "10.0.0.2"))))},
		{what: "one of them terminates", fleet: demo(group(role.Masters, 2, unhealthy(in("i-1", "10.0.0.1")), in("i-2", "10.0.0.2").at(TerminatingWait)))},
		{what: "both terminate", fleet: demo(group(role.Masters, 2, in("i-1", "10.0.0.1").at(TerminatingWait), in("i-2", "10.0.0.2").at(TerminatingProceed)))},
		{what: "a new one", fleet: demo(group(role.Masters, 2, in("i-3", "10.0.0.3")))},
		{what: "scaled to 0", fleet: demo(group(role.Masters, 0))},
	}},
	{name: "reused-address", steps: []step{
		{what: "one master", fleet: demo(group(role.Masters, 1, in("i-1", "10.0.0.1")), group(role.Minions, 1))},
		{what: "its machine is gone, and a minion has its address", fleet: demo(group(role.Masters, 1), group(role.Minions, 1, in("i-2", "10.0.0.1")))},
	}},
	{name: "etcd-vanished", steps: []step{
		{what: "three members", fleet: demo(etcdGroup(3, in("i-1", "10.0.2.1").holding("a"), in("i-2", "10.0.2.2").holding("b"), in("i-3", "10.0.2.3").holding("c")))},
		{what: "no etcd group, first sweep", fleet: demo(group(role.Masters, 0))},
		{what: "no etcd group, second sweep", fleet: demo(group(role.Masters, 0))},
	}},
	{name: "etcd-members-removed", steps: []step{
		{what: "c alone: no SRV yet", fleet: demo(etcdGroup(3, in("i-3", "10.0.2.3").holding("c")))},
		{what: "c is not declared any more", fleet: demo(declaring(etcdGroup(3, in("i-1", "10.0.2.1").holding("a"), in("i-2", "10.0.2.2").holding("b")), "a", "b"))},
		{what: "nor is b, and SRV stays", fleet: demo(declaring(etcdGroup(3, in("i-1", "10.0.2.1").holding("a")), "a"))},
	}},
	{name: "vanished", steps: []step{
		{what: "masters and minions", fleet: demo(group(role.Masters, 1, in("i-1", "10.0.0.1")), group(role.Minions, 2, in("i-2", "10.0.1.2"), in("i-3", "10.0.1.3")))},
		{what: "no minions group", fleet: demo(group(role.Masters, 1, in("i-1", "10.0.0.1")))},
		{what: "it is back", fleet: demo(group(role.Masters, 1, in("i-1", "10.0.0.1")), group(role.Minions, 2, in("i-2", "10.0.1.2"), in("i-3", "10.0.1.3")))},
		{what: "gone, first sweep", fleet: demo(group(role.Masters, 1, in("i-1", "10.0.0.1")))},
		{what: "gone, second sweep", fleet: demo(group(role.Masters, 1, in("i-1", "10.0.0.1")))},
		{what: "the whole cluster, first sweep", fleet: demo()},
		{what: "the whole cluster, second sweep", fleet: demo()},
		{what: "and the third", fleet: demo()},
	}},
	{name: "api", policy: func(p *Policy) { p.Outputs = Outputs{Roles: true, APIInternal: true, APIPublic: true} }, steps: []step{
		{what: "dual stack, one public address", fleet: demo(group(role.Masters, 2, in("i-1", "10.0.0.1").with6("fd00::1").withPublic("198.51.100.7"), in("i-2", "10.0.0.2").with6("fd00::2")))},
	}},
	{name: "public-zone", policy: func(p *Policy) { p.Outputs, p.Suffix = Outputs{APIPublic: true}, "example.com" }, steps: []step{
		{what: "only the masters' public addresses", fleet: demo(group(role.Masters, 2, in("i-1", "10.0.0.1").withPublic("198.51.100.7")), group(role.Minions, 1, in("i-2", "10.0.1.2").withPublic("198.51.100.8")))},
	}},
	{name: "unknown-cluster", have: []Set{{Name: "www.demo.k8s.", Type: A, TTL: DefaultTTL, Values: []string{"10.9.9.9"}}}, steps: []step{
		{what: "nobody has made it", fleet: demo()},
	}},
	{name: "foreign", have: []Set{
		{Name: "demo.k8s.", Type: "NS", TTL: DefaultTTL, Values: []string{"ns.example."}},
		{Name: "masters.demo.k8s.", Type: TXT, TTL: DefaultTTL, Values: []string{"a note"}},
		{Name: "minions.demo.k8s.", Type: "CNAME", TTL: DefaultTTL, Values: []string{"elsewhere.example."}},
		{Name: "www.demo.k8s.", Type: A, TTL: DefaultTTL, Values: []string{"10.9.9.9"}},
	}, steps: []step{
		{what: "others' records stay, and one is in the way", fleet: demo(group(role.Masters, 1, in("i-1", "10.0.0.1")))},
	}},
	{name: "neighbours", have: []Set{
		{Name: "masters.demo.k8s.", Type: TXT, TTL: DefaultTTL, Values: []string{"a note"}},
		{Name: "www.demo.k8s.", Type: A, TTL: DefaultTTL, Values: []string{"10.9.9.9"}},
	}, steps: []step{
		{what: "others' records stay", fleet: demo(group(role.Masters, 1, in("i-1", "10.0.0.1")))},
	}},
	{name: "control-record-lost", have: []Set{{Name: "minions.demo.k8s.", Type: A, TTL: DefaultTTL, Values: []string{"10.0.1.1"}}}, steps: []step{
		{what: "nobody remembers the minions' group, and nothing is changed", fleet: demo(group(role.Masters, 0))},
		{what: "a person takes the records over: the minions stay for a minute", fleet: demo(group(role.Masters, 0)), takeOver: true},
		{what: "a minute later", fleet: demo(group(role.Masters, 0))},
	}},
	{name: "control-record-never", have: []Set{
		{Name: "etcd.demo.k8s.", Type: A, TTL: DefaultTTL, Values: []string{"10.0.2.1"}},
		{Name: "masters.demo.k8s.", Type: A, TTL: DefaultTTL, Values: []string{"10.0.0.1"}},
		{Name: "minions.demo.k8s.", Type: A, TTL: DefaultTTL, Values: []string{"10.0.1.1"}},
	}, steps: []step{
		{what: "three records are named", fleet: demo(group(role.Masters, 1, in("i-1", "10.0.0.1")))},
	}},
	{name: "control-record-never-of-many", have: []Set{
		{Name: "etcd.demo.k8s.", Type: A, TTL: DefaultTTL, Values: []string{"10.0.2.1"}},
		{Name: "masters.demo.k8s.", Type: A, TTL: DefaultTTL, Values: []string{"10.0.0.1"}},
		{Name: "masters.demo.k8s.", Type: AAAA, TTL: DefaultTTL, Values: []string{"fd00::1"}},
		{Name: "minions.demo.k8s.", Type: A, TTL: DefaultTTL, Values: []string{"10.0.1.1"}},
		{Name: "minions.demo.k8s.", Type: AAAA, TTL: DefaultTTL, Values: []string{"fd00::2"}},
	}, steps: []step{
		{what: "some of five", fleet: demo(group(role.Masters, 1, in("i-1", "10.0.0.1")))},
	}},
	{name: "untagged", steps: []step{
		{what: "one of two lacks the tag", fleet: demo(group(role.Minions, 2, in("i-1", "10.0.1.1"), untagged(in("i-2", "10.0.1.2"))))},
	}},
	{name: "owners", steps: []step{
		{what: "the first fleet", fleet: owned("aws:1:eu", group(role.Masters, 1, in("i-1", "10.0.0.1")))},
		{what: "another fleet: nothing is changed", fleet: owned("rack/machines.yaml", group(role.Masters, 1, in("m-1", "10.9.0.1")))},
		{what: "the first fleet without groups keeps its owner", fleet: demo()},
		{what: "and lets its group go", fleet: demo()},
		{what: "the other fleet takes over, with a group of another name", fleet: owned("rack/machines.yaml", named("rack", group(role.Masters, 1, in("m-1", "10.9.0.1")))), takeOver: true},
		{what: "the first fleet is refused now", fleet: owned("aws:1:eu", group(role.Masters, 1, in("i-1", "10.0.0.1")))},
		{what: "an owner that needs a digest, taken over", fleet: owned("a b\"c", group(role.Masters, 1, in("i-1", "10.0.0.1"))), takeOver: true},
	}},
	{name: "owner-claims", have: Diff(nil, Placeholders("demo", DefaultPolicy()), "g0").Create, steps: []step{
		{what: "placeholders are nobody's in particular", fleet: owned("aws:1:eu", group(role.Masters, 1, in("i-1", "10.0.0.1")))},
		{what: "nothing changes", fleet: owned("aws:1:eu", group(role.Masters, 1, in("i-1", "10.0.0.1")))},
	}},
	{name: "owner-public", policy: func(p *Policy) { p.Outputs, p.Suffix = Outputs{APIPublic: true}, "example.com" }, steps: []step{
		{what: "digests in a public zone", fleet: owned("aws:1:eu", group(role.Masters, 1, in("i-1", "10.0.0.1").withPublic("198.51.100.7")))},
	}},
	{name: "owner-another-program", have: []Set{
		{Name: "_hardtack.demo.k8s.", Type: TXT, TTL: DefaultTTL, Values: []string{"generation=g0", "owner=somebody-else"}},
	}, steps: []step{
		{what: "nothing is changed", fleet: demo(group(role.Masters, 1, in("i-1", "10.0.0.1")))},
	}},
	{name: "owner-external-dns", have: []Set{
		{Name: "a-masters.demo.k8s.", Type: TXT, TTL: DefaultTTL, Values: []string{"heritage=external-dns,external-dns/owner=default"}},
		{Name: "a-www.demo.k8s.", Type: TXT, TTL: DefaultTTL, Values: []string{"heritage=external-dns,external-dns/owner=default"}},
		{Name: "masters.demo.k8s.", Type: A, TTL: DefaultTTL, Values: []string{"10.9.9.9"}},
		{Name: "www.demo.k8s.", Type: A, TTL: DefaultTTL, Values: []string{"10.9.9.9"}},
	}, steps: []step{
		{what: "nothing is changed", fleet: demo(group(role.Masters, 1, in("i-1", "10.0.0.1")))},
		{what: "nor by a person who would take it over", fleet: demo(group(role.Masters, 1, in("i-1", "10.0.0.1"))), takeOver: true},
	}},
	{name: "owner-external-dns-beside", have: []Set{
		{Name: "a-www.demo.k8s.", Type: TXT, TTL: DefaultTTL, Values: []string{"heritage=external-dns,external-dns/owner=default"}},
		{Name: "www.demo.k8s.", Type: A, TTL: DefaultTTL, Values: []string{"10.9.9.9"}},
	}, steps: []step{
		{what: "its records stay, and ours are made", fleet: demo(group(role.Masters, 1, in("i-1", "10.0.0.1")))},
	}},
	{name: "role-lost", steps: []step{
		{what: "masters, two groups of minions", fleet: demo(group(role.Masters, 1, in("i-1", "10.0.0.1")), group(role.Minions, 1, in("i-2", "10.0.1.2")), named("more", group(role.Minions, 1, in("i-3", "10.0.1.3"))))},
		{what: "one lost its role, and a bastion never had one", fleet: lost()},
		{what: "a minute later it still stays", fleet: lost()},
		{what: "its machine is terminated: that one leaves", fleet: lost(in("i-3", "10.0.1.3").at(TerminatingWait))},
		{what: "its role is back", fleet: demo(group(role.Masters, 1, in("i-1", "10.0.0.1")), group(role.Minions, 1, in("i-2", "10.0.1.2")), named("more", group(role.Minions, 1, in("i-4", "10.0.1.4"))))},
	}},
	{name: "addresses", steps: []step{
		{what: "odd ones", fleet: demo(group(role.Minions, 6,
			in("i-1", "::ffff:10.0.1.1"), in("i-2", "127.0.0.1"), in("i-3", "169.254.1.1"), in("i-4", "fd00::4"),
			in("i-5", "192.0.2.1"), Member{InstanceID: "i-6", Lifecycle: InService, Healthy: true, Running: true}))},
	}},
	{name: "sharded", limits: Limits{BatchValues: 9}, policy: func(p *Policy) { p.Subset = 3 }, steps: []step{
		{what: "six minions where a set takes four", fleet: demo(group(role.Minions, 6, in("i-1", "10.0.1.1"), in("i-2", "10.0.1.2"), in("i-3", "10.0.1.3"), in("i-4", "10.0.1.4"), in("i-5", "10.0.1.5"), in("i-6", "10.0.1.6")))},
		{what: "one drains while no other is healthy", fleet: demo(group(role.Minions, 6, unhealthy(in("i-1", "10.0.1.1")), in("i-2", "10.0.1.2").at(TerminatingWait)))},
		{what: "four are one set again", fleet: demo(group(role.Minions, 4, in("i-1", "10.0.1.1"), in("i-2", "10.0.1.2"), in("i-3", "10.0.1.3"), in("i-4", "10.0.1.4")))},
	}},
	{name: "bad-input", have: Diff(nil, Placeholders("demo", DefaultPolicy()), "g0").Create, steps: []step{
		{what: "everything at once", fleet: Fleet{Cluster: "demo", Groups: []Group{
			{Name: "a", Cluster: "Demo_1", Role: role.Masters},
			{Name: "b", Cluster: "demo", Role: "master", Desired: -1, Members: []Member{{}}},
			{Name: "c", Cluster: "demo", Role: role.Etcd, EtcdMembers: []string{"A", strings.Repeat("x", 60), "-"}},
			{Name: "d", Cluster: "demo", Role: role.Minions}, {Name: "d", Cluster: "demo", Role: role.Minions},
			{Cluster: "demo", Role: role.Minions},
		}}},
		{what: "the cluster's name", fleet: Fleet{Cluster: "two.labels", Groups: []Group{{Name: "a", Cluster: "two.labels", Role: role.Masters}}}},
		{what: "a machine's own tag", fleet: demo(etcdGroup(3, in("i-1", "10.0.2.1").holding("A!"), in("i-2", "10.0.2.2").holding("d"), in("i-3", "10.0.2.3").holding("a").at(PendingWait), in("i-4", "10.0.2.4").holding("a")))},
	}},
	{name: "bad-policy", policy: func(p *Policy) { *p = Policy{TTL: 1500000, Suffix: "k8s..local", Subset: -1} }, steps: []step{
		{what: "everything at once", fleet: demo(group(role.Masters, 1))},
	}},
}

func declaring(g Group, members ...string) Group { g.EtcdMembers = members; return g }

func named(name string, g Group) Group { g.Name = name; return g }

func owned(by string, groups ...Group) Fleet {
	return Fleet{Cluster: "demo", Groups: groups, Owner: by}
}

// lost is the demo fleet whose group more has the mistyped role "minion", with these machines or its first, and a bastion
// without any.
func lost(members ...Member) Fleet {
	if members == nil {
		members = []Member{in("i-3", "10.0.1.3")}
	}
	return demo(group(role.Masters, 1, in("i-1", "10.0.0.1")), group(role.Minions, 1, in("i-2", "10.0.1.2")),
		Group{Name: "more", Cluster: "demo", Role: "minion", Desired: 1, Members: members},
		Group{Name: "bastion", Cluster: "demo", Desired: 1, Members: []Member{in("i-9", "10.0.9.9")}})
}

func unhealthy(m Member) Member { m.Healthy = false; return m }
func untagged(m Member) Member  { m.Untagged = true; return m }
func stopped(m Member) Member   { m.Running = false; return m }

// TestGolden sweeps through each case's readings, with a strict store between them, and compares what
// is published and said with testdata.
func TestGolden(t *testing.T) {
	for _, tt := range goldens {
		t.Run(tt.name, func(t *testing.T) {
			p := DefaultPolicy()
			if tt.policy != nil {
				tt.policy(&p)
			}
			var b strings.Builder
			have := tt.have
			for i, s := range tt.steps {
				s.fleet.At = noon.Add(time.Duration(i) * time.Minute)
				p.TakeOver = s.takeOver
				fmt.Fprintf(&b, "# %s\n", s.what)
				desired, problems := Desired(s.fleet, p, tt.limits)
				want, more := Guard(desired, have, s.fleet, p)
				for _, x := range append(problems, more...) {
					fmt.Fprintf(&b, "! %s: %s\n", x.Rule, x)
				}
				if problems.Err() != nil && !Diff(have, want, "bad").Empty() {
					t.Errorf("step %q has errors and would change %+v", s.what, Diff(have, want, "bad"))
				}
				have = commit(t, have, Diff(have, want, fmt.Sprintf("g%d", i+1)))
				b.WriteString(text(have) + "\n")
			}
			golden(t, tt.name+".txt", b.String())
		})
	}
}

func text(sets []Set) string {
	var b strings.Builder
	for _, s := range sets {
		fmt.Fprintf(&b, "%s %d %s %s\n", s.Name, int(s.TTL.Seconds()), s.Type, strings.Join(s.Values, ", "))
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (run with -update after reading the difference):\n%s", file, diff)
	}
}

// commit applies a change as a strict server does, or fails the test.
func commit(t *testing.T, have []Set, c Change) []Set {
	t.Helper()
	left := map[string]Set{}
	for _, s := range have {
		left[s.Name+" "+s.Type] = s
	}
	for _, s := range c.Remove {
		key := s.Name + " " + s.Type
		if old, ok := left[key]; !ok || !cmp.Equal(old, s) {
			t.Fatalf("the change removes %+v, the store has %+v", s, old)
		}
		delete(left, key)
	}
	for _, s := range c.Create {
		key := s.Name + " " + s.Type
		if old, ok := left[key]; ok {
			t.Fatalf("the change creates %+v beside %+v", s, old)
		}
		left[key] = s
	}
	var out []Set
	for _, s := range left {
		out = append(out, s)
	}
	sortSets(out)
	if applied := c.Apply(have); !cmp.Equal(applied, out) && len(applied)+len(out) > 0 {
		t.Fatalf("Apply differs from a strict store:\n%s", cmp.Diff(out, applied))
	}
	return out
}

func TestKeeps(t *testing.T) {
	tests := []struct {
		name, kind, value string
		keeps             bool
	}{
		{"masters.demo.k8s.", A, "10.0.0.1", true},
		{"masters", A, "10.0.0.1", false},
		{"minions.demo.k8s.", AAAA, "fd00::1", true},
		{"minions.demo.k8s.", TXT, "count=812", true},
		{"minions.demo.k8s.", TXT, "a note", false},
		{"minions.demo.k8s.", "CNAME", "x.", false},
		{"minions.demo.k8s.", "SPF", "count=812", false},
		{"minions-0.demo.k8s.", A, "10.0.0.1", true},
		{"minions-0.demo.k8s.", TXT, "count=812", false},
		{"minions-01.demo.k8s.", A, "10.0.0.1", false},
		{"minions--1.demo.k8s.", A, "10.0.0.1", false},
		{"minions-x.demo.k8s.", A, "10.0.0.1", false},
		{"etcd-0.demo.k8s.", A, "10.0.0.1", true},
		{"etcd-0.demo.k8s.", TXT, "a note", false},
		{"etcd-a.x.demo.k8s.", A, "10.0.0.1", false},
		{"_etcd-server-ssl._tcp.demo.k8s.", SRV, "0 0 2380 etcd-a.demo.k8s.", true},
		{"_etcd-server-ssl._tcp.demo.k8s.", "CNAME", "x.", false},
		{"_etcd-server._tcp.demo.k8s.", SRV, "0 0 2380 etcd-a.demo.k8s.", false},
		{"api.demo.k8s.", A, "10.0.0.1", true},
		{"api.internal.demo.k8s.", A, "10.0.0.1", true},
		{"_hardtack.demo.k8s.", TXT, ownerValue, true},
		{"_hardtack.demo.k8s.", A, "10.0.0.1", false},
		{"demo.k8s.", "SOA", "x", false},
		{"masters.other.k8s.", A, "10.0.0.1", false},
		{"masters.demo.k8s.example.", A, "10.0.0.1", false},
	}
	for _, tt := range tests {
		s := Set{Name: tt.name, Type: tt.kind, TTL: DefaultTTL, Values: []string{tt.value}}
		if got := Managed(s, "demo", DefaultPolicy()); got != tt.keeps {
			t.Errorf("Keeps(%s %s %q) = %v, want %v", tt.name, tt.kind, tt.value, got, tt.keeps)
		}
	}
}

func TestGeneration(t *testing.T) {
	p := DefaultPolicy()
	want := Placeholders("demo", p)
	if g, ok := Generation(want, "demo"); ok {
		t.Errorf("desired sets have the generation %q before a change gives them one", g)
	}
	have := commit(t, nil, Diff(nil, want, "one"))
	if g, ok := Generation(have, "demo"); g != "one" || !ok {
		t.Errorf("the generation is %q, %v, want one", g, ok)
	}
	if g, ok := Generation(have, "dem"); ok {
		t.Errorf("another cluster has the generation %q", g)
	}
	if c := Diff(want, want, "first"); len(c.Create) != 1 || !isControl(c.Create[0]) || len(c.Remove) != 1 {
		t.Errorf("records without a generation are given one by %+v", c)
	}
	if c := Diff(have, want, "two"); !c.Empty() {
		t.Errorf("nothing has changed, and yet: %+v", c)
	}
	p.TTL *= 2
	c := Diff(have, Placeholders("demo", p), "two")
	if len(c.Remove) != len(have) || len(c.Create) != len(have) {
		t.Errorf("another TTL changes %d and %d sets of %d", len(c.Remove), len(c.Create), len(have))
	}
	if g, _ := Generation(commit(t, have, c), "demo"); g != "two" {
		t.Errorf("the generation is %q, want two", g)
	}
}

// TestOutputTurnedOff: what the policy does not publish any more is never kept.
func TestOutputTurnedOff(t *testing.T) {
	p := DefaultPolicy()
	p.Outputs.APIInternal = true
	f := demo(group(role.Masters, 1, in("i-1", "10.0.0.1")))
	desired, _ := Desired(f, p, Limits{})
	have := commit(t, nil, Diff(nil, desired, "one"))
	p.Outputs.APIInternal = false
	f.Groups[0].Members[0].Healthy = false
	desired, _ = Desired(f, p, Limits{})
	want, _ := Guard(desired, have, f, p)
	have = commit(t, have, Diff(have, want, "two"))
	if got := text(have); strings.Contains(got, apiInternal) || !strings.Contains(got, "masters.demo.k8s. 5 A 10.0.0.1\n") {
		t.Errorf("without the internal API name:\n%s", got)
	}
}

func TestDiffWithoutControlChangesNothing(t *testing.T) {
	have := Placeholders("demo", DefaultPolicy())
	if c := Diff(have, nil, "x"); !c.Empty() {
		t.Errorf("no desired sets would change %+v", c)
	}
}

func TestManyGroups(t *testing.T) {
	var old, renewed []Group
	for i := range 60 {
		old = append(old, Group{Name: fmt.Sprint("old", i), Cluster: "demo", Role: role.Minions, Desired: 1, Members: []Member{in(fmt.Sprint("i-", i), fmt.Sprint("10.0.1.", i+1))}})
		renewed = append(renewed, Group{Name: fmt.Sprint("new", i), Cluster: "demo", Role: role.Minions, Desired: 1})
	}
	p := DefaultPolicy()
	want, problems := Desired(demo(old...), p, bind)
	have := commit(t, nil, Diff(nil, want, "one"))
	desired, more := Desired(demo(renewed...), p, bind)
	if err := append(problems, more...).Err(); err != nil {
		t.Fatal(err)
	}
	late := demo(renewed...)
	late.At = noon
	want, _ = Guard(desired, have, late, p)
	if values := want[0].Values; len(values) > 100-1 || !slices.Contains(values, fmt.Sprintf("vanished=minions/@%d", noon.Unix())) {
		t.Errorf("60 groups that become 60 others give a control record of %d values: %q", len(values), values)
	}
	if sets, problems := Desired(demo(append(old, renewed...)...), p, bind); sets != nil || problems.Err() == nil || problems[0].Rule != "too-many-groups" {
		t.Errorf("120 groups where a set takes 100: %d sets, %v", len(sets), problems)
	}
}

func TestEtcdIsNotSharded(t *testing.T) {
	var members []Member
	for i := range 5 {
		members = append(members, in(fmt.Sprint("i-", i), fmt.Sprint("10.0.2.", i+1)))
	}
	sets, problems := Desired(demo(etcdGroup(5, members...)), DefaultPolicy(), Limits{BatchValues: 9})
	if sets != nil || problems.Err() == nil || problems[0].Rule != "too-many-values" || problems[0].Field == "" || problems[0].Severity != problem.Error {
		t.Errorf("Desired = %v, %v, want an error and no sets", sets, problems)
	}
}
