// Package ready decides when a machine is what it was launched for.
//
// Its rule: a role is ready when it works, asked the way its users ask it, and never because time has passed. While
// checks make progress the group's launch is kept open; where they make none, the machine says once why, and
// leaves the group's own timeout to decide.
package ready

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/timeline"
)

// Check is one thing that must work.
type Check struct {
	// Name is one word for it, Unit the unit to look at where it does not work.
	Name, Unit string
	// Probe returns nil where it works, and else an error with a reason. It is asked while the unit is active;
	// nil: that the unit is active is all.
	Probe func(ctx context.Context) error
}

// Manager knows the units of the machine.
type Manager interface {
	// States returns names and states of the units that are asked for, in that order. It is asked at every round.
	States(ctx context.Context, names ...string) ([]timeline.Unit, error)
	// Unit adds what says why a unit is not active.
	Unit(ctx context.Context, name string) (timeline.Unit, error)
}

// The defaults of Options.
const (
	// DefaultAttempt bounds one check: a TLS handshake takes seconds on an emulated processor that boots.
	DefaultAttempt = 10 * time.Second
	// DefaultMinWait and DefaultMaxWait bound the wait between two rounds.
	DefaultMinWait = 250 * time.Millisecond
	DefaultMaxWait = 3 * time.Second
	// DefaultStall is how long nothing may change before the machine says why it is not ready, and DefaultCertain
	// how long for a reason that does not pass by itself. A member of a cluster that is being started waits for
	// others for minutes without anything being wrong.
	DefaultStall   = 5 * time.Minute
	DefaultCertain = 20 * time.Second
)

// Options say what must work. Zero times are the defaults.
type Options struct {
	Checks  []Check
	Manager Manager
	// Units are the units of the machine's roles, in the order in which one can be the cause of the next.
	Units            []string
	Attempt          time.Duration
	MinWait, MaxWait time.Duration
	Stall, Certain   time.Duration
	// Alive is called after each round in which there was progress lately; it keeps a launch open. nil does nothing.
	Alive func(ctx context.Context)
	// Report gets a failure, once each time it is another one; nil drops it.
	Report func(reason.Failure)
	Status func(text string)
	// Clock is the monotonic clock, in microseconds, of the marks.
	Clock func() uint64
	Log   *slog.Logger
}

// Run checks until everything works at the same time or ctx ends, and returns when each check first worked.
func Run(ctx context.Context, o Options) ([]timeline.Mark, error) {
	w := newWatch(o)
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = w.MinWait, w.MaxWait
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		errs := w.round(ctx)
		if len(errs) == 0 {
			// What has worked some time ago is asked once more: everything must work at the same time.
			clear(w.works)
			errs = w.round(ctx)
		}
		if len(errs) == 0 {
			return struct{}{}, nil
		}
		if ctx.Err() == nil {
			w.look(ctx, errs)
		}
		return struct{}{}, errs[0].err
	}, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(0))
	return w.marks, err
}

// failed is a check that does not work.
type failed struct {
	check Check
	err   error
}

// watch is what is remembered between rounds.
type watch struct {
	Options
	marks []timeline.Mark
	// states are the units' of this round; nil is not known.
	states map[string]timeline.Unit
	// works has the checks that need not be asked before all others work too.
	works map[string]bool
	// seen has what was wrong so far, since is when that last became another thing (in microseconds).
	seen     map[string]bool
	since    uint64
	reported string
	said     string
}

