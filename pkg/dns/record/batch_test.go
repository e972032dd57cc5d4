package record

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// publish takes what is published to the records of a fleet, batch by batch, and holds each state between against the rules: the
// batches are within the limits and in order, every announced shard exists, and what stays can be found all the while.
func publish(t *testing.T, have []Set, f Fleet, p Policy, l Limits) []Set {
	t.Helper()
	desired, problems := Desired(f, p, l)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want, _ := Guard(desired, have, f, p)
	before := have
	more := true
	for batches := 0; more; batches++ {
		if batches > 100 {
			t.Fatal("the change has no end")
		}
		var part Change
		var err error
		if part, more, err = Diff(have, want, fmt.Sprint("g", len(want), "-", batches)).Fit(l); err != nil {
			t.Fatal(err)
		}
		if values, characters := part.size(); l.BatchValues > 0 && values > l.BatchValues || l.BatchCharacters > 0 && characters > l.BatchCharacters {
			t.Errorf("a batch of %d values and %d characters", values, characters)
		}
		if !slices.IsSortedFunc(part.Remove, compareSets) || !slices.IsSortedFunc(part.Create, compareSets) {
			t.Errorf("a batch that is not in the order of names: %+v", part)
		}
		have = commit(t, have, part)
		for _, r := range []role.Role{role.Masters, role.Minions, ingress} {
			announced(t, have, r)
			findable(t, before, want, have, r)
		}
	}
	if diff := gocmp.Diff(withoutGenerations(want), withoutGenerations(have)); diff != "" {
		t.Errorf("the records of %d groups are not published:\n%.2000s", len(f.Groups), diff)
	}
	return have
}

// shardsOf is how many shards of a role are announced.
func shardsOf(have []Set, r role.Role) int {
	for _, s := range have {
		if n := s.valuesWith(shardsPrefix); len(n) > 0 && s.Name == string(r)+".demo.k8s." {
			shards, _ := strconv.Atoi(n[0])
			return shards
		}
	}
	return 0
}

func announced(t *testing.T, have []Set, r role.Role) {
	t.Helper()
	names := map[string]bool{}
	for _, s := range have {
		names[s.Name] = true
	}
	for i := range shardsOf(have, r) {
		if !names[r.Shard(i)+".demo.k8s."] {
			t.Errorf("%d shards of %s are announced and number %d is not there", shardsOf(have, r), r, i)
		}
	}
}

// found is every IPv4 address that a reader of a role finds who follows what is announced.
func found(have []Set, r role.Role) map[string]bool {
	all := map[string]bool{}
	names := map[string]bool{string(r) + ".demo.k8s.": true}
	for i := range shardsOf(have, r) {
		names[r.Shard(i)+".demo.k8s."] = true
	}
	for _, s := range have {
		if s.Type == A && names[s.Name] {
			for _, v := range s.Values {
				all[v] = true
			}
		}
	}
	return all
}

