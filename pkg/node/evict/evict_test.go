package evict_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/evict"
)

// world is a cluster and its groups. Every call is a line of done.
type world struct {
	now    time.Time
	nodes  map[string]evict.Node
	pods   map[string][]evict.Pod
	sight  evict.Sight
	hook   time.Duration // 0 is none
	open   map[string]bool
	holder string
	// blocked are the reasons why pods are not evicted, by their names.
	blocked map[string]string
	// faults are how many calls fail, by their first words.
	faults map[string]int
	events []evict.Event
	done   []string
	log    bytes.Buffer
}

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// newWorld has the node n1 on the machine i-1, which is in a state.
func newWorld(state string) *world {
	return &world{now: began, hook: 15 * time.Minute, open: map[string]bool{"i-1": true}, blocked: map[string]string{}, faults: map[string]int{},
		nodes: map[string]evict.Node{"n1": {Name: "n1", UID: "u1", Instance: "i-1", Version: "1"}},
		sight: evict.Sight{Machines: []evict.Machine{{ID: "i-1", Group: "g", State: state}}},
		pods:  map[string][]evict.Pod{"n1": {{Namespace: "d", Name: "p", UID: "p1", Controller: "ReplicaSet"}}},
	}
}

// seat is one master's view.
type seat struct {
	*world
	name string
}

func (w *world) call(word string, more ...any) error {
	w.done = append(w.done, strings.TrimSpace(word+" "+fmt.Sprint(more...)))
	return w.fault(word)
}

var errFault = errors.New("fault")

func (w *world) fault(word string) error {
	if w.faults[word] > 0 {
		w.faults[word]--
		return errFault
	}
	return nil
}

func (s seat) Nodes(context.Context) ([]evict.Node, error) {
	return slices.SortedFunc(maps.Values(s.nodes), func(a, b evict.Node) int { return strings.Compare(a.Name, b.Name) }), s.fault("nodes")
}

func (s seat) Change(_ context.Context, n evict.Node) error {
	if s.nodes[n.Name].Version != n.Version {
		return evict.ErrChanged
	}
	n.Version += "+"
	s.nodes[n.Name] = n
	return s.call("change", "unschedulable=", n.Unschedulable, " marked=", n.Mark != "")
}

func (s seat) Pods(_ context.Context, node string) ([]evict.Pod, error) {
	return slices.Clone(s.pods[node]), s.fault("pods")
}

func (s seat) Evict(_ context.Context, p evict.Pod) error {
	if why := s.blocked[p.Name]; why != "" {
		return &evict.BlockedError{Why: why}
	}
	err := s.call("evict", p.Name)
	for i, one := range s.pods["n1"] {
		if one.UID == p.UID {
			s.pods["n1"][i].Ending = err == nil
		}
	}
	return err
}

func (s seat) Tell(_ context.Context, _ evict.Node, e evict.Event) error {
	s.events = append(s.events, e)
	return s.fault("tell")
}

func (s seat) Turn(context.Context) (bool, error) {
	if s.holder == "" {
		s.holder = s.name
	}
	return s.holder == s.name, s.fault("turn")
}

func (s seat) Sight(context.Context) (evict.Sight, error) { return s.sight, s.fault("sight") }

func (s seat) Hold(context.Context, evict.Machine) (time.Duration, error) {
	return s.hook, s.call("hold")
}

func (s seat) Drain(context.Context, string) (time.Duration, error) { return s.hook, s.fault("drain") }

func (s seat) Release(_ context.Context, m evict.Machine) (bool, error) {
	was := s.open[m.ID]
	err := s.call("release", m.ID)
	s.open[m.ID] = err != nil
	return was, err
}

func (w *world) master(name string) *evict.Evictor {
	s := seat{w, name}
	return &evict.Evictor{Cluster: s, Machines: s, Now: func() time.Time { return w.now }, Log: slog.New(slog.NewTextHandler(&w.log, nil))}
}

// step takes a step, and returns what was done by it.
func (w *world) step(t *testing.T, e *evict.Evictor) string {
	t.Helper()
	w.done = nil
	if _, err := e.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	return strings.Join(w.done, ", ")
}

func (w *world) want(t *testing.T, e *evict.Evictor, want string) {
	t.Helper()
	if got := w.step(t, e); got != want {
		t.Fatalf("did %q, want %q", got, want)
	}
}

const begun = "hold, change unschedulable=true marked=true"

// ended is the last step of a machine that a hook holds.
const ended = "release i-1, change unschedulable=true marked=true"

