package record

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// expect compares one set's values; none is no set.
func expect(t *testing.T, what string, sets []Set, label, kind string, want ...string) {
	t.Helper()
	if got := at(sets, label+".demo.k8s.", kind); !slices.Equal(got, want) {
		t.Errorf("%s: %s %s is %v, not %v", what, label, kind, got, want)
	}
}

// TestLastAddresses: of every name that the policy publishes the last addresses stay, of both families; a name that it does not
// publish any more is gone.
func TestLastAddresses(t *testing.T) {
	well := in("i-1", "10.0.0.1").with6("fd00::1").withPublic("198.51.100.1")
	fleet := func(m Member) Fleet { return demo(group(role.Masters, 1, m)) }
	all := Outputs{Roles: true, APIInternal: true, APIPublic: true}
	for _, left := range []Outputs{all, {Roles: true}, {APIInternal: true}, {APIPublic: true}} {
		p := DefaultPolicy()
		p.Outputs = all
		have := next(t, nil, fleet(well), p, "g1")
		p.Outputs = left
		// Without the roles' names a zone has digests of the groups' names, and lets go of the names after a while.
		f := fleet(unhealthy(well))
		f.At = noon
		have = next(t, have, f, p, "g2")
		f.At = noon.Add(time.Hour)
		have = next(t, have, f, p, "g3")
		for label, on := range map[string]bool{"masters": left.Roles, "api.internal": left.APIInternal, "api": left.APIPublic} {
			a, aaaa := []string{"10.0.0.1"}, []string{"fd00::1"}
			if label == "api" {
				a, aaaa = []string{"198.51.100.1"}, nil
			}
			if !on {
				a, aaaa = nil, nil
			}
			expect(t, "unhealthy", have, label, A, a...)
			expect(t, "unhealthy", have, label, AAAA, aaaa...)
		}
	}
	// A name of IPv6 alone.
	six := well
	six.Private = netip.Addr{}
	have := next(t, nil, fleet(six), DefaultPolicy(), "g1")
	have = next(t, have, fleet(unhealthy(six)), DefaultPolicy(), "g2")
	expect(t, "IPv6 alone", have, "masters", AAAA, "fd00::1")
	expect(t, "IPv6 alone", have, "masters", A)
}

// TestSharedAddress: the last address stays while a machine of the name's role that does not leave has it, whoever else has.
func TestSharedAddress(t *testing.T) {
	staying, leaving := unhealthy(in("i-1", "10.0.0.1")), in("i-2", "10.0.0.1").at(TerminatingWait)
	for name, tt := range map[string]struct {
		groups []Group
		stays  bool
	}{
		"it stays":                       {[]Group{group(role.Masters, 1, staying)}, true},
		"nobody has it":                  {[]Group{group(role.Masters, 1)}, true},
		"it leaves":                      {[]Group{group(role.Masters, 1, leaving)}, false},
		"one stays, another leaves":      {[]Group{group(role.Masters, 1, staying, leaving)}, true},
		"one leaves, another stays":      {[]Group{group(role.Masters, 1, leaving, staying)}, true},
		"a minion has it":                {[]Group{group(role.Masters, 1), group(role.Minions, 1, staying)}, false},
		"a minion has it too":            {[]Group{group(role.Masters, 1, staying), group(role.Minions, 1, staying)}, true},
		"a minion that leaves":           {[]Group{group(role.Masters, 1, staying), group(role.Minions, 1, leaving)}, true},
		"one that has no role leaves":    {[]Group{group(role.Masters, 1), {Name: "x", Cluster: "demo", Members: []Member{leaving}}}, false},
		"one that has no role stays":     {[]Group{group(role.Masters, 1), {Name: "x", Cluster: "demo", Members: []Member{staying}}}, true},
		"one without a role leaves, too": {[]Group{group(role.Masters, 1, staying), {Name: "x", Cluster: "demo", Members: []Member{leaving}}}, true},
	} {
		p := DefaultPolicy()
		have := next(t, nil, demo(group(role.Masters, 1, in("i-1", "10.0.0.1"))), p, "g1")
		have = next(t, have, demo(tt.groups...), p, "g2")
		want := []string{"192.0.2.1"}
		if tt.stays {
			want = []string{"10.0.0.1"}
		}
		expect(t, name, have, "masters", A, want...)
	}
}