// findable: a machine that is published before and after a change is in every state between.
func findable(t *testing.T, before, after, now []Set, r role.Role) {
	t.Helper()
	a, b, n := found(before, r), found(after, r), found(now, r)
	lost := 0
	for v := range a {
		if b[v] && !n[v] {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d addresses of %s that stay are not to be found in between", lost, r)
	}
}

// small are limits at which few machines take many batches.
var small = Limits{SetValues: 24, BatchValues: 100}

// ingress is a role of an operator's own.
const ingress role.Role = "ingress"

// TestSmallChange takes two roles up and down, together and against each other, in many batches, and at last one of them away.
func TestSmallChange(t *testing.T) {
	var have []Set
	all := many(300).Groups[0].Members
	p := DefaultPolicy()
	for _, n := range [][2]int{{10, 10}, {20, 60}, {150, 60}, {60, 150}, {150, 20}, {10, 150}, {150, 150}, {0, 0}, {20, 150}} {
		have = publish(t, have, demo(group(role.Minions, n[0], all[:n[0]]...), group(ingress, n[1], all[n[0]:n[0]+n[1]]...)), p, small)
		if n[1] == 150 && shardsOf(have, ingress) == 0 {
			t.Error("150 machines make no shards, so that this test shows nothing")
		}
	}
	f := demo(group(role.Minions, 20, all[:20]...))
	for i := range 2 {
		f.At = noon.Add(time.Duration(i) * VanishAfter)
		have = publish(t, have, f, p, small)
	}
	if slices.ContainsFunc(have, func(s Set) bool { return strings.HasPrefix(s.Name, string(ingress)) }) {
		t.Errorf("a role without groups is still there:\n%s", text(have))
	}
}

// TestShardsBesideOutputs: the masters' shards grow in the same change in which their other name goes.
func TestShardsBesideOutputs(t *testing.T) {
	all := many(400).Groups[0].Members
	p := DefaultPolicy()
	p.Outputs.APIInternal = true
	have := publish(t, nil, demo(group(role.Masters, 60, all[:60]...)), p, small)
	p.Outputs.APIInternal = false
	publish(t, have, demo(group(role.Masters, 400, all...)), p, small)
}

// TestBatchBounds looks at both sides of a batch's limits, for a change whose size is counted by hand.
func TestBatchBounds(t *testing.T) {
	set := func(kind string, values ...string) Set {
		return Set{Name: "masters.demo.k8s.", Type: kind, TTL: DefaultTTL, Values: values}
	}
	control := func(generation string) Set {
		return Set{Name: "_hardtack.demo.k8s.", Type: TXT, TTL: DefaultTTL, Values: []string{"generation=" + generation, "owner=hardtack"}}
	}
	c := Change{
		Remove: []Set{control("g1"), set(A, "10.0.0.1")},
		Create: []Set{control("g2"), set(A, "10.0.0.1", "10.0.0.22"), set(AAAA, "fd00::1")},
	}
	// The control record: twice generation=g1 and owner=hardtack, each with two quotes.
	const values, characters = 2*2 + 1 + 3, 2*(13+2+14+2) + 8 + 8 + 9 + 7
	for _, tt := range []struct {
		limits Limits
		fits   bool
	}{
		{Limits{}, true},
		{Limits{BatchValues: values}, true}, {Limits{BatchValues: values - 1}, false},
		{Limits{BatchCharacters: characters}, true}, {Limits{BatchCharacters: characters - 1}, false},
		{Limits{BatchValues: values, BatchCharacters: characters - 1}, false}, {Limits{BatchValues: values - 1, BatchCharacters: characters}, false},
	} {
		first, more, err := c.Fit(tt.limits)
		if tt.fits != (err == nil) || more || tt.fits && !gocmp.Equal(first, c) {
			t.Errorf("%+v: %v, more %v, %v", tt.limits, first, more, err)
		}
	}
}

// TestFirstPart: the control record of a new cluster names no group before the last part, and the owner from the first.
func TestFirstPart(t *testing.T) {
	f := many(60)
	f.Owner = "aws:1:eu"
	desired, _ := Desired(f, DefaultPolicy(), small)
	want, _ := Guard(desired, nil, f, DefaultPolicy())
	first, more, err := Diff(nil, want, "g1").Fit(small)
	if err != nil || !more {
		t.Fatalf("more to come: %v, %v", more, err)
	}
	if got := at(first.Create, "_hardtack.demo.k8s.", TXT); !slices.Equal(got, []string{"generation=g1", "owner=hardtack/aws:1:eu"}) {
		t.Errorf("the control record of the first part has %v", got)
	}
}

// TestParts has etcd's names and services in one part at any limit, and the groups only told of in the last.
func TestParts(t *testing.T) {
	p := DefaultPolicy()
	have := commit(t, nil, Diff(nil, Placeholders("demo", p), "one"))
	f := many(3)
	f.Groups = append(f.Groups, etcdGroup(3, in("i-1", "10.9.2.1").holding("a"), in("i-2", "10.9.2.2").holding("b"), in("i-3", "10.9.2.3").holding("c")))
	want, _ := Desired(f, p, Limits{})
	whole := Diff(have, want, "two")
	values, _ := whole.size()
	cut := 0
	for limit := 1; limit <= values; limit++ {
		part, more, err := whole.Fit(Limits{BatchValues: limit})
		if err != nil {
			continue
		}
		etcd := 0
		for _, s := range part.Create {
			if _, r := identify(s, "demo.k8s."); r == role.Etcd {
				etcd++
			}
			if isControl(s) && (len(s.valuesWith(groupPrefix)) > 0) == more {
				t.Errorf("limit %d, more to come: %v, control record %q", limit, more, s.Values)
			}
		}
		if !slices.IsSortedFunc(part.Create, compareSets) {
			t.Errorf("limit %d: a part that is not in the order of names: %+v", limit, part.Create)
		}
		if etcd != 0 && etcd != 6 {
			t.Errorf("limit %d: a part has %d of etcd's 6 sets", limit, etcd)
		}
		if more {
			cut++
		}
	}
	if cut == 0 {
		t.Error("no limit cut the change")
	}
}

// TestCharacters: a limit of characters alone makes shards too.
func TestCharacters(t *testing.T) {
	l := Limits{BatchCharacters: 32000}
	desired, _ := Desired(many(1500), DefaultPolicy(), l)
	if _, _, err := Diff(Diff(nil, desired, "one").Create, Placeholders("demo", DefaultPolicy()), "two").Fit(l); err != nil {
		t.Error(err)
	}
	if !slices.ContainsFunc(desired, func(s Set) bool { return len(s.valuesWith(shardsPrefix)) > 0 }) {
		t.Error("1500 addresses of either family are one set each, which no batch could replace")
	}
}

// TestReplaceable: whatever the size of a role, Route 53 takes the change of all its machines to others, whether they have
// addresses of one family or of both, and however many of them its name lists.
func TestReplaceable(t *testing.T) {
	for _, n := range []int{200, 225, 226, 260, 400, 401, 600} {
		for _, subset := range []int{DefaultSubset, 1000} {
			for _, families := range []int{1, 2} {
				p := DefaultPolicy()
				p.Subset = subset
				old, renewed := many(n), many(2*n)
				renewed.Groups[0].Members = renewed.Groups[0].Members[n:]
				for _, f := range []Fleet{old, renewed} {
					for i := range f.Groups[0].Members {
						if families == 1 {
							f.Groups[0].Members[i].Private6 = netip.Addr{}
						}
					}
				}
				desired, _ := Desired(old, p, route53)
				have := Diff(nil, desired, "g").Create
				if got := len(found(have, role.Minions)); got != n {
					t.Errorf("%d machines with %d addresses each, a subset of %d: %d are found", n, families, subset, got)
				}
				want, _ := Desired(renewed, p, route53)
				if _, _, err := Diff(have, want, "h").Fit(route53); err != nil {
					t.Errorf("%d machines with %d addresses each, a subset of %d: %v", n, families, subset, err)
				}
			}
		}
	}
}

func TestFitRefuses(t *testing.T) {
	desired, _ := Desired(many(50), DefaultPolicy(), Limits{})
	_, _, err := Diff(nil, desired, "g").Fit(Limits{BatchValues: 20})
	if err == nil || !strings.Contains(err.Error(), "minions.demo.k8s.") {
		t.Errorf("50 values in a batch of 20: %v, want an error that names the record", err)
	}
}

// A removal is one batch where that fits; else each batch fits, all of it is in them, and the control record is the last.
func TestRemoval(t *testing.T) {
	set := func(name string, values ...string) Set {
		return Set{Name: name + ".demo.k8s.", Type: TXT, Values: values}
	}
	sets := []Set{set(controlLabel, "generation=1"), set("a", "1", "2"), set("b", "3"), set("c", "4", "5"), set("d", "6")}
	for _, c := range []struct {
		limits Limits
		want   string
	}{
		{Limits{}, "a b c d _hardtack"},
		{Limits{BatchValues: 7}, "a b c d _hardtack"},
		{Limits{BatchValues: 3}, "a b|c d|_hardtack"},
		{Limits{BatchValues: 4}, "a b|c d _hardtack"},
		{Limits{BatchValues: 1}, "a|b|c|d|_hardtack"}, // what is too large alone is for the service to refuse
		{Limits{BatchCharacters: 12}, "a b|c d|_hardtack"},
	} {
		var batches []string
		for _, batch := range Removal(sets, c.limits) {
			var names []string
			for _, s := range batch {
				names = append(names, strings.TrimSuffix(s.Name, ".demo.k8s."))
			}
			batches = append(batches, strings.Join(names, " "))
		}
		if got := strings.Join(batches, "|"); got != c.want {
			t.Errorf("%+v: %s, want %s", c.limits, got, c.want)
		}
	}
	if got := Removal(nil, Limits{}); len(got) > 0 {
		t.Errorf("of nothing: %v", got)
	}
}
