package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// asg is AutoScaling for the world's instances: those in Pending:Wait have an open action.
type asg struct {
	*world
	err error
}

func (a *asg) act(what, group, id string) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return false, a.err
	}
	i := slices.IndexFunc(a.instances, func(i controller.Instance) bool { return i.ID == id && i.Group == group })
	if i < 0 {
		return false, fmt.Errorf("group %s has no machine %s", group, id)
	}
	if a.instances[i].State != "Pending:Wait" {
		return false, nil
	}
	if what == "completed " {
		a.instances[i].State = "InService"
	}
	a.events = append(a.events, what+id)
	return true, nil
}

func (a *asg) Complete(_ context.Context, group, id string) (bool, error) {
	return a.act("completed ", group, id)
}

func (a *asg) Heartbeat(_ context.Context, group, id string) (bool, error) {
	return a.act("held ", group, id)
}

// launching is a world of two minions that are launched, of which the first works, with a master's controller.
func launching() (*world, *asg, *controller.Controller) {
	w := newWorld(works(node(name11, "i-11", "10.1.0.11", true)), node(name12, "i-12", "10.1.0.12", true))
	w.instances = []controller.Instance{instance("i-11", name11, "10.1.0.11"), instance("i-12", name12, "10.1.0.12")}
	for i := range w.instances {
		w.instances[i].State = "Pending:Wait"
	}
	groups := &asg{world: w}
	return w, groups, w.launcher(groups)
}

func (w *world) launcher(groups controller.Launches) *controller.Controller {
	c := w.controller(true)
	c.Launches = groups
	return c
}

func works(n controller.Node) controller.Node {
	n.Word = controller.Word{Works: true, Said: time.Unix(1000, 0).UTC()}
	return n
}

// done are the answers to hooks.
func (w *world) done() (all []string) {
	for _, e := range w.events {
		if strings.HasPrefix(e, "completed ") || strings.HasPrefix(e, "held ") {
			all = append(all, e)
		}
	}
	return all
}

