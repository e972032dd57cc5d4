package reconcile_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// A swap that Route 53 throttles is tried for a long time. What it would publish is read again before each try: meanwhile
// a machine ended.
func TestSyncReadsTheGroupsAgainBeforeAnOldSwap(t *testing.T) {
	b := newBench(machine("i-1", 1, record.InService), machine("i-2", 2, record.InService))
	throttled := fmt.Errorf("Rate exceeded: %w", reconcile.ErrThrottled)
	b.swapErrs = []error{throttled, throttled, throttled, throttled, throttled}
	b.asleep = func() {
		if b.now.Sub(epoch) > time.Second {
			b.fleet.Groups[0].Members = []record.Member{machine("i-1", 1, record.InService), machine("i-2", 2, record.TerminatingWait)}
		}
	}
	r, err := b.sync(t.Context(), t, reconcile.Event{})
	if got := b.masters(); err != nil || !slices.Equal(got, []string{"10.0.0.1"}) {
		t.Errorf("masters are %v, error %v: a machine that ends is published", got, err)
	}
	if r.Calls.ZoneReads != 1 || r.Calls.FleetReads < 2 || r.Throttled != 5 {
		t.Errorf("%+v, throttled %d: the groups alone are read again", r.Calls, r.Throttled)
	}
}

// Where nothing is throttled, nothing is read twice.
func TestSyncReadsOnceBeforeAYoungSwap(t *testing.T) {
	b := newBench(machine("i-1", 1, record.InService))
	b.swapErrs = []error{fmt.Errorf("Rate exceeded: %w", reconcile.ErrThrottled)} // the first wait is 0.2 s
	r, err := b.sync(t.Context(), t, reconcile.Event{})
	if err != nil || r.Calls.FleetReads != 1 || r.Calls.ZoneWrites != 2 {
		t.Errorf("%+v, %v", r.Calls, err)
	}
}

// A reading is young for a second, and what cannot be read again is not written.
func TestSyncReadsAnOldReadingAgain(t *testing.T) {
	for age, want := range map[time.Duration]int{time.Second: 1, time.Second + 1: 2} {
		b := newBench(machine("i-1", 1, record.InService))
		b.swapErrs = []error{reconcile.ErrThrottled}
		b.asleep = func() { b.now = epoch.Add(age) }
		if r, err := b.sync(t.Context(), t); err != nil || r.Calls.FleetReads != want || !r.Changed {
			t.Errorf("after %s: %+v, %v", age, r, err)
		}
	}
	b := newBench(machine("i-1", 1, record.InService))
	b.swapErrs = []error{reconcile.ErrThrottled}
	lost := errors.New("page 2 of 3 did not arrive")
	b.asleep = func() { b.now, b.fleetErr = epoch.Add(time.Minute), lost }
	if r, err := b.sync(t.Context(), t); !errors.Is(err, lost) || r.Changed || b.writes != 1 {
		t.Errorf("%d writes, %+v, %v", b.writes, r, err)
	}
}

