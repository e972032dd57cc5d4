package etcd

import (
	"flag"
	"testing"
	"time"
)

var (
	seedFlag      = flag.Uint64("seed", 0, "replay this schedule of the simulator, with its trace")
	schedulesFlag = flag.Int("schedules", 100_000, "how many schedules to simulate")
)

// A variant is a wrong procedure that somebody has used, or might: the simulator must find what it breaks.
type variant struct {
	name string
	// byFacts is the rule of the product of facts that it breaks first; "" if it takes a schedule to see what is wrong.
	byFacts string
	// decide and join replace the decisions; nil is the real one.
	decideAs func(Facts) Action
	joinAs   func(JoinFacts) JoinAction
	// alone: only the product of facts is held against it. What it breaks takes more than the simulator's faults.
	alone bool
	// sameToken: every epoch has the same token.
	sameToken bool
	// promotesOthers: whoever runs promotes any learner in the list.
	promotesOthers bool
}

func (v *variant) decide(f Facts) Action {
	if v.decideAs != nil {
		return v.decideAs(f)
	}
	return Decide(f)
}

func (v *variant) join(j JoinFacts) JoinAction {
	if v.joinAs != nil {
		return v.joinAs(j)
	}
	return DecideJoin(j)
}

func (v *variant) promoting(w *world, m *simMachine, f *Facts) {
	if !v.promotesOthers || f.List == nil {
		return
	}
	for _, member := range f.List.Members {
		if id := w.idOf(member.ID); member.Learner && id != none {
			w.checkPromotion(m.side, id)
			w.promote(w.ids[id].cluster, m.side, id)
		}
	}
}

// steps is how many events a schedule has on average before all faults end.
const steps = 240

// run simulates one schedule and returns what went wrong.
func (w *world) run(seed uint64) string {
	w.reset(seed)
	if !w.one(4) {
		w.heal() // most schedules begin with a cluster
		w.healing, w.stale = false, 0
	}
	for range w.random.IntN(2 * steps) {
		w.step()
		if w.full || w.wrong != "" {
			return w.wrong
		}
	}
	w.heal()
	return w.wrong
}

func TestSimulator(t *testing.T) {
	makeWords()
	w := newWorld(&variant{})
	if *seedFlag != 0 {
		w.trace = func(format string, args ...any) { t.Logf(format, args...) }
		if wrong := w.run(*seedFlag); wrong != "" {
			t.Errorf("schedule %d: %s", *seedFlag, wrong)
		}
		return
	}
	begin := time.Now()
	schedules := *schedulesFlag
	if testing.Short() {
		schedules /= 100
	}
	full, epochs := 0, 0
	for i := range schedules {
		seed := uint64(i + 1)
		if wrong := w.run(seed); wrong != "" {
			t.Fatalf("schedule %d of %d: %s: run again with -seed %d", seed, schedules, wrong, seed)
		}
		if w.full {
			full++
		}
		epochs += w.newest
	}
	took := time.Since(begin)
	t.Logf("%d schedules, seeds 1 to %d, in %s: %d epochs, %d acknowledged writes, %d schedules ended early for lack of room", schedules, schedules, took.Round(time.Second), epochs, w.writes, full)
	for row := range rows {
		t.Logf("%-3s %9d  %s", Row(row), w.seen[row], rows[row].when)
		if w.seen[row] == 0 && schedules >= 10_000 && !unreached[Row(row)] {
			t.Errorf("no schedule came to row %s: %s", Row(row), rows[row].when)
		}
	}
	if full > schedules/50 {
		t.Errorf("%d of %d schedules ended early", full, schedules)
	}
}

// unreached are the rows that need what the simulator does not have.
var unreached = map[Row]bool{
	F0Unread:  true, // devices that cannot be read
	N0Address: true, // another document
	S3Address: true, // the same; TestGrow of pkg/node/member comes to it with real members
	E6Other:   true, // a marker that somebody has edited
}
