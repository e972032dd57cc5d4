package reconcile_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

var (
	seedFlag      = flag.Uint64("seed", 0, "replay this schedule of the simulator, with its trace")
	schedulesFlag = flag.Int("schedules", 0, "how many schedules to simulate; 0: 2000, 5000 with HARDTACK_E2E=1, 100000 with HARDTACK_E2E_LONG=1")
)

// variant is a way to build the two interfaces of an invocation: the real one, or a broken one that
// shows that the checks can fail.
type variant func(zone reconcile.Zone, fleet reconcile.Fleet) (reconcile.Zone, reconcile.Fleet)

func asDesigned(z reconcile.Zone, f reconcile.Fleet) (reconcile.Zone, reconcile.Fleet) { return z, f }

// sim is one schedule: a region, a zone, and invocations of Sync.
type sim struct {
	*world
	f      faults
	region *region
	zone   *zone
	fake   *fakeZone // nil: the model alone
	make   variant
	pace   time.Duration // 0: the default
	checker
	count   int
	running int
	stats   stats
}

// stats shows that a schedule has met what it is about.
type stats struct {
	invocations, commits, conflicts, unknown, throttled, killed, errors, hooks, held, compared int
}

func (a stats) plus(b stats) stats {
	return stats{a.invocations + b.invocations, a.commits + b.commits, a.conflicts + b.conflicts, a.unknown + b.unknown,
		a.throttled + b.throttled, a.killed + b.killed, a.errors + b.errors, a.hooks + b.hooks, a.held + b.held, a.compared + b.compared}
}

// invocation is one call of Sync under way.
type invocation struct {
	*proc
	member *reading  // what the fleet was read as, last
	looked time.Time // when the zone was read last
}

const (
	testSettle = 60 * time.Second
	// standInEvery: every so many schedules the zone is compared with package awsfake's.
	standInEvery = 4
	// underWay is the longest that a write can take to have its effect in the simulator.
	underWay = 31 * time.Second
)

// schedule simulates one seed and returns what it found wrong.
func schedule(seed uint64, make variant, trace func(string)) (*sim, []string) {
	w := newWorld(seed)
	w.trace = trace
	s := &sim{world: w, make: make, zone: newZone()}
	s.left = map[string]time.Time{}
	s.since = map[string]time.Time{}
	s.ended = map[string]string{}
	if seed%standInEvery == 0 {
		s.fake = newFakeZone(w)
	}
	s.f = faults{throttle: 0.05, lost: 0.04, late: 0.04, fail: 0.01, kill: 0.01}
	if w.chance(0.5) {
		s.f.stale = w.between(time.Second, 5*time.Second)
	}
	if w.chance(0.5) {
		s.pace = -1
	}
	s.region = &region{world: w, hookTime: w.between(80*time.Second, 200*time.Second)}
	s.populate()
	s.region.changed = s.event
	for range 4 + w.rng.IntN(12) {
		w.after(w.between(0, 120*time.Second), s.region.churn)
	}
	for at := time.Duration(0); at < 200*time.Second; at += 60 * time.Second {
		w.after(at+w.between(0, 60*time.Second), func() { s.invoke("sweep", 0) })
	}
	w.run(epoch.Add(24 * time.Hour))
	s.settle()
	return s, s.violations
}

// populate makes the groups as they are when the schedule begins.
func (s *sim) populate() {
	r := s.region
	r.groups = []record.Group{
		{Name: "demo-masters", Cluster: cluster, Role: role.Masters, Desired: 1 + s.rng.IntN(3)},
		{Name: "demo-minions", Cluster: cluster, Role: role.Minions, Desired: 1 + s.rng.IntN(5)},
	}
	if s.chance(0.5) {
		r.groups = append(r.groups, record.Group{Name: "demo-etcd", Cluster: cluster, Role: role.Etcd, Desired: 3, EtcdMembers: []string{"a", "b", "c"}})
	}
	for i, g := range r.groups {
		for range g.Desired {
			r.launch(i, record.InService)
		}
	}
	if s.chance(0.7) {
		if err := s.swap(nil, record.Placeholders(cluster, record.DefaultPolicy())); err != nil {
			s.violate("the placeholders: %v", err)
		}
	}
}

// event turns a change into invocations: none, one or several, at once or late, in any order.
func (s *sim) event(told bool) {
	if !told || s.chance(0.2) {
		return
	}
	for range 1 + s.rng.IntN(2) {
		delay := s.between(0, 3*time.Second)
		if s.chance(0.2) {
			delay = s.between(0, 60*time.Second)
		}
		s.after(delay, func() { s.invoke("event", 0) })
	}
}

// invoke starts one call of Sync, unless as many as the Lambda may have are running: then later.
func (s *sim) invoke(why string, tries int) {
	if s.running >= 4 {
		s.after(2*time.Second, func() { s.invoke(why, tries) })
		return
	}
	s.running++
	s.count++
	ok := false
	body := func(p *proc) { ok = s.call(&invocation{proc: p}) }
	s.spawn(fmt.Sprintf("%s-%d", why, s.count), body, func() {
		s.running--
		if !ok && tries < 3 { // the queue delivers it again
			s.after(s.between(5*time.Second, 30*time.Second), func() { s.invoke(why, tries+1) })
		}
	})
}

