package rollout_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
)

// script is a cluster whose reading depends on the time alone, and on what was done to it.
type script struct {
	since  time.Duration // the time since its beginning
	read   func(*script) (rollout.State, error)
	refuse string // the call that fails
	calls  []string
	steps  []rollout.Step
	asleep func()
}

func (s *script) Now() time.Time { return noon.Add(s.since) }

func (s *script) Sleep(ctx context.Context, d time.Duration) error {
	if s.since += d; s.since > 24*time.Hour {
		return errors.New("it never ends")
	}
	if s.asleep != nil {
		s.asleep()
	}
	return ctx.Err()
}

func (s *script) Read(context.Context) (rollout.State, error) { return s.read(s) }

func (s *script) call(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	s.calls = append(s.calls, text)
	if text == s.refuse {
		return errors.New("AWS refused")
	}
	return nil
}

func (s *script) Point(_ context.Context, group string, version int) error {
	return s.call("point %s %d", group, version)
}

func (s *script) Replace(_ context.Context, machine string) error {
	return s.call("replace %s", machine)
}

func (s *script) Start(_ context.Context, step rollout.Step) (string, error) {
	return "1", s.call("start %s %d>%d", step.Group, step.From, step.To)
}

func (s *script) Cancel(_ context.Context, group string) error { return s.call("cancel %s", group) }

func (s *script) run(ctx context.Context, o rollout.Options) (rollout.Done, error) {
	r := &rollout.Runner{Reader: s, Executor: s, Clock: s, Options: o, OnStep: func(step rollout.Step) { s.steps = append(s.steps, step) }}
	return r.Run(ctx)
}

// always is a reading that never changes.
func always(s rollout.State) func(*script) (rollout.State, error) {
	return func(*script) (rollout.State, error) { return clone(s), nil }
}

// refreshed is three as wanted but for its minions, which AutoScaling refreshes.
func refreshed(percent int, change func(*rollout.Group)) rollout.State {
	return of(fresh("i-a", "i-b", "i-c", "i-m1", "i-m2")(three(v1)), "minions", func(g *rollout.Group) {
		g.Refresh = &rollout.Refresh{ID: "x", Status: "InProgress", Percent: percent, To: 2}
		change(g)
	})
}

// A rollout gives up when nothing has changed for its patience: neither what is done, nor with which group, nor how far that is. A
// checkpoint and machines that are held for their pods are no reason.
func TestPatience(t *testing.T) {
	const minute = time.Minute
	plain := func(*rollout.Group) {}
	// held has machines that wait for their hooks: each from a minute to another one.
	type span struct{ from, to int }
	held := func(drain time.Duration, w1, w2 span, late int) func(*script) (rollout.State, error) {
		return func(s *script) (rollout.State, error) {
			now := int(s.since / minute)
			return refreshed(0, func(g *rollout.Group) {
				waiting := false
				for i, waits := range []span{w1, w2} {
					if now >= waits.from && now < waits.to {
						g.Machines[i].State, waiting = "Terminating:Wait", true
					}
				}
				if waiting {
					g.Drain = drain
				}
				if late > 0 && now >= late {
					g.Machines = append(g.Machines, machine("i-w3", v2))
				}
			}), nil
		}
	}
	then := func(first, second rollout.State) func(*script) (rollout.State, error) {
		return func(s *script) (rollout.State, error) {
			if s.since < 30*minute {
				return clone(first), nil
			}
			return clone(second), nil
		}
	}
	never := span{-1, -1}
	for name, tt := range map[string]struct {
		options rollout.Options
		read    func(*script) (rollout.State, error)
		want    int // the minutes until it gives up
	}{
		"nothing changes":              {rollout.Options{}, always(refreshed(0, plain)), 35},
		"of its own":                   {rollout.Options{Patience: 10 * minute}, always(refreshed(0, plain)), 10},
		"a checkpoint":                 {rollout.Options{Checkpoint: 30 * minute}, always(refreshed(0, plain)), 65},
		"no checkpoint of the masters": {rollout.Options{Checkpoint: 30 * minute}, always(at(three(v2), "i-m1", state("Pending"))), 35},
		"another percentage":           {rollout.Options{}, then(refreshed(0, plain), refreshed(50, plain)), 65},
		"another group":                {rollout.Options{}, then(at(three(v2), "i-a", state("Pending")), at(three(v2), "i-m1", state("Pending"))), 65},
		"another action": {rollout.Options{}, then(refreshed(0, plain), refreshed(0, func(g *rollout.Group) {
			g.Refresh.Status, g.Machines[0].State, g.Machines[1].From = "Successful", "Terminating:Proceed", v2
		})), 65},
		"another reason alone": {rollout.Options{}, func(s *script) (rollout.State, error) {
			return refreshed(0, func(g *rollout.Group) { g.Refresh.Reason = s.since.String() }), nil
		}, 35},
		"one is held":                           {rollout.Options{}, held(2*time.Hour, span{1, 100}, never, 0), 35 + 99},
		"one is held for too long":              {rollout.Options{}, held(time.Hour, span{1, 1000}, never, 0), 35 + 61},
		"two are held, one after the other":     {rollout.Options{}, held(time.Hour, span{50, 1000}, span{1, 1000}, 0), 35 + 110},
		"two are held, the other way round":     {rollout.Options{}, held(time.Hour, span{1, 1000}, span{50, 1000}, 0), 35 + 110},
		"one is held, and another begins later": {rollout.Options{}, held(time.Hour, span{1, 1000}, never, 50), 35 + 61},
		"one is held by a hook of somebody's":   {rollout.Options{}, held(0, span{1, 1000}, never, 0), 35},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{read: tt.read}
			tt.options.Poll = minute
			done, err := s.run(t.Context(), tt.options)
			var stuck *rollout.StuckError
			assert.Assert(t, errors.As(err, &stuck), "%v", err)
			assert.Equal(t, s.since, time.Duration(tt.want)*minute)
			assert.Equal(t, done.Seconds, int64(60*tt.want))
			assert.Equal(t, len(s.steps), len(slices.Compact(slices.Clone(s.steps))), "a step is told again: %+v", s.steps)
			assert.Equal(t, s.steps[len(s.steps)-1], stuck.Step)
		})
	}
}

