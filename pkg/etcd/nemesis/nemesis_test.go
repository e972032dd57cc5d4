package nemesis

import (
	"flag"
	"fmt"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
)

var (
	seed  = flag.Uint64("seed", 0, "run this one schedule")
	what  = flag.String("fault", "", "run schedules of the faults with this in their names alone")
	which = flag.String("variant", "", "run the wrong variants with this in their names alone")
	tell  = flag.Bool("tell", false, "tell the story of every schedule")
	atOne = flag.Int("worlds", 6*runtime.NumCPU(), "schedules at once: most of a schedule is waiting")
)

// bench is what all schedules of a run share.
type bench struct {
	t    *testing.T
	dir  string
	etcd string
	tls  tlsFiles
	// only are the names of the faults that a schedule may have; all if it is empty.
	only []string
	cpu  *atomic.Int64 // of etcd, in ns
	torn *atomic.Int64 // databases of learners that were torn
	// quiet: what is found was looked for, and its story is not told.
	quiet bool
}

// newBench makes the namespaces of a run; ok is false in the process that only started the one inside.
func newBench(t *testing.T) (b *bench, ok bool) {
	t.Helper()
	if os.Getenv("HARDTACK_E2E") == "" {
		t.Skip("real etcd processes on disks of their own: make nemesis runs it (HARDTACK_E2E=1)")
	}
	if os.Geteuid() != 0 {
		t.Skip("makes network namespaces and loop devices: run as root")
	}
	cache := filepath.Join(t.TempDir(), "etcd")
	programs.Install(t, cache, programs.DefaultLock(t), "etcd")
	if !inNamespaces(t) {
		return nil, false
	}
	b = &bench{t: t, cpu: new(atomic.Int64), torn: new(atomic.Int64), dir: prepare(t), etcd: filepath.Join(cache, programs.Bin)}
	b.tls = newTLS(t, b.dir)
	return b, true
}

// of is the bench of a part, which tells what it finds there.
func (b *bench) of(t *testing.T, only []string) *bench {
	t.Helper()
	c := *b
	c.t, c.quiet, c.only = t, true, only
	return &c
}

// TestNemesis runs the agent's own code through schedules of faults, of which none may find anything.
func TestNemesis(t *testing.T) {
	b, ok := newBench(t)
	if !ok {
		return
	}
	n, first := count(t, 8), uint64(1)
	if *what != "" {
		b.only = named(*what)
	}
	if *seed != 0 {
		n, first = 1, *seed
	}
	for of, wrong := range b.schedules(n, first, func(w *world) procedure { return agent{w: w}.run }) {
		t.Errorf("schedule %d (-seed %d runs it again): %s", of, of, strings.Join(wrong, "; "))
	}
}

// TestTorn takes a learner's power in the moment after which etcd cannot run on what is left: that must happen, and be mended
// without a hand. Then it takes that of one that has just got its vote, to which it must not happen.
func TestTorn(t *testing.T) {
	b, ok := newBench(t)
	if !ok {
		return
	}
	for _, name := range []string{torn, tornVoter} {
		b.only = []string{name}
		for of, wrong := range b.schedules(1, max(1, *seed), func(w *world) procedure { return agent{w: w}.run }) {
			t.Errorf("%s (-seed %d): %s", name, of, strings.Join(wrong, "; "))
		}
	}
	if b.torn.Load() != 1 {
		t.Error("no learner's database was torn")
	}
}

// schedules runs schedules, a few at once. It returns the seeds of those that were wrong, with what was.
func (b *bench) schedules(n int, first uint64, run func(*world) procedure) map[uint64][]string {
	found := map[uint64][]string{}
	var mu sync.Mutex
	var next, done atomic.Int64
	var group sync.WaitGroup
	began, before := time.Now(), usage()
	for lane := range min(*atOne, n) {
		group.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= int64(n) || b.t.Context().Err() != nil {
					return
				}
				of := first + uint64(i)
				wrong := b.one(lane+1, of, run)
				if len(wrong) > 0 {
					mu.Lock()
					found[of] = wrong
					mu.Unlock()
				}
				if d := done.Add(1); d%10 == 0 {
					fmt.Printf("%d of %d schedules, %d wrong, %.0f s\n", d, n, len(found), time.Since(began).Seconds())
				}
			}
		})
	}
	group.Wait()
	n = int(done.Load())
	each := func(d time.Duration) float64 { return d.Seconds() / float64(max(n, 1)) }
	etcds := time.Duration(b.cpu.Swap(0))
	b.t.Logf("%d schedules in %.0f s; each took %.2f s, and %.2f s of CPU, %.2f of them etcd's", n, time.Since(began).Seconds(),
		each(time.Since(began)), each(usage()-before), each(etcds))
	return found
}

// usage is the CPU time of this process and of those that it has started and that have ended.
func usage() (all time.Duration) {
	for _, of := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var r unix.Rusage
		if unix.Getrusage(of, &r) == nil {
			all += time.Duration(r.Utime.Nano() + r.Stime.Nano())
		}
	}
	return all
}

// one runs the schedule of a seed, and tells its story if it is wrong.
func (b *bench) one(lane int, of uint64, run func(*world) procedure) []string {
	rng := mrand.New(mrand.NewPCG(of, 0))
	w := newWorld(b.t, lane, b.dir, b.etcd, b.tls)
	w.store = newRecords(of)
	defer func() {
		w.end(b.t)
		b.cpu.Add(w.cpu.Load())
		b.torn.Add(w.torn.Load())
	}()
	first, list := choose(rng, b.only)
	w.backups = withBackups(rng, list)
	w.logf("schedule %d: %s", of, names(list))
	s := &schedule{world: w, t: b.t, rng: rng, conf: b.tls.client, run: run(w), early: first, hunts: b.quiet, ctx: b.t.Context(), at: map[string]*machine{}}
	wrong := s.live(list)
	if *tell || len(wrong) > 0 && !b.quiet {
		w.mu.Lock()
		defer w.mu.Unlock()
		b.t.Logf("schedule %d:\n%s\nwrong:\n  %s", of, strings.Join(w.events, "\n"), strings.Join(wrong, "\n  "))
	}
	return wrong
}

// count is the number of schedules: SCHEDULES in the environment, or the given one.
func count(t *testing.T, usual int) int {
	t.Helper()
	text := os.Getenv("SCHEDULES")
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("SCHEDULES=%q is no number of schedules", text)
	}
	return n
}