// call is the body of an invocation: what the Lambda does.
func (s *sim) call(p *invocation) bool {
	ctx, cancel := context.WithDeadline(context.Background(), s.now.Add(functionTimeout()))
	defer cancel()
	s.stats.invocations++
	z, f := s.make(simZone{s, p}, simFleet{s, p})
	sync, err := reconcile.New(reconcile.Config{
		Zone: z, Fleet: f, Hooks: simHooks{s, p}, Clock: p, Propagation: testSettle, Pace: s.pace,
		Random: s.rng.Uint64,
	})
	if err != nil {
		panic(err)
	}
	r, err := sync.Sync(ctx, cluster)
	s.logf("%s ends: changed=%v conflicts=%d again=%v err=%v", p.name, r.Changed, r.Conflicts, r.CallAgainAt, err)
	s.tally(r, err)
	if !r.CallAgainAt.IsZero() && !s.chance(0.2) {
		s.after(r.CallAgainAt.Sub(s.now), func() { s.invoke("again", 0) })
	}
	return err == nil
}

func (s *sim) tally(r reconcile.Report, err error) {
	s.stats.conflicts += r.Conflicts
	s.stats.unknown += r.Unknown
	s.stats.throttled += r.Throttled
	for _, h := range r.Hooks {
		switch h.State {
		case reconcile.HookDone:
			s.stats.hooks++
		case reconcile.HookHeld:
			s.stats.held++
		case reconcile.HookWaiting, reconcile.HookFailed:
		}
	}
	if err != nil {
		s.stats.errors++
	}
}

// settle is the one sweep after the last event, with nothing in its way; then the records must be true.
func (s *sim) settle() {
	s.f = faults{}
	s.region.changed = nil
	s.now = s.now.Add(time.Minute)
	s.invoke("last", 99)
	s.run(s.now.Add(24 * time.Hour))
	s.converged()
}

// simulate runs n schedules on all processors and returns the first violations, by seed.
func simulate(n int, make variant) (stats, map[uint64][]string) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // a schedule leaves little behind
	var mu sync.Mutex
	var total stats
	bad := map[uint64][]string{}
	var wg sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for first := range workers {
		wg.Go(func() {
			var mine stats
			for seed := uint64(first) + 1; seed <= uint64(n); seed += uint64(workers) {
				s, violations := schedule(seed, make, nil)
				mine = mine.plus(s.stats)
				if len(violations) > 0 {
					mu.Lock()
					bad[seed] = violations
					enough := len(bad) >= 20
					mu.Unlock()
					if enough {
						break
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			total = total.plus(mine)
		})
	}
	wg.Wait()
	return total, bad
}

func schedules() int {
	switch {
	case *schedulesFlag > 0:
		return *schedulesFlag
	case os.Getenv("HARDTACK_E2E_LONG") == "1":
		return 100_000
	case os.Getenv("HARDTACK_E2E") == "1":
		return 5000
	case testing.Short():
		return 200
	default:
		return 2000
	}
}

// TestSimulator is the proof of order: under lost, late, doubled and reordered events, concurrent and
// killed calls, throttling and lost replies, no older membership ever replaces a newer one, and one
// sweep makes everything right.
func TestSimulator(t *testing.T) {
	if *seedFlag != 0 {
		_, violations := schedule(*seedFlag, asDesigned, func(line string) { t.Log(line) })
		if len(violations) > 0 {
			t.Fatalf("seed %d:\n%s", *seedFlag, strings.Join(violations, "\n"))
		}
		return
	}
	n, start := schedules(), time.Now()
	total, bad := simulate(n, asDesigned)
	for seed, violations := range bad {
		t.Errorf("replay with: go test ./pkg/dns/reconcile -run TestSimulator -seed %d -v\n%s", seed, strings.Join(violations, "\n"))
	}
	t.Logf("%d schedules in %s: %+v", n, time.Since(start).Round(time.Millisecond), total)
	for what, count := range map[string]int{"commits": total.commits, "conflicts": total.conflicts, "lost replies": total.unknown,
		"throttled calls": total.throttled, "killed calls": total.killed, "completed hooks": total.hooks, "comparisons with the stand-in": total.compared} {
		if count < n/100 {
			t.Errorf("only %d %s in %d schedules: the simulator does not test what it is for", count, what, n)
		}
	}
}

// TestCheckerFindsStaleOverwrites breaks the two things that the order rests on: the checks must see it.
func TestCheckerFindsStaleOverwrites(t *testing.T) {
	for name, broken := range map[string]variant{"groups read first": groupsFirst, "without the generation": withoutGeneration} {
		t.Run(name, func(t *testing.T) {
			for seed := uint64(1); seed <= 20_000; seed++ {
				s, violations := schedule(seed, broken, nil)
				if s.staleOverwrites > 0 {
					i := slices.IndexFunc(violations, func(v string) bool { return strings.Contains(v, "overwrites") })
					t.Logf("seed %d: %s", seed, violations[i])
					return
				}
			}
			t.Error("no schedule of 20,000 shows a stale overwrite: the checker cannot fail")
		})
	}
}
