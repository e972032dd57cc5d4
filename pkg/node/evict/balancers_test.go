package evict_test

import (
	"testing"
	"time"
)

// TestBalancers takes the node of a machine that ends out of load balancers, and back if the machine stays and nobody else had.
func TestBalancers(t *testing.T) {
	for name, tt := range map[string]struct{ before, during, after string }{
		"none":          {"none", "", "none"},
		"others did":    {"true", "true", "true"},
		"without words": {"", "", ""},
		"back":          {"false", "", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld("Terminating:Wait")
			n := w.nodes["n1"]
			if tt.before != "none" {
				n.Exclude = &tt.before
			}
			w.nodes["n1"] = n
			label := func() string {
				if l := w.nodes["n1"].Exclude; l != nil {
					return *l
				}
				return "none"
			}
			a := w.master("a")
			w.want(t, a, begun)
			w.want(t, a, "evict p")
			if got := label(); got != tt.during {
				t.Errorf("while it ends the label is %s, want %s", got, tt.during)
			}
			w.sight.Machines[0].State = "InService"
			w.want(t, a, "change unschedulable=false marked=false")
			if got := label(); got != tt.after {
				t.Errorf("of a machine that stays the label is %s, want %s", got, tt.after)
			}
		})
	}
}

// TestLingers holds a machine whose pods leave at once until load balancers know, and none that is lost or whose time is over.
func TestLingers(t *testing.T) {
	w := newWorld("Terminating:Wait")
	w.pods["n1"] = nil
	a := w.master("a")
	a.Linger = 30 * time.Second
	w.want(t, a, begun)
	w.now = began.Add(29 * time.Second)
	w.want(t, a, "")
	w.now = began.Add(30 * time.Second)
	w.want(t, a, ended)

	for name, tt := range map[string]struct {
		hook time.Duration
		lost bool
		want string
	}{
		"lost":             {15 * time.Minute, true, ended},
		"its time is over": {10 * time.Second, false, ended},
		"another's hook":   {0, false, "change unschedulable=true marked=true"},
	} {
		w := newWorld("Terminating:Wait")
		n := w.nodes["n1"]
		n.Lost, w.pods["n1"], w.hook = tt.lost, nil, tt.hook
		w.nodes["n1"] = n
		a := w.master("a")
		a.Linger = 30 * time.Second
		w.want(t, a, begun)
		w.now = began.Add(5 * time.Second)
		if got := w.step(t, a); got != tt.want {
			t.Errorf("%s: did %q, want %q", name, got, tt.want)
		}
	}
}

// A node to which no new pods are to come, and whose pods stay, goes on to be a target.
func TestNoticeOfBalancers(t *testing.T) {
	w := noticed(t, "rebalance=cordon", rebalance)
	a := w.master("a")
	w.want(t, a, cordoned)
	if w.nodes["n1"].Exclude != nil {
		t.Error("the pods of a node that is only cordoned get no requests")
	}
	w.shows(spotted)
	w.want(t, a, cordoned)
	if w.nodes["n1"].Exclude == nil {
		t.Error("a node that is drained is a target")
	}
	w.shows(rebalance)
	w.want(t, a, cordoned)
	w.shows("")
	w.want(t, a, "change unschedulable=false marked=false")
	if w.nodes["n1"].Exclude != nil {
		t.Error("a machine that stays is no target")
	}
}
