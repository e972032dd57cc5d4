package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Clock is the time; tests bring their own.
type Clock interface {
	Now() time.Time
	// Sleep waits for d or until ctx ends, whose error it then returns.
	Sleep(ctx context.Context, d time.Duration) error
}

// Reader reads the cluster: whole, or an error. Wanted is set by it.
type Reader interface {
	Read(ctx context.Context) (State, error)
}

// Hand carries steps out. Each may be called again for the same step, since a reading may be older than the last one.
type Hand interface {
	// Point has the group launch what version makes.
	Point(ctx context.Context, group string, version int) error
	// Replace ends a machine; its group launches another. A machine that is gone already is no error.
	Replace(ctx context.Context, machine string) error
	// Start begins AutoScaling's refresh and returns its id.
	Start(ctx context.Context, step Step) (id string, err error)
	// Cancel ends AutoScaling's refresh of the group; what was replaced stays so.
	Cancel(ctx context.Context, group string) error
}

// Options are what an operator decides.
type Options struct {
	// Only are the groups to bring on, by either of their names; none are all. Lose are those whose etcd may be lost.
	Only, Lose []string
	// Poll is the time between two readings; 0 is DefaultPoll. Patience is how long nothing may change; 0 is DefaultPatience.
	Poll, Patience time.Duration
	// Checkpoint is how long AutoScaling waits at a checkpoint: nothing changes then.
	Checkpoint time.Duration
	// CancelOnInterrupt ends AutoScaling's refresh when the context ends; otherwise it goes on.
	CancelOnInterrupt bool
}

// DefaultPoll is twice the TTL of the records that are waited for. DefaultPatience is two launches that do not come
// up: pkg/stack's hook gives each a quarter of an hour.
const (
	DefaultPoll     = 10 * time.Second
	DefaultPatience = 35 * time.Minute
)

// Done is what a run has done.
type Done struct {
	// Replaced are the machines that were ended one by one, Refreshed the groups that AutoScaling refreshed.
	Replaced  []string `json:"replaced"`
	Refreshed []string `json:"refreshed"`
	Seconds   int64    `json:"seconds"`
}

// Runner brings a cluster's machines to what is wanted.
type Runner struct {
	Reader  Reader
	Hand    Hand
	Clock   Clock
	Options Options
	// Tell is called with every new step; nil is nobody.
	Tell func(Step)

	done Done
	// ended are the machines that a reading may still show in service, watched the refreshes by their groups.
	ended   map[string]bool
	watched map[string]string
	last    Step
	changed time.Time
}

