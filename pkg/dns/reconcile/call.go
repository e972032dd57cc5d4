package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// Waiting between tries: the first wait, doubled each time up to the last, and spread by half.
const (
	firstWait = 200 * time.Millisecond
	lastWait  = 8 * time.Second
	maxPaced  = 4
	// oldReading is how old a reading of the groups may be when a change is sent: an older one is read again before.
	oldReading = time.Second
)

var errBudget = errors.New("this call has used up its budget of DNS requests; the next one goes on")

// call is one call of Sync.
type call struct {
	*Syncer
	cluster   string
	deadline  time.Time // zero: none
	log       *slog.Logger
	report    Report
	paced     int    // how often it has let changes gather
	uncertain string // the generation of a write whose outcome is not known
}

// view is one reading: the records first, the fleet after, and what follows from the two.
type view struct {
	have  []record.Set
	fleet record.Fleet
	want  []record.Set
	at    generation // that was read; the zero one if there is none that can be read
	burst int        // of a write that follows on this reading
	// looked is when the reading of the fleet ended.
	looked time.Time
}

// reconcile reads and writes until the records are as they should be, and returns the view in which
// they are.
func (r *call) reconcile(ctx context.Context) (view, error) {
	for {
		v, err := r.gatherChanges(ctx)
		if err != nil {
			return v, err
		}
		if v.at.String() == r.uncertain {
			r.report.Changed = true // it had been committed after all
		}
		v, err = r.write(ctx, v)
		switch {
		case errors.Is(err, ErrConflict):
			r.report.Conflicts++
			if r.report.Conflicts > MaxConflicts {
				return v, err
			}
		case errors.Is(err, ErrUnknownOutcome):
			r.report.Unknown++
			r.uncertain = v.at.String()
		default: // the records are right, or no other try makes them so
			return v, err
		}
		r.log.DebugContext(ctx, "reading again", "cause", err)
		if err := r.wait(ctx, r.report.Conflicts+r.report.Unknown, err); err != nil {
			return v, err
		}
	}
}

// gatherChanges returns the view to write from. Shortly after a write, further changes are likely: it waits for them,
// and then reads again. A view without changes is returned at once, and so is one in which a master or a member of
// etcd leaves: every client that still gets its address waits for a machine that may be dead.
func (r *call) gatherChanges(ctx context.Context) (view, error) {
	for {
		v, err := r.read(ctx)
		if err != nil {
			return v, err
		}
		d := r.pace(v.at)
		if d <= 0 || record.Diff(v.have, v.want, "").Empty() || record.LosesControlPlane(v.have, v.want, r.cluster, r.c.Policy) {
			return v, nil
		}
		r.paced++
		if err := r.c.Clock.Sleep(ctx, d); err != nil {
			return v, err
		}
	}
}

// read reads the records and then the fleet. The order makes a write of this view safe: the fleet is at least as new as
// the generation that the write will replace.
func (r *call) read(ctx context.Context) (view, error) {
	have, err := retry(ctx, r, func() ([]record.Set, error) {
		if err := r.spendBudget(&r.report.Calls.ZoneReads); err != nil {
			return nil, err
		}
		return r.c.Zone.Read(ctx, r.cluster)
	})
	if err != nil {
		return view{}, fmt.Errorf("reading the records: %w", err)
	}
	return r.look(ctx, r.parse(ctx, have))
}

