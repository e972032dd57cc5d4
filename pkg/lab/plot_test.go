package lab

import (
	"encoding/xml"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/golden"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
)

// plotted is a lab of three machines, one of them killed.
func plotted() Status {
	on := time.Unix(1000, 0)
	boot := func(seconds ...float64) []Reached {
		phases := []timeline.Phase{timeline.PhasePower, timeline.PhaseKernel, timeline.PhaseSystemd, timeline.PhaseUserData, timeline.PhaseCerts, timeline.PhaseEtcd, timeline.PhaseAPI, timeline.PhaseReady}
		var list []Reached
		for i, s := range seconds {
			list = append(list, Reached{phases[i], s})
		}
		return list
	}
	return Status{Lab: "a&b", Cluster: "demo", Machines: []MachineStatus{
		{ID: "i-1", Group: "masters", Address: netip.MustParseAddr("10.1.0.10"), Power: "on", PoweredOn: on, Reached: boot(0, 2, 5, 20.5, 25, 31, 60, 95)},
		{ID: "i-2", Group: "minions", Address: netip.MustParseAddr("10.1.0.11"), Power: "off", PoweredOn: on.Add(time.Second), Ended: on.Add(40 * time.Second), Reached: boot(0, 3, 6)},
		{ID: "i-3", Group: "minions", Address: netip.MustParseAddr("10.1.0.12"), Power: "on", PoweredOn: on.Add(41 * time.Second), Reached: boot(0, 2), Failures: []reason.Failure{{Unit: "hardtack-userdata.service", Reason: reason.UserData}}},
		{ID: "i-4", Group: "minions", Address: netip.MustParseAddr("10.1.0.13"), Power: "pending"},
	}}
}

func TestPlot(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := NewPlot(plotted(), true).WriteSVG(&out); err != nil {
		t.Fatal(err)
	}
	decoder := xml.NewDecoder(strings.NewReader(out.String()))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the plot is no XML: %v", err)
		}
	}
	golden.Assert(t, out.String(), "plot.svg")
	if rows := NewPlot(plotted(), false).Rows; len(rows) != 2 {
		t.Errorf("%d rows without the machine that has ended, want 2", len(rows))
	}
}

func TestPlotOfNothing(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := NewPlot(Status{Cluster: "demo", Lab: "demo"}, true).WriteSVG(&out); err != nil || strings.Contains(out.String(), "NaN") {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	s := Status{Groups: []GroupStatus{{Name: "masters"}, {Name: "minions"}}, Machines: []MachineStatus{
		{ID: "i-abc1", Group: "masters", Power: "on", Address: netip.MustParseAddr("10.1.0.10"), Name: "ip-10-1-0-10." + domain},
		{ID: "i-abd2", Group: "minions", Power: "on", Address: netip.MustParseAddr("10.1.0.11")},
		{ID: "i-bcd3", Group: "minions", Power: "on", Address: netip.MustParseAddr("10.1.0.12")},
		{ID: "i-eee4", Group: "masters", Power: "off", Address: netip.MustParseAddr("10.1.0.9")},
	}}
	for name, want := range map[string]string{
		"i-abc1": "i-abc1", "masters": "i-abc1", "abd": "i-abd2", "10.1.0.12": "i-bcd3", "ip-10-1-0-10": "i-abc1", "i-ee": "i-eee4",
		"minions": "2 machines are", "i-ab": "2 machines are", "nobody": "no machine is", "i-": "no machine is",
	} {
		m, err := s.Find(name)
		switch {
		case err == nil && m.ID != want:
			t.Errorf("%q is %s, want %s", name, m.ID, want)
		case err != nil && !strings.Contains(err.Error(), want):
			t.Errorf("%q: %v, want %s", name, err, want)
		}
	}
	if _, err := (Status{}).Find("nobody"); err == nil || !strings.Contains(err.Error(), `called "nobody": no machine runs (`) {
		t.Errorf("in an empty lab: %v", err)
	}
	if got := strings.Join(s.Names(), " "); got != "i-abc1 i-abd2 i-bcd3 masters" {
		t.Errorf("names %q", got)
	}
}
