package function

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
)

// syncs is a reconcile with a fixed outcome.
type syncs struct {
	report reconcile.Report
	err    error
}

func (s syncs) Sync(context.Context, string, ...reconcile.Event) (reconcile.Report, error) {
	return s.report, s.err
}

// The public zone's outcome is part of the report, and its failure fails the message without hiding the own zone's report.
func TestTwoZones(t *testing.T) {
	own := syncs{report: reconcile.Report{Cluster: "demo", Calls: reconcile.Calls{ZoneReads: 1, FleetReads: 1}, Values: map[string]int{"masters.demo.k8s. A": 3}}}
	public := syncs{report: reconcile.Report{Changed: true, CallAgainAt: noon, Calls: reconcile.Calls{ZoneReads: 1, ZoneWrites: 1, FleetReads: 1},
		Values: map[string]int{"api.demo.example.com. A": 3}, Problems: problem.List{{Rule: "x"}}}}
	r, err := twoZones{own, public}.Sync(t.Context(), "demo")
	if err != nil || !r.Changed || !r.CallAgainAt.Equal(noon) || r.Calls.Total() != 5 || len(r.Values) != 2 || len(r.Problems) != 1 || r.Cluster != "demo" {
		t.Errorf("%+v, %v", r, err)
	}
	own.report.CallAgainAt, public.err = noon.Add(-time.Minute), errors.New("denied")
	r, err = twoZones{own, public}.Sync(t.Context(), "demo")
	if err == nil || !strings.Contains(err.Error(), "the public zone: denied") || !r.CallAgainAt.Equal(own.report.CallAgainAt) {
		t.Errorf("%+v, %v", r, err)
	}
	own.err = errors.New("throttled")
	if _, err = (twoZones{own, public}).Sync(t.Context(), "demo"); err == nil || !strings.Contains(err.Error(), "throttled") || !strings.Contains(err.Error(), "denied") {
		t.Errorf("%v", err)
	}
}

// The report is of both zones, whichever of them has something to say.
func TestTwoZonesAreOneReport(t *testing.T) {
	soon, later := noon.Add(time.Minute), noon.Add(time.Hour)
	for _, tt := range []struct {
		name              string
		own, public, want reconcile.Report
	}{
		{name: "nothing"},
		{name: "the own zone alone",
			own:  reconcile.Report{Changed: true, Conflicts: 1, Throttled: 2, Unknown: 3, CallAgainAt: soon, Values: map[string]int{"a": 1}},
			want: reconcile.Report{Changed: true, Conflicts: 1, Throttled: 2, Unknown: 3, CallAgainAt: soon, Values: map[string]int{"a": 1}}},
		{name: "the public zone alone", // as where the own one failed before it read anything
			public: reconcile.Report{Changed: true, Conflicts: 1, Throttled: 2, Unknown: 3, CallAgainAt: soon, Values: map[string]int{"b": 1}},
			want:   reconcile.Report{Changed: true, Conflicts: 1, Throttled: 2, Unknown: 3, CallAgainAt: soon, Values: map[string]int{"b": 1}}},
		{name: "both",
			own:    reconcile.Report{Conflicts: 10, Throttled: 20, Unknown: 30, CallAgainAt: later, Values: map[string]int{"a": 1}},
			public: reconcile.Report{Conflicts: 1, Throttled: 2, Unknown: 3, CallAgainAt: soon, Values: map[string]int{"b": 1}},
			want:   reconcile.Report{Conflicts: 11, Throttled: 22, Unknown: 33, CallAgainAt: soon, Values: map[string]int{"a": 1, "b": 1}}},
		{name: "the own zone is due first",
			own:    reconcile.Report{CallAgainAt: soon},
			public: reconcile.Report{CallAgainAt: later},
			want:   reconcile.Report{CallAgainAt: soon}},
	} {
		got, err := twoZones{syncs{report: tt.own}, syncs{report: tt.public}}.Sync(t.Context(), "demo")
		if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Errorf("%s (-want +got), %v:\n%s", tt.name, err, diff)
		}
	}
}
