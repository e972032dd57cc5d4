package lab

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestNotice: a spot instance loses its power when its time has come, and its group replaces it; a notice that is taken back, or a
// scheduled event, takes nobody's power.
func TestNotice(t *testing.T) {
	t.Parallel()
	_, c := up(t, planned(t))
	s := until(t, c, "both minions serve", inService("minions", 2))
	var minions []MachineStatus
	for _, m := range s.Machines {
		if m.Group == "minions" {
			minions = append(minions, m)
		}
	}
	master, err := s.Find("masters-a")
	if err != nil {
		t.Fatal(err)
	}
	lost, kept := minions[0], minions[1]
	for _, n := range []Notice{{"spot", time.Hour}, {"none", 0}, {"instance-retirement", time.Millisecond}, {"rebalance", 0}} {
		if err := c.Announce(t.Context(), kept.ID, n); err != nil {
			t.Fatal(n, err)
		}
	}
	if err := c.Announce(t.Context(), lost.ID, Notice{"spot", 50 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	s = until(t, c, "the interrupted minion is replaced", func(s Status) bool {
		return inService("minions", 2)(s) && !slices.Contains(values(s, "minions.demo.k8s."), lost.Address.String())
	})
	if m, err := s.Find(lost.ID); err != nil || m.End != "interrupted" || m.Power != "off" {
		t.Errorf("the interrupted machine: %+v, %v", m, err)
	}
	if m, err := s.Find(kept.ID); err != nil || m.Power != "on" {
		t.Errorf("the other machine: %+v, %v", m, err)
	}
	for _, wrong := range []struct {
		id    string
		n     Notice
		words string
	}{
		{kept.ID, Notice{"sport", time.Minute}, "it is one of spot, rebalance"},
		{kept.ID, Notice{"spot", -time.Minute}, "announces what is to come"},
		{lost.ID, Notice{"spot", time.Minute}, "does not run"},
		{master.ID, Notice{"spot", time.Minute}, "no spot instance"},
		{"i-none", Notice{"spot", time.Minute}, "no machine i-none"},
	} {
		if err := c.Announce(t.Context(), wrong.id, wrong.n); err == nil || !strings.Contains(err.Error(), wrong.words) {
			t.Errorf("%v to %s: %v", wrong.n, wrong.id, err)
		}
	}
}
