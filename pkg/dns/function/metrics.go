package function

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// Namespace is the namespace of the metrics in CloudWatch.
const Namespace = "Hardtack/DNS"

// metrics writes CloudWatch's embedded metric format: lines of the log from which CloudWatch makes metrics, without a
// request to its API.
type metrics struct {
	out io.Writer
	now func() time.Time
	log *slog.Logger
	mu  *sync.Mutex
}

type emfMetric struct {
	Name string `json:"Name"`
	Unit string `json:"Unit"`
}

type emfDirective struct {
	Namespace  string      `json:"Namespace"`
	Dimensions [][]string  `json:"Dimensions"`
	Metrics    []emfMetric `json:"Metrics"`
}

type emfHeader struct {
	Timestamp         int64          `json:"Timestamp"`
	CloudWatchMetrics []emfDirective `json:"CloudWatchMetrics"`
}

// emfLine has a field for each metric that its header names.
type emfLine struct {
	AWS          emfHeader `json:"_aws"`
	Cluster      string    `json:"Cluster"`
	Changes      int       `json:"Changes"`
	Conflicts    int       `json:"Conflicts"`
	Throttled    int       `json:"Throttled"`
	ZoneRequests int       `json:"ZoneRequests"`
	Unannounced  int       `json:"Unannounced"`
	Failures     int       `json:"Failures"`
	// Reconciles counts those that succeeded: the alarm is that there are none.
	Reconciles int `json:"Reconciles"`
	// Kept is how many names list the machines that were well last, since none is well now.
	Kept int `json:"Kept"`
	// Problems is how many findings the log has, and NotOwned how many of them are of records that are another's.
	Problems int `json:"Problems"`
	NotOwned int `json:"NotOwned"`
}

// Observe writes the metrics of one call of Sync.
func (m metrics) Observe(ctx context.Context, r reconcile.Report, err error) {
	line := emfLine{
		AWS: emfHeader{m.now().UnixMilli(), []emfDirective{{Namespace, [][]string{{"Cluster"}}, []emfMetric{
			{"Changes", "Count"}, {"Conflicts", "Count"}, {"Throttled", "Count"},
			{"ZoneRequests", "Count"}, {"Unannounced", "Count"}, {"Failures", "Count"},
			{"Reconciles", "Count"}, {"Kept", "Count"}, {"Problems", "Count"}, {"NotOwned", "Count"},
		}}}},
		Cluster: r.Cluster, Conflicts: r.Conflicts, Throttled: r.Throttled,
		ZoneRequests: r.Calls.ZoneReads + r.Calls.ZoneWrites, Unannounced: r.Unannounced,
	}
	if r.Changed {
		line.Changes = 1
	}
	line.Reconciles, line.Problems = 1, len(r.Problems)
	if err != nil {
		line.Reconciles, line.Failures = 0, 1
	}
	for _, p := range r.Problems {
		switch p.Rule {
		case record.RuleKept, record.RuleEmpty:
			line.Kept++
		case record.RuleNotOwned:
			line.NotOwned++
		}
	}
	text, _ := json.Marshal(line) // of texts and numbers: it cannot fail
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.out.Write(append(text, '\n')); err != nil {
		m.log.WarnContext(ctx, "metrics", "error", err)
	}
}
