package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	// grafanaRange is what the page shows and is asked for, in steps of Grafana's own interval for Prometheus.
	grafanaRange = 15 * time.Minute
	grafanaStep  = 15 * time.Second
	// grafanaUID is the datasource's, which a person chooses on the page where the dashboard has its variable.
	grafanaUID = "the-prometheus"
	// grafanaPatience is for one page or one Grafana to come up beside whatever else the computer does.
	grafanaPatience = 4 * time.Minute
)

// grafanaShows has a real Grafana, with a Prometheus behind it, show the dashboard in a real browser: every panel has the lines that
// Prometheus has, by name. The same dashboard with faults is found wrong, in the panels that have them and in no other.
func grafanaShows(t *testing.T, prometheus string, dashboard []byte) {
	t.Helper()
	program := needGrafana(t)
	browser := needBrowser(t)
	g := &grafana{prometheus: prometheus, address: freeAddress(t), dir: t.TempDir()}
	var err error
	if g.panels, err = metricsPanels(dashboard); err != nil {
		t.Fatal(err)
	}
	// A range has the values of whole steps: the newest is not at once in it.
	var want map[int][]metricsLine
	if pending := eventually(4*grafanaStep, func() []string {
		if want, err = g.lines(t); err != nil {
			return []string{err.Error()}
		}
		return nil
	}); len(pending) > 0 {
		t.Fatal(pending)
	}
	faulty := withFaults(t, dashboard, want)
	g.start(t, program, map[string][]byte{"right": dashboard, "wrong": faulty})
	for _, c := range []struct {
		name, uid string
		dashboard []byte
		faults    []grafanaFault
	}{{"right", "hardtack", dashboard, nil}, {"wrong", faultyUID, faulty, grafanaFaults}} {
		t.Run(c.name, func(t *testing.T) {
			g.settles(t, "queries", wrongIn(c.faults, func(f grafanaFault) bool { return f.queried }), func() (map[int]string, error) {
				return g.queried(t, c.dashboard)
			})
			page := openPage(t, browser, g.page(c.uid), g.panels)
			defer keepPage(page, t)
			g.settles(t, "page", wrongIn(c.faults, func(grafanaFault) bool { return true }), func() (map[int]string, error) {
				return g.shown(page, t)
			})
		})
	}
}

// needGrafana returns the command of a Grafana: of the directory in HARDTACK_GRAFANA, or of its own Debian package. The directory has
// Grafana's bin, conf and public.
func needGrafana(t *testing.T) []string {
	t.Helper()
	home := os.Getenv("HARDTACK_GRAFANA")
	given := home != ""
	if !given {
		home = "/usr/share/grafana"
	}
	var missing []error
	for _, c := range [][]string{{filepath.Join(home, "bin/grafana"), "server"}, {filepath.Join(home, "bin/grafana-server")}, {"grafana-server"}} {
		if given && !filepath.IsAbs(c[0]) {
			continue
		}
		program, err := exec.LookPath(c[0])
		if err == nil {
			_, err = os.Stat(filepath.Join(home, "conf/defaults.ini"))
		}
		if err == nil {
			return append(append([]string{program}, c[1:]...), "-homepath", home)
		}
		missing = append(missing, err)
	}
	if given {
		t.Fatalf("HARDTACK_GRAFANA is no directory of a Grafana: %v", errors.Join(missing...))
	}
	t.Skipf("no Grafana shows the dashboard, since none is here (HARDTACK_GRAFANA names the directory of one): %v", errors.Join(missing...))
	return nil
}

// grafana is a running one.
type grafana struct {
	address, prometheus, dir string
	// panels are those of the right dashboard.
	panels []metricsPanel
}

// start starts it with the dashboards, and waits until it has them.
func (g *grafana) start(t *testing.T, program []string, dashboards map[string][]byte) {
	t.Helper()
	_, port, _ := strings.Cut(g.address, ":")
	files := map[string]string{
		"grafana.ini": fmt.Sprintf(`[paths]
data = %[1]s/data
logs = %[1]s/logs
plugins = %[1]s/plugins
provisioning = %[1]s/provisioning
[server]
http_addr = 127.0.0.1
http_port = %[2]s
[auth.anonymous]
enabled = true
org_role = Admin
[analytics]
reporting_enabled = false
check_for_updates = false
check_for_plugin_updates = false
[news]
news_feed_enabled = false
[security]
disable_gravatar = true
[log]
mode = console
`, g.dir, port),
		"provisioning/datasources/prometheus.yaml": fmt.Sprintf("apiVersion: 1\ndatasources:\n- {name: Prometheus, type: prometheus, uid: %s, access: proxy, isDefault: true, url: 'http://%s'}\n", grafanaUID, g.prometheus),
		"provisioning/dashboards/hardtack.yaml":    fmt.Sprintf("apiVersion: 1\nproviders:\n- {name: hardtack, type: file, options: {path: '%s/dashboards'}}\n", g.dir),
	}
	for name, content := range dashboards {
		files["dashboards/"+name+".json"] = string(content)
	}
	for name, content := range files {
		file := filepath.Join(g.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	daemon(t, program[0], append(program[1:], "-config", filepath.Join(g.dir, "grafana.ini"))...)
	if wrong := eventually(grafanaPatience, func() []string {
		var found []any
		if err := g.ask(t, "/api/search?type=dash-db", nil, &found); err != nil || len(found) != len(dashboards) {
			return []string{fmt.Sprintf("%d dashboards, %v", len(found), err)}
		}
		return nil
	}); len(wrong) > 0 {
		t.Fatalf("Grafana, after %v: %v", grafanaPatience, wrong)
	}
}

// page is the address of a dashboard as a person opens it, without menus.
func (g *grafana) page(uid string) string {
	return fmt.Sprintf("http://%s/d/%s/x?kiosk&from=now-%dm&to=now", g.address, uid, int(grafanaRange.Minutes()))
}

// ask asks Grafana's API; with a body it posts.
func (g *grafana) ask(t *testing.T, path string, body, data any) error {
	t.Helper()
	method, text := http.MethodGet, []byte(nil)
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+g.address+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	// An answer that is an error has a body of the same form, which says more than its code.
	if err := json.NewDecoder(answer.Body).Decode(data); err != nil {
		return fmt.Errorf("%s: %s: %w", path, answer.Status, err)
	}
	if body == nil && answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, answer.Status)
	}
	return nil
}