// What fails ends the run, with nothing done after it and nothing counted as done; what is none of its business does not.
func TestRunEnds(t *testing.T) {
	refresh := func(key string) rollout.State {
		return of(three(v2), key, func(g *rollout.Group) { g.Refresh = &rollout.Refresh{ID: "x", Status: "InProgress", To: 7} })
	}
	for name, tt := range map[string]struct {
		only, refuse string
		read         func(*script) (rollout.State, error)
		want, calls  string // a part of the error; empty is none
	}{
		"nothing to do": {"", "", always(three(v2)), "", ""},
		"a reading that fails": {"", "", func(*script) (rollout.State, error) {
			return fresh("i-a", "i-b", "i-c")(three(v1)), errors.New("no reading")
		},
			"no reading", ""},
		"a machine that may not be ended": {"masters", "replace i-m1", always(three(v1)), "AWS refused", "replace i-m1"},
		"a group that may not be pointed": {"minions", "point demo-minions 2", always(of(three(v2), "minions", func(g *rollout.Group) { g.Launches = v1 })), "AWS refused",
			"point demo-minions 2"},
		"a refresh that may not begin":            {"minions", "start demo-minions 1>2", always(three(v1)), "AWS refused", "start demo-minions 1>2"},
		"a group that there is not":               {"miners", "", always(three(v1)), `group "miners"`, ""},
		"somebody's refresh of the control plane": {"masters", "", always(refresh("masters")), "", ""},
		"somebody's refresh of another group":     {"masters", "", always(refresh("minions")), "", ""},
		"a group that cannot be read and is not ours": {"masters", "", always(func() rollout.State {
			s := three(v2)
			s.Unread = []rollout.Unread{{Group: "demo-odd", Key: "odd", Why: "AWS refused"}}
			return s
		}()), "", ""},
		"somebody's refresh": {"", "", always(refresh("minions")), "a refresh to version 7 is under way", ""},
		"somebody's refresh to the group's own": {"", "", func(s *script) (rollout.State, error) {
			return of(three(v2), "minions", func(g *rollout.Group) {
				if g.Refresh = (&rollout.Refresh{ID: "x", Status: "InProgress"}); s.since > time.Minute {
					g.Refresh.Status = "Successful"
				}
			}), nil
		}, "", ""},
		"API servers that are never ready":           {"masters", "", always(func() rollout.State { s := three(v1); s.API = "etcd failed"; return s }()), "waiting for the cluster: ", ""},
		"a machine that the refresh has left as was": {"minions", "", skipped, "waiting for demo-minions", "start demo-minions 1>2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{read: tt.read, refuse: tt.refuse}
			done, err := s.run(t.Context(), rollout.Options{Only: strings.Fields(tt.only)})
			if tt.want == "" {
				assert.NilError(t, err)
			} else {
				assert.ErrorContains(t, err, tt.want)
			}
			assert.Equal(t, strings.Join(s.calls, "|"), tt.calls)
			assert.Equal(t, len(done.Replaced), 0)
		})
	}
	// Who reads the result finds lists, and no null.
	done, err := (&script{read: always(three(v2))}).run(t.Context(), rollout.Options{})
	assert.NilError(t, err)
	text, err := json.Marshal(done)
	assert.NilError(t, err)
	assert.Equal(t, string(text), `{"replaced":[],"refreshed":[],"seconds":0}`)
}