// Run carries out step after step until nothing is left, and says what it did, with an error too.
func (r *Runner) Run(ctx context.Context) (Done, error) {
	began := r.Clock.Now()
	r.done, r.last, r.changed = Done{Replaced: []string{}, Refreshed: []string{}}, Step{}, began
	r.ended, r.watched = map[string]bool{}, map[string]string{}
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

// step decides and carries out one step.
func (r *Runner) step(ctx context.Context, s State) error {
	s = r.withoutEnded(s)
	if err := Refuse(s, r.Options.Only, r.Options.Lose); err != nil {
		return err
	}
	if err := r.refreshes(s); err != nil {
		return err
	}
	step := Next(s, r.Options.Only)
	if step != r.last {
		// A group that launches one machine after the other, of which none comes up, makes no progress.
		if step.Action != r.last.Action || step.Group != r.last.Group || step.Machine != r.last.Machine || step.Percent != r.last.Percent {
			r.changed = r.Clock.Now()
		}
		r.last = step
		if r.Tell != nil {
			r.Tell(step)
		}
	}
	return r.carryOut(ctx, s, step)
}

// withoutEnded has machines that this run has ended leave, where a reading is older than that.
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

// refreshes looks at what became of the refreshes that were watched.
func (r *Runner) refreshes(s State) error {
	for _, g := range s.Groups {
		if g.Control() || !g.Chosen(r.Options.Only) || g.Refresh == nil {
			continue
		}
		id, ours := r.watched[g.Name]
		switch {
		case slices.Contains([]string{"RollbackInProgress", "Cancelling"}, g.Refresh.Status) && !ours:
			// What somebody takes back is waited for, and then it is seen what is left.
		case g.Refresh.Active() && !ours:
			if g.Refresh.To != 0 && g.Refresh.To != g.Wanted.Number {
				return fmt.Errorf("refreshing %s: a refresh to version %d is under way, and version %d is wanted: wait for its end, or aws autoscaling cancel-instance-refresh --auto-scaling-group-name %s",
					g.Name, g.Refresh.To, g.Wanted.Number, g.Name)
			}
			r.watched[g.Name] = g.Refresh.ID // one that an earlier run has begun
		case ours && id == g.Refresh.ID && !g.Refresh.Active() && g.Refresh.Status != "Successful":
			return fmt.Errorf("refreshing %s: AutoScaling says %s, %s\n%d of %d machines are as wanted, and the group launches version %d; "+
				"consoles and journals of those that failed say why: mend it and run this again, or hardtack stack rollback --group %s",
				g.Name, g.Refresh.Status, g.Refresh.Reason, len(g.Machines)-len(g.Stale()), len(g.Machines), g.Launches.Number, g.Key)
		case ours && id == g.Refresh.ID && g.Refresh.Status == "Successful":
			delete(r.watched, g.Name)
			r.done.Refreshed = append(r.done.Refreshed, g.Name)
		}
	}
	return nil
}

func (r *Runner) carryOut(ctx context.Context, s State, step Step) error {
	switch step.Action {
	case Finished:
		return errFinished
	case Point:
		return r.Hand.Point(ctx, step.Group, step.To)
	case Replace:
		if err := r.Hand.Replace(ctx, step.Machine); err != nil {
			return err
		}
		r.ended[step.Machine] = true
		r.done.Replaced = append(r.done.Replaced, step.Machine)
	case Start:
		if slices.Contains(r.done.Refreshed, step.Group) {
			// It has succeeded and left machines out: they stand by, or are protected, or the reading is old.
			return r.wait(s, step, 0)
		}
		id, err := r.Hand.Start(ctx, step)
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

// wait is an error once nothing has changed for too long, and more than that.
func (r *Runner) wait(s State, step Step, more time.Duration) error {
	waited := r.Clock.Now().Sub(r.changed)
	if waited < cmp.Or(r.Options.Patience, DefaultPatience)+more {
		return nil
	}
	next := "hardtack stack status shows every machine"
	if step.Action == Watch {
		next = "AutoScaling goes on; " + next
	}
	if g, ok := s.group(step.Group); ok {
		next += fmt.Sprintf("; mend what stands in its way and run this again, or hardtack stack rollback --group %s", g.Key)
	}
	return fmt.Errorf("waiting for %s: not every machine has been in service for %s: %s (%s)", orCluster(step.Group), waited.Round(time.Second), step.Reason, next)
}

func orCluster(group string) string {
	if group == "" {
		return "the cluster"
	}
	return group
}

// Interrupted is what a run ends with when its context has ended.
type Interrupted struct {
	// Text says what goes on, and what does not.
	Text string
	Err  error
}

func (i *Interrupted) Error() string { return i.Text }

func (i *Interrupted) Unwrap() error { return i.Err }

// interrupted leaves AutoScaling's refreshes running or ends them, and says which.
func (r *Runner) interrupted(ctx context.Context) error {
	left := &Interrupted{Err: ctx.Err()}
	switch {
	case len(r.watched) == 0 && len(r.done.Replaced) > 0:
		left.Text = fmt.Sprintf("stopped after %s: its group replaces it by itself, and no other machine is ended until this is run again", r.done.Replaced[len(r.done.Replaced)-1])
	case len(r.watched) == 0:
		left.Text = "stopped: nothing is under way"
	case !r.Options.CancelOnInterrupt:
		left.Text = fmt.Sprintf("stopped watching: AutoScaling goes on refreshing %s; run this again to watch, or with --cancel-on-interrupt to be able to end it", r.names())
	default:
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		var errs []error
		for group := range r.watched {
			errs = append(errs, r.Hand.Cancel(end, group))
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
