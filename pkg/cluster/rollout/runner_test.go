package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	member "github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
)

// world is a cluster that changes a little with every reading: ended machines leave, their replacements come up, and
// readings may be one step old. It fails the test if the control plane loses more than one machine at once.
type world struct {
	t     *testing.T
	rand  *rand.Rand
	now   time.Time
	state rollout.State
	// older is an outdated reading, of two steps ago; broken makes replacements never serve.
	older  *rollout.State
	last   *rollout.State
	lags   bool
	broken bool
	// refresh is the progress of AutoScaling's refresh; fails makes it fail half way.
	fails  bool
	stalls bool
	// held is how long AutoScaling's refresh holds an old machine for its pods, before it launches another; over is when.
	held   time.Duration
	over   map[string]time.Time
	serial int
	least  int // the smallest number of serving machines of the control plane
	calls  []string
	after  func() // runs at every sleep
	// learners are the members that catch up, and until when. mute makes members report nothing any more.
	learners map[string]time.Time
	mute     bool
}

// noon is when a world begins.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newWorld(t *testing.T, seed uint64, s rollout.State) *world {
	t.Helper()
	return &world{t: t, rand: rand.New(rand.NewPCG(seed, 1)), now: noon, state: s, least: 1 << 20, learners: map[string]time.Time{}, over: map[string]time.Time{}}
}

func (w *world) Now() time.Time { return w.now }

func (w *world) Sleep(ctx context.Context, d time.Duration) error {
	w.now = w.now.Add(d)
	before := clone(w.state)
	if w.lags {
		w.older, w.last = w.last, &before
	}
	for i := range w.state.Groups {
		w.move(&w.state.Groups[i])
		w.report(&w.state.Groups[i])
	}
	w.state.Etcd.At = w.now
	if w.after != nil {
		w.after()
	}
	return ctx.Err()
}

func clone(s rollout.State) rollout.State {
	s.Groups = slices.Clone(s.Groups)
	for i := range s.Groups {
		s.Groups[i].Machines = slices.Clone(s.Groups[i].Machines)
		if r := s.Groups[i].Refresh; r != nil {
			copied := *r
			s.Groups[i].Refresh = &copied
		}
		if v := s.Groups[i].Volume; v != nil {
			copied := *v
			s.Groups[i].Volume = &copied
		}
	}
	s.Etcd.Members = maps.Clone(s.Etcd.Members)
	return s
}

// report is one step of a member of etcd: its volume follows its machines, and the machine that has it reports once a minute.
// A new machine's member is a learner for a while.
func (w *world) report(g *rollout.Group) {
	if g.Volume == nil {
		return
	}
	holder := slices.IndexFunc(g.Machines, func(m rollout.Machine) bool { return m.ID == g.Volume.Holder })
	if holder < 0 {
		g.Volume.Holder = ""
		waiting := slices.IndexFunc(g.Machines, func(m rollout.Machine) bool { return m.State == "Pending:Wait" })
		if waiting >= 0 {
			g.Volume.Holder = g.Machines[waiting].ID
			w.learners[g.Member] = w.now.Add(time.Duration(w.rand.IntN(4)) * time.Minute)
		}
		return
	}
	r := w.state.Etcd.Members[g.Member]
	if w.mute || g.Machines[holder].State != "InService" || w.now.Sub(r.At) < time.Minute {
		return
	}
	r.At, r.Instance, r.Learner = w.now, g.Volume.Holder, w.now.Before(w.learners[g.Member])
	w.state.Etcd.Members[g.Member] = r
}

// move is one step of the simulation of a group.
func (w *world) move(g *rollout.Group) {
	if r := g.Refresh; r.Active() {
		w.refresh(g)
	}
	serving := 0
	for i := len(g.Machines) - 1; i >= 0; i-- {
		m := &g.Machines[i]
		switch {
		case m.State == "InService" && m.Published:
			serving++
		case w.rand.IntN(2) == 0, w.now.Before(w.over[m.ID]):
		case m.State == "Terminating:Wait":
			m.State = "Terminating:Proceed"
		case m.State == "Terminating:Proceed":
			g.Machines = slices.Delete(g.Machines, i, i+1)
		case m.State == "Pending":
			m.State, m.Running = "Pending:Wait", true
		case m.State == "Pending:Wait" && !w.broken:
			m.State = "InService"
		case m.State == "InService":
			m.Published = true
		}
	}
	if g.Control() && serving < g.Desired {
		w.least = min(w.least, w.controlServing())
	}
	if len(g.Machines) < g.Desired {
		w.serial++
		g.Machines = append(g.Machines, rollout.Machine{ID: fmt.Sprintf("i-new%d", w.serial), From: g.Launches, State: "Pending", Healthy: true})
	}
}