// TestLaunch completes the launch of a machine that works, once, and asks AWS nothing before and after.
func TestLaunch(t *testing.T) {
	w, _, c := launching()
	for range 3 {
		if err := c.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if a := w.nodes[name11].Answer; !slices.Equal(w.done(), []string{"completed i-11"}) || !a.Over || a.State != controller.Launched || a.Instance != "i-11" {
		t.Errorf("%v, answer %+v", w.events, a)
	}
	if (w.nodes[name12].Answer != controller.Answer{}) {
		t.Error("a machine that has said nothing is answered")
	}
	w.asked = nil
	if err := c.Reconcile(t.Context()); err != nil || len(w.asked) > 0 {
		t.Errorf("%v, afterwards the cloud is asked for %v", err, w.asked)
	}
}

// TestLaunchOfSiblings has a stolen minion, i-11, which writes what it likes into its own node. Nothing that it says completes or
// holds a sibling's launch, and its own only while it is a machine of minions that waits.
func TestLaunchOfSiblings(t *testing.T) {
	const none = ""
	for name, tt := range map[string]struct {
		change func(w *world, n *controller.Node)
		want   string // what is done, for whom
		why    string // in its answer
	}{
		"the machine":            {func(*world, *controller.Node) {}, "completed i-11", ""},
		"a sibling's providerID": {func(_ *world, n *controller.Node) { n.Instance = "i-12" }, none, "its name is that of i-11"},
		"a master's providerID":  {func(_ *world, n *controller.Node) { n.Instance = "i-10" }, none, "its name is that of i-11"},
		"no providerID":          {func(_ *world, n *controller.Node) { n.Instance = "" }, none, "its name is that of i-11"},
		"a sibling's name and address": {func(_ *world, n *controller.Node) {
			n.Instance, n.Names, n.Addresses = "i-12", []string{name12}, []netip.Addr{netip.MustParseAddr("10.1.0.12")}
		}, none, "its name is that of i-11"},
		"a sibling's providerID, to hold it": {func(_ *world, n *controller.Node) { n.Instance, n.Word.Works = "i-12", false }, none, "its name is that of i-11"},
		"an answer that it writes itself": {func(_ *world, n *controller.Node) {
			n.Instance, n.Answer = "i-12", controller.Answer{Instance: "i-12", Over: true, State: controller.Launched}
		}, none, ""},
		"a role label": {func(_ *world, n *controller.Node) {
			n.Labels = map[string]string{"node-role.kubernetes.io/masters": ""}
		}, "completed i-11", ""},
		"no pods come to it":           {func(_ *world, n *controller.Node) { n.Uninitialized = true }, none, "waits for the cloud's controller"},
		"not Ready":                    {func(_ *world, n *controller.Node) { n.Ready = false }, none, "not Ready"},
		"the node of a machine before": {func(w *world, n *controller.Node) { n.Instance = "i-99" }, none, "its name is that of i-11"},
		"gone":                         {func(w *world, _ *controller.Node) { w.instances[0].Running, w.instances[0].Gone = false, true }, none, "no machine of the cluster that runs"},
		"not in its hook yet":          {func(w *world, _ *controller.Node) { w.instances[0].State = "Pending" }, none, ""},
		"in service":                   {func(w *world, _ *controller.Node) { w.instances[0].State = "InService" }, none, ""},
		"that ends":                    {func(w *world, _ *controller.Node) { w.instances[0].State = "Terminating:Wait" }, none, ""},
		"of no group":                  {func(w *world, _ *controller.Node) { w.instances[0].Group, w.instances[0].Roles = "", nil }, none, ""},
		"a master that is a node":      {func(w *world, _ *controller.Node) { w.instances[0].Roles = role.NewSet(role.Masters, role.Minions) }, none, "complete their launches themselves"},
		"a member of etcd":             {func(w *world, _ *controller.Node) { w.instances[0].Roles = role.NewSet(role.Etcd, role.Minions) }, none, "complete their launches themselves"},
		"more time":                    {func(_ *world, n *controller.Node) { n.Word.Works = false }, "held i-11", ""},
		"more time, not Ready":         {func(_ *world, n *controller.Node) { n.Word.Works, n.Ready = false, false }, "held i-11", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, groups, _ := launching()
			m := combined("i-10", name10, "10.1.0.10")
			m.State = "Pending:Wait"
			w.instances = append(w.instances, m)
			n := w.nodes[name11]
			tt.change(w, &n)
			w.nodes[name11] = n
			c := w.launcher(groups)
			for range 3 {
				if err := c.Reconcile(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if got := strings.Join(w.done(), ", "); got != tt.want {
				t.Errorf("done: %q, want %q", got, tt.want)
			}
			if a := w.nodes[name11].Answer; !strings.Contains(a.Why, tt.why) || tt.why == "" && a.Why != "" {
				t.Errorf("answer %+v, want %q", a, tt.why)
			}
		})
	}
}

// TestLaunchTurns has three masters: one completes each launch, and another goes on when it is gone.
func TestLaunchTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, groups, _ := launching()
		w.nodes[name12] = works(w.nodes[name12])
		w.masters = []netip.Addr{netip.MustParseAddr("10.1.0.10"), netip.MustParseAddr("10.1.0.20"), netip.MustParseAddr("10.1.0.30")}
		var masters []*controller.Controller
		for _, a := range w.masters[1:] { // the first is announced, and gone
			c := w.launcher(groups)
			c.Self = func() (controller.Self, error) { return controller.Self{Addresses: []netip.Addr{a}}, nil }
			masters = append(masters, c)
		}
		began := time.Now()
		for len(w.done()) < 2 && time.Since(began) < time.Minute {
			for _, c := range masters {
				if err := c.Reconcile(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(5 * time.Second)
		}
		if done := slices.Sorted(slices.Values(w.done())); !slices.Equal(done, []string{"completed i-11", "completed i-12"}) || time.Since(began) > 40*time.Second {
			t.Errorf("%v after %v", done, time.Since(began))
		}
	})
}

// TestLaunchFaults: AutoScaling refuses for a while, the answer is lost, and a minion asks for more time at every moment.
func TestLaunchFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, groups, c := launching()
		groups.err = errors.New("throttled")
		failed := 0
		for range 12 { // a minute
			if err := c.Reconcile(t.Context()); err != nil {
				failed++
			}
			time.Sleep(5 * time.Second)
		}
		if failed < 3 || failed > 8 {
			t.Errorf("AutoScaling is asked %d times in a minute in which it refuses", failed)
		}
		groups.err = nil
		time.Sleep(30 * time.Second)
		w.down = errors.New("no API server")
		_ = c.Reconcile(t.Context())
		w.down = nil
		for range 30 {
			if err := c.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
		}
		if a := w.nodes[name11].Answer; !a.Over || !slices.Equal(w.done(), []string{"completed i-11"}) {
			t.Errorf("%v, answer %+v", w.done(), a)
		}

		w.events = nil
		n := w.nodes[name12]
		for range 60 { // five minutes
			n.Answer = w.nodes[name12].Answer
			n.Word = controller.Word{Said: time.Now()}
			w.nodes[name12] = n
			if err := c.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
		}
		if held := len(w.done()); held < 3 || held > 6 {
			t.Errorf("held %d times in five minutes", held)
		}
	})
}

// TestNoLaunches has no hook for launches, and no cloud: nothing is asked and nothing is done.
func TestNoLaunches(t *testing.T) {
	w, groups, _ := launching()
	for _, c := range []*controller.Controller{w.controller(true), w.controller(false)} {
		if c.Instances == nil {
			c.Launches = groups
		}
		if err := c.Reconcile(t.Context()); err != nil || len(w.done()) > 0 {
			t.Errorf("%v, %v", err, w.events)
		}
	}
}

// readOnly is a world whose store takes nothing.
type readOnly struct{ *world }

func (readOnly) Put(context.Context, string, []byte) error {
	return errors.New("no space left on device")
}

// TestTokenWaits: while the store takes nothing one token waits for it, and not one for each turn.
func TestTokenWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := &controller.Controller{Nodes: w, Requests: w, Objects: w, Tokens: w, Secrets: readOnly{w}, Now: time.Now,
			Self: func() (controller.Self, error) { return controller.Self{}, nil }, Log: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_ = c.Run(ctx, func() {}) // ends with its context
		n := 0
		for name := range w.objects {
			if strings.HasPrefix(name, "bootstrap-token-") {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d bootstrap tokens are good after an hour", n)
		}
	})
}
