package record

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// next is what is published after a sweep, from what is published before it.
func next(t *testing.T, have []Set, f Fleet, p Policy, generation string) []Set {
	t.Helper()
	desired, found := Desired(f, p, Limits{})
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	want, found := Guard(desired, have, f, p)
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	for _, s := range want {
		if !slices.IsSorted(s.Values) {
			t.Errorf("%s %s has values in no order: %v", s.Name, s.Type, s.Values)
		}
	}
	return commit(t, have, Diff(have, want, generation))
}

// at returns the values of one set.
func at(sets []Set, name, kind string) []string {
	for _, s := range sets {
		if s.Name == name && s.Type == kind {
			return s.Values
		}
	}
	return nil
}

// TestLastMachine goes through AutoScaling's states of an instance: the last address of a name stays while its machine may be well
// again, and leaves with a machine that ends, is detached, or that somebody has set aside.
func TestLastMachine(t *testing.T) {
	for state, stays := range map[Lifecycle]bool{
		InService: true, "Pending": true, PendingWait: true, PendingProceed: true, "Quarantined": true, "": true,
		"Terminating": false, TerminatingWait: false, TerminatingProceed: false, "Terminated": false, "Detaching": false, "Detached": false,
		"EnteringStandby": false, "Standby": false, "Warmed:Pending": false, "Warmed:Stopped": false, "Warmed:Running": false, "Warmed:Hibernated": false,
		"Warmed:Terminating:Wait": false,
	} {
		p := DefaultPolicy()
		have := next(t, nil, demo(group(role.Masters, 1, in("i-1", "10.0.0.1"))), p, "g1")
		have = next(t, have, demo(group(role.Masters, 1, unhealthy(in("i-1", "10.0.0.1")).at(state))), p, "g2")
		want := []string{p.Placeholder.String()}
		if stays {
			want = []string{"10.0.0.1"}
		}
		if got := at(have, "masters.demo.k8s.", A); !slices.Equal(got, want) {
			t.Errorf("%q: %v is published, not %v", state, got, want)
		}
	}
}

// TestMembersAddress: etcd tries the first address of a name only, so that a member's name has one. IPv4 is the cluster's own.
func TestMembersAddress(t *testing.T) {
	six := Member{InstanceID: "i-3", Lifecycle: InService, Healthy: true, Running: true, Private6: netip.MustParseAddr("fd00::3")}
	none := Member{InstanceID: "i-4", Lifecycle: InService, Healthy: true, Running: true}
	have := next(t, nil, demo(etcdGroup(3, in("i-1", "10.0.2.1").with6("fd00::1").holding("a"), six.holding("b"), none.holding("c"))), DefaultPolicy(), "g1")
	for _, tt := range []struct {
		name, kind string
		want       []string
	}{
		{"etcd-a", A, []string{"10.0.2.1"}}, {"etcd-a", AAAA, nil}, {"etcd-b", A, nil}, {"etcd-b", AAAA, []string{"fd00::3"}},
		{"etcd-c", A, []string{"192.0.2.1"}}, {"etcd", A, []string{"10.0.2.1"}}, {"etcd", AAAA, []string{"fd00::1", "fd00::3"}},
	} {
		if got := at(have, tt.name+".demo.k8s.", tt.kind); !slices.Equal(got, tt.want) {
			t.Errorf("%s %s is %v, not %v", tt.name, tt.kind, got, tt.want)
		}
	}
	if got := at(have, "_etcd-server-ssl._tcp.demo.k8s.", SRV); got != nil {
		t.Errorf("a member without an address is announced: %v", got)
	}
}

