package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
)

// Reader reads the state of a cluster, with the wanted version of each group. It fails rather than return a part.
type Reader interface {
	Read(ctx context.Context) (State, error)
}

// Executor executes steps. Each method may be called again for the same step, since a reading may be outdated.
type Executor interface {
	// Point sets the version of the launch template from which the group launches machines.
	Point(ctx context.Context, group string, version int) error
	// Replace ends a machine; its group launches another. It succeeds if the machine is already gone.
	Replace(ctx context.Context, machine string) error
	// Start starts AutoScaling's refresh and returns its id.
	Start(ctx context.Context, step Step) (id string, err error)
	// Cancel cancels AutoScaling's refresh of the group; machines that were replaced already stay.
	Cancel(ctx context.Context, group string) error
}

// Options are the options of a Runner.
type Options struct {
	// Only are the groups to roll out, by either of their names; empty is all groups. AllowDataLoss are groups whose etcd
	// data may be lost with their machines; empty is none.
	Only, AllowDataLoss []string
	// Poll is the time between two readings; 0 is DefaultPoll. Patience is how long a rollout may make no progress before
	// it fails; 0 is DefaultPatience. It does not run while a machine is held for its pods, for at most its group's Drain.
	Poll, Patience time.Duration
	// Checkpoint is how long AutoScaling waits at a checkpoint. It is added to Patience while a refresh is watched.
	Checkpoint time.Duration
	// CancelOnInterrupt cancels AutoScaling's refresh when the context ends; otherwise the refresh continues.
	CancelOnInterrupt bool
}

// DefaultPoll is twice the TTL of the records that are waited for. DefaultPatience is the time of two failed launches:
// pkg/cluster/template's hook gives each a quarter of an hour.
const (
	DefaultPoll     = 10 * time.Second
	DefaultPatience = 35 * time.Minute
)

// Done is the result of a run.
type Done struct {
	// Replaced are the machines that were ended one by one, Refreshed the groups that AutoScaling refreshed.
	Replaced  []string `json:"replaced"`
	Refreshed []string `json:"refreshed"`
	Seconds   int64    `json:"seconds"`
}

// Runner replaces a cluster's machines until all have the wanted version.
type Runner struct {
	Reader   Reader
	Executor Executor
	Clock    clock.Clock
	Options  Options
	// OnStep is called with every new step. It may be nil.
	OnStep func(Step)

	done Done
	// ended are the machines that a reading may still show in service, watched the ids of refreshes by group.
	ended   map[string]bool
	watched map[string]string
	// seen are the groups that were read before.
	seen    map[string]bool
	last    Step
	changed time.Time
	hold    hold
}

// hold is the time for which machines were held for their pods. No patience runs meanwhile, as that is no fault.
type hold struct {
	// since is when a machine was first seen held, by its id.
	since map[string]time.Time
	// until is the time of the last look, total the time since the last change in which a machine was held.
	until time.Time
	total time.Duration
}

// look adds the time since the last look if one of the group's machines is held, and was no longer than its hook may hold it.
func (h *hold) look(g Group, now time.Time) {
	held := false
	for _, m := range g.Machines {
		if g.Drain == 0 || m.State != terminatingWait {
			continue
		}
		if _, ok := h.since[m.ID]; !ok {
			h.since[m.ID] = now
		}
		held = held || now.Sub(h.since[m.ID]) <= g.Drain
	}
	if held {
		h.total += now.Sub(h.until)
	}
	h.until = now
}

// Run executes steps until nothing is left to do. It returns the replaced machines and groups, also with an error.
func (r *Runner) Run(ctx context.Context) (Done, error) {
	began := r.Clock.Now()
	r.done, r.last, r.changed = Done{Replaced: []string{}, Refreshed: []string{}}, Step{}, began
	r.ended, r.watched, r.seen, r.hold = map[string]bool{}, map[string]string{}, map[string]bool{}, hold{since: map[string]time.Time{}}
	err := r.run(ctx)
	r.done.Seconds = int64(r.Clock.Now().Sub(began) / time.Second)
	return r.done, err
}

func (r *Runner) run(ctx context.Context) error {
	for {
		s, err := r.Reader.Read(ctx)
		if err == nil {
			err = r.step(ctx, s)
		}
		if errors.Is(err, errFinished) {
			return nil
		}
		if err == nil {
			err = r.Clock.Sleep(ctx, cmp.Or(r.Options.Poll, DefaultPoll))
		}
		if ctx.Err() != nil {
			return r.interrupted(ctx)
		}
		if err != nil {
			return err
		}
	}
}

var errFinished = errors.New("finished")

// step decides on one step and executes it.
func (r *Runner) step(ctx context.Context, s State) error {
	s = r.withoutEnded(s)
	for _, g := range s.Groups {
		r.seen[g.Name] = true
	}
	step, err := r.decide(s)
	if err != nil {
		return err
	}
	now := r.Clock.Now()
	g, _ := s.group(step.Group)
	r.hold.look(g, now)
	if step != r.last {
		// A group whose launches fail one after another makes no progress, though the reason changes.
		if step.Action != r.last.Action || step.Group != r.last.Group || step.Percent != r.last.Percent {
			r.changed, r.hold.total = now, 0
		}
		r.last = step
		if r.OnStep != nil {
			r.OnStep(step)
		}
	}
	return r.execute(ctx, s, step)
}

