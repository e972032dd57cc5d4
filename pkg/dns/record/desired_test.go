package record

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// TestOneAddressOfAFamily: a machine is published with one address of each family, whichever of its two private ones that is, and
// the first where both are of one family.
func TestOneAddressOfAFamily(t *testing.T) {
	addr := func(text string) netip.Addr {
		a, _ := netip.ParseAddr(text)
		return a
	}
	for _, tt := range []struct {
		private, private6 string
		a, aaaa           []string
	}{
		{"10.0.1.1", "fd00::1", []string{"10.0.1.1"}, []string{"fd00::1"}},
		{"fd00::1", "10.0.1.1", []string{"10.0.1.1"}, []string{"fd00::1"}},
		{"10.0.1.1", "10.0.1.2", []string{"10.0.1.1"}, nil},
		{"fd00::1", "fd00::2", nil, []string{"fd00::1"}},
		{"::ffff:10.0.1.1", "", []string{"10.0.1.1"}, nil},
		{"", "fd00::1", nil, []string{"fd00::1"}},
	} {
		m := in("i-1", "10.0.9.9")
		m.Private, m.Private6 = addr(tt.private), addr(tt.private6)
		sets, found := Desired(demo(group(role.Minions, 1, m)), DefaultPolicy(), Limits{})
		a, aaaa := at(sets, "minions.demo.k8s.", A), at(sets, "minions.demo.k8s.", AAAA)
		if len(found) > 0 || !slices.Equal(a, tt.a) || !slices.Equal(aaaa, tt.aaaa) {
			t.Errorf("%q and %q are published as %v and %v, with %v", tt.private, tt.private6, a, aaaa, found)
		}
	}
}

// TestUnreachable: an address that other machines cannot reach is left out, and so said.
func TestUnreachable(t *testing.T) {
	for address, reachable := range map[string]bool{
		"10.0.1.1": true, "8.8.8.8": true, "fd00::1": true, "2001:db8::1": true,
		"0.0.0.0": false, "::": false, "127.0.0.1": false, "::1": false, "224.0.0.1": false, "ff02::1": false, "169.254.1.1": false, "fe80::1": false,
		"fd00::1%eth0": false, "192.0.2.1": false, "::ffff:192.0.2.1": false, "::ffff:127.0.0.1": false,
	} {
		sets, found := Desired(demo(group(role.Minions, 2, in("i-1", "10.0.1.9"), in("i-2", address))), DefaultPolicy(), Limits{})
		listed := len(at(sets, "minions.demo.k8s.", A))+len(at(sets, "minions.demo.k8s.", AAAA)) == 2
		said := slices.ContainsFunc(found, func(p problem.Problem) bool { return p.Rule == "address" && strings.Contains(p.Field, "i-2") })
		if listed != reachable || said == reachable || found.Err() != nil {
			t.Errorf("%s is listed: %v, with %v", address, listed, found)
		}
	}
}

// TestMemberNames: what makes no name in DNS is an error where groups declare it, and left out where a machine claims it.
func TestMemberNames(t *testing.T) {
	for name, good := range map[string]bool{
		"a": true, "0": true, "a-b": true, strings.Repeat("x", maxLabel-len("etcd-")): true,
		"": false, "-a": false, "a-": false, "A": false, "a.b": false, strings.Repeat("x", maxLabel-len("etcd-")+1): false,
	} {
		if _, found := Desired(demo(declaring(group(role.Etcd, 1), name)), DefaultPolicy(), Limits{}); (found.Err() == nil) != good {
			t.Errorf("%q is declared: %v", name, found)
		}
		sets, found := Desired(demo(group(role.Etcd, 1, in("i-1", "10.0.2.1").holding(name))), DefaultPolicy(), Limits{})
		if listed := at(sets, "etcd-"+name+".demo.k8s.", A) != nil; listed != good || found.Err() != nil || (len(found) == 0) != (good || name == "") {
			t.Errorf("%q is claimed and listed: %v, with %v", name, listed, found)
		}
	}
}