// Of a generation that cannot be read nothing is known, also not its age; while nothing changes it stays.
func TestSyncKnowsNothingOfAnUnreadableGeneration(t *testing.T) {
	b := newBench(machine("i-1", 1, record.InService))
	if _, err := b.sync(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	b.setGeneration("by-hand")
	if r, err := b.sync(t.Context(), t); err != nil || r.AgeSeconds != 0 || r.Changed {
		t.Errorf("%+v, %v", r, err)
	}
}

// A machine that ended before it was published is fenced: an older call may be about to publish it, and the new
// generation makes that call read again. Only then does the time begin after which its hook is completed.
func TestSyncFencesWhatWasNeverPublished(t *testing.T) {
	b := newBench(machine("i-1", 1, record.InService))
	if _, err := b.sync(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	b.now = b.now.Add(10 * time.Minute)
	before := b.generation(t)
	b.fleet.Groups[0].Members = append(b.fleet.Groups[0].Members, machine("i-2", 2, record.TerminatingWait))
	r, err := b.sync(t.Context(), t, reconcile.Event{})
	if err != nil || len(b.completed) != 0 || b.generation(t) == before || r.Calls.ZoneWrites != 1 || len(r.Hooks) != 1 || r.Hooks[0].State != reconcile.HookWaiting {
		t.Fatalf("completed %v, %+v, %v", b.completed, r, err)
	}
	if want := b.now.Add(record.DefaultTTL + testSettle); r.CallAgainAt.Before(want) || r.CallAgainAt.Sub(want) > time.Second {
		t.Errorf("again at %s, want %s", r.CallAgainAt, want)
	}
	after := b.generation(t)
	b.now = b.now.Add(10 * time.Second)
	if r, err = b.sync(t.Context(), t, reconcile.Event{}); err != nil || r.Calls.ZoneWrites != 0 || b.generation(t) != after || len(b.completed) != 0 {
		t.Errorf("it is fenced once: %+v, %v", r.Calls, err)
	}
	b.now = b.now.Add(record.DefaultTTL + testSettle)
	if _, err = b.sync(t.Context(), t); err != nil || !slices.Equal(b.completed, []string{"i-2"}) {
		t.Errorf("when due: completed %v, %v", b.completed, err)
	}
}

// A generation that cannot be read is replaced as soon as a machine waits for it, and not with the next change only.
func TestSyncReplacesAnUnreadableGenerationForAHook(t *testing.T) {
	b := newBench(machine("i-1", 1, record.InService))
	if _, err := b.sync(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	b.setGeneration("by-hand")
	b.fleet.Groups[0].Members = append(b.fleet.Groups[0].Members, machine("i-2", 2, record.TerminatingWait))
	r, err := b.sync(t.Context(), t)
	if err != nil || len(b.completed) != 0 || r.CallAgainAt.IsZero() || r.Calls.ZoneWrites != 1 {
		t.Fatalf("completed %v, %+v, %v", b.completed, r, err)
	}
	b.now = r.CallAgainAt
	if _, err = b.sync(t.Context(), t); err != nil || !slices.Equal(b.completed, []string{"i-2"}) {
		t.Errorf("when due: completed %v, %v", b.completed, err)
	}
}

// A dead master leaves at once, however many changes are gathered otherwise.
func TestSyncRemovesAMasterWithoutWaiting(t *testing.T) {
	b := newBench(machine("i-1", 1, record.InService), machine("i-2", 2, record.InService))
	if _, err := b.sync(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	b.fleet.Groups[0].Members[1].Healthy = false
	r, err := b.sync(t.Context(), t, reconcile.Event{})
	if err != nil || b.slept != 0 || !r.Changed || !slices.Equal(b.masters(), []string{"10.0.0.1"}) {
		t.Errorf("asleep for %s before a dead master left; masters are %v, %v", b.slept, b.masters(), err)
	}
}

// Draining at a steady rate: every hook is completed by the function, and none ends by its own time limit. The groups'
// hook holds a machine for 300 s.
func TestDrainingAtASteadyRate(t *testing.T) {
	for _, perMinute := range []int{6, 30, 120, 240} {
		t.Run(fmt.Sprint(perMinute, " a minute"), func(t *testing.T) {
			const hold = 300 * time.Second
			b := newBench()
			ended, waits := map[string]time.Time{}, []time.Duration{}
			starved, next := 0, 0
			step := time.Minute / time.Duration(perMinute)
			add := func(state record.Lifecycle) {
				next++
				m := machine(fmt.Sprintf("i-%d", next), 0, state)
				m.Private = stormAddress(next)
				b.fleet.Groups[0].Members = append(b.fleet.Groups[0].Members, m)
			}
			for range 390 {
				add(record.InService)
			}
			b.fleet.Groups[0].Desired = 390
			oldest := 0 // the next machine to end
			for n := range perMinute * 10 {
				b.now = epoch.Add(time.Duration(n) * step)
				members := b.fleet.Groups[0].Members
				i := slices.IndexFunc(members, func(m record.Member) bool { return m.Lifecycle == record.InService })
				members[i].Lifecycle = record.TerminatingWait
				ended[members[i].InstanceID] = b.now
				oldest++
				add(record.InService)
				if (time.Duration(n)*step)%(5*time.Second) >= step {
					continue // the function gathers
				}
				if _, err := b.sync(t.Context(), t, reconcile.Event{}); err != nil {
					t.Fatal(err)
				}
				for _, id := range b.completed {
					waits = append(waits, b.now.Sub(ended[id]))
					delete(ended, id)
				}
				done := b.completed
				b.completed = nil
				b.fleet.Groups[0].Members = slices.DeleteFunc(b.fleet.Groups[0].Members, func(m record.Member) bool {
					if at, waits := ended[m.InstanceID]; waits && b.now.Sub(at) > hold {
						starved++
						delete(ended, m.InstanceID)
						return true
					}
					return slices.Contains(done, m.InstanceID)
				})
			}
			slices.Sort(waits)
			if starved > 0 || len(waits) < perMinute*8 || waits[len(waits)*9/10] > 90*time.Second {
				t.Fatalf("%d of %d hooks ended by their own time limit; %d were completed", starved, oldest, len(waits))
			}
			t.Logf("median %s, nine of ten %s", waits[len(waits)/2], waits[len(waits)*9/10])
		})
	}
}

// generation is the published one; a generation may take several values.
func (b *bench) generation(t *testing.T) string {
	t.Helper()
	g, ok := record.Generation(b.zone.list(), cluster)
	if !ok {
		t.Fatal("there is no generation")
	}
	return g
}

// setGeneration writes a generation as a person would.
func (b *bench) setGeneration(text string) {
	key := setKey{"_hardtack.demo.k8s.", "TXT"}
	set := b.zone.sets[key]
	set.Values = slices.DeleteFunc(slices.Clone(set.Values), func(v string) bool { return len(v) > 8 && (v[:4] == "gene" || v[:4] == "left") })
	set.Values = append(set.Values, "generation="+text)
	b.zone.sets[key] = set
}