func TestStates(t *testing.T) {
	for state, want := range map[string]string{
		"InService": "", "Pending": "", "Pending:Wait": "", "Standby": "", "Terminating:Wait": begun,
		// Before its hooks, and after them.
		"Terminating": "", "Terminating:Proceed": "", "Terminated": "",
	} {
		w := newWorld(state)
		if got := w.step(t, w.master("a")); got != want {
			t.Errorf("%s: did %q, want %q", state, got, want)
		}
		if idle := w.holder == ""; idle != (want == "") {
			t.Errorf("%s: the lease is %q's", state, w.holder)
		}
	}
}

// TestWhole follows a machine to its end.
func TestWhole(t *testing.T) {
	w := newWorld("Terminating:Wait")
	w.pods["n1"] = append(w.pods["n1"], evict.Pod{Name: "daemon", Controller: "DaemonSet"}, evict.Pod{Name: "static", Mirror: true}, evict.Pod{Name: "bare"})
	a := w.master("a")
	w.want(t, a, begun)
	w.want(t, a, "evict p, evict bare")
	w.want(t, a, "") // they are ending
	w.pods["n1"] = w.pods["n1"][1:3]
	w.want(t, a, ended)
	for range 3 { // while another hook holds it
		w.want(t, a, "")
	}
	if last := w.events[len(w.events)-1]; last.Reason != "Evicted" || last.Warning || len(w.events) != 2 {
		t.Errorf("events %+v", w.events)
	}
}

// TestGoesOn has a master that stops after each of its steps, and another that goes on: no call is made twice.
func TestGoesOn(t *testing.T) {
	for stop := 1; stop < 5; stop++ {
		w := newWorld("Terminating:Wait")
		one, all := w.master("a"), ""
		for i := range 6 {
			if i == stop {
				w.want(t, w.master("b"), "") // it is not its turn
				one, w.holder = w.master("c"), ""
			}
			all += w.step(t, one) + "; "
			if i == 2 {
				w.pods["n1"] = nil
			}
		}
		if want := begun + "; evict p; ; " + ended + "; ; ; "; all != want {
			t.Errorf("after %d: %q, want %q", stop, all, want)
		}
	}
}

func TestBlocked(t *testing.T) {
	w := newWorld("Terminating:Wait")
	w.blocked["p"] = "the budget b needs 1"
	a := w.master("a")
	w.want(t, a, begun)
	for range 5 {
		w.want(t, a, "")
	}
	if e := w.events[len(w.events)-1]; len(w.events) != 2 || e.Reason != "EvictionBlocked" || !e.Warning || !strings.Contains(e.Message, "d/p: the budget b needs 1") {
		t.Errorf("events %+v", w.events)
	}
	if n := strings.Count(w.log.String(), "a pod cannot be evicted now"); n != 1 {
		t.Errorf("said %d times:\n%s", n, &w.log)
	}
	w.now = began.Add(w.hook - 31*time.Second)
	w.want(t, a, "")
	w.now = began.Add(w.hook - 29*time.Second)
	w.want(t, a, ended)
	if e := w.events[len(w.events)-1]; e.Reason != "EvictionIncomplete" || !strings.Contains(e.Message, "ends with 1 pods that have not left in its time: d/p: the budget b needs 1") {
		t.Errorf("events %+v", w.events)
	}
}

// TestImpostor: a machine that is taken over can join with another machine's ID. That one's pods are moved away all the same.
func TestImpostor(t *testing.T) {
	w := newWorld("Terminating:Wait")
	w.nodes["n2"] = evict.Node{Name: "n2", UID: "u2", Instance: "i-1", Version: "1", Created: began}
	w.nodes["n0"] = evict.Node{Name: "n0", UID: "u0", Instance: "i-1", Version: "1", Created: began}
	a := w.master("a")
	w.want(t, a, begun)
	w.want(t, a, "evict p")
	if n := strings.Count(w.log.String(), "says that it is machine i-1"); n != 2 || w.nodes["n2"].Unschedulable || w.nodes["n0"].Unschedulable || !w.nodes["n1"].Unschedulable {
		t.Errorf("%+v, said %d times:\n%s", w.nodes, n, &w.log)
	}
}

func TestLost(t *testing.T) {
	w := newWorld("Terminating:Wait")
	n := w.nodes["n1"]
	n.Lost = true
	w.nodes["n1"] = n
	a := w.master("a")
	w.want(t, a, begun)
	w.want(t, a, "evict p, "+ended)
}

