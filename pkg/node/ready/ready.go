// Package ready decides when a machine is what it was launched for.
//
// Its rule: a role is ready when it works for its users, which is tested in the way that they use it, and never because
// time has passed. While checks make progress the group's launch is kept open. Without progress the machine reports the
// reason once, and the group's own timeout decides.
package ready

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Check is a condition for readiness.
type Check struct {
	// Name is one word for the check, Unit the unit to examine if it fails.
	Name, Unit string
	// Probe returns nil if the check succeeds, and otherwise an error with a reason. It is only called while the unit is
	// active. If Probe is nil, the unit only has to be active.
	Probe func(ctx context.Context) error
}

// Manager reads the states of the machine's units.
type Manager interface {
	// States returns the states of the named units, in that order. It is called in every round.
	States(ctx context.Context, names ...string) ([]timeline.Unit, error)
	// Unit returns the state of a unit with the details that explain why it is not active.
	Unit(ctx context.Context, name string) (timeline.Unit, error)
}

// The defaults of Options.
const (
	// DefaultAttempt limits one check: a TLS handshake takes seconds on an emulated processor during the boot.
	DefaultAttempt = 10 * time.Second
	// DefaultMinWait and DefaultMaxWait limit the wait between two rounds.
	DefaultMinWait = 250 * time.Millisecond
	DefaultMaxWait = 3 * time.Second
	// DefaultStall is how long there may be no progress before the machine reports why it is not ready.
	// DefaultCertain is the same for a reason that does not pass by itself. During the start of a cluster a member can
	// wait for others for minutes without a fault.
	DefaultStall   = 5 * time.Minute
	DefaultCertain = 20 * time.Second
)

// Options are the checks and their parameters. Zero times stand for the defaults.
type Options struct {
	Checks  []Check
	Manager Manager
	// Units are the units of the machine's roles, each before the units that need it.
	Units            []string
	Attempt          time.Duration
	MinWait, MaxWait time.Duration
	Stall, Certain   time.Duration
	// Alive is called after each round while there is progress, to keep a launch open. It may be nil.
	Alive func(ctx context.Context)
	// Report is called with the failure when there is no progress, once for each different one. It may be nil.
	Report func(reason.Failure)
	// Works is called for each check that succeeds for the first time. It may be nil.
	Works  func(Check)
	Status func(text string)
	// Clock is the monotonic clock of the marks, in microseconds.
	Clock func() uint64
	Log   *slog.Logger
}

// Run checks until everything works at the same time or ctx ends. It returns the time at which each check first worked.
func Run(ctx context.Context, o Options) ([]timeline.Mark, error) {
	w := newWatch(o)
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = w.MinWait, w.MaxWait
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		errs := w.round(ctx)
		if len(errs) == 0 {
			// Checks that have succeeded earlier run again: everything must work at the same time.
			clear(w.works)
			errs = w.round(ctx)
		}
		if len(errs) == 0 {
			return struct{}{}, nil
		}
		if ctx.Err() == nil {
			w.evaluate(ctx, errs)
		}
		return struct{}{}, errs[0].err
	}, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(0))
	return w.marks, err
}

// failed is a failed check.
type failed struct {
	check Check
	err   error
}

// watch is the state that is kept between rounds.
type watch struct {
	Options
	marks []timeline.Mark
	// states are the states of units in this round; nil if they are unknown.
	states map[string]timeline.Unit
	// works has the checks that need not run again before all others work too.
	works map[string]bool
	// skipped has the units that have nothing to do, and in which state they were said to have nothing to do.
	skipped map[string]string
	// progress has the states that were reached so far, since is when the last new one was, in microseconds.
	progress   map[string]bool
	since      uint64
	reported   string
	lastStatus string
}

