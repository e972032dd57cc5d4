package reconcile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// A Syncer needs a zone and a fleet, and nothing else.
func TestNew(t *testing.T) {
	b := newBench(machine("i-1", 1, record.InService))
	for name, c := range map[string]reconcile.Config{"nothing": {}, "no fleet": {Zone: benchZone{b}}, "no zone": {Fleet: benchFleet{b}}} {
		if s, err := reconcile.New(c); err == nil || s != nil {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	s, err := reconcile.New(reconcile.Config{Zone: benchZone{b}, Fleet: benchFleet{b}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Sync(t.Context(), cluster)
	if err != nil || !r.Changed || r.AgeSeconds > 60 || !slices.Equal(b.masters(), []string{"10.0.0.1"}) {
		t.Errorf("%+v, %v", r, err)
	}
	at, err := reconcile.GenerationTime(b.generation(t))
	if err != nil || time.Since(at).Abs() > time.Minute {
		t.Errorf("committed at %s, %v", at, err)
	}
	if ttl := b.zone.sets[setKey{"masters.demo.k8s.", "A"}].TTL; ttl != record.DefaultTTL {
		t.Errorf("the TTL is %s", ttl)
	}
	// No two Syncers make one generation.
	other := newBench(machine("i-1", 1, record.InService))
	if s, err = reconcile.New(reconcile.Config{Zone: benchZone{other}, Fleet: benchFleet{other}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sync(t.Context(), cluster); err != nil || nonce(other.generation(t)) == nonce(b.generation(t)) {
		t.Errorf("%s and %s, %v", other.generation(t), b.generation(t), err)
	}
}

// nonce is what of a generation is random.
func nonce(generation string) string { return strings.Split(generation, ".")[3] }

// What is configured is kept, and what is left out has the documented default.
func TestConfig(t *testing.T) {
	t.Run("policy, pace and randomness", func(t *testing.T) {
		for _, tc := range []struct{ ttl, pace, wait time.Duration }{
			{ttl: 30 * time.Second, wait: 30 * time.Second}, {ttl: 30 * time.Second, pace: 20 * time.Second, wait: 20 * time.Second}, {ttl: 30 * time.Second, pace: -1},
		} {
			b := newBench(machine("i-1", 1, record.InService))
			b.configure = func(c *reconcile.Config) {
				c.Policy, c.Pace, c.Random = record.DefaultPolicy(), tc.pace, func() uint64 { return 0 }
				c.Policy.TTL = tc.ttl
			}
			if _, err := b.sync(t.Context(), t); err != nil {
				t.Fatal(err)
			}
			if got := b.zone.sets[setKey{"masters.demo.k8s.", "A"}].TTL; got != tc.ttl || nonce(b.generation(t)) != "0" {
				t.Errorf("the TTL is %s, the generation %s", got, b.generation(t))
			}
			b.fleet.Groups[0].Members = append(b.fleet.Groups[0].Members, machine("i-2", 2, record.InService))
			if _, err := b.sync(t.Context(), t); err != nil || b.slept != tc.wait {
				t.Errorf("it waited for %s, %v, want %s", b.slept, err, tc.wait)
			}
		}
	})
	t.Run("propagation", func(t *testing.T) {
		for configured, want := range map[time.Duration]time.Duration{0: 60 * time.Second, 10 * time.Second: 10 * time.Second} {
			b := newBench(machine("i-1", 1, record.InService), machine("i-2", 2, record.TerminatingWait))
			b.configure = func(c *reconcile.Config) { c.Propagation = configured }
			if r, err := b.sync(t.Context(), t); err != nil || !r.CallAgainAt.Equal(epoch.Add(record.DefaultTTL+want)) {
				t.Errorf("again at %s, %v", r.CallAgainAt, err)
			}
		}
	})
	t.Run("margin", func(t *testing.T) {
		for configured, want := range map[time.Duration]time.Duration{0: reconcile.DefaultMargin, 20 * time.Second: 20 * time.Second} {
			b := newBench(machine("i-1", 1, record.InService))
			b.swapErrs = slices.Repeat([]error{reconcile.ErrThrottled}, 99)
			b.configure = func(c *reconcile.Config) { c.Margin, c.Budget = configured, 99 }
			ctx, cancel := context.WithDeadline(t.Context(), epoch.Add(40*time.Second))
			defer cancel()
			_, err := b.sync(ctx, t)
			if left := epoch.Add(40 * time.Second).Sub(b.now); !errors.Is(err, reconcile.ErrThrottled) || left < want || left > want+8*time.Second {
				t.Errorf("%s are left, %v, want %s", left, err, want)
			}
		}
	})
	t.Run("budget", func(t *testing.T) {
		for configured, want := range map[int]int{0: reconcile.DefaultBudget, 3: 3} {
			b := newBench(machine("i-1", 1, record.InService))
			b.swapErrs = slices.Repeat([]error{reconcile.ErrThrottled}, 99)
			b.configure = func(c *reconcile.Config) { c.Budget = configured }
			if r, err := b.sync(t.Context(), t); err == nil || b.reads+b.writes != want || r.Calls.ZoneReads+r.Calls.ZoneWrites != want {
				t.Errorf("%d requests, %v", b.reads+b.writes, err)
			}
		}
	})
}

// The waits double from a fifth of a second to eight, and the randomness takes at most half of each.
func TestSyncWaitsLongerAndLonger(t *testing.T) {
	for random, part := range map[uint64]float64{0: 0.5, math.MaxUint64: 1} {
		b := newBench(machine("i-1", 1, record.InService))
		b.swapErrs = slices.Repeat([]error{reconcile.ErrThrottled}, 8)
		b.configure = func(c *reconcile.Config) { c.Random = func() uint64 { return random } }
		r, err := b.sync(t.Context(), t)
		if err != nil || r.Throttled != 8 || len(b.sleeps) != 8 {
			t.Fatalf("%v, %v, %d waits", r, err, len(b.sleeps))
		}
		for i, ms := range []int{200, 400, 800, 1600, 3200, 6400, 8000, 8000} {
			if want := part * float64(ms); math.Abs(float64(b.sleeps[i])/1e6-want) > 0.001 {
				t.Errorf("wait %d is %s, want %g ms", i, b.sleeps[i], want)
			}
		}
	}
	// Conflicts and lost replies count together.
	b := newBench(machine("i-1", 1, record.InService))
	b.swapErrs = []error{reconcile.ErrConflict, reconcile.ErrUnknownOutcome, reconcile.ErrUnknownOutcome}
	b.configure = func(c *reconcile.Config) { c.Random = func() uint64 { return 0 } }
	r, err := b.sync(t.Context(), t)
	if want := []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond}; err != nil || !slices.Equal(b.sleeps, want) || r.Conflicts != 1 || r.Unknown != 2 {
		t.Errorf("%v, %+v, %v", b.sleeps, r, err)
	}
}

// The metrics get what the caller gets, and the log says which cluster it is about and how long an event took.
func TestSyncTells(t *testing.T) {
	b := newBench(machine("i-1", 1, record.InService))
	var log bytes.Buffer
	b.configure = func(c *reconcile.Config) { c.Log = slog.New(slog.NewJSONHandler(&log, nil)) }
	at := func(ago time.Duration) reconcile.Event { return reconcile.Event{At: epoch.Add(-ago)} }
	r, err := b.sync(t.Context(), t, reconcile.Event{}, at(20*time.Second), at(30*time.Second), reconcile.Event{}, at(10*time.Second))
	if err != nil || b.failure != nil || b.report.Cluster != cluster || r.Cluster != cluster || b.report.Calls != r.Calls || !b.report.Changed {
		t.Errorf("%+v and %+v, %v", r, b.report, err)
	}
	since := func() (out []any) {
		t.Helper()
		for line := range bytes.Lines(log.Bytes()) {
			var fields map[string]any
			if err := json.Unmarshal(line, &fields); err != nil || fields["cluster"] != cluster {
				t.Errorf("%s: %v", line, err)
			}
			if s, ok := fields["seconds_since_event"]; ok {
				out = append(out, s)
			}
		}
		return out
	}
	if got := since(); len(got) != 1 || got[0] != 30.0 {
		t.Errorf("%v seconds, want those of the oldest", got)
	}
	log.Reset()
	if _, err := b.sync(t.Context(), t, reconcile.Event{}); err != nil || len(since()) > 0 {
		t.Errorf("an event without a time took %v, %v", since(), err)
	}
	b.fleetErr = errors.New("page 2 of 3 did not arrive")
	if _, err := b.sync(t.Context(), t); !errors.Is(err, b.fleetErr) || !errors.Is(b.failure, b.fleetErr) || b.observed != 3 {
		t.Errorf("%v, and the metrics took %v", err, b.failure)
	}
}

// A sweep tells how many machines no event has brought; the placeholder is none.
func TestSyncCountsTheUnannounced(t *testing.T) {
	b := newBench(machine("i-1", 1, record.InService), machine("i-2", 2, record.InService))
	if err := b.zone.swap(nil, record.Placeholders(cluster, record.DefaultPolicy())); err != nil {
		t.Fatal(err)
	}
	if r, err := b.sync(t.Context(), t); err != nil || r.Unannounced != 2 || r.Values["masters.demo.k8s. A"] != 2 {
		t.Errorf("two machines: %+v, %v", r, err)
	}
	b.now = b.now.Add(time.Hour)
	b.fleet.Groups[0].Members = []record.Member{machine("i-1", 1, record.InService), machine("i-3", 3, record.InService)}
	if r, err := b.sync(t.Context(), t); err != nil || r.Unannounced != 2 {
		t.Errorf("one came and one went: %+v, %v", r, err)
	}
	b.now = b.now.Add(time.Hour)
	if r, err := b.sync(t.Context(), t); err != nil || r.Unannounced != 0 || r.AgeSeconds != 3600 {
		t.Errorf("nothing has changed: %+v, %v", r, err)
	}
	b.fleet.Groups[0].Members[0].Lifecycle = record.TerminatingWait
	if r, err := b.sync(t.Context(), t, reconcile.Event{}); err != nil || r.Unannounced != 0 || !r.Changed {
		t.Errorf("an event has brought it: %+v, %v", r, err)
	}
}

func TestCallsTotal(t *testing.T) {
	if n := (reconcile.Calls{ZoneReads: 1, ZoneWrites: 20, FleetReads: 300, Hooks: 4000}).Total(); n != 4321 {
		t.Error(n)
	}
}