// lines are those of each panel of the right dashboard, by its number, as Prometheus itself has them.
func (g *grafana) lines(t *testing.T) (map[int][]metricsLine, error) {
	t.Helper()
	all := map[int][]metricsLine{}
	for _, p := range g.panels {
		for _, q := range p.Targets {
			lines, err := linesOf(t, g.prometheus, q, grafanaRange, grafanaStep)
			if err == nil && len(lines) == 0 && !q.machines() {
				err = errors.New("Prometheus has nothing to show")
			}
			if err != nil {
				return nil, fmt.Errorf("%q: %w", p.Title, err)
			}
			all[p.ID] = lines
		}
	}
	return all, nil
}

// queried are the panels of a dashboard for whose query Grafana has not the lines that the right one has, each with why.
func (g *grafana) queried(t *testing.T, dashboard []byte) (map[int]string, error) {
	t.Helper()
	want, err := g.lines(t)
	if err != nil {
		return nil, err
	}
	panels, err := metricsPanels(dashboard)
	if err != nil {
		return nil, err
	}
	wrong := map[int]string{}
	for _, p := range panels {
		for _, q := range p.Targets {
			names, err := g.frames(t, q)
			if names, want := slices.Sorted(slices.Values(names)), lineNames(want[p.ID]); err != nil || !slices.Equal(names, want) {
				wrong[p.ID] = fmt.Sprintf("%q: Grafana has the lines %q, want %q: %v", p.Title, names, want, err)
			}
		}
	}
	return wrong, nil
}

// frames asks Grafana for a query as the page does, for the names of the lines.
func (g *grafana) frames(t *testing.T, q metricsTarget) (names []string, err error) {
	t.Helper()
	query := map[string]any{
		"refId": "A", "expr": q.Expr, "legendFormat": q.Legend, "range": true, "intervalMs": grafanaStep.Milliseconds(), "maxDataPoints": 500,
		"datasource": map[string]string{"uid": strings.ReplaceAll(q.Datasource.UID, "${datasource}", grafanaUID)},
	}
	var answer struct {
		Message string
		Results map[string]struct {
			Error  string
			Frames []struct {
				Schema struct {
					Fields []struct {
						Config struct {
							Name string `json:"displayNameFromDS"`
						}
					}
				}
				Data struct{ Values [][]any }
			}
		}
	}
	body := map[string]any{"from": fmt.Sprintf("now-%dm", int(grafanaRange.Minutes())), "to": "now", "queries": []any{query}}
	if err := g.ask(t, "/api/ds/query", body, &answer); err != nil {
		return nil, err
	}
	a, has := answer.Results["A"]
	if !has || a.Error != "" {
		return nil, fmt.Errorf("Grafana's answer: %s%s", answer.Message, a.Error)
	}
	for _, f := range a.Frames {
		if len(f.Schema.Fields) != 2 || len(f.Data.Values) != 2 || len(f.Data.Values[1]) == 0 {
			return nil, fmt.Errorf("a frame has not times and values: %+v", f)
		}
		names = append(names, f.Schema.Fields[1].Config.Name)
	}
	return names, nil
}

// settles waits until exactly these panels are wrong.
func (g *grafana) settles(t *testing.T, what string, want []int, look func() (map[int]string, error)) {
	t.Helper()
	if pending := eventually(grafanaPatience, func() []string {
		found, err := look()
		if err != nil {
			return []string{err.Error()}
		}
		var pending []string
		for _, id := range slices.Sorted(maps.Keys(found)) {
			if !slices.Contains(want, id) {
				pending = append(pending, found[id])
			}
		}
		for _, id := range want {
			if found[id] == "" {
				pending = append(pending, fmt.Sprintf("the fault of panel %d is not seen", id))
			}
		}
		return pending
	}); len(pending) > 0 {
		t.Errorf("%s, after %v:\n%s", what, grafanaPatience, strings.Join(pending, "\n"))
	}
}