// TestDefaults: what a policy does not say is as in the default policy, which says all of it.
func TestDefaults(t *testing.T) {
	full := DefaultPolicy()
	if full.TTL != DefaultTTL || full.Suffix != DefaultSuffix || full.Subset != DefaultSubset {
		t.Errorf("the default policy is %+v", full)
	}
	short := Policy{Outputs: full.Outputs, Placeholder: netip.MustParseAddr("::ffff:192.0.2.1")}
	f, l := many(60), Limits{BatchValues: 50}
	want, _ := Desired(f, full, l)
	got, found := Desired(f, short, l)
	if diff := gocmp.Diff(want, got); diff != "" || len(found) > 0 {
		t.Errorf("without values: %v\n%s", found, diff)
	}
}

// TestNoPlaceholder: without one a name that has no address does not exist, and a machine with addresses of one family is nothing
// to talk about.
func TestNoPlaceholder(t *testing.T) {
	p := DefaultPolicy()
	p.Placeholder = netip.Addr{}
	sets, found := Desired(demo(group(role.Masters, 1, in("i-1", "10.0.0.1"))), p, Limits{})
	if len(found) > 0 || text(sets) != "_hardtack.demo.k8s. 5 TXT group=masters/demo-masters, owner=hardtack\nmasters.demo.k8s. 5 A 10.0.0.1\n" {
		t.Errorf("%v\n%s", found, text(sets))
	}
	have := next(t, nil, demo(group(role.Masters, 1, in("i-1", "10.0.0.1"))), p, "g1")
	have = next(t, have, demo(group(role.Masters, 1), etcdGroup(0)), p, "g2")
	if got := at(have, "masters.demo.k8s.", A); !slices.Equal(got, []string{"10.0.0.1"}) {
		t.Errorf("the last address of the masters becomes %v", got)
	}
}

// TestPublicOnly: in a zone that has public addresses only, a machine with nothing else is a whole one.
func TestPublicOnly(t *testing.T) {
	p := DefaultPolicy()
	p.Outputs = Outputs{APIPublic: true}
	m := Member{InstanceID: "i-1", Lifecycle: InService, Healthy: true, Running: true, Public: netip.MustParseAddr("198.51.100.7")}
	sets, found := Desired(demo(group(role.Masters, 1, m)), p, Limits{})
	if got := at(sets, "api.demo.k8s.", A); len(found) > 0 || !slices.Equal(got, []string{"198.51.100.7"}) {
		t.Errorf("%v, with %v", got, found)
	}
}

// TestDesiredIsSorted: by name and type, as Placeholders are; of a fleet without groups there is nothing.
func TestDesiredIsSorted(t *testing.T) {
	p := DefaultPolicy()
	p.Outputs = Outputs{Roles: true, APIInternal: true, APIPublic: true}
	f := many(3)
	f.Groups = append(f.Groups, group("ingress", 1, in("i-x", "10.0.7.7")), etcdGroup(3, in("i-a", "10.0.2.1").holding("a")))
	sets, _ := Desired(f, p, Limits{})
	if !slices.IsSortedFunc(sets, compareSets) || !slices.IsSortedFunc(Placeholders("demo", p), compareSets) {
		t.Errorf("not sorted:\n%s", text(sets))
	}
	if got := ManagedSets([]Set{sets[3], sets[0], sets[2]}, "demo", p); !slices.IsSortedFunc(got, compareSets) || len(got) != 3 {
		t.Errorf("managed and not sorted:\n%s", text(got))
	}
	if sets, found := Desired(demo(), p, Limits{}); len(sets) > 0 || len(found) > 0 {
		t.Errorf("no groups: %v\n%s", found, text(sets))
	}
}