func (w *world) controlServing() int {
	n := 0
	for _, g := range w.state.Groups {
		for _, m := range g.Machines {
			if g.Control() && m.State == "InService" && m.Published {
				n++
			}
		}
	}
	return n
}

func (w *world) refresh(g *rollout.Group) {
	stale := g.Stale()
	if w.stalls {
		return
	}
	if len(stale) == 0 {
		g.Refresh.Status, g.Refresh.Percent, g.Launches = "Successful", 100, g.Wanted
		return
	}
	if w.fails {
		g.Refresh.Status, g.Refresh.Reason = "RollbackSuccessful", "launches failed"
		return
	}
	if w.held > 0 {
		w.hold(g, stale[0].ID)
		return
	}
	i := slices.IndexFunc(g.Machines, func(m rollout.Machine) bool { return m.ID == stale[0].ID })
	g.Machines[i] = machine(stale[0].ID+"'", g.Wanted)
	g.Refresh.Percent += 100 / g.Desired
}

// hold ends an old machine if no other one ends, and has its successor in service at once.
func (w *world) hold(g *rollout.Group, id string) {
	if slices.ContainsFunc(g.Machines, func(m rollout.Machine) bool { return m.State == "Terminating:Wait" }) {
		return
	}
	i := slices.IndexFunc(g.Machines, func(m rollout.Machine) bool { return m.ID == id })
	g.Machines[i].State, w.over[id] = "Terminating:Wait", w.now.Add(w.held)
	g.Machines = append(g.Machines, machine(id+"'", g.Wanted))
	g.Refresh.Percent += 100 / g.Desired
}

func (w *world) Read(context.Context) (rollout.State, error) {
	if w.older != nil && w.rand.IntN(2) == 0 {
		return clone(*w.older), nil
	}
	return clone(w.state), nil
}

func (w *world) find(name string) *rollout.Group {
	i := slices.IndexFunc(w.state.Groups, func(g rollout.Group) bool { return g.Name == name })
	return &w.state.Groups[i]
}

func (w *world) Point(_ context.Context, group string, version int) error {
	w.calls = append(w.calls, fmt.Sprintf("point %s %d", group, version))
	g := w.find(group)
	g.Launches = g.Wanted
	return nil
}

func (w *world) Replace(_ context.Context, id string) error {
	w.calls = append(w.calls, "replace "+id)
	for _, g := range w.state.Groups {
		ended := g.Volume != nil && slices.ContainsFunc(g.Machines, func(m rollout.Machine) bool { return m.ID == id })
		for member, until := range w.learners {
			if ended && w.now.Before(until) {
				w.t.Fatalf("%s is ended while member %s is a learner\n%s", id, member, strings.Join(w.calls, "\n"))
			}
		}
	}
	w.state = at(w.state, id, state("Terminating:Wait"))
	return nil
}

func (w *world) Start(_ context.Context, step rollout.Step) (string, error) {
	w.calls = append(w.calls, fmt.Sprintf("start %s %d>%d", step.Group, step.From, step.To))
	w.serial++
	g := w.find(step.Group)
	g.Refresh = &rollout.Refresh{ID: fmt.Sprint(w.serial), Status: "InProgress", To: step.To}
	return g.Refresh.ID, nil
}

func (w *world) Cancel(_ context.Context, group string) error {
	w.calls = append(w.calls, "cancel "+group)
	w.find(group).Refresh.Status = "Cancelled"
	return nil
}

func (w *world) runner(o rollout.Options) *rollout.Runner {
	return &rollout.Runner{Reader: w, Executor: w, Clock: w, Options: o}
}