// TestTwoGroupsOfARole: a machine that two groups have is one machine, and the capacity of a role is that of all its groups.
func TestTwoGroupsOfARole(t *testing.T) {
	m := in("i-1", "10.0.1.1")
	two := demo(named("x", group(role.Minions, 0, m)), named("y", group(role.Minions, 1, m, in("i-2", "10.0.1.2"))))
	have := next(t, nil, two, DefaultPolicy(), "g1")
	if got := at(have, "minions.demo.k8s.", A); !slices.Equal(got, []string{"10.0.1.1", "10.0.1.2"}) {
		t.Errorf("%v", got)
	}
	sick := demo(named("x", group(role.Minions, 0, unhealthy(m))), named("y", group(role.Minions, 1)))
	if got := at(next(t, have, sick, DefaultPolicy(), "g2"), "minions.demo.k8s.", A); !slices.Contains(got, "10.0.1.1") {
		t.Errorf("one of two groups wants a machine, and the last address has left: %v", got)
	}
}

// TestStamp: another generation refuses what was computed before, and changes no record; a neighbour's control record is not
// touched.
func TestStamp(t *testing.T) {
	have := next(t, nil, demo(group(role.Masters, 1, in("i-1", "10.0.0.1"))), DefaultPolicy(), "g1")
	old := Diff(have, Placeholders("demo", DefaultPolicy()), "g2")
	c := Stamp(have, "demo", "g3")
	if len(c.Remove) != 1 || len(c.Create) != 1 || !isControl(c.Create[0]) {
		t.Fatalf("%+v", c)
	}
	now := commit(t, have, c)
	if g, ok := Generation(now, "demo"); !ok || g != "g3" {
		t.Errorf("the generation is %q, %v", g, ok)
	}
	if slices.ContainsFunc(old.Remove, isControl) && slices.ContainsFunc(now, func(s Set) bool { return isControl(s) && s.Equal(old.Remove[slices.IndexFunc(old.Remove, isControl)]) }) {
		t.Error("what was computed before still fits")
	}
	if before, after := withoutGenerations(have), withoutGenerations(now); text(before) != text(after) {
		t.Errorf("more than the generation has changed:\n%s\n%s", text(before), text(after))
	}
	if c := Stamp(have, "dem", "g3"); !c.Empty() {
		t.Errorf("another cluster's record is changed: %+v", c)
	}
	if g, ok := Generation(have, "dem"); ok {
		t.Errorf("another cluster's generation is %q", g)
	}
}

// TestLetGoAt is the time at which the first group that is missing is given up.
func TestLetGoAt(t *testing.T) {
	p := DefaultPolicy()
	both := demo(group(role.Masters, 1, in("i-1", "10.0.0.1")), group(role.Minions, 1, in("i-2", "10.0.1.2")))
	both.At = noon
	have := next(t, nil, both, p, "g1")
	if got := LetGoAt(have, "demo"); !got.IsZero() {
		t.Errorf("no group is missing, and one is let go at %v", got)
	}
	one := demo(both.Groups[0])
	one.At = noon.Add(10 * time.Second)
	have = next(t, have, one, p, "g2")
	if got, want := LetGoAt(have, "demo"), one.At.Add(VanishAfter); !got.Equal(want) {
		t.Errorf("%v, not %v", got, want)
	}
	none := demo(group(role.Etcd, 0))
	none.At = noon.Add(40 * time.Second)
	have = next(t, have, none, p, "g3")
	if got, want := LetGoAt(have, "demo"), one.At.Add(VanishAfter); !got.Equal(want) {
		t.Errorf("the first is let go at %v, not %v", got, want)
	}
	if got := LetGoAt(have, "dem"); !got.IsZero() {
		t.Errorf("another cluster's group is let go at %v", got)
	}
	for after, stays := range map[time.Duration]bool{VanishAfter - time.Second: true, VanishAfter: false} {
		none.At = one.At.Add(after)
		if got := at(next(t, have, none, p, "g4"), "minions.demo.k8s.", A); slices.Contains(got, "10.0.1.2") != stays {
			t.Errorf("%v after it was missed first the minions are %v", after, got)
		}
	}
}