func newWatch(o Options) *watch {
	setDefault(&o.Attempt, DefaultAttempt)
	setDefault(&o.MinWait, DefaultMinWait)
	setDefault(&o.MaxWait, DefaultMaxWait)
	setDefault(&o.Stall, DefaultStall)
	setDefault(&o.Certain, DefaultCertain)
	if o.Alive == nil {
		o.Alive = func(context.Context) {}
	}
	if o.Report == nil {
		o.Report = func(reason.Failure) {}
	}
	if o.Works == nil {
		o.Works = func(Check) {}
	}
	if o.Status == nil {
		o.Status = func(string) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &watch{Options: o, since: o.Clock(), works: map[string]bool{}, progress: map[string]bool{}, skipped: map[string]string{}}
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

// round runs the checks that have not worked yet, concurrently, and returns those that fail, in their order.
func (w *watch) round(ctx context.Context) []failed {
	ctx, cancel := context.WithTimeoutCause(ctx, w.Attempt, fmt.Errorf("no answer within %v", w.Attempt))
	defer cancel()
	w.readStates(ctx)
	errs := make([]error, len(w.Checks))
	var wg sync.WaitGroup
	done := make([]chan struct{}, len(w.Checks))
	for i, c := range w.Checks {
		done[i] = make(chan struct{})
		u, known := w.states[c.Unit]
		switch {
		case w.works[c.Name]:
		case known && missing(u):
			errs[i] = reason.Errorf(ofName(c.Unit), "%s%s", unitIs, state(u))
		case c.Probe != nil:
			wg.Go(func() {
				defer close(done[i])
				// A node is asked for, by TLS and perhaps far away, when its kubelet says that it is healthy.
				if first := w.first(i); first >= 0 {
					if <-done[first]; errs[first] != nil {
						errs[i] = errs[first]
						return
					}
				}
				errs[i] = c.Probe(ctx)
			})
			continue
		case !known:
			errs[i] = reason.Errorf(reason.Unit, "the state of %s is not known", c.Unit)
		}
		close(done[i])
	}
	wg.Wait()
	var out []failed
	for i, c := range w.Checks {
		w.works[c.Name] = errs[i] == nil
		switch {
		case errs[i] != nil:
			out = append(out, failed{c, errs[i]})
		case !slices.ContainsFunc(w.marks, func(m timeline.Mark) bool { return m.Name == c.Name }):
			w.marks = append(w.marks, timeline.Mark{Name: c.Name, At: int64(w.Clock() / 1000)})
			w.Log.InfoContext(ctx, "works", "check", c.Name)
			w.Works(c)
		}
	}
	return out
}

// first is the check before this one that looks at the same unit; -1 is none.
func (w *watch) first(i int) int {
	return slices.IndexFunc(w.Checks[:i], func(c Check) bool { return c.Unit == w.Checks[i].Unit })
}

// readStates reads the states of all units in one call: on an emulated processor during the boot such calls cost more
// than anything else here.
func (w *watch) readStates(ctx context.Context) {
	names := slices.Clone(w.Units)
	for _, c := range w.Checks {
		if !slices.Contains(names, c.Unit) {
			names = append(names, c.Unit)
		}
	}
	states, err := w.Manager.States(ctx, names...)
	if err != nil {
		w.Log.WarnContext(ctx, "the units' states are not known", "error", err)
		w.states = nil
		return
	}
	w.states = map[string]timeline.Unit{}
	for _, u := range states {
		w.states[u.Name] = u
	}
}

// missing reports whether a unit should be active and is not.
func missing(u timeline.Unit) bool {
	return u.Load != notFound && u.Load != masked && u.Active != active
}

// evaluate reports why the machine is not ready, and decides whether it makes progress.
func (w *watch) evaluate(ctx context.Context, errs []failed) {
	f := w.diagnose(ctx, errs)
	var names []string
	for _, e := range errs {
		names = append(names, e.check.Name)
	}
	if text := fmt.Sprintf("[%s] %s not ready: %s: %s", f.Reason, strings.Join(names, ", "), f.Unit, f.Cause); text != w.lastStatus {
		w.lastStatus = text
		w.Status(text)
		w.Log.InfoContext(ctx, "not ready", "checks", strings.Join(names, ","), "unit", f.Unit, "reason", string(f.Reason), "cause", f.Cause)
	}
	// Progress is a new state. The text of a cause does not count, since it may contain a number, nor does a daemon that
	// stops and starts again.
	state := fmt.Sprintf("%d checks have worked, %s: %s", len(w.marks), f.Unit, f.Reason)
	now := w.Clock()
	if !w.progress[state] {
		w.progress[state], w.since = true, now
	}
	still := time.Duration(now-w.since) * time.Microsecond
	if still < w.Stall {
		w.Alive(ctx)
	}
	if state != w.reported && (still >= w.Stall || still >= w.Certain && certain(f.Reason)) {
		w.reported = state
		w.Report(f)
	}
}

// certain reports whether a reason does not pass by itself, so that waiting is of no use.
func certain(r reason.Reason) bool {
	return slices.Contains([]reason.Reason{reason.Config, reason.Clock, reason.Permission, reason.Untrusted, reason.Metadata, reason.Network}, r)
}

// diagnose finds the cause: the first unit, in the order of their dependencies, that is not active. If all are active,
// the failed check is the cause. A unit whose condition is not met, and for which no job waits, has nothing to do on this machine.
func (w *watch) diagnose(ctx context.Context, errs []failed) reason.Failure {
	own := reason.Explain(errs[0].check.Unit, errs[0].err)
	for _, name := range w.Units {
		seen, ok := w.states[name]
		if !ok || !missing(seen) || w.skipped[name] == listed(seen) {
			continue
		}
		u, err := w.Manager.Unit(ctx, name)
		switch {
		case err != nil:
			w.Log.WarnContext(ctx, "the unit is not known", "unit", name, "error", err)
			return own
		case u.Skipped && u.Active == inactive && u.Job == 0:
			w.skipped[name] = listed(u)
		case missing(u):
			return ofUnit(u, own)
		}
	}
	return own
}

// listed is what the manager gives of all units in one call.
func listed(u timeline.Unit) string { return fmt.Sprint(u.Load, u.Active, u.Sub, u.Job) }

// systemd's states of a unit that does not exist, of a disabled one, of an active one, and of one that neither runs nor has failed.
const (
	notFound = "not-found"
	masked   = "masked"
	active   = "active"
	inactive = "inactive"
)

// ofUnit explains a unit that is not active, by its own status if that has a reason.
func ofUnit(u timeline.Unit, own reason.Failure) reason.Failure {
	if r, cause, ok := reason.OfStatus(u.Status); ok {
		return reason.Explain(u.Name, reason.With(r, errors.New(cause)))
	}
	if u.Name == own.Unit && !strings.HasPrefix(own.Cause, unitIs) {
		own.Cause = fmt.Sprintf("%s (%s%s)", own.Cause, unitIs, state(u))
		return own
	}
	r := ofName(u.Name)
	return reason.Explain(u.Name, reason.Errorf(r, "%s%s", unitIs, state(u)))
}

// unitIs begins a cause that consists of a unit's state.
const unitIs = "the unit is "

func state(u timeline.Unit) string {
	text := u.Active + " (" + u.Sub + ")"
	if u.Refused {
		text += ", one of its assertions failed: the image lacks what it needs"
	}
	if u.Skipped {
		text += ", one of its conditions is not met: systemctl status says which"
	}
	if u.Result != "" && u.Result != "success" {
		text += ", its last run ended with " + u.Result
	}
	if u.Restarts > 0 {
		text += fmt.Sprintf(", started again %d times", u.Restarts)
	}
	return text
}

// ofName returns the reason for a unit whose status has none.
func ofName(unit string) reason.Reason {
	return cmp.Or(reason.Reason(role.UnitOf(unit).Reason), reason.Unit)
}
