package record

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// world is a random but legal course of a cluster: machines and groups come, change state and go.
type world struct {
	*rand.Rand
	ids   int
	pace  int // machines that come or change in a turn
	fleet Fleet
}

func newWorld(seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 7)), fleet: Fleet{Cluster: "demo"}}
	w.pace = pick(w, 4, 16)
	return w
}

func pick[T any](w *world, from ...T) T { return from[w.IntN(len(from))] }

// turn changes the fleet and returns a copy of it in another order.
func (w *world) turn() Fleet {
	for range w.IntN(4) {
		w.groups()
	}
	for i := range w.fleet.Groups {
		for range w.IntN(w.pace) {
			w.machines(&w.fleet.Groups[i])
		}
	}
	return w.shuffled(w.fleet)
}

func (w *world) groups() {
	gs := w.fleet.Groups
	switch {
	case len(gs) > 0 && w.IntN(6) == 0:
		w.fleet.Groups = slices.Delete(slices.Clone(gs), 0, 1)
	case len(gs) < 5 && w.IntN(2) == 0:
		w.ids++
		g := Group{Name: fmt.Sprint("group ", w.ids), Cluster: "demo", Role: pick(w, role.All()...), Desired: w.IntN(3)}
		if g.Role == role.Etcd {
			g.EtcdMembers = [][]string{nil, {"a"}, {"a", "b", "c"}}[w.IntN(3)]
		}
		w.fleet.Groups = append(gs, g)
	case len(gs) > 0:
		gs[w.IntN(len(gs))].Desired = w.IntN(3)
	}
}

func (w *world) machines(g *Group) {
	g.Members = slices.Clone(g.Members)
	switch n := len(g.Members); {
	case n > 0 && w.IntN(4) == 0:
		g.Members = slices.Delete(g.Members, 0, 1)
	case n > 0 && w.IntN(2) == 0:
		m := &g.Members[w.IntN(n)]
		m.Lifecycle = pick(w, "Pending", PendingWait, PendingProceed, InService, InService, TerminatingWait, "Standby", "Odd")
		m.Healthy, m.Running = w.IntN(5) > 0, w.IntN(5) > 0
	default:
		w.ids++
		m := Member{InstanceID: fmt.Sprint("i-", w.ids), Lifecycle: pick(w, PendingWait, InService, InService), Healthy: true, Running: true}
		// A small space, so that addresses are given out again.
		m.Private = netip.AddrFrom4([4]byte{10, 0, 0, byte(w.IntN(90))})
		if w.IntN(3) == 0 {
			m.Private6 = netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(w.IntN(40))})
		}
		if w.IntN(3) == 0 {
			m.Public = netip.AddrFrom4([4]byte{198, 51, 100, byte(w.IntN(40))})
		}
		if g.Role == role.Etcd {
			m.EtcdMember = pick(w, "", "a", "b", "c", "d")
		}
		g.Members = append(g.Members, m)
	}
}

func (w *world) shuffled(f Fleet) Fleet {
	f.Groups = slices.Clone(f.Groups)
	for i := range f.Groups {
		f.Groups[i].Members = slices.Clone(f.Groups[i].Members)
		ms := f.Groups[i].Members
		w.Shuffle(len(ms), func(a, b int) { ms[a], ms[b] = ms[b], ms[a] })
	}
	w.Shuffle(len(f.Groups), func(a, b int) { f.Groups[a], f.Groups[b] = f.Groups[b], f.Groups[a] })
	return f
}