// TestMembersName: a member's last address stays while no other member has it, whoever else has.
func TestMembersName(t *testing.T) {
	a, b := in("i-1", "10.0.2.1").holding("a"), in("i-2", "10.0.2.2").holding("b")
	for name, tt := range map[string]struct {
		groups []Group
		want   []string // the address of etcd-b
	}{
		"its machine has lost its tag":         {[]Group{etcdGroup(3, a, b.holding(""))}, []string{"10.0.2.2"}},
		"and is a master as well":              {[]Group{etcdGroup(3, a, b.holding("")), group(role.Masters, 1, b)}, []string{"10.0.2.2"}},
		"its machine is another member":        {[]Group{etcdGroup(3, a, b.holding("c"))}, []string{"192.0.2.1"}},
		"it is not declared any more":          {[]Group{declaring(etcdGroup(3, a), "a")}, nil},
		"nobody declares members any more":     {[]Group{declaring(etcdGroup(3, a))}, []string{"10.0.2.2"}},
		"its group is missing":                 {[]Group{named("other", declaring(group(role.Etcd, 1, a), "a"))}, []string{"10.0.2.2"}},
		"another group of the role is missing": {[]Group{named("other", etcdGroup(3, a, b))}, []string{"10.0.2.2"}},
	} {
		have := next(t, nil, demo(etcdGroup(3, a, b)), DefaultPolicy(), "g1")
		expect(t, "before", have, "etcd-b", A, "10.0.2.2")
		have = next(t, have, demo(tt.groups...), DefaultPolicy(), "g2")
		expect(t, name, have, "etcd-b", A, tt.want...)
		expect(t, name, have, "etcd-a", A, "10.0.2.1")
	}
}

// TestControlPlaneOfOne: a machine that is a master and a member of etcd keeps its masters' address while etcd lists it alone.
func TestControlPlaneOfOne(t *testing.T) {
	m := in("i-1", "10.0.0.1").holding("a")
	have := next(t, nil, demo(group(role.Masters, 1, m), etcdGroup(1, m)), DefaultPolicy(), "g1")
	m = m.at(PendingWait)
	have = next(t, have, demo(group(role.Masters, 1, m), etcdGroup(1, m)), DefaultPolicy(), "g2")
	for _, label := range []string{"masters", "etcd", "etcd-a"} {
		expect(t, "starting again", have, label, A, "10.0.0.1")
	}
}

// TestServiceKept: while etcd's groups want machines, the services keep all their members, and every member has a name.
func TestServiceKept(t *testing.T) {
	const service = "_etcd-client-ssl._tcp"
	a, b, c := in("i-1", "10.0.2.1").holding("a"), in("i-2", "10.0.2.2").holding("b"), in("i-3", "10.0.2.3").holding("c")
	p := DefaultPolicy()
	three := next(t, nil, demo(etcdGroup(3, a, b, c)), p, "g1")
	all := at(three, service+".demo.k8s.", SRV)
	if len(all) != 3 {
		t.Fatalf("the service has %v", all)
	}

	// The name of one was removed by hand.
	without := slices.DeleteFunc(slices.Clone(three), func(s Set) bool { return s.Name == "etcd-b.demo.k8s." })
	have := next(t, without, demo(declaring(etcdGroup(3, a, c), "a", "c")), p, "g2")
	expect(t, "a name that is gone", have, service, SRV, all...)
	expect(t, "a name that is gone", have, "etcd-b", A, "192.0.2.1")

	// It follows the policy's TTL all the same.
	slow := p
	slow.TTL = time.Minute
	have = next(t, three, demo(etcdGroup(3, a, b)), slow, "g2")
	expect(t, "another TTL", have, service, SRV, all...)
	for _, s := range have {
		if s.TTL != time.Minute {
			t.Errorf("another TTL: %s %s has %v", s.Name, s.Type, s.TTL)
		}
	}

	// What a person has added to it is no member of ours.
	edited := slices.Clone(three)
	i := slices.IndexFunc(edited, func(s Set) bool { return s.Name == service+".demo.k8s." })
	edited[i].Values = append(slices.Clone(all), "0 0 2379 www.demo.k8s.")
	have = next(t, edited, demo(etcdGroup(3, a, b)), p, "g2")
	expect(t, "a target of others", have, service, SRV, edited[i].Values...)
	expect(t, "a target of others", have, "www", A)

	// It goes with the output, and with the last machine that is wanted.
	api := p
	api.Outputs = Outputs{APIInternal: true}
	expect(t, "another output", next(t, three, demo(etcdGroup(3, a, b, c), group(role.Masters, 0)), api, "g2"), service, SRV)
	expect(t, "scaled to none", next(t, three, demo(etcdGroup(0)), p, "g2"), service, SRV)
}