// skipped is a group with a machine that AutoScaling does not replace: it is in standby.
func skipped(s *script) (rollout.State, error) {
	out := at(fresh("i-w2")(three(v1)), "i-w1", state("Standby"))
	if len(s.calls) > 0 {
		out = of(out, "minions", func(g *rollout.Group) { g.Refresh = &rollout.Refresh{ID: "1", Status: "Successful", To: 2} })
	}
	return out, nil
}

// Without leave to lose data nothing is begun: who runs it is told at once, and not after its patience.
func TestRunRefuses(t *testing.T) {
	s := &script{read: always(three(v1))}
	_, err := s.run(t.Context(), rollout.Options{})
	var refusal *rollout.Refusal
	assert.Assert(t, errors.As(err, &refusal), "%v", err)
	assert.Assert(t, s.since == 0 && len(s.steps) == 0, "%v, %+v", s.since, s.steps)
}

// A machine that was ended is shown as AutoScaling has it, once AutoScaling shows that it ends.
func TestRunShowsHowMachinesEnd(t *testing.T) {
	s := &script{read: func(s *script) (rollout.State, error) {
		out := fresh("i-a", "i-b", "i-c", "i-m2")(three(v1))
		if s.since >= 2*time.Minute {
			out = at(out, "i-m1", state("Terminating:Wait"))
		}
		return out, nil
	}}
	_, err := s.run(t.Context(), rollout.Options{Only: []string{"masters"}, Poll: time.Minute})
	assert.ErrorContains(t, err, "i-m1 of demo-masters is Terminating:Wait")
	assert.DeepEqual(t, s.calls, []string{"replace i-m1"})
	assert.Equal(t, len(s.steps), 3, "%+v", s.steps) // replace, and wait for each of both states
}

// Who interrupts a run is told what goes on without it, and no more than that.
func TestRunTellsWhatGoesOn(t *testing.T) {
	started := func(s *script) (rollout.State, error) {
		out := fresh("i-a", "i-b", "i-c", "i-m1", "i-m2")(three(v1))
		if len(s.calls) > 0 {
			out = refreshed(0, func(g *rollout.Group) { g.Refresh.ID = "1" })
		}
		return out, nil
	}
	ended := func(s *script) (rollout.State, error) {
		out, err := started(s)
		if s.since >= time.Minute { // both are replaced, and the last one still leaves
			out = of(fresh("i-w2")(out), "minions", func(g *rollout.Group) { g.Refresh.Status, g.Machines[0].State = "Successful", "Terminating:Wait" })
		}
		return out, err
	}
	both := func(s *script) (rollout.State, error) {
		out := fresh("i-a", "i-b", "i-c", "i-m2")(three(v1))
		if len(s.calls) > 0 {
			out = at(out, "i-m1", func(m *rollout.Machine) { m.ID, m.From = "i-m3", v2 })
		}
		if len(s.calls) > 1 {
			out = of(out, "minions", func(g *rollout.Group) { g.Refresh = &rollout.Refresh{ID: "1", Status: "InProgress", To: 2} })
		}
		return out, nil
	}
	for name, tt := range map[string]struct {
		read       func(*script) (rollout.State, error)
		cancel     bool
		refuse     string
		want       string
		refreshing bool
		calls      string
	}{
		"nothing":                        {always(at(three(v2), "i-m1", state("Pending"))), true, "", "nothing is under way", false, ""},
		"a refresh":                      {started, false, "", "goes on refreshing demo-minions", true, "start demo-minions 1>2"},
		"a refresh that is cancelled":    {started, true, "", "demo-minions is cancelled", false, "start demo-minions 1>2|cancel demo-minions"},
		"one that cannot be cancelled":   {started, true, "cancel demo-minions", "demo-minions could not be cancelled and may go on: AWS refused", false, "start demo-minions 1>2|cancel demo-minions"},
		"a refresh after a master":       {both, false, "", "goes on refreshing demo-minions", true, "replace i-m1|start demo-minions 1>2"},
		"a refresh that is over already": {ended, true, "", "nothing is under way", false, "start demo-minions 1>2"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := &script{read: tt.read, refuse: tt.refuse}
			s.asleep = func() {
				if s.since >= 3*time.Minute {
					cancel()
				}
			}
			_, err := s.run(ctx, rollout.Options{Poll: time.Minute, CancelOnInterrupt: tt.cancel})
			var left *rollout.Interrupted
			assert.Assert(t, errors.As(err, &left), "%v", err)
			assert.ErrorIs(t, err, context.Canceled)
			assert.ErrorContains(t, err, tt.want)
			assert.Equal(t, left.Refreshing, tt.refreshing)
			assert.Equal(t, strings.Join(s.calls, "|"), tt.calls)
		})
	}
}