// TestPass has machines from which nothing can be moved.
func TestPass(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"no node":          func(w *world) { w.nodes = nil },
		"the cluster ends": func(w *world) { w.sight.Closing = true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("Terminating:Wait")
			change(w)
			a := w.master("a")
			w.want(t, a, "release i-1")
			w.want(t, a, "") // AutoScaling still shows it
		})
	}
}

// TestUnheld has a machine that another's hook holds: its pods leave, and there is nothing to complete.
func TestUnheld(t *testing.T) {
	w := newWorld("Terminating:Wait")
	w.hook = 0
	a := w.master("a")
	w.want(t, a, begun)
	w.want(t, a, "evict p")
	w.pods["n1"] = nil
	w.want(t, a, "change unschedulable=true marked=true")
	w.want(t, a, "")
}

// TestStays has machines that stay: what we did is undone, and what others did is not.
func TestStays(t *testing.T) {
	for name, tt := range map[string]struct {
		cordoned bool // by somebody, before
		want     string
	}{
		"we cordoned it": {false, "change unschedulable=false marked=false"},
		"others did":     {true, "change unschedulable=true marked=false"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("Terminating:Wait")
			n := w.nodes["n1"]
			n.Unschedulable = tt.cordoned
			w.nodes["n1"] = n
			a := w.master("a")
			w.want(t, a, begun)
			w.sight.Machines[0].State = "InService"
			w.want(t, w.master("b"), "")
			w.want(t, a, tt.want)
			w.want(t, a, "")
		})
	}
	w := newWorld("InService")
	n := w.nodes["n1"]
	n.Unschedulable = true
	w.nodes["n1"] = n
	w.want(t, w.master("a"), "")
}

// TestUncordoned has somebody who uncordons a node that we evict from.
func TestUncordoned(t *testing.T) {
	w := newWorld("Terminating:Wait")
	a := w.master("a")
	w.want(t, a, begun)
	n := w.nodes["n1"]
	n.Unschedulable = false
	w.nodes["n1"] = n
	w.want(t, a, "change unschedulable=true marked=true")
	w.want(t, a, "evict p")
}

// TestSuccessor has a new machine with the name, and the node, of one from which we evicted.
func TestSuccessor(t *testing.T) {
	w := newWorld("Terminating:Wait")
	w.want(t, w.master("a"), begun)
	n := w.nodes["n1"]
	n.Instance = "i-2"
	w.nodes["n1"] = n
	w.sight.Machines[0] = evict.Machine{ID: "i-2", Group: "g", State: "InService"}
	w.holder = ""
	w.want(t, w.master("b"), "change unschedulable=false marked=false")
}

// TestFaults has every call fail twice: the error is returned, nothing is released before its time, and it goes on.
func TestFaults(t *testing.T) {
	for _, word := range []string{"nodes", "sight", "turn", "hold", "change", "pods", "evict", "tell", "release"} {
		t.Run(word, func(t *testing.T) {
			w := newWorld("Terminating:Wait")
			w.faults[word] = 2
			a := w.master("a")
			released, failed := 0, 0
			for i := range 16 {
				w.done = nil
				_, err := a.Step(t.Context())
				if err != nil && !errors.Is(err, errFault) {
					t.Fatal(err)
				}
				if err != nil {
					failed++
				}
				for _, line := range w.done {
					if strings.HasPrefix(line, "release") {
						released++
						if len(w.pods["n1"]) > 0 {
							t.Fatalf("released with %v", w.pods["n1"])
						}
					}
				}
				if len(w.pods["n1"]) > 0 && w.pods["n1"][0].Ending && i > 7 {
					w.pods["n1"] = nil
				}
			}
			if w.open["i-1"] || released == 0 || released > 3 { // each failure has one more
				t.Errorf("released %d times, open %v", released, w.open)
			}
			if failed != 2 && word != "tell" {
				t.Errorf("%d errors were returned", failed)
			}
		})
	}
}

// TestRun looks rarely while no machine ends, and often while one does.
func TestRun(t *testing.T) {
	for state, want := range map[string]int{
		"InService":        4,
		"Terminating:Wait": 13, // twice when it takes its turn
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(state)
			w.blocked["p"] = "a budget"
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			looks := 0
			e := w.master("a")
			e.Machines = counting{seat{w, "a"}, &looks}
			go e.Run(ctx)
			time.Sleep(59 * time.Second)
			synctest.Wait()
			if looks != want {
				t.Errorf("%s: %d looks in a minute, want %d", state, looks, want)
			}
		})
	}
}

type counting struct {
	seat
	n *int
}

func (c counting) Sight(ctx context.Context) (evict.Sight, error) {
	*c.n++
	return c.seat.Sight(ctx)
}