// TestCountOfThoseLeft: the number beside shards is lowered by the machines that have left, not by their addresses.
func TestCountOfThoseLeft(t *testing.T) {
	const n = 60
	l := Limits{BatchValues: 50}
	ill := func(f Fleet) Fleet {
		for i := range f.Groups[0].Members {
			f.Groups[0].Members[i].Healthy = false
		}
		return f
	}
	gone := many(n).Groups[0].Members[0]
	for name, tt := range map[string]struct {
		change func(*Fleet)
		count  string
	}{
		"all are ill":               {func(*Fleet) {}, "count=60"},
		"one of two addresses ends": {func(f *Fleet) { f.Groups[0].Members[0].Lifecycle = TerminatingWait }, "count=59"},
		"two end": {func(f *Fleet) {
			f.Groups[0].Members[0].Lifecycle, f.Groups[0].Members[1].Lifecycle = TerminatingWait, TerminatingWait
		}, "count=58"},
		"one is gone": {func(f *Fleet) { f.Groups[0].Members = f.Groups[0].Members[1:] }, "count=60"},
		"and a master has its address": {func(f *Fleet) {
			f.Groups[0].Members = f.Groups[0].Members[1:]
			f.Groups = append(f.Groups, group(role.Masters, 1, in("i-m", gone.Private.String())))
		}, "count=59"},
		"a machine without an address ends": {func(f *Fleet) {
			f.Groups[0].Members = append(f.Groups[0].Members, Member{InstanceID: "i-none", Lifecycle: TerminatingWait})
		}, "count=60"},
	} {
		desired, _ := Desired(many(n), DefaultPolicy(), l)
		have := Diff(nil, desired, "g1").Create
		shards := shardsOf(have, role.Minions)
		f := ill(many(n))
		tt.change(&f)
		desired, _ = Desired(f, DefaultPolicy(), l)
		want, _ := Guard(desired, have, f, DefaultPolicy())
		if got := at(want, "minions.demo.k8s.", TXT); shards == 0 || len(got) != 2 || got[0] != tt.count || shardsOf(want, role.Minions) != shards {
			t.Errorf("%s: %v, and before %d shards", name, got, shards)
		}
	}
}

// TestShardsEnd: when all machines of a role with shards have left, the shards and their count go with the next sweep.
func TestShardsEnd(t *testing.T) {
	l := Limits{BatchValues: 50}
	f := many(60)
	desired, _ := Desired(f, DefaultPolicy(), l)
	have := Diff(nil, desired, "g1").Create
	for i := range f.Groups[0].Members {
		f.Groups[0].Members[i].Lifecycle = TerminatingWait
	}
	have = next(t, have, f, DefaultPolicy(), "g2")
	f.Groups[0].Members = nil
	have = next(t, have, f, DefaultPolicy(), "g3")
	if got := text(have); got != "_hardtack.demo.k8s. 5 TXT generation=g3, group=minions/demo-minions, owner=hardtack\n"+
		"etcd.demo.k8s. 5 A 192.0.2.1\nmasters.demo.k8s. 5 A 192.0.2.1\nminions.demo.k8s. 5 A 192.0.2.1\n" {
		t.Errorf("what is left:\n%s", got)
	}
}