// look reads the fleet, and what follows from it for the records that were read before.
func (r *call) look(ctx context.Context, v view) (view, error) {
	fleet, err := retry(ctx, r, func() (record.Fleet, error) {
		r.report.Calls.FleetReads++
		return r.c.Fleet.Read(ctx, r.cluster)
	})
	if err != nil {
		return view{}, fmt.Errorf("reading the groups (nothing is changed from a partial reading): %w", err)
	}
	v.fleet, v.looked = fleet, r.c.Clock.Now()
	v.fleet.At = v.looked
	fleet = v.fleet
	desired, problems := record.Desired(fleet, r.c.Policy, r.c.Zone.Limits())
	want, more := record.Guard(desired, v.have, fleet, r.c.Policy)
	v.want = want
	v.burst = v.at.burstAt(r.c.Clock.Now(), r.c.Pace, r.changes(v.have, want))
	r.report.Problems = append(problems, more...)
	if err := r.report.Problems.Err(); err != nil {
		return view{}, fmt.Errorf("computing the records (nothing was changed): %w", err)
	}
	return v, nil
}

// parse takes the generation out of the sets that were read.
func (r *call) parse(ctx context.Context, have []record.Set) view {
	v := view{have: have}
	if text, ok := record.Generation(v.have, r.cluster); ok {
		var err error
		if v.at, err = parseGeneration(text); err != nil { // nothing is known of any machine then
			r.log.WarnContext(ctx, "the generation record cannot be read and is replaced when a hook waits or something changes", "error", err)
		}
	}
	return v
}

// pace is how long to wait before a change is written; 0 is no wait, as with a negative Pace and before the first write. A
// call waits at most maxPaced times, and never past half of the time that is left: then less long, since a storm is when
// waiting saves most. The spread lets one of two that wait go first, so that the other sees its write.
func (r *call) pace(at generation) time.Duration {
	pace := at.pace(r.c.Pace)
	d := at.committed.Add(pace).Sub(r.c.Clock.Now())
	if at.String() == r.uncertain || d <= 0 || d > 2*pace || r.paced >= maxPaced {
		return 0
	}
	d += time.Duration(r.jitter() * float64(r.c.Pace) / 2)
	if !r.deadline.IsZero() {
		d = min(d, r.deadline.Sub(r.c.Clock.Now())/2)
	}
	return d
}

// change is the next batch on the way from have to want, and the generation that it commits; an empty
// one is that the records are as they should be.
func (r *call) change(v view) (record.Change, generation, error) {
	v.at.burst = v.burst
	next := v.at.next(r.c.Clock.Now(), strconv.FormatUint(r.c.Random(), 36), nil)
	fence := r.unfenced(v)
	whole := record.Diff(v.have, v.want, next.String())
	if whole.Empty() {
		if len(fence) == 0 {
			return whole, v.at, nil
		}
		next = next.next(r.c.Clock.Now(), next.nonce, fence)
		return record.Stamp(v.have, r.cluster, next.String()), next, nil
	}
	part, _, _ := whole.Fit(r.c.Zone.Limits()) // what fits no batch does not fit with departures either
	gone := append(owners(v.fleet, removedAddresses(r.managed(v.have), r.managed(part.Apply(v.have)))), fence...)
	next = next.next(r.c.Clock.Now(), next.nonce, gone)
	part, _, err := record.Diff(v.have, v.want, next.String()).Fit(r.c.Zone.Limits())
	return part, next, err
}

// unfenced returns the machines that wait to be terminated, are not published, and of which nothing says that they have
// left: an older call may be about to publish them. A generation in which they left now makes that call's change a
// conflict. The hook is completed the usual time after it. There are no more of them than a generation has room for beside
// those that wait already, whose departures would be pushed out and would count from now on again.
func (r *call) unfenced(v view) []string {
	if r.c.Hooks == nil {
		return nil
	}
	published := addresses(r.managed(v.have))
	var out []string
	room := maxDepartures
	for _, g := range v.fleet.Groups {
		for _, m := range g.Members {
			isPublished := slices.ContainsFunc(addressesOf(m), func(ip string) bool { return published[ip] > 0 })
			switch {
			case m.Lifecycle != record.TerminatingWait || isPublished:
			case v.at.find(m.InstanceID) >= 0:
				room--
			default:
				out = append(out, m.InstanceID)
			}
		}
	}
	return out[:min(len(out), max(0, room))]
}