// decide returns the next step. What is refused before anything was done is waited for later: a member whose report is late
// is asked again, and so is a group that could be read before. A group that never could is an error once all others are done.
func (r *Runner) decide(s State) (Step, error) {
	err := Refuse(s, r.Options.Only, r.Options.AllowDataLoss)
	var refusal *Refusal
	var unread *UnreadError
	switch {
	case errors.As(err, &unread):
		return r.awaitUnread(unread)
	case errors.As(err, &refusal) && r.last.Action != "":
		g, _ := s.group(refusal.Losses[0].Group)
		return Step{Action: Wait, Group: g.Name, Reason: refusal.Losses[0].Text}, nil
	case err != nil:
		return Step{}, err
	}
	if err := r.refreshes(s); err != nil {
		return Step{}, err
	}
	step := Next(s, r.Options.Only, r.Options.AllowDataLoss)
	if step.Action == Finished && len(r.Options.Only) == 0 && len(s.Unread) > 0 { // one that was chosen by its name has been refused
		return r.awaitUnread(&UnreadError{Groups: s.Unread})
	}
	return step, nil
}

// awaitUnread waits for a group that could be read before; if there is none, the error stands.
func (r *Runner) awaitUnread(e *UnreadError) (Step, error) {
	for _, u := range e.Groups {
		if r.seen[u.Group] {
			return Step{Action: Wait, Group: u.Group, Reason: u.Why}, nil
		}
	}
	return Step{}, e
}

// withoutEnded marks machines that this run has ended as terminating, in case the reading is outdated.
func (r *Runner) withoutEnded(s State) State {
	for i, g := range s.Groups {
		for k, m := range g.Machines {
			if r.ended[m.ID] && !m.leaves() {
				s.Groups[i].Machines[k].State = "Terminating"
			}
		}
	}
	return s
}

// refreshes checks the results of the refreshes that were watched.
func (r *Runner) refreshes(s State) error {
	for _, g := range s.Groups {
		if g.Control() || !g.Chosen(r.Options.Only) || g.Refresh == nil {
			continue
		}
		id, ours := r.watched[g.Name]
		switch {
		case slices.Contains([]string{"RollbackInProgress", "Cancelling"}, g.Refresh.Status):
			// Somebody takes this refresh back: wait for its end, and then look at the machines again.
		case g.Refresh.Active() && !ours:
			if g.Refresh.To != 0 && g.Refresh.To != g.Wanted.Number {
				return fmt.Errorf("refreshing %s: a refresh to version %d is under way, and version %d is wanted: wait for its end, or cancel it",
					g.Name, g.Refresh.To, g.Wanted.Number)
			}
			r.watched[g.Name] = g.Refresh.ID // started by an earlier run
		case id != g.Refresh.ID || g.Refresh.Active():
			// The one before, or ours, which goes on.
		case g.Refresh.Status != "Successful":
			return &RefreshError{Group: g}
		default:
			delete(r.watched, g.Name)
			r.done.Refreshed = append(r.done.Refreshed, g.Name)
		}
	}
	return nil
}

func (r *Runner) execute(ctx context.Context, s State, step Step) error {
	switch step.Action {
	case Finished:
		return errFinished
	case Point:
		return r.Executor.Point(ctx, step.Group, step.To)
	case Replace:
		if err := r.Executor.Replace(ctx, step.Machine); err != nil {
			return err
		}
		r.ended[step.Machine] = true
		r.done.Replaced = append(r.done.Replaced, step.Machine)
	case Start:
		if slices.Contains(r.done.Refreshed, step.Group) {
			// The refresh succeeded and skipped machines: they are in standby or protected, or the reading is outdated.
			return r.wait(s, step, 0)
		}
		id, err := r.Executor.Start(ctx, step)
		if err != nil {
			return err
		}
		r.watched[step.Group] = id
	case Wait:
		return r.wait(s, step, 0)
	case Watch:
		return r.wait(s, step, r.Options.Checkpoint)
	}
	return nil
}

// wait fails once nothing has changed for the patience plus more, beside the time in which machines were held for their pods.
func (r *Runner) wait(s State, step Step, more time.Duration) error {
	waited := r.Clock.Now().Sub(r.changed)
	if waited-r.hold.total < cmp.Or(r.Options.Patience, DefaultPatience)+more {
		return nil
	}
	g, _ := s.group(step.Group)
	return &StuckError{Step: step, Group: g.Key, Waited: waited}
}

// interrupted cancels AutoScaling's refreshes or leaves them running, and says which.
func (r *Runner) interrupted(ctx context.Context) error {
	left := &Interrupted{Err: ctx.Err()}
	switch {
	case len(r.watched) == 0 && len(r.done.Replaced) > 0:
		left.Text = fmt.Sprintf("stopped after %s: its group replaces it by itself, and no other machine is ended until this is run again", r.done.Replaced[len(r.done.Replaced)-1])
	case len(r.watched) == 0:
		left.Text = "stopped: nothing is under way"
	case !r.Options.CancelOnInterrupt:
		left.Refreshing, left.Text = true, fmt.Sprintf("stopped watching: AutoScaling goes on refreshing %s; run this again to watch", r.names())
	default:
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		var errs []error
		for group := range r.watched {
			errs = append(errs, r.Executor.Cancel(end, group))
		}
		if err := errors.Join(errs...); err != nil {
			left.Text = fmt.Sprintf("the refresh of %s could not be cancelled and may go on: %v", r.names(), err)
			break
		}
		left.Text = fmt.Sprintf("the refresh of %s is cancelled: what was replaced stays, and the group launches what it did before; run this again to go on", r.names())
	}
	return left
}

func (r *Runner) names() string {
	var names []string
	for group := range r.watched {
		names = append(names, group)
	}
	return strings.Join(names, ", ")
}
