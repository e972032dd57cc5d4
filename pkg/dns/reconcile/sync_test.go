package reconcile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// bench is one cluster without a scheduler: time passes only where Sync sleeps.
type bench struct {
	zone   *zone
	fleet  record.Fleet
	now    time.Time
	reads  int
	writes int
	slept  time.Duration
	// swapErrs and fleetErr are what the calls answer; a nil entry lets the write through.
	swapErrs  []error
	committed bool // a write that answers an error is committed all the same
	fleetErr  error
	readErr   error // of the zone
	completed []string
	hookErrs  []error // what the completions answer, like swapErrs
	observed  int
	report    reconcile.Report // the last one that the metrics took, with its error
	failure   error
	asleep    func() // what happens while somebody sleeps
	sleeps    []time.Duration
	limits    record.Limits
	configure func(c *reconcile.Config) // nil: the bench's own configuration
}

func (b *bench) Now() time.Time { return b.now }

func (b *bench) Sleep(ctx context.Context, d time.Duration) error {
	b.now, b.slept, b.sleeps = b.now.Add(d), b.slept+d, append(b.sleeps, d)
	if b.asleep != nil {
		b.asleep()
	}
	return ctx.Err()
}

func (b *bench) Limits() record.Limits { return b.limits }

func (b *bench) Complete(_ context.Context, _, id string) error {
	if len(b.hookErrs) > 0 {
		err := b.hookErrs[0]
		b.hookErrs = b.hookErrs[1:]
		if err != nil {
			return err
		}
	}
	b.completed = append(b.completed, id)
	return nil
}

func (b *bench) Observe(_ context.Context, r reconcile.Report, err error) {
	b.observed++
	b.report, b.failure = r, err
}

type benchZone struct{ *bench }

func (b benchZone) Read(_ context.Context, name string) ([]record.Set, error) {
	b.reads++
	if name != cluster {
		return nil, fmt.Errorf("the zone has no cluster %q", name)
	}
	if b.readErr != nil {
		return nil, b.readErr
	}
	return b.zone.list(), nil
}

func (b benchZone) CompareAndSwap(_ context.Context, _ string, remove, create []record.Set) error {
	b.writes++
	if len(b.swapErrs) > 0 {
		err := b.swapErrs[0]
		b.swapErrs = b.swapErrs[1:]
		if err != nil {
			if b.committed {
				return errors.Join(err, b.zone.swap(remove, create))
			}
			return err
		}
	}
	return b.zone.swap(remove, create)
}

type benchFleet struct{ *bench }

func (b benchFleet) Read(context.Context, string) (record.Fleet, error) { return b.fleet, b.fleetErr }

func machine(id string, n byte, state record.Lifecycle) record.Member {
	return record.Member{InstanceID: id, Lifecycle: state, Healthy: true, Running: true, Private: netip.AddrFrom4([4]byte{10, 0, 0, n})}
}

func newBench(members ...record.Member) *bench {
	return &bench{zone: newZone(), now: epoch, limits: route53Limits, fleet: record.Fleet{Cluster: cluster, Groups: []record.Group{
		{Name: "demo-masters", Cluster: cluster, Role: role.Masters, Desired: len(members), Members: members}}}}
}

