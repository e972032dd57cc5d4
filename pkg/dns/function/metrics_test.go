package function

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// Every name that the header promises is a number in the line: CloudWatch drops a line otherwise ("Specification: Embedded metric
// format", CloudWatch User Guide).
func TestMetricsAreWhole(t *testing.T) {
	problems := problem.List{{Rule: record.RuleKept}, {Rule: record.RuleEmpty}, {Rule: record.RuleNotOwned}, {Rule: "untagged"}}
	for _, tt := range []struct {
		name   string
		report reconcile.Report
		err    error
		want   map[string]float64
	}{
		{
			"a failure after a change", reconcile.Report{
				Cluster: "demo", Changed: true, Problems: problems, Conflicts: 2, Throttled: 5, Unannounced: 6,
				Calls: reconcile.Calls{ZoneReads: 3, ZoneWrites: 1},
			},
			errors.New("x"), map[string]float64{
				"Changes": 1, "Conflicts": 2, "Throttled": 5, "ZoneRequests": 4, "Unannounced": 6, "Failures": 1,
				"Reconciles": 0, "Kept": 2, "Problems": 4, "NotOwned": 1,
			},
		},
		{
			"nothing to do", reconcile.Report{Cluster: "demo"},
			nil, map[string]float64{
				"Changes": 0, "Conflicts": 0, "Throttled": 0, "ZoneRequests": 0, "Unannounced": 0, "Failures": 0,
				"Reconciles": 1, "Kept": 0, "Problems": 0, "NotOwned": 0,
			},
		},
	} {
		var out bytes.Buffer
		m := metrics{out: &out, now: func() time.Time { return noon }, log: slog.New(slog.DiscardHandler), mu: new(sync.Mutex)}
		m.Observe(t.Context(), tt.report, tt.err)
		var line map[string]any
		var header struct {
			AWS emfHeader `json:"_aws"`
		}
		if err := errors.Join(json.Unmarshal(out.Bytes(), &line), json.Unmarshal(out.Bytes(), &header)); err != nil {
			t.Fatal(err)
		}
		if !m.mu.TryLock() {
			t.Errorf("%s: the next line would wait for ever", tt.name)
		}
		directive := header.AWS.CloudWatchMetrics[0]
		if len(directive.Metrics) != len(tt.want) || line["Cluster"] != "demo" || header.AWS.Timestamp != noon.UnixMilli() {
			t.Errorf("%s: line %s", tt.name, out.String())
		}
		if directive.Namespace != "Hardtack/DNS" || !cmp.Equal(directive.Dimensions, [][]string{{"Cluster"}}) {
			t.Errorf("%s: metrics of %s by %v", tt.name, directive.Namespace, directive.Dimensions)
		}
		for _, n := range directive.Metrics {
			if line[n.Name] != tt.want[n.Name] || n.Unit != "Count" {
				t.Errorf("%s: %s is %v in %s, want %v", tt.name, n.Name, line[n.Name], n.Unit, tt.want[n.Name])
			}
		}
	}
}

// full is an output that takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestLostMetricsAreLogged(t *testing.T) {
	var log bytes.Buffer
	m := metrics{out: full{}, now: func() time.Time { return noon }, log: slog.New(slog.NewJSONHandler(&log, nil)), mu: new(sync.Mutex)}
	m.Observe(t.Context(), reconcile.Report{Cluster: "demo"}, nil)
	if !strings.Contains(log.String(), "no space") {
		t.Errorf("logged %s", &log)
	}
}
