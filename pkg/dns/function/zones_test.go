package function

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

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

func TestConnectWithAPIZone(t *testing.T) {
	env := map[string]string{EnvClusters: "demo=demo-masters", EnvZone: "Z1", EnvRegion: "eu-central-1", EnvKey: "k", EnvSecret: "s"}
	for _, tt := range []struct {
		set  map[string]string
		two  bool
		want string // in the error
	}{
		{map[string]string{EnvAPIInternal: "true"}, false, ""},
		{map[string]string{EnvAPIZone: "Z2", EnvAPISuffix: "example.com"}, true, ""},
		{map[string]string{EnvAPIZone: "Z2"}, false, "go together"},
		{map[string]string{EnvAPISuffix: "example.com"}, false, "go together"},
		{map[string]string{EnvAPIZone: "example.com", EnvAPISuffix: "example.com"}, false, "is not the id of a hosted zone"},
		{map[string]string{EnvAPIInternal: "yes"}, false, "neither true nor false"},
	} {
		s, err := Read(func(k string) string {
			if v, ok := tt.set[k]; ok {
				return v
			}
			return env[k]
		})
		if tt.want != "" {
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v: %v", tt.set, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		h, err := Connect(s, io.Discard, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if _, two := h.syncer.(twoZones); two != tt.two || s.APIInternal != (tt.set[EnvAPIInternal] == "true") {
			t.Errorf("%v: %+v", tt.set, h.syncer)
		}
	}
}