// TestLosesControlPlane: the addresses of masters and of etcd, of whichever name and family; not those of minions, and not the
// placeholder.
func TestLosesControlPlane(t *testing.T) {
	p := DefaultPolicy()
	set := func(name, kind string, values ...string) Set {
		return Set{Name: name + ".demo.k8s.", Type: kind, TTL: p.TTL, Values: values}
	}
	for name, tt := range map[string]struct {
		have, want Set
		lost       bool
	}{
		"a master":            {set("masters", A, "10.0.0.1", "10.0.0.2"), set("masters", A, "10.0.0.2"), true},
		"a master by IPv6":    {set("masters", AAAA, "fd00::1"), set("masters", A, "10.0.0.1"), true},
		"a member of etcd":    {set("etcd-a", A, "10.0.2.1"), set("etcd-a", A, "10.0.2.9"), true},
		"a minion":            {set("minions", A, "10.0.1.1"), set("minions", A, "192.0.2.1"), false},
		"a shard of minions":  {set("minions-0", A, "10.0.1.1"), set("minions-0", A, "10.0.1.2"), false},
		"the placeholder":     {set("masters", A, "192.0.2.1"), set("masters", A, "10.0.0.1"), false},
		"one more":            {set("masters", A, "10.0.0.1"), set("masters", A, "10.0.0.1", "10.0.0.2"), false},
		"the name of another": {set("grafana", A, "10.0.0.1"), set("masters", A, "10.0.0.2"), false},
		"a service":           {set("_etcd-server-ssl._tcp", SRV, "0 0 2380 etcd-a.demo.k8s."), set("masters", A, "10.0.0.2"), false},
		"to another role":     {set("etcd", A, "10.0.0.1"), set("masters", A, "10.0.0.1"), true},
	} {
		if got := LosesControlPlane([]Set{tt.have}, []Set{tt.want}, "demo", p); got != tt.lost {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestRelevant: what a reconcile is shown of a zone: all that may be the cluster's, and what marks one of its names as another's.
func TestRelevant(t *testing.T) {
	mark := []string{"heritage=external-dns,external-dns/owner=default"}
	for _, tt := range []struct {
		name, kind      string
		values          []string
		relevant, marks bool
	}{
		{"masters.demo.k8s.", A, []string{"10.0.0.1"}, true, false},
		{"_hardtack.demo.k8s.", TXT, []string{"owner=hardtack"}, true, false},
		{"ingress.demo.k8s.", A, []string{"10.0.0.1"}, true, false}, // an operator's role, perhaps
		{"masters.demo.k8s.", TXT, mark, true, true},
		{"aaaa-masters.demo.k8s.", TXT, mark, true, true},
		{"srv-_etcd-server-ssl._tcp.demo.k8s.", TXT, mark, true, true},
		{"cname-minions-3.demo.k8s.", TXT, mark, true, true},
		{"masters.demo.k8s.", TXT, []string{"a note"}, false, false},
		{"masters.other.k8s.", TXT, mark, false, false},
		{"masters.other.k8s.", A, []string{"10.0.0.1"}, false, false},
		{"masters.demo.k8s.", "CNAME", mark, false, false},
		{"a.b.demo.k8s.", TXT, mark, false, false},
		{"masters", TXT, mark, false, false},
	} {
		s := Set{Name: tt.name, Type: tt.kind, TTL: DefaultTTL, Values: tt.values}
		if got, marks := Relevant(s, "demo", DefaultPolicy()), Marks(s, "demo", DefaultPolicy()); got != tt.relevant || marks != tt.marks {
			t.Errorf("%s %s: relevant %v, marks %v", tt.name, tt.kind, got, marks)
		}
	}
}

// TestGroupsWhileSplit: a change of several batches forgets no group and no owner before its last one, so that a call that ends in
// between is taken up by the next.
func TestGroupsWhileSplit(t *testing.T) {
	p := DefaultPolicy()
	before := demo(named("old", group(role.Masters, 1, in("i-1", "10.0.0.1"))), named("many", group(role.Minions, 3, in("i-2", "10.0.1.2"), in("i-3", "10.0.1.3"), in("i-4", "10.0.1.4"))))
	before.Owner = "aws:1:eu"
	have := next(t, nil, before, p, "g1")
	after := demo(named("old", group(role.Masters, 1, in("i-9", "10.0.0.9"))), named("many", group(role.Minions, 3, in("i-12", "10.0.1.12"), in("i-13", "10.0.1.13"), in("i-14", "10.0.1.14"))),
		named("new", group(role.Minions, 0)))
	after.Owner = before.Owner
	desired, _ := Desired(after, p, Limits{})
	want, _ := Guard(desired, have, after, p)
	control := "_hardtack.demo.k8s."
	groups := func(sets []Set) []string {
		return slices.DeleteFunc(slices.Clone(at(sets, control, TXT)), func(v string) bool { return !strings.HasPrefix(v, groupPrefix) })
	}
	old := groups(have)
	for i := range 10 {
		part, more, err := Diff(have, want, fmt.Sprintf("g%d", i+2)).Fit(Limits{BatchValues: 14})
		if err != nil {
			t.Fatal(err)
		}
		have = commit(t, have, part)
		if !slices.Contains(at(have, control, TXT), "owner=hardtack/aws:1:eu") {
			t.Errorf("the owner is forgotten: %v", at(have, control, TXT))
		}
		if g, _ := Generation(have, "demo"); g != fmt.Sprintf("g%d", i+2) {
			t.Errorf("the generation is %q", g)
		}
		if !more {
			if i == 0 {
				t.Fatal("one batch was enough, so that this test shows nothing")
			}
			if len(groups(have)) != 3 {
				t.Errorf("the groups are %v", groups(have))
			}
			return
		}
		if !slices.Equal(groups(have), old) {
			t.Errorf("in between the groups are %v, not %v", groups(have), old)
		}
	}
	t.Error("the change has no end")
}

// TestPolicyBounds looks at both sides of what a policy may say.
func TestPolicyBounds(t *testing.T) {
	label := strings.Repeat("x", maxLabel)
	for name, tt := range map[string]struct {
		change func(p *Policy)
		rule   string
	}{
		"a second":               {func(p *Policy) { p.TTL = time.Second }, ""},
		"less":                   {func(p *Policy) { p.TTL = time.Second / 2 }, "ttl"},
		"a second and a half":    {func(p *Policy) { p.TTL = 3 * time.Second / 2 }, "ttl"},
		"negative":               {func(p *Policy) { p.TTL = -time.Second }, "ttl"},
		"a subset of one":        {func(p *Policy) { p.Subset = 1 }, ""},
		"a subset of less":       {func(p *Policy) { p.Subset = -1 }, "subset"},
		"no outputs":             {func(p *Policy) { p.Outputs = Outputs{} }, "no-outputs"},
		"a zone in capitals":     {func(p *Policy) { p.Suffix = "K8S" }, ""},
		"a zone that is no name": {func(p *Policy) { p.Suffix = "k8s..local" }, "dns-label"},
		// _etcd-server-ssl._tcp.demo. has 27 characters, and a name 253.
		"the longest name": {func(p *Policy) {
			p.Suffix = strings.Join([]string{label, label, label, strings.Repeat("x", 253-27-3*64)}, ".")
		}, ""},
		"a longer one": {func(p *Policy) {
			p.Suffix = strings.Join([]string{label, label, label, strings.Repeat("x", 254-27-3*64)}, ".")
		}, "name-too-long"},
		"too long by itself": {func(p *Policy) { p.Suffix = label + "x" }, "dns-label"},
	} {
		p := DefaultPolicy()
		tt.change(&p)
		_, found := Desired(demo(group(role.Masters, 1)), p, Limits{})
		rules := map[string]bool{}
		for _, f := range found {
			rules[f.Rule] = true
		}
		for _, f := range found {
			if f.Field == "" {
				t.Errorf("%s: where is that? %v", name, f)
			}
		}
		if len(rules) > 1 || tt.rule != "" && !rules[tt.rule] || tt.rule == "" && len(rules) > 0 {
			t.Errorf("%s: %v", name, found)
		}
	}
}