// durable is three with volumes that outlive machines, whose members have all just reported.
func durable() rollout.State {
	s := three(v1)
	s.Etcd = rollout.Reports{At: noon, Epoch: 1, Members: map[string]member.Status{}}
	for i, g := range s.Groups {
		if g.Member == "" {
			continue
		}
		s.Groups[i].Volume = &rollout.Volume{ID: "vol-" + g.Member, Holder: g.Machines[0].ID}
		s.Etcd.Members[g.Member] = member.Status{At: noon, Instance: g.Machines[0].ID, Volume: "vol-" + g.Member, Epoch: 1, Row: member.SRuns, Leader: 7,
			Store: member.Content{RaftIndex: 100_000}}
	}
	return s
}

// In whatever order machines come and go, and however old the readings are, the control plane never lacks more than
// one machine, and all machines have the wanted version in the end.
func TestRunOneAtATime(t *testing.T) {
	for seed := range uint64(300) {
		w := newWorld(t, seed, durable())
		w.lags = seed%2 == 1
		done, err := w.runner(rollout.Options{}).Run(t.Context())
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(w.calls, "\n"))
		}
		if w.least < 4 { // of five
			t.Fatalf("seed %d: only %d of the control plane served\n%s", seed, w.least, strings.Join(w.calls, "\n"))
		}
		for _, g := range w.state.Groups {
			if g.Behind() || len(g.Machines) != g.Desired {
				t.Fatalf("seed %d: %s is not as wanted: %+v", seed, g.Name, g)
			}
		}
		if len(done.Replaced) != 5 || !slices.Equal(done.Refreshed, []string{"demo-minions"}) {
			t.Fatalf("seed %d: %+v\n%s", seed, done, strings.Join(w.calls, "\n"))
		}
	}
}

// A run that is interrupted anywhere is finished by the next.
func TestRunIsResumable(t *testing.T) {
	for cut := 1; cut < 60; cut++ {
		w := newWorld(t, uint64(cut), durable())
		ctx, cancel := context.WithCancel(t.Context())
		slept := 0
		w.after = func() {
			if slept++; slept == cut {
				cancel()
			}
		}
		_, err := w.runner(rollout.Options{}).Run(ctx)
		cancel()
		w.after = nil
		var left *rollout.Interrupted
		if err != nil && !errors.As(err, &left) {
			t.Fatal(err)
		}
		if _, err := w.runner(rollout.Options{}).Run(t.Context()); err != nil {
			t.Fatalf("cut %d: %v", cut, err)
		}
		if w.least < 4 {
			t.Fatalf("cut %d: only %d of the control plane served\n%s", cut, w.least, strings.Join(w.calls, "\n"))
		}
		if n := len(w.calls); n != 6 { // five machines and one refresh, each once
			t.Fatalf("cut %d: %d calls\n%s", cut, n, strings.Join(w.calls, "\n"))
		}
	}
}

func TestRunInterrupted(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cancel bool
		only   string
		stop   string // the call after which it is interrupted
		want   string
		calls  string
	}{
		{"a refresh goes on", false, "minions", "start", "AutoScaling goes on refreshing demo-minions", "start demo-minions 1>2"},
		{"a refresh is cancelled", true, "minions", "start", "the refresh of demo-minions is cancelled", "start demo-minions 1>2|cancel demo-minions"},
		{"a master is on its way", true, "masters", "replace", "stopped after i-m1: its group replaces it by itself", "replace i-m1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 1, durable())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w.after = func() {
				if len(w.calls) > 0 && strings.HasPrefix(w.calls[len(w.calls)-1], tt.stop) {
					cancel()
				}
			}
			_, err := w.runner(rollout.Options{Only: []string{tt.only}, CancelOnInterrupt: tt.cancel}).Run(ctx)
			if err == nil || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
			if got := strings.Join(w.calls, "|"); got != tt.calls {
				t.Errorf("calls %s, want %s", got, tt.calls)
			}
		})
	}
}

