package reconcile_test

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// written is a bench whose records were written at the epoch, and that has a machine more since; random is the randomness of
// its waits.
func written(t *testing.T, random uint64) *bench {
	t.Helper()
	b := newBench(machine("i-1", 1, record.InService))
	b.configure = func(c *reconcile.Config) { c.Random = func() uint64 { return random } }
	if _, err := b.sync(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	b.join()
	return b
}

// join brings one machine more.
func (b *bench) join() {
	members := &b.fleet.Groups[0].Members
	n := byte(len(*members) + 1)
	*members = append(*members, machine("i-"+string(rune('0'+n)), n, record.InService))
}

// A change waits until the TTL has passed since the last write, and at random for up to half of it longer, but never past
// half of the time that is left, and not for a clock that is far ahead.
func TestSyncPaces(t *testing.T) {
	s := time.Second
	for name, tc := range map[string]struct {
		random   uint64
		now      time.Duration // since the last write
		deadline time.Duration // from then; 0: none
		want     []time.Duration
	}{
		"at once":                 {want: []time.Duration{5 * s}},
		"at random":               {random: 1 << 63, want: []time.Duration{6250 * time.Millisecond}},
		"later":                   {now: 2 * s, want: []time.Duration{3 * s}},
		"late enough":             {now: 5 * s},
		"late enough, at random":  {random: math.MaxUint64, now: 5 * s},
		"with a deadline":         {deadline: 60 * s, want: []time.Duration{5 * s}},
		"with little time":        {deadline: 9 * s, want: []time.Duration{3 * s, 1500 * time.Millisecond, 500 * time.Millisecond}},
		"with less, four times":   {deadline: 6 * s, want: []time.Duration{1500 * time.Millisecond, 750 * time.Millisecond, 375 * time.Millisecond, 187500 * time.Microsecond}},
		"another's clock":         {now: -5 * s, want: []time.Duration{10 * s}},
		"another's clock is fast": {now: -6 * s},
	} {
		t.Run(name, func(t *testing.T) {
			b := written(t, tc.random)
			ctx := t.Context()
			if tc.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithDeadline(ctx, epoch.Add(tc.deadline))
				defer cancel()
			}
			b.now = epoch.Add(tc.now)
			r, err := b.sync(ctx, t, reconcile.Event{})
			if err != nil || !slices.Equal(b.sleeps, tc.want) || !r.Changed || r.Calls.ZoneReads != len(tc.want)+1 || len(b.masters()) != 2 {
				t.Errorf("it slept for %v, want %v; %+v, %v", b.sleeps, tc.want, r, err)
			}
		})
	}
}

// While others write again and again, a call waits for them only so often.
func TestSyncWaitsForOthersFourTimes(t *testing.T) {
	b := written(t, 0)
	b.asleep = func() { b.setGeneration(reconcile.NewGeneration(b.now, uint64(len(b.sleeps)))) }
	r, err := b.sync(t.Context(), t, reconcile.Event{})
	if err != nil || len(b.sleeps) != 4 || r.Calls.ZoneReads != 5 || !r.Changed {
		t.Errorf("it slept for %v, %+v, %v", b.sleeps, r, err)
	}
}

// A caller that is gone while a change waits gets no change.
func TestSyncEndsWhileItWaits(t *testing.T) {
	b := written(t, 0)
	ctx, cancel := context.WithCancel(t.Context())
	b.asleep = cancel
	writes := b.writes
	r, err := b.sync(ctx, t, reconcile.Event{})
	if err == nil || r.Changed || b.writes != writes || len(b.sleeps) != 1 {
		t.Errorf("%d writes, asleep for %v, %+v, %v", b.writes-writes, b.sleeps, r, err)
	}
	// And neither does one while a throttled call waits, or one after a conflict.
	for _, trouble := range []error{reconcile.ErrThrottled, reconcile.ErrConflict} {
		b := newBench(machine("i-1", 1, record.InService))
		ctx, cancel := context.WithCancel(t.Context())
		b.asleep, b.swapErrs = cancel, []error{trouble}
		if r, err := b.sync(ctx, t); err == nil || r.Changed || b.writes != 1 {
			t.Errorf("%v: %d writes, %+v, %v", trouble, b.writes, r, err)
		}
	}
}

// A write of one's own, whose reply was lost, is nobody else's to wait for: what has changed since is written at once.
func TestSyncDoesNotWaitForItself(t *testing.T) {
	b := newBench(machine("i-1", 1, record.InService))
	b.swapErrs, b.committed = []error{reconcile.ErrUnknownOutcome}, true
	b.asleep = func() {
		if len(b.fleet.Groups[0].Members) == 1 {
			b.join()
		}
	}
	r, err := b.sync(t.Context(), t)
	if err != nil || b.slept >= time.Second || b.writes != 2 || len(b.masters()) != 2 || !r.Changed || r.Unknown != 1 {
		t.Errorf("it slept for %s, %d writes, %+v, %v", b.slept, b.writes, r, err)
	}
}

// What somebody else has written after a lost reply is not this call's change.
func TestSyncKnowsItsOwnWrite(t *testing.T) {
	b := newBench(machine("i-1", 1, record.InService))
	b.swapErrs = []error{reconcile.ErrUnknownOutcome}
	b.asleep = func() {
		other := newBench(machine("i-1", 1, record.InService))
		other.zone, other.now = b.zone, b.now
		if _, err := other.sync(t.Context(), t); err != nil {
			t.Error(err)
		}
	}
	b.configure = func(c *reconcile.Config) { c.Random = func() uint64 { return 42 } }
	if r, err := b.sync(t.Context(), t); err != nil || r.Changed || r.Unannounced != 0 || b.writes != 1 || r.Unknown != 1 {
		t.Errorf("%d writes, %+v, %v", b.writes, r, err)
	}
}

// While a storm goes on, the writes come less and less often, and a few machines at a time make no storm.
func TestSyncSpreadsAStorm(t *testing.T) {
	storm := func(machines int) (waits []time.Duration) {
		b := written(t, 0)
		for range 8 {
			for range machines {
				b.join()
			}
			b.sleeps = nil
			if _, err := b.sync(t.Context(), t, reconcile.Event{}); err != nil {
				t.Fatal(err)
			}
			waits = append(waits, b.sleeps...)
		}
		return waits
	}
	s := time.Second
	if got, want := storm(4), []time.Duration{5 * s, 5 * s, 10 * s, 15 * s, 20 * s, 20 * s, 20 * s, 20 * s}; !slices.Equal(got, want) {
		t.Errorf("a storm waits for %v, want %v", got, want)
	}
	if got, want := storm(1), slices.Repeat([]time.Duration{5 * s}, 8); !slices.Equal(got, want) {
		t.Errorf("single machines wait for %v, want %v", got, want)
	}
}
