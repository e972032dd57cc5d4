package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/monitoring"
)

// metricsPanel is a panel of the dashboard with its queries, of which it has one unless it is a row.
type metricsPanel struct {
	ID      int
	Title   string
	Pos     struct{ Y, H int } `json:"gridPos"`
	Targets []metricsTarget
}

type metricsTarget struct {
	Expr       string
	Legend     string `json:"legendFormat"`
	Datasource struct{ UID string }
}

// metricsPanels reads a dashboard's panels.
func metricsPanels(dashboard []byte) ([]metricsPanel, error) {
	var d struct{ Panels []metricsPanel }
	if err := json.Unmarshal(dashboard, &d); err != nil {
		return nil, fmt.Errorf("reading the dashboard: %w", err)
	}
	return d.Panels, nil
}

// query is what Prometheus is asked for a range: the variable is Grafana's.
func (q metricsTarget) query(within time.Duration) string {
	return strings.ReplaceAll(q.Expr, "$__range", fmt.Sprintf("%ds", int(within.Seconds())))
}

// machines are what a query is about that only kubelets can tell.
func (q metricsTarget) machines() bool {
	return strings.Contains(q.Expr, "kubelet_") || strings.Contains(q.Expr, "container_")
}

// dashboard is the one that was written for the Prometheus.
func (m *metricsRun) dashboard(t *testing.T) ([]byte, []metricsPanel) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(m.files, monitoring.Dashboard))
	if err != nil {
		t.Fatal(err)
	}
	panels, err := metricsPanels(data)
	if err != nil {
		t.Fatal(err)
	}
	return data, panels
}

// ask asks Prometheus' API.
func (m *metricsRun) ask(t *testing.T, path string, data any) error {
	t.Helper()
	return askPrometheus(t, prometheusAddress, path, data)
}

func askPrometheus(t *testing.T, address, path string, data any) error {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/api/v1/"+path, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	all := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(answer.Body).Decode(&all); err != nil {
		return err
	}
	if all.Status != "success" {
		return fmt.Errorf("%s: %s", path, all.Error)
	}
	return nil
}

// vector is the answer to a query.
type vector []struct {
	Metric map[string]string
	Value  [2]any
}

func (m *metricsRun) query(t *testing.T, expr string) (vector, error) {
	t.Helper()
	var data struct{ Result vector }
	err := m.ask(t, "query?query="+url.QueryEscape(expr), &data)
	return data.Result, err
}

// panelsWrong are the panels that would be empty, without those of kubelets.
func (m *metricsRun) panelsWrong(t *testing.T) []string {
	t.Helper()
	_, panels := m.dashboard(t)
	var wrong []string
	asked := 0
	for _, p := range panels {
		for _, q := range p.Targets {
			result, err := m.query(t, q.query(15*time.Minute))
			switch {
			case err != nil:
				wrong = append(wrong, fmt.Sprintf("%q: %v", p.Title, err))
			case q.machines() && len(result) > 0:
				t.Fatalf("%q shows kubelets that are not there", p.Title)
			case q.machines():
			case len(result) == 0:
				wrong = append(wrong, fmt.Sprintf("%q is empty: %s", p.Title, q.Expr))
			case slices.ContainsFunc(result, func(r struct {
				Metric map[string]string
				Value  [2]any
			}) bool {
				return r.Value[1] == "NaN"
			}) && !strings.Contains(q.Expr, "histogram_quantile"): // of a histogram without requests it is
				wrong = append(wrong, fmt.Sprintf("%q has a value that is no number", p.Title))
			default:
				asked++
			}
		}
	}
	if len(wrong) == 0 && asked < 15 {
		wrong = append(wrong, fmt.Sprintf("only %d queries were asked", asked))
	}
	return wrong
}

// metricsLine is a line that a panel has to draw.
type metricsLine struct {
	name string
	// values are by time, without those that are no number.
	values map[float64]float64
}

// linesOf asks Prometheus for the lines of a query, over a range that ends now.
func linesOf(t *testing.T, prometheus string, q metricsTarget, within, step time.Duration) (lines []metricsLine, err error) {
	t.Helper()
	end := time.Now().Truncate(step)
	path := fmt.Sprintf("query_range?query=%s&start=%d&end=%d&step=%d", url.QueryEscape(q.query(within)), end.Add(-within).Unix(), end.Unix(), int(step.Seconds()))
	var data struct {
		Result []struct {
			Metric map[string]string
			Values [][2]any
		}
	}
	if err := askPrometheus(t, prometheus, path, &data); err != nil {
		return nil, err
	}
	for _, r := range data.Result {
		line := metricsLine{values: map[float64]float64{}}
		if line.name, err = lineName(q.Legend, r.Metric); err != nil {
			return nil, err
		}
		for _, v := range r.Values {
			at, _ := v[0].(float64)
			text, _ := v[1].(string)
			if n, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(n) && !math.IsInf(n, 0) {
				line.values[at] = n
			}
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// lineName is what a line is called; the legend must not name a label that its series lacks.
func lineName(legend string, labels map[string]string) (name string, err error) {
	name = regexp.MustCompile(`{{(\w+)}}`).ReplaceAllStringFunc(legend, func(label string) string {
		value, has := labels[strings.Trim(label, "{}")]
		if !has {
			err = fmt.Errorf("the legend %q names a label that %v lacks", legend, labels)
		}
		return value
	})
	return name, err
}

func lineNames(lines []metricsLine) []string {
	names := []string{}
	for _, l := range lines {
		names = append(names, l.name)
	}
	slices.Sort(names)
	return names
}

// bounds are the lowest and the highest of all values.
func bounds(lines []metricsLine) (lowest, highest float64) {
	lowest, highest = math.Inf(1), math.Inf(-1)
	for _, l := range lines {
		for _, v := range l.values {
			lowest, highest = min(lowest, v), max(highest, v)
		}
	}
	return lowest, highest
}