// TestPlaceholders are those of the names that the policy publishes.
func TestPlaceholders(t *testing.T) {
	for _, tt := range []struct {
		outputs Outputs
		want    []string
	}{
		{Outputs{Roles: true}, []string{"_hardtack", "etcd", "masters", "minions"}},
		{Outputs{APIInternal: true}, []string{"_hardtack", "api.internal"}},
		{Outputs{APIPublic: true}, []string{"_hardtack", "api"}},
		{Outputs{Roles: true, APIPublic: true}, []string{"_hardtack", "api", "etcd", "masters", "minions"}},
	} {
		p := DefaultPolicy()
		p.Outputs = tt.outputs
		var got []string
		for _, s := range Placeholders("demo", p) {
			got = append(got, strings.TrimSuffix(s.Name, ".demo.k8s."))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %v", tt.outputs, got)
		}
	}
}

// TestEtcdDeclarations: the members that etcd's groups declare, each once; without any, those that machines claim have names, and
// no service. What another role's group declares is nobody.
func TestEtcdDeclarations(t *testing.T) {
	a, b := in("i-1", "10.0.2.1").holding("a"), in("i-2", "10.0.2.2").holding("b")
	masters := declaring(group(role.Masters, 0), "z")
	for name, tt := range map[string]struct {
		groups  []Group
		members []string
		service int
	}{
		"two groups that declare both":  {[]Group{named("y", declaring(group(role.Etcd, 1, b), "b", "a")), named("x", declaring(group(role.Etcd, 1, a), "a", "b"))}, []string{"a", "b"}, 2},
		"each declares its own":         {[]Group{named("y", declaring(group(role.Etcd, 1, b), "b")), named("x", declaring(group(role.Etcd, 1, a), "a"))}, []string{"a", "b"}, 2},
		"one machine in two groups":     {[]Group{named("y", declaring(group(role.Etcd, 1, a), "a")), named("x", declaring(group(role.Etcd, 1, a), "a"))}, []string{"a"}, 1},
		"a group that is not of etcd":   {[]Group{masters, declaring(group(role.Etcd, 2, a, b), "a", "b")}, []string{"a", "b"}, 2},
		"nobody declares":               {[]Group{group(role.Etcd, 2, b, a)}, []string{"a", "b"}, 0},
		"nobody declares, one is known": {[]Group{group(role.Etcd, 2, b)}, []string{"b"}, 0},
	} {
		sets, found := Desired(demo(tt.groups...), DefaultPolicy(), Limits{})
		var members []string
		for _, s := range sets {
			if label, ok := strings.CutPrefix(s.Name, "etcd-"); ok {
				members = append(members, strings.TrimSuffix(label, ".demo.k8s."))
			}
		}
		service := at(sets, "_etcd-server-ssl._tcp.demo.k8s.", SRV)
		if len(found) > 0 || !slices.Equal(members, tt.members) || len(service) != tt.service {
			t.Errorf("%s: %v, the service has %v, %v", name, members, service, found)
		}
	}
}

// TestGroupLimit: as many groups are taken as the control record can hold when ten of them vanish under the longest generation.
func TestGroupLimit(t *testing.T) {
	fleet := func(n int) Fleet {
		f := demo()
		for i := range n {
			f.Groups = append(f.Groups, named(fmt.Sprint("g", i), group(role.Minions, 0)))
		}
		return f
	}
	most := 0
	for n := 1; n <= bind.SetValues; n++ {
		_, found := Desired(fleet(n), DefaultPolicy(), bind)
		if found.Err() == nil {
			most = n
		} else if len(found) != 1 || found[0].Rule != "too-many-groups" || found[0].Field == "" {
			t.Fatalf("%d groups: %v", n, found)
		}
	}
	have := next(t, nil, fleet(most+maxVanished), DefaultPolicy(), "g1")
	have = next(t, have, fleet(most), DefaultPolicy(), strings.Repeat("g", MaxGeneration))
	if got := at(have, "_hardtack.demo.k8s.", TXT); len(got) != bind.SetValues {
		t.Errorf("with the most groups, %d, the control record has %d values, and a set %d", most, len(got), bind.SetValues)
	}
}

