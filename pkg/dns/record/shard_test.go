package record

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// many is a fleet of n minions.
func many(n int) Fleet {
	g := group(role.Minions, n)
	for i := range n {
		g.Members = append(g.Members, Member{InstanceID: fmt.Sprintf("i-%017x", mix(uint64(i))), Lifecycle: InService, Healthy: true, Running: true,
			Private: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), Private6: netip.AddrFrom16([16]byte{0: 0xfd, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)})})
	}
	return demo(g)
}

// The limits of the two services.
var (
	route53 = Limits{SetValues: 400, BatchValues: 1000, BatchCharacters: 32000}
	bind    = Limits{SetValues: 100}
)

func sharded(t *testing.T, f Fleet, l Limits) (shards map[string]string, subset []string, count string) {
	t.Helper()
	sets, problems := Desired(f, DefaultPolicy(), l)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	shards = map[string]string{}
	for _, s := range sets {
		k, r := identify(s, "demo.k8s.")
		switch {
		case k == kindShard && s.Type == A:
			for _, v := range s.Values {
				if shards[v] != "" {
					t.Errorf("%s is in %s and %s", v, shards[v], s.Name)
				}
				shards[v] = s.Name
			}
			if len(s.Values) > l.SetValues {
				t.Errorf("%s has %d values", s.Name, len(s.Values))
			}
		case k == kindRole && r == role.Minions && s.Type == A:
			subset = s.Values
		case k == kindRole && r == role.Minions && s.Type == TXT:
			count = strings.Join(s.Values, " ")
		}
	}
	return shards, subset, count
}

// TestShards grows a cluster by one machine at a time: each lists every machine once, and a step moves
// no address between shards, but to new shards where their number has grown.
func TestShards(t *testing.T) {
	for _, tt := range []struct {
		limits   Limits
		from, to int
	}{{route53, 395, 420}, {bind, 95, 300}, {route53, 1590, 1610}, {bind, 9995, 10000}} {
		old, oldSubset, oldCount := sharded(t, many(tt.from), tt.limits)
		for n := tt.from + 1; n <= tt.to; n++ {
			shards, subset, count := sharded(t, many(n), tt.limits)
			if len(shards) == 0 {
				if len(subset) != n || count != "" || n > tt.limits.SetValues {
					t.Fatalf("%d machines: no shards, %d addresses, TXT %q", n, len(subset), count)
				}
				continue
			}
			if !strings.HasPrefix(count, fmt.Sprintf("count=%d shards=", n)) || len(shards) != n || len(subset) != DefaultSubset {
				t.Fatalf("%d machines: %d in shards, %d in the subset, TXT %q", n, len(shards), len(subset), count)
			}
			if len(old) > 0 {
				grown := strings.TrimPrefix(count, fmt.Sprintf("count=%d ", n)) != strings.TrimPrefix(oldCount, fmt.Sprintf("count=%d ", n-1))
				for v, name := range old {
					if shards[v] != name && (!grown || slices.Contains(slices.Collect(maps.Values(old)), shards[v])) {
						t.Errorf("at %d machines %s moves from %s to %s", n, v, name, shards[v])
					}
				}
				if gone := slices.DeleteFunc(slices.Clone(oldSubset), func(v string) bool { return slices.Contains(subset, v) }); len(gone) > 1 {
					t.Errorf("at %d machines the subset loses %v", n, gone)
				}
			}
			old, oldSubset, oldCount = shards, subset, count
		}
	}
}

// TestLargeChange takes a cluster from nothing to 10,000 machines and back to 10 in batches that Route
// 53 accepts, and has every announced shard exist in between.
func TestLargeChange(t *testing.T) {
	var have []Set
	for _, n := range []int{300, 10000, 700, 3000, 10} {
		desired, _ := Desired(many(n), DefaultPolicy(), route53)
		want, _ := Guard(desired, have, many(n), DefaultPolicy())
		batches, before := 0, have
		for more := true; more; batches++ {
			var part Change
			var err error
			if part, more, err = Diff(have, want, fmt.Sprint(n, "-", batches)).Fit(route53); err != nil {
				t.Fatal(err)
			}
			if values, characters := part.size(); values > 1000 || characters > 32000 {
				t.Errorf("a batch of %d values and %d characters", values, characters)
			}
			have = commit(t, have, part)
			announced(t, have)
			findable(t, before, want, have)
		}
		t.Logf("to %d machines: %d batches", n, batches)
		if diff := gocmp.Diff(withoutGenerations(want), withoutGenerations(have)); diff != "" {
			t.Errorf("%d machines are not published:\n%.2000s", n, diff)
		}
	}
}

func announced(t *testing.T, have []Set) {
	t.Helper()
	names := map[string]bool{}
	shards := 0
	for _, s := range have {
		names[s.Name] = true
		if n := s.valuesWith(shardsPrefix); len(n) > 0 {
			var err error
			if shards, err = strconv.Atoi(n[0]); err != nil {
				t.Error(err)
			}
		}
	}
	for i := range shards {
		if !names[fmt.Sprintf("minions-%d.demo.k8s.", i)] {
			t.Errorf("%d shards are announced and number %d is not there", shards, i)
		}
	}
}

// found is every address that a reader finds who follows what is announced.
func found(have []Set) map[string]bool {
	all := map[string]bool{}
	shards := 0
	for _, s := range have {
		if n := s.valuesWith(shardsPrefix); len(n) > 0 {
			shards, _ = strconv.Atoi(n[0])
		}
	}
	names := map[string]bool{"minions.demo.k8s.": true}
	for i := range shards {
		names[fmt.Sprintf("minions-%d.demo.k8s.", i)] = true
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
func findable(t *testing.T, before, after, now []Set) {
	t.Helper()
	a, b, n := found(before), found(after), found(now)
	lost := 0
	for v := range a {
		if b[v] && !n[v] {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d addresses that stay are not to be found in between", lost)
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
				if got := len(found(have)); got != n {
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

func BenchmarkDesired(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f, p := many(n), DefaultPolicy()
			for b.Loop() {
				if sets, _ := Desired(f, p, route53); len(sets) == 0 {
					b.Fatal("no sets")
				}
			}
		})
	}
}

// BenchmarkSweep is a whole decision when nothing has changed: the idle sweep.
func BenchmarkSweep(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f, p := many(n), DefaultPolicy()
			desired, _ := Desired(f, p, route53)
			have := Diff(nil, desired, "g").Create
			for b.Loop() {
				desired, _ := Desired(f, p, route53)
				want, _ := Guard(desired, have, f, p)
				if c := Diff(have, want, "h"); !c.Empty() {
					b.Fatal("a change")
				}
			}
		})
	}
}
