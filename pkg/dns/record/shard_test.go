package record

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

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
		have = publish(t, have, many(n), DefaultPolicy(), route53)
	}
}

// TestShardNumber: published names depend on it, so that it is the number of machines that decides, and not their families.
func TestShardNumber(t *testing.T) {
	for _, tt := range []struct {
		limits           Limits
		machines, shards int
	}{{bind, 100, 0}, {bind, 101, 4}, {bind, 200, 4}, {bind, 201, 8}, {bind, 400, 8}, {bind, 401, 16}, {route53, 401, 16}, {route53, 800, 16}, {route53, 801, 32},
		{small, 46, 8}, {small, 88, 8}, {small, 89, 16}, {Limits{BatchCharacters: 4800}, 160, 8}, {Limits{BatchCharacters: 4800}, 161, 16}} {
		for _, families := range []string{"both", "IPv4", "IPv6"} {
			f := many(tt.machines)
			for i := range f.Groups[0].Members {
				switch m := &f.Groups[0].Members[i]; families {
				case "IPv4":
					m.Private6 = netip.Addr{}
				case "IPv6":
					m.Private = netip.Addr{}
				}
			}
			sets, found := Desired(f, DefaultPolicy(), tt.limits)
			if got := shardsOf(sets, role.Minions); got != tt.shards || len(found) > 0 {
				t.Errorf("%d machines of %s have %d shards within %+v, not %d, with %v", tt.machines, families, got, tt.limits, tt.shards, found)
			}
		}
	}
}

// TestTinyShards: where a limit is so small that the spread of the hashes exceeds it, there are more shards until all fit.
func TestTinyShards(t *testing.T) {
	for n := 5; n < 60; n += 5 {
		for _, l := range []Limits{{BatchValues: 9}, {BatchCharacters: 300}} {
			sets, found := Desired(many(n), DefaultPolicy(), l)
			if len(found) > 0 || shardsOf(sets, role.Minions) == 0 {
				t.Fatalf("%d machines: %d shards, %v", n, shardsOf(sets, role.Minions), found)
			}
			values, characters := map[string]int{}, map[string]int{}
			for _, s := range sets {
				if s.Type == A || s.Type == AAAA {
					values[s.Name] += len(s.Values)
					characters[s.Name] += len(strings.Join(s.Values, ""))
				}
			}
			for name := range values {
				if l.BatchValues > 0 && 2*values[name] > l.BatchValues || l.BatchCharacters > 0 && 2*characters[name] > l.BatchCharacters {
					t.Errorf("%d machines: %s has %d values and %d characters, and no batch could replace them", n, name, values[name], characters[name])
				}
			}
		}
	}
}

// TestCharacterBounds: half of a batch, less a tenth for the control record, holds a name's addresses at their longest.
func TestCharacterBounds(t *testing.T) {
	for _, tt := range []struct {
		private, private6 bool
		machines, most    int // the most characters of a batch in which they are too many
	}{{true, false, 4, 133}, {false, true, 2, 173}, {true, true, 2, 239}} {
		f := many(tt.machines)
		for i := range f.Groups[0].Members {
			m := &f.Groups[0].Members[i]
			if !tt.private {
				m.Private = netip.Addr{}
			}
			if !tt.private6 {
				m.Private6 = netip.Addr{}
			}
		}
		for limit, whole := range map[int]bool{tt.most: false, tt.most + 1: true} {
			sets, found := Desired(f, DefaultPolicy(), Limits{BatchCharacters: limit})
			if got := shardsOf(sets, role.Minions) == 0; got != whole || len(found) > 0 {
				t.Errorf("%d machines, with IPv4 %v and IPv6 %v, in a batch of %d characters are one record: %v, %v", tt.machines, tt.private, tt.private6, limit, got, found)
			}
		}
	}
}

// TestCount is of the machines that have an address, beside a name that lists some of them; the API's names have no shards.
func TestCount(t *testing.T) {
	p := DefaultPolicy()
	p.Outputs.APIInternal, p.Outputs.APIPublic = true, true
	f := many(200)
	f.Groups[0].Role = role.Masters
	for i := range f.Groups[0].Members {
		m := &f.Groups[0].Members[i]
		switch {
		case i < 10:
			m.Private, m.Private6 = netip.Addr{}, netip.Addr{}
		case i < 130:
			m.Public = netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})
		}
	}
	sets, _ := Desired(f, p, bind)
	for label, want := range map[string][]string{"masters": {"count=190", "shards=4"}, "api.internal": {"count=190"}, "api": {"count=120"}} {
		expect(t, "200 masters", sets, label, TXT, want...)
		if got := at(sets, label+".demo.k8s.", A); len(got) != DefaultSubset {
			t.Errorf("%s lists %d addresses", label, len(got))
		}
		if label != "masters" && slices.ContainsFunc(sets, func(s Set) bool { return strings.HasPrefix(s.Name, label+"-") }) {
			t.Errorf("%s has shards", label)
		}
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