// TestTooMany: what fits no shards is an error, and so is a policy that is none, however many machines there are.
func TestTooMany(t *testing.T) {
	sets, found := Desired(many(150), DefaultPolicy(), Limits{BatchValues: 2})
	if len(sets) > 0 || len(found) != 1 || found[0].Rule != "too-many-values" || found[0].Field == "" || found[0].Severity != problem.Error {
		t.Errorf("150 machines of two addresses where a set takes one: %d sets, %v", len(sets), found)
	}
	p := DefaultPolicy()
	p.Subset = -1
	if sets, found := Desired(many(300), p, bind); len(sets) > 0 || len(found) != 1 || found[0].Rule != "subset" {
		t.Errorf("a subset of -1: %d sets, %v", len(sets), found)
	}
}

// TestEqual: name, type, TTL and values, in any order.
func TestEqual(t *testing.T) {
	s := Set{Name: "masters.demo.k8s.", Type: A, TTL: time.Second, Values: []string{"10.0.0.1", "10.0.0.2"}}
	for name, tt := range map[string]struct {
		other Set
		equal bool
	}{
		"the same":       {Set{s.Name, s.Type, s.TTL, []string{"10.0.0.1", "10.0.0.2"}}, true},
		"another order":  {Set{s.Name, s.Type, s.TTL, []string{"10.0.0.2", "10.0.0.1"}}, true},
		"another name":   {Set{"minions.demo.k8s.", s.Type, s.TTL, s.Values}, false},
		"another type":   {Set{s.Name, TXT, s.TTL, s.Values}, false},
		"another TTL":    {Set{s.Name, s.Type, 2 * s.TTL, s.Values}, false},
		"another value":  {Set{s.Name, s.Type, s.TTL, []string{"10.0.0.1", "10.0.0.3"}}, false},
		"one value less": {Set{s.Name, s.Type, s.TTL, s.Values[:1]}, false},
	} {
		if got := s.Equal(tt.other); got != tt.equal {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, c := range []Change{{Remove: []Set{s}}, {Create: []Set{s}}} {
		if c.Empty() {
			t.Errorf("%+v is empty", c)
		}
	}
}

// TestGroupsFitBatch: whatever the number of groups and machines that are taken, a machine that comes or goes can be published beside the
// control record, which then has its longest generation on both sides.
func TestGroupsFitBatch(t *testing.T) {
	longest := func(g string) string { return strings.Repeat(g, MaxGeneration) }
	for _, groups := range []int{1, 19, 20, 50, 100, 175, 350, 381} {
		for _, machines := range []int{groups, 400, 450} {
			for _, six := range []bool{false, true} {
				fleet := func(from int) Fleet {
					f := Fleet{Cluster: "demo", Owner: "aws:1:r"}
					for g := range groups {
						f.Groups = append(f.Groups, named(fmt.Sprintf("demo-minions-%03d", g), group(role.Minions, 0)))
					}
					for i := range machines {
						n, g := from+i, &f.Groups[i%groups]
						m := Member{InstanceID: fmt.Sprintf("i-%017x", n), Lifecycle: InService, Healthy: true, Running: true, Private: netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})}
						if six {
							m.Private6 = netip.MustParseAddr(fmt.Sprintf("2600:1f14:abcd:1200:aaaa:bbbb:cccc:%x", 0x1000+n))
						}
						g.Members = append(g.Members, m)
					}
					return f
				}
				have, found := Desired(fleet(0), DefaultPolicy(), route53)
				want, again := Desired(fleet(1), DefaultPolicy(), route53)
				if found.Err() != nil || again.Err() != nil {
					t.Fatalf("%d groups of %d machines: %v, %v", groups, machines, found, again)
				}
				have = Diff(nil, have, longest("g")).Apply(nil)
				if _, _, err := Diff(have, want, longest("h")).Fit(route53); err != nil {
					t.Errorf("%d groups of %d machines, IPv6 %v: %v", groups, machines, six, err)
				}
			}
		}
	}
}