// TestHistories sweeps through random courses and holds every published state against the rules.
func TestHistories(t *testing.T) {
	seeds := 80
	switch {
	case os.Getenv("HARDTACK_E2E_LONG") == "1":
		seeds = 3000
	case os.Getenv("HARDTACK_E2E") == "1":
		seeds = 1000
	}
	for seed := range seeds {
		history(t, uint64(seed), 25)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func history(t *testing.T, seed uint64, turns int) {
	t.Helper()
	w := newWorld(seed)
	p := DefaultPolicy()
	p.Subset = 2
	p.Outputs.APIInternal, p.Outputs.APIPublic = w.IntN(2) == 0, w.IntN(2) == 0
	limits := Limits{SetValues: w.IntN(2) * 17, BatchValues: w.IntN(2) * 200}
	var have []Set
	for turn := range turns {
		f := w.turn()
		f.At = noon.Add(time.Duration(turn) * time.Hour)
		have = sweep(t, w, have, f, p, limits, fmt.Sprint("g", turn))
		f.At = f.At.Add(VanishAfter)
		// The same reading again: at most a group that stays away is let go, and then it is done.
		have = sweep(t, w, have, f, p, limits, fmt.Sprint("h", turn))
		have = sweep(t, w, have, f, p, limits, fmt.Sprint("i", turn))
		desired, _ := Desired(f, p, limits)
		want, _ := Guard(desired, have, f, p)
		if c := Diff(have, want, "again"); !c.Empty() {
			t.Errorf("turn %d: the same reading for the fourth time changes %+v", turn, c)
		}
		if t.Failed() {
			return
		}
	}
}

// sweep is one reconcile, part by part, with every rule checked on the way.
func sweep(t *testing.T, w *world, have []Set, f Fleet, p Policy, l Limits, generation string) []Set {
	t.Helper()
	desired, problems := Desired(f, p, l)
	if err := problems.Err(); err != nil && !strings.Contains(err.Error(), "more than the") {
		t.Errorf("a legal fleet has the errors %v", err)
	}
	want, _ := Guard(desired, have, f, p)
	other := w.shuffled(f)
	desired2, _ := Desired(other, p, l)
	want2, _ := Guard(desired2, slices.Clone(have), other, p)
	if diff := gocmp.Diff(want, want2); diff != "" {
		t.Errorf("the order of reading matters:\n%s", diff)
	}
	if problems.Err() == nil {
		checkWant(t, have, want, f, p, l)
	}
	for n := 0; ; n++ {
		c := Diff(have, want, fmt.Sprintf("%s-%d", generation, n))
		part, more, err := c.Fit(l)
		if err != nil || n > 100 {
			t.Fatalf("part %d of the change does not fit: %v", n, err)
		}
		if values, _ := part.size(); l.BatchValues > 0 && values > l.BatchValues {
			t.Errorf("a part has %d values, the limit is %d", values, l.BatchValues)
		}
		if !part.Empty() && len(have) > 0 {
			before, _ := Generation(have, "demo")
			after, ok := Generation(part.Create, "demo")
			if removed, _ := Generation(part.Remove, "demo"); removed != before || !ok || after == before {
				t.Errorf("the change replaces generation %q (the store has %q) by %q", removed, before, after)
			}
		}
		have = commit(t, have, part)
		targetsResolve(t, have)
		if !more {
			break
		}
	}
	if diff := gocmp.Diff(withoutGenerations(want), withoutGenerations(have)); diff != "" {
		t.Errorf("the change does not give what is wanted:\n%s", diff)
	}
	return have
}

func withoutGenerations(sets []Set) []Set {
	out := []Set{}
	for _, s := range sets {
		if s.Type == TXT {
			s.Values = s.withoutGeneration()
		}
		out = append(out, s)
	}
	return out
}

func targetsResolve(t *testing.T, sets []Set) {
	t.Helper()
	for _, s := range sets {
		if s.Type != SRV {
			continue
		}
		for _, v := range s.Values {
			if !slices.ContainsFunc(sets, func(o Set) bool { return o.Name == target(v) && (o.Type == A || o.Type == AAAA) }) {
				t.Errorf("%s points to %s, which has no address", s.Name, target(v))
			}
		}
	}
}

// checkWant holds what is about to be published against the rules of the design, each computed here
// in its own way.
func checkWant(t *testing.T, have, want []Set, f Fleet, p Policy, l Limits) {
	t.Helper()
	if !slices.IsSortedFunc(want, compareSets) {
		t.Errorf("the sets are not in order: %v", want)
	}
	leaving, staying := map[string]bool{}, map[string]bool{}
	desired := map[role.Role]int{}
	for _, g := range f.Groups {
		desired[g.Role] += g.Desired
		for _, m := range g.Members {
			for _, a := range []netip.Addr{m.Private, m.Private6, m.Public} {
				if m.Lifecycle.Leaving() {
					leaving[a.String()] = true
				} else {
					staying[a.String()] = true
				}
			}
		}
	}
	for _, s := range want {
		parseable(t, s)
		if len(s.Values) == 0 || !slices.IsSorted(s.Values) || len(slices.Compact(slices.Clone(s.Values))) != len(s.Values) {
			t.Errorf("%s %s has the values %v, want some, sorted, each once", s.Name, s.Type, s.Values)
		}
		if l.SetValues > 0 && len(s.Values) > l.SetValues && (s.Type == A || s.Type == AAAA) {
			t.Errorf("%s has %d values, the limit is %d", s.Name, len(s.Values), l.SetValues)
		}
		for _, v := range s.Values {
			if leaving[v] && !staying[v] {
				t.Errorf("%s lists %s, whose machine is leaving", s.Name, v)
			}
		}
		if strings.HasPrefix(s.Name, memberPrefix) && len(s.Values) != 1 {
			t.Errorf("%s has the addresses %v, want one", s.Name, s.Values)
		}
	}
	for _, s := range have {
		i := slices.IndexFunc(want, func(o Set) bool { return o.Name == s.Name && o.Type == s.Type })
		if s.Type == SRV && desired[role.Etcd] > 0 && (i < 0 || len(missingTargets(s, want[i])) > 0) {
			t.Errorf("%s shrinks from %v while etcd's groups want %d", s.Name, s.Values, desired[role.Etcd])
		}
		r, isRole := strings.CutSuffix(s.Name, ".demo.k8s.")
		if s.Type == A && isRole && slices.Contains(role.All(), role.Role(r)) && i < 0 &&
			!slices.ContainsFunc(want, func(o Set) bool { return o.Name == s.Name && o.Type == AAAA }) {
			t.Errorf("%s is empty", s.Name)
		}
	}
}

// parseable has the set read by a DNS library.
func parseable(t *testing.T, s Set) {
	t.Helper()
	for _, v := range s.Values {
		if s.Type == TXT {
			v = `"` + v + `"`
			if len(v) > 257 {
				t.Errorf("%s has a text of %d characters, a string takes 255", s.Name, len(v)-2)
			}
		}
		rr, err := dns.NewRR(fmt.Sprintf("%s %d IN %s %s", s.Name, int(s.TTL.Seconds()), s.Type, v))
		if err != nil || rr.Header().Name != s.Name || rr.Header().Ttl != uint32(s.TTL.Seconds()) {
			t.Errorf("%+v is not read back: %v, %v", s, rr, err)
		}
	}
}

func FuzzHistory(f *testing.F) {
	for seed := range uint64(30) {
		f.Add(seed, 20)
	}
	f.Fuzz(func(t *testing.T, seed uint64, turns int) { history(t, seed, max(0, turns%40)) })
}

// FuzzNames gives tags to everything that makes a name: what is published can always be read back, and
// else there is an error.
func FuzzNames(f *testing.F) {
	f.Add("demo", "a", "masters", "demo-masters", "k8s.")
	f.Add("Demo_1", "\x00", "etcd", "a b\"c", "ex..ample")
	f.Fuzz(func(t *testing.T, cluster, member, r, name, suffix string) {
		p := DefaultPolicy()
		p.Suffix = suffix
		fleet := Fleet{Cluster: cluster, Groups: []Group{{Name: name, Cluster: cluster, Role: role.Role(r), Desired: 1, EtcdMembers: []string{member},
			Members: []Member{in(cmp.Or(name, "i"), "10.0.0.1").holding(member)}}}}
		sets, problems := Desired(fleet, p, Limits{})
		if (len(sets) == 0) != (problems.Err() != nil) {
			t.Fatalf("%d sets with the errors %v", len(sets), problems)
		}
		for _, s := range sets {
			parseable(t, s)
			if !Managed(s, cluster, p) {
				t.Errorf("%+v is published and not kept", s)
			}
		}
	})
}