func newWatch(o Options) *watch {
	def(&o.Attempt, DefaultAttempt)
	def(&o.MinWait, DefaultMinWait)
	def(&o.MaxWait, DefaultMaxWait)
	def(&o.Stall, DefaultStall)
	def(&o.Certain, DefaultCertain)
	if o.Alive == nil {
		o.Alive = func(context.Context) {}
	}
	if o.Report == nil {
		o.Report = func(reason.Failure) {}
	}
	if o.Status == nil {
		o.Status = func(string) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &watch{Options: o, since: o.Clock(), works: map[string]bool{}, seen: map[string]bool{}}
}

func def(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

// round runs the checks that have not worked yet at the same time and returns those that do not now, in their order.
func (w *watch) round(ctx context.Context) []failed {
	ctx, cancel := context.WithTimeoutCause(ctx, w.Attempt, fmt.Errorf("no answer within %v", w.Attempt))
	defer cancel()
	w.readStates(ctx)
	errs := make([]error, len(w.Checks))
	var wg sync.WaitGroup
	for i, c := range w.Checks {
		u, known := w.states[c.Unit]
		switch {
		case w.works[c.Name]:
		case known && missing(u):
			errs[i] = reason.Errorf(ofName(c.Unit), "%s%s", unitIs, state(u))
		case c.Probe != nil:
			wg.Go(func() { errs[i] = c.Probe(ctx) })
		case !known:
			errs[i] = reason.Errorf(reason.Unit, "the state of %s is not known", c.Unit)
		}
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
		}
	}
	return out
}

// readStates asks for the states of all units at once: a question costs an emulated processor that boots more than
// anything else here.
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

// missing reports whether a unit is wanted and not there.
func missing(u timeline.Unit) bool {
	return u.Load != notFound && u.Load != masked && u.Active != active
}

// look tells what is wrong, and decides whether that is progress.
func (w *watch) look(ctx context.Context, errs []failed) {
	f := w.diagnose(ctx, errs)
	var names []string
	for _, e := range errs {
		names = append(names, e.check.Name)
	}
	if text := fmt.Sprintf("[%s] %s not ready: %s: %s", f.Reason, strings.Join(names, ", "), f.Unit, f.Cause); text != w.said {
		w.said = text
		w.Status(text)
		w.Log.InfoContext(ctx, "not ready", "checks", strings.Join(names, ","), "unit", f.Unit, "reason", string(f.Reason), "cause", f.Cause)
	}
	// Progress is what has not been there before: neither a cause's text, which may have a number in it, nor a
	// daemon that comes and goes.
	state := fmt.Sprintf("%d checks have worked, %s: %s", len(w.marks), f.Unit, f.Reason)
	now := w.Clock()
	if !w.seen[state] {
		w.seen[state], w.since = true, now
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

// certain reports whether a reason does not pass by itself, so that there is nothing to wait for.
func certain(r reason.Reason) bool {
	return slices.Contains([]reason.Reason{reason.Config, reason.Clock, reason.Permission, reason.Untrusted, reason.Metadata, reason.Network}, r)
}

// diagnose finds the cause: the first of the units, in the order in which one needs the other, that is not there.
// Where all are, it is the check itself.
func (w *watch) diagnose(ctx context.Context, errs []failed) reason.Failure {
	own := reason.Explain(errs[0].check.Unit, errs[0].err)
	for _, name := range w.Units {
		if u, known := w.states[name]; !known || !missing(u) {
			continue
		}
		u, err := w.Manager.Unit(ctx, name)
		switch {
		case err != nil:
			w.Log.WarnContext(ctx, "the unit is not known", "unit", name, "error", err)
			return own
		case missing(u):
			return ofUnit(u, own)
		}
	}
	return own
}

// What systemd says of a unit that the machine does not have, of one that its operator does not want, and of one
// that is there.
const (
	notFound = "not-found"
	masked   = "masked"
	active   = "active"
)

// ofUnit explains a unit that is not active, by its own words where it has any.
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

// unitIs begins a cause that is a unit's state.
const unitIs = "the unit is "

func state(u timeline.Unit) string {
	text := u.Active + " (" + u.Sub + ")"
	if u.Refused {
		text += ", an assertion of it failed: the image lacks what it needs"
	}
	if u.Result != "" && u.Result != "success" {
		text += ", its last run ended with " + u.Result
	}
	if u.Restarts > 0 {
		text += fmt.Sprintf(", started again %d times", u.Restarts)
	}
	return text
}

// ofName is the reason of a unit that says nothing itself.
func ofName(unit string) reason.Reason {
	switch unit {
	case "hardtack-certs-masters.service", "hardtack-certs-etcd.service":
		return reason.Certificates
	case "hardtack-bootstrap.service":
		return reason.Token
	case "etcd.service":
		return reason.Etcd
	case "kube-apiserver.service":
		return reason.API
	case "hardtack-addons.service":
		return reason.Addons
	case "kubelet.service":
		return reason.Kubelet
	}
	return reason.Unit
}
