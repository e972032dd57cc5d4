package evict_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/notice"
)

// noticed has the node n1, whose machine has a policy and shows notices.
func noticed(t *testing.T, policy, message string) *world {
	t.Helper()
	w := newWorld("InService")
	p, err := notice.ParsePolicy(policy)
	if err != nil {
		t.Fatal(err)
	}
	w.sight.Machines[0].Policy = p
	w.shows(message)
	return w
}

func (w *world) shows(message string) {
	n := w.nodes["n1"]
	n.Ending = message
	w.nodes["n1"] = n
}

// The notices of the tests, in a world that began at noon.
const (
	spotted   = "spot terminate at 2026-03-01T12:02:00Z"
	rebooted  = "scheduled system-reboot at 2026-03-01T12:30:00Z"
	rebalance = "rebalance recommendation at 2026-03-01T12:00:00Z"
)

// cordoned is the first step about a notice: there is no hook to hold.
const cordoned = "change unschedulable=true marked=true"

func TestNoticeOfSpot(t *testing.T) {
	w := noticed(t, "", spotted)
	a := w.master("a")
	w.want(t, a, cordoned)
	w.want(t, a, "evict p")
	w.pods["n1"] = nil
	w.want(t, a, cordoned) // with when it was done
	w.want(t, a, "")
	if first, last := w.events[0], w.events[len(w.events)-1]; len(w.events) != 2 || last.Reason != "Evicted" || !strings.Contains(first.Message, "("+spotted+"): its pods are evicted until 2026-03-01T12:01:50Z") {
		t.Errorf("events %+v", w.events)
	}
	// The group comes to end it: its hook is answered.
	w.sight.Machines[0].State = "Terminating:Wait"
	w.want(t, a, begun)
	w.want(t, a, ended)
}

// TestNoticeBlocked has a pod that may not leave within the notice's time.
func TestNoticeBlocked(t *testing.T) {
	w := noticed(t, "", spotted)
	w.blocked["p"] = "the budget b needs 1"
	a := w.master("a")
	w.want(t, a, cordoned)
	w.now = began.Add(109 * time.Second)
	w.want(t, a, "")
	w.now = began.Add(111 * time.Second)
	w.want(t, a, cordoned)
	w.want(t, a, "")
	if e := w.events[len(w.events)-1]; e.Reason != "EvictionIncomplete" || !strings.Contains(e.Message, "still has 1 pods that have not left in its time: d/p: the budget b needs 1") {
		t.Errorf("events %+v", w.events)
	}
}

// TestNoticePasses has a reboot: its drain begins when the hook's time is left, and the node is used again after it.
func TestNoticePasses(t *testing.T) {
	w := noticed(t, "", rebooted)
	a := w.master("a")
	w.want(t, a, "")
	w.now = began.Add(15*time.Minute - time.Second)
	w.want(t, a, "")
	w.now = began.Add(15 * time.Minute)
	w.want(t, a, cordoned)
	w.want(t, a, "evict p")
	w.pods["n1"] = nil
	w.want(t, a, cordoned)
	w.shows("")
	w.want(t, a, "change unschedulable=false marked=false")
	w.want(t, a, "")
}

// TestNoticeGrows has a recommendation that is followed by a notice.
func TestNoticeGrows(t *testing.T) {
	w := noticed(t, "rebalance=cordon", rebalance)
	a := w.master("a")
	w.want(t, a, cordoned)
	w.want(t, a, "")
	n := w.nodes["n1"]
	n.Unschedulable = false // somebody knows better
	w.nodes["n1"] = n
	w.want(t, a, "")
	w.shows(spotted + "; " + rebalance)
	w.want(t, w.master("b"), "")
	w.want(t, a, cordoned)
	w.want(t, a, "evict p")
	w.shows("")
	w.want(t, a, "change unschedulable=false marked=false")
}

// TestNoticeIgnored has notices about which nothing is done, and words that are none.
func TestNoticeIgnored(t *testing.T) {
	for name, tt := range map[string]struct{ policy, message string }{
		"the default of a recommendation": {"", rebalance},
		"the group's policy":              {"spot=ignore", spotted},
		"no notice":                       {"", "help"},
	} {
		t.Run(name, func(t *testing.T) {
			w := noticed(t, tt.policy, tt.message)
			a := w.master("a")
			for range 3 {
				w.want(t, a, "")
			}
			if said, want := strings.Count(w.log.String(), "not of the known form"), strings.Count(tt.message, "help"); said != want {
				t.Errorf("said %d times, not %d:\n%s", said, want, &w.log)
			}
		})
	}
}

// TestNoticeOfOthers has a node whose machine is in no group.
func TestNoticeOfOthers(t *testing.T) {
	w := noticed(t, "", spotted)
	w.sight.Machines = nil
	a := w.master("a")
	w.want(t, a, cordoned)
	w.want(t, a, "evict p")
	w.shows("")
	w.want(t, a, "change unschedulable=false marked=false")
	w.want(t, a, "")
}

// TestNoticeCannotFree has a node of which others have cordoned: it stays so. And one whose group ends it shows whatever it likes.
func TestNoticeCannotFree(t *testing.T) {
	w := noticed(t, "", spotted)
	n := w.nodes["n1"]
	n.Unschedulable = true
	w.nodes["n1"] = n
	a := w.master("a")
	w.want(t, a, cordoned)
	w.shows("")
	w.want(t, a, "change unschedulable=true marked=false")

	w = noticed(t, "", "")
	w.sight.Machines[0].State = "Terminating:Wait"
	a = w.master("a")
	w.want(t, a, begun)
	w.shows(rebalance)
	w.want(t, a, "evict p")
}

// TestNoticeFault has a hook whose time cannot be read: nothing is done about that notice, and it is tried again.
func TestNoticeFault(t *testing.T) {
	w := noticed(t, "", spotted)
	w.faults["drain"] = 2 // the first step looks twice
	a := w.master("a")
	if _, err := a.Step(t.Context()); err == nil || len(w.done) > 0 {
		t.Errorf("%v, did %v", err, w.done)
	}
	w.want(t, a, cordoned)
	w.faults["drain"] = 1
	if _, err := a.Step(t.Context()); err == nil || len(w.done) > 1 {
		t.Errorf("%v, did %v", err, w.done)
	}
	w.want(t, a, "evict p")
}