// draining has two published masters, of which the second waits to be terminated since a moment ago.
func draining(t *testing.T) *bench {
	t.Helper()
	b := newBench(machine("i-1", 1, record.InService), machine("i-2", 2, record.InService))
	if _, err := b.sync(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	b.now = b.now.Add(time.Hour)
	b.fleet.Groups[0].Members[1].Lifecycle = record.TerminatingWait
	return b
}

func (b *bench) sync(ctx context.Context, t *testing.T, events ...reconcile.Event) (reconcile.Report, error) {
	t.Helper()
	return b.syncer(t).Sync(ctx, cluster, events...)
}

func (b *bench) syncer(t *testing.T) *reconcile.Syncer {
	t.Helper()
	n := uint64(0)
	c := reconcile.Config{Zone: benchZone{b}, Fleet: benchFleet{b}, Hooks: b, Clock: b, Metrics: b, Propagation: testSettle,
		Random: func() uint64 { n += 1 << 60; return n + uint64(b.writes) }}
	if b.configure != nil {
		b.configure(&c)
	}
	s, err := reconcile.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (b *bench) masters() []string { return b.zone.sets[setKey{"masters.demo.k8s.", "A"}].Values }

func TestSyncMeetsTrouble(t *testing.T) {
	wrapped := func(err error) error { return fmt.Errorf("changing the records: %w", err) }
	refused := errors.New("AccessDenied")
	for name, c := range map[string]struct {
		errs          []error
		committed     bool
		fail          error // what the error is; nil: none
		reads, writes int
		changed       bool
	}{
		"nothing":                         {reads: 1, writes: 1, changed: true},
		"one conflict":                    {errs: []error{wrapped(reconcile.ErrConflict)}, reads: 2, writes: 2, changed: true},
		"only conflicts":                  {errs: slices.Repeat([]error{reconcile.ErrConflict}, 9), fail: reconcile.ErrConflict, reads: 6, writes: 6},
		"throttled twice":                 {errs: slices.Repeat([]error{wrapped(reconcile.ErrThrottled)}, 2), reads: 1, writes: 3, changed: true},
		"always throttled":                {errs: slices.Repeat([]error{reconcile.ErrThrottled}, 99), fail: reconcile.ErrThrottled, reads: 1, writes: 12},
		"lost request":                    {errs: []error{wrapped(reconcile.ErrUnknownOutcome)}, reads: 2, writes: 2, changed: true},
		"lost reply of a committed write": {errs: []error{wrapped(reconcile.ErrUnknownOutcome)}, committed: true, reads: 2, writes: 1, changed: true},
		"not allowed":                     {errs: []error{refused}, fail: refused, reads: 1, writes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(machine("i-1", 1, record.InService))
			b.swapErrs, b.committed = c.errs, c.committed
			ctx, cancel := context.WithDeadline(t.Context(), epoch.Add(40*time.Second))
			defer cancel()
			r, err := b.sync(ctx, t)
			if !errors.Is(err, c.fail) {
				t.Fatalf("error %v, want %v", err, c.fail)
			}
			if b.reads != c.reads || b.writes != c.writes || r.Calls.ZoneReads != c.reads || r.Calls.ZoneWrites != c.writes {
				t.Errorf("%d reads and %d writes (reported: %+v), want %d and %d", b.reads, b.writes, r.Calls, c.reads, c.writes)
			}
			if r.Changed != c.changed || c.changed != slices.Equal(b.masters(), []string{"10.0.0.1"}) {
				t.Errorf("changed is %v, masters are %v", r.Changed, b.masters())
			}
			if left := epoch.Add(40 * time.Second).Sub(b.now); left < reconcile.DefaultMargin {
				t.Errorf("only %s of the deadline are left", left)
			}
			if b.observed != 1 {
				t.Errorf("the metrics took %d reports", b.observed)
			}
		})
	}
}

func TestSyncChangesNothingWithoutTheWholeFleet(t *testing.T) {
	b := newBench(machine("i-1", 1, record.InService))
	b.fleetErr = errors.New("page 2 of 3 did not arrive")
	if _, err := b.sync(t.Context(), t); err == nil || !strings.Contains(err.Error(), "page 2 of 3") || !strings.Contains(err.Error(), cluster) {
		t.Errorf("error %v names neither the cause nor the cluster", err)
	}
	if b.writes != 0 {
		t.Errorf("%d writes", b.writes)
	}
}

// What cannot be read is not written, also where the service has asked to slow down or the budget is used up.
func TestSyncChangesNothingWithoutTheRecords(t *testing.T) {
	for _, failure := range []error{errors.New("AccessDenied"), reconcile.ErrThrottled} {
		b := newBench(machine("i-1", 1, record.InService))
		b.readErr = failure
		if r, err := b.sync(t.Context(), t); err == nil || b.writes > 0 || r.Calls.FleetReads > 0 || r.Changed || errors.Is(failure, reconcile.ErrThrottled) != (b.reads > 1) {
			t.Errorf("%d reads, %+v, %v", b.reads, r, err)
		}
	}
	b := newBench(machine("i-1", 1, record.InService))
	b.swapErrs = []error{reconcile.ErrConflict}
	b.configure = func(c *reconcile.Config) { c.Budget = 2 }
	if r, err := b.sync(t.Context(), t); err == nil || b.reads != 1 || b.writes != 1 || r.Calls.FleetReads != 1 {
		t.Errorf("%d reads, %d writes, %+v, %v", b.reads, b.writes, r, err)
	}
}

func TestSyncKeepsToItsBudget(t *testing.T) {
	b := newBench(machine("i-1", 1, record.InService))
	b.swapErrs = slices.Repeat([]error{reconcile.ErrThrottled}, 1000)
	if _, err := b.sync(t.Context(), t); err == nil || b.reads+b.writes != reconcile.DefaultBudget {
		t.Errorf("%d requests, error %v", b.reads+b.writes, err)
	}
}

// TestSyncDrains follows one of two masters out: removed at once, its hook completed after the TTL and
// the settling time and not before, and the call asked for at that time.
func TestSyncDrains(t *testing.T) {
	b := draining(t)
	r, err := b.sync(t.Context(), t, reconcile.Event{})
	if err != nil || !slices.Equal(b.masters(), []string{"10.0.0.1"}) {
		t.Fatalf("masters are %v, error %v", b.masters(), err)
	}
	if want := b.now.Add(record.DefaultTTL + testSettle); !r.CallAgainAt.Equal(want) || len(b.completed) != 0 || r.Unannounced != 0 {
		t.Errorf("again at %s, want %s; completed %v, unannounced %d", r.CallAgainAt, want, b.completed, r.Unannounced)
	}
	b.now = r.CallAgainAt.Add(-time.Second)
	if r, err = b.sync(t.Context(), t); err != nil || len(b.completed) != 0 || r.Hooks[0].State != reconcile.HookWaiting {
		t.Errorf("a second early: completed %v, hooks %+v, error %v", b.completed, r.Hooks, err)
	}
	b.now = r.CallAgainAt
	if r, err = b.sync(t.Context(), t); err != nil || !slices.Equal(b.completed, []string{"i-2"}) || !r.CallAgainAt.IsZero() {
		t.Errorf("when due: completed %v, again %s, error %v", b.completed, r.CallAgainAt, err)
	}
	if r.Changed || r.Calls != (reconcile.Calls{ZoneReads: 1, FleetReads: 1, Hooks: 1}) || r.AgeSeconds < 60 {
		t.Errorf("an idle call does too much, or does not know the age: %+v", r)
	}
}

// TestSyncRightAfterAWrite: a call with nothing to change reads once and waits for nobody; one with a
// change waits for more, and writes what it reads after that.
func TestSyncRightAfterAWrite(t *testing.T) {
	b := newBench(machine("i-1", 1, record.InService))
	if _, err := b.sync(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	r, err := b.sync(t.Context(), t)
	if err != nil || r.Calls != (reconcile.Calls{ZoneReads: 1, FleetReads: 1}) || b.slept != 0 {
		t.Errorf("an idle call right after a write: %+v, asleep for %s, error %v", r.Calls, b.slept, err)
	}
	members := &b.fleet.Groups[0].Members
	*members = append(*members, machine("i-2", 2, record.InService))
	b.asleep = func() { *members = append(*members, machine("i-3", 3, record.InService)) }
	r, err = b.sync(t.Context(), t)
	if err != nil || r.Calls != (reconcile.Calls{ZoneReads: 2, ZoneWrites: 1, FleetReads: 2}) || b.slept < record.DefaultTTL {
		t.Errorf("a change right after a write: %+v, asleep for %s, error %v", r.Calls, b.slept, err)
	}
	if got := b.masters(); !slices.Equal(got, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}) {
		t.Errorf("masters are %v: changes did not gather", got)
	}
}

func TestReportIsJSON(t *testing.T) {
	b := newBench(machine("i-1", 1, record.InService))
	r, err := b.sync(t.Context(), t)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	values, _ := back["values"].(map[string]any)
	if back["changed"] != true || values["masters.demo.k8s. A"] != 1.0 || back["unannounced"] == 0.0 || back["again"] != nil {
		t.Errorf("the report is %s", data)
	}
}