func TestRunFails(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(*world)
		only    string
		want    []string
	}{
		{"a machine that does not come up", func(w *world) { w.broken = true }, "masters",
			[]string{"waiting for demo-masters: nothing has changed for 35m", "Pending:Wait", "stuck at wait of masters"}},
		{"a refresh that is rolled back", func(w *world) { w.fails = true }, "minions",
			[]string{"refreshing demo-minions: AutoScaling says RollbackSuccessful, launches failed", "0 of 2 machines are as wanted", "refresh of minions"}},
		{"a refresh that comes no further", func(w *world) { w.stalls = true }, "minions",
			[]string{"waiting for demo-minions: nothing has changed for 35m", "InProgress, 0 %", "stuck at watch of minions"}},
		{"another's refresh", func(w *world) {
			w.find("demo-minions").Refresh = &rollout.Refresh{ID: "x", Status: "InProgress", To: 7}
		}, "minions", []string{"a refresh to version 7 is under way, and version 2 is wanted"}},
		{"members that report nothing any more", func(w *world) { w.mute = true }, "",
			[]string{"waiting for demo-etcd-b: ", "its member has not reported for", "stuck at wait of etcd-b"}},
		{"etcd whose disks are its machines' own", func(w *world) { w.state = three(v1) }, "", []string{"etcd-a: "}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 1, durable())
			tt.prepare(w)
			var only []string
			if tt.only != "" {
				only = []string{tt.only}
			}
			_, err := w.runner(rollout.Options{Only: only}).Run(t.Context())
			text := fmt.Sprint(err)
			if stuck := (*rollout.StuckError)(nil); errors.As(err, &stuck) {
				text += fmt.Sprintf("\nstuck at %s of %s", stuck.Step.Action, stuck.Group)
			}
			if refresh := (*rollout.RefreshError)(nil); errors.As(err, &refresh) {
				text += "\nrefresh of " + refresh.Group.Key
			}
			for _, part := range tt.want {
				if err == nil || !strings.Contains(text, part) {
					t.Errorf("%s\nwants %s", text, part)
				}
			}
		})
	}
}

// Machines that are held for their pods are waited for, as long as their group's hook may hold them: the rollout neither
// gives up nor is finished before.
func TestRunWaitsForHeldMachines(t *testing.T) {
	minions := rollout.Options{Only: []string{"minions"}, Poll: time.Minute}
	for _, tt := range []struct {
		name       string
		held, hook time.Duration
		want       string
	}{
		{"within the hook's time", 110 * time.Minute, 2 * time.Hour, ""},
		{"within the hook's time, without patience of our own", 20 * time.Minute, 15 * time.Minute, ""},
		{"nobody answers the hook, and it has no end", 1000 * time.Hour, 2 * time.Hour, "waiting for demo-minions: nothing has changed for 2h"},
		{"held by no hook of ours", 110 * time.Minute, 0, "waiting for demo-minions: nothing has changed for 35m"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 1, durable())
			w.held = tt.held
			w.find("demo-minions").Drain = tt.hook
			done, err := w.runner(minions).Run(t.Context())
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "i-w1") {
					t.Errorf("%v, want %s", err, tt.want)
				}
				return
			}
			if err != nil || !slices.Equal(done.Refreshed, []string{"demo-minions"}) {
				t.Fatalf("%+v, %v", done, err)
			}
			if g := w.find("demo-minions"); len(g.Machines) != g.Desired {
				t.Errorf("finished with %+v", g.Machines)
			}
			if took, least := w.now.Sub(noon), 2*tt.held; took < least {
				t.Errorf("finished after %v, and both machines are held for %v", took, least)
			}
		})
	}
}

// A refresh that is already under way is watched and not started again.
func TestRunAdoptsARefresh(t *testing.T) {
	w := newWorld(t, 1, durable())
	w.find("demo-minions").Refresh = &rollout.Refresh{ID: "x", Status: "InProgress", To: 2}
	done, err := w.runner(rollout.Options{Only: []string{"minions"}}).Run(t.Context())
	if err != nil || len(w.calls) != 0 || !slices.Equal(done.Refreshed, []string{"demo-minions"}) {
		t.Errorf("%+v, %v, calls %v", done, err, w.calls)
	}
}

// A refresh that another client rolls back is waited for.
func TestRunWaitsForARollback(t *testing.T) {
	w := newWorld(t, 1, durable())
	w.find("demo-minions").Refresh = &rollout.Refresh{ID: "x", Status: "RollbackInProgress", To: 7}
	w.fails = true
	w.after = func() { w.fails = false }
	done, err := w.runner(rollout.Options{Only: []string{"minions"}}).Run(t.Context())
	if err != nil || !slices.Equal(w.calls, []string{"start demo-minions 1>2"}) || !slices.Equal(done.Refreshed, []string{"demo-minions"}) {
		t.Errorf("%+v, %v, calls %v", done, err, w.calls)
	}
}
