package monitoring_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/monitoring"
)

// panel is what the tests read of a panel of the dashboard.
type panel struct {
	ID          int
	Type, Title string
	Pos         struct{ X, Y, W, H int } `json:"gridPos"`
	Field       struct {
		Defaults struct {
			Unit string
			Min  *float64
		}
	} `json:"fieldConfig"`
	Targets []struct {
		Expr   string
		Legend string `json:"legendFormat"`
	}
}

func readPanels(t *testing.T) (uid string, panels []panel) {
	t.Helper()
	var dashboard struct {
		UID    string
		Panels []panel
	}
	data, err := os.ReadFile(monitoring.Dashboard)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	return dashboard.UID, dashboard.Panels
}

// The files of promtool, in a directory of each test.
const (
	panelRules = "panels.yml"
	panelTests = "panels_test.yml"
)

// panelRange is what Grafana's own variable is in tests; Prometheus does not know it.
const panelRange = "1d"

// query is a panel's query as Grafana sends it.
func query(expr string) string { return strings.ReplaceAll(expr, "$__range", panelRange) }

// recorded writes the panels' queries as rules that record panel_ID.
func recorded(t *testing.T, dir string, panels []panel) {
	t.Helper()
	type rule struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var rules []rule
	for _, p := range panels {
		for _, q := range p.Targets {
			rules = append(rules, rule{fmt.Sprintf("panel_%d", p.ID), query(q.Expr)})
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []map[string]any{{"name": "panels", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, panelRules), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDashboard: Prometheus can parse each query, and no panel lies on another.
func TestDashboard(t *testing.T) {
	uid, panels := readPanels(t)
	queries := 0
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range panels {
		if ids[p.ID] || p.Title == "" || (p.Type != "row") != (len(p.Targets) == 1) {
			t.Errorf("panel %d, %q: its id is taken, or it has no title, or not one query", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.Pos.X; x < p.Pos.X+p.Pos.W; x++ {
			for y := p.Pos.Y; y < p.Pos.Y+p.Pos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%q lies on %q, or beyond the edge, at %d,%d", p.Title, other, x, y)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		queries += len(p.Targets)
		// Grafana's ticks are round numbers of seconds: of more than a minute they read 16.7 min.
		if p.Field.Defaults.Unit == "s" && !strings.Contains(p.Targets[0].Expr, "histogram_quantile") {
			t.Errorf("%q shows seconds, which may be many", p.Title)
		}
	}
	if uid == "" || queries < 20 {
		t.Fatalf("the dashboard has uid %q and %d queries", uid, queries)
	}
	dir := t.TempDir()
	recorded(t, dir, panels)
	if out, err := promtool(t, dir, "check", "rules", panelRules); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// panelFile is the part of the panels' tests that is read here.
type panelFile struct {
	Tests []struct {
		Name  string
		Cases []struct {
			Expr    string
			Samples []struct {
				Labels string
				Value  float64
			} `yaml:"exp_samples"`
		} `yaml:"promql_expr_test"`
	}
}

// promtoolPanels runs the panels' tests. In them $panel_ID is the query itself: recorded, it would forget what range it is for.
func promtoolPanels(t *testing.T, panels []panel) (string, error) {
	t.Helper()
	data, err := os.ReadFile(panelTests)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	recorded(t, dir, panels)
	for _, p := range panels {
		for _, q := range p.Targets {
			data = regexp.MustCompile(fmt.Sprintf(`\$panel_%d\b`, p.ID)).ReplaceAllLiteral(data, []byte(query(q.Expr)))
		}
	}
	if err := os.WriteFile(filepath.Join(dir, panelTests), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return promtool(t, dir, "test", "rules", panelTests)
}

// TestDashboardQueries: every panel shows what is so, also where several masters say it, and tells its lines apart.
func TestDashboardQueries(t *testing.T) {
	_, panels := readPanels(t)
	if out, err := promtoolPanels(t, panels); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	data, err := os.ReadFile(panelTests)
	if err != nil {
		t.Fatal(err)
	}
	var tests panelFile
	if err := yaml.Unmarshal(data, &tests); err != nil {
		t.Fatal(err)
	}
	for _, p := range panels {
		if len(p.Targets) == 0 {
			continue
		}
		shown := 0
		for _, test := range tests.Tests {
			for _, c := range test.Cases {
				if c.Expr != fmt.Sprintf("panel_%d", p.ID) {
					continue
				}
				names := map[string]bool{}
				for _, s := range c.Samples {
					shown++
					if name := legend(p.Targets[0].Legend, s.Labels); strings.TrimSpace(name) != name || names[name] || name == "" {
						t.Errorf("%s: %q names a line %q, as another or not wholly", test.Name, p.Title, name)
					} else {
						names[name] = true
					}
					if lowest := p.Field.Defaults.Min; lowest != nil && s.Value < *lowest {
						t.Errorf("%s: %q begins at %v and cuts off %v", test.Name, p.Title, *lowest, s.Value)
					}
				}
			}
		}
		if shown == 0 {
			t.Errorf("no test says what %q shows", p.Title)
		}
	}
}

// legend is the name of a line with these labels, as they stand in the panels' tests.
func legend(format, labels string) string {
	have := map[string]string{}
	for _, m := range regexp.MustCompile(`(\w+)="([^"]*)"`).FindAllStringSubmatch(labels, -1) {
		have[m[1]] = m[2]
	}
	return regexp.MustCompile(`{{(\w+)}}`).ReplaceAllStringFunc(format, func(label string) string { return have[strings.Trim(label, "{}")] })
}

// wrong are queries that show less or more than they say, by panel: there is one in each of the panels' tests.
var wrong = map[int][]struct{ from, to string }{
	2:  {{"or on () label_replace", "or label_replace"}, {`alertstate="firing"`, `alertname!=""`}},
	3:  {{"sum by (job)", "count by (job)"}},
	4:  {{"max(", "sum("}},
	5:  {{"max by (node) (hardtack_node_ready) == 1", "hardtack_node_ready == 1"}, {"max by (node) (hardtack_node_ready) == 0", "hardtack_node_ready == 0"}},
	7:  {{"max(hardtack_etcd_voters)", "sum(hardtack_etcd_voters)"}},
	8:  {{"max by (member) (hardtack_etcd_member_database_bytes)", "sum by (member) (hardtack_etcd_member_database_bytes)"}},
	9:  {{"/ 60", "/ 3600"}, {"max(", "min("}},
	10: {{"max(", "min("}},
	11: {{"0.99", "0.5"}},
	12: {{"instance, le", "le"}},
	14: {{"sum by (code)", "max by (code)"}},
	15: {{"WATCH|", ""}},
	16: {{` and on (instance) leader_election_master_status{name="kube-scheduler"} == 1`, ""}},
	17: {{" @ end()", ""}, {"topk", "bottomk"}, {`max_over_time(workqueue_depth{job="kube-controller-manager"}[$__range] @ end())`, `workqueue_depth{job="kube-controller-manager"} @ end()`}},
	18: {{" == 1", ""}},
	19: {{"sum by (instance)", "sum"}},
	20: {{`|konnectivity-server"`, `|.*"`}},
	22: {{" @ end()", ""}, {"bottomk(10", "topk(10"}, {"last_over_time(hardtack_certificate_not_after_timestamp_seconds[$__range] @ end())", "hardtack_certificate_not_after_timestamp_seconds @ end()"}, {"/ 86400", "/ 3600"}},
	23: {{" @ end()", ""}, {"bottomk(10", "topk(10"}},
	25: {{"sum by (instance)", "sum"}},
	26: {{`{id="/"}`, ""}},
	27: {{`{id="/"}`, ""}},
	28: {{"sum by (instance)", "max by (instance)"}},
	29: {{"instance, le", "le"}},
}

// TestDashboardJudge: the tests of the panels fail for each of them, and for it alone. Of every panel one is tried at a time.
func TestDashboardJudge(t *testing.T) {
	for round := range 4 {
		_, panels := readPanels(t)
		for i, p := range panels {
			if len(p.Targets) == 0 || len(wrong[p.ID]) <= round {
				continue
			}
			w, expr := wrong[p.ID][round], &panels[i].Targets[0].Expr
			if !strings.Contains(*expr, w.from) {
				t.Errorf("%q has no %q", p.Title, w.from)
			}
			*expr = strings.ReplaceAll(*expr, w.from, w.to)
		}
		out, _ := promtoolPanels(t, panels)
		for _, p := range panels {
			if len(p.Targets) == 0 {
				continue
			}
			shown := strings.Trim(strconv.Quote(query(p.Targets[0].Expr)), `"`)
			failed := strings.Contains(out, fmt.Sprintf(`expr: "panel_%d"`, p.ID)) || strings.Contains(out, shown)
			if failed != (len(wrong[p.ID]) > round) {
				t.Errorf("%q, as %s: its tests fail: %v", p.Title, p.Targets[0].Expr, failed)
			}
		}
		if t.Failed() {
			t.Fatal(out)
		}
	}
}