// owners returns the machines that have one of the addresses.
func owners(f record.Fleet, of []string) []string {
	var out []string
	for _, g := range f.Groups {
		for _, m := range g.Members {
			if slices.ContainsFunc(addressesOf(m), func(ip string) bool { return slices.Contains(of, ip) }) {
				out = append(out, m.InstanceID)
			}
		}
	}
	return out
}

// write commits the view's change, if there is one, in as few batches as the service takes. The view
// that it returns holds the generation that was sent last, and the records as committed.
func (r *call) write(ctx context.Context, v view) (view, error) {
	for {
		sent := v.at
		change, err := retry(ctx, r, func() (change record.Change, err error) { // at every try, for the present time
			if r.c.Clock.Now().Sub(v.looked) > oldReading {
				if v, err = r.look(ctx, v); err != nil {
					return record.Change{}, err
				}
			}
			change, next, err := r.change(v)
			if err != nil || change.Empty() {
				return change, err
			}
			if err := r.spendBudget(&r.report.Calls.ZoneWrites); err != nil {
				return change, err
			}
			r.report.Unannounced = max(r.report.Unannounced, r.changes(v.have, v.want))
			sent = next
			return change, r.c.Zone.CompareAndSwap(ctx, r.cluster, change.Remove, change.Create)
		})
		v.at = sent
		if err != nil {
			return v, fmt.Errorf("writing the records: %w", err)
		}
		if change.Empty() {
			return v, nil
		}
		r.report.Changed = true
		v.have = change.Apply(v.have)
		r.log.InfoContext(ctx, "records changed", "removed", len(change.Remove), "created", len(change.Create))
	}
}

// changes counts the machines' addresses that come or go.
func (r *call) changes(have, want []record.Set) int {
	return changedAddresses(r.managed(have), r.managed(want), r.c.Policy.Placeholder.String())
}

// managed are the sets that are kept here; a zone may hold others'.
func (r *call) managed(sets []record.Set) []record.Set {
	return record.ManagedSets(sets, r.cluster, r.c.Policy)
}

// summarize fills the report from the view in which the records are right.
func (r *call) summarize(v view, sweep bool) {
	r.report.Values = values(v.want)
	r.report.CallAgainAt = record.LetGoAt(v.want, r.cluster)
	if !r.report.Changed || !sweep {
		r.report.Unannounced = 0
	}
	if !v.at.committed.IsZero() {
		r.report.AgeSeconds = max(0, r.c.Clock.Now().Sub(v.at.committed).Seconds())
	}
}

// spendBudget counts one request to the zone, and returns an error if the budget is used up.
func (r *call) spendBudget(count *int) error {
	if r.report.Calls.ZoneReads+r.report.Calls.ZoneWrites >= r.c.Budget {
		return errBudget
	}
	*count++
	return nil
}

// retry does it again, with longer and longer waits, for as long as the service asks to slow down.
func retry[T any](ctx context.Context, r *call, do func() (T, error)) (T, error) {
	for n := 1; ; n++ {
		v, err := do()
		if !errors.Is(err, ErrThrottled) {
			return v, err
		}
		r.report.Throttled++
		if err := r.wait(ctx, n, err); err != nil {
			return v, err
		}
	}
}

// wait sleeps before the n-th repetition (from 1), unless the deadline would pass: then it returns the
// cause at once, so that the caller can still tell about it.
func (r *call) wait(ctx context.Context, n int, cause error) error {
	d := min(lastWait, firstWait<<min(n-1, 10))
	d = time.Duration(float64(d) * (0.5 + r.jitter()/2))
	if !r.deadline.IsZero() && r.c.Clock.Now().Add(d).After(r.deadline) {
		return fmt.Errorf("no time is left to try again: %w", cause)
	}
	return r.c.Clock.Sleep(ctx, d)
}

// jitter is a number in [0, 1).
func (r *call) jitter() float64 { return float64(r.c.Random()>>11) / (1 << 53) }
