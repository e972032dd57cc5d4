package e2e

import (
	"encoding/json"
	"slices"
	"testing"
)

const faultyUID = "hardtack-faulty"

// grafanaFault is a fault of a panel of the dashboard, which the page shows.
type grafanaFault struct {
	panel int
	// queried: Grafana's answer to the query shows it as well.
	queried bool
	change  func(f faultyPanel)
}

// faultyPanel are the parts of a panel that faults are made in, and the lines that the panel would have without.
type faultyPanel struct {
	panel, target, defaults map[string]any
	lines                   []metricsLine
}

// grafanaFaults are each in a panel of its own.
var grafanaFaults = []grafanaFault{
	{3, true, func(f faultyPanel) {
		nobody := map[string]any{"type": "prometheus", "uid": "nobody"}
		f.panel["datasource"], f.target["datasource"] = nobody, nobody
	}},
	{4, true, func(f faultyPanel) { f.target["expr"] = "max(hardtack_dns_record_addresses" }},
	{8, true, func(f faultyPanel) { f.target["legendFormat"] = "member {{nobody}}" }},
	{9, true, func(f faultyPanel) { f.target["expr"] = "" }},
	{10, true, func(f faultyPanel) { f.target["expr"] = "time() - max(hardtack_etcd_backup_restored)" }},
	{14, true, func(f faultyPanel) { f.target["expr"] = "sum(rate(apiserver_request_total[5m]))" }},
	{7, false, func(f faultyPanel) { f.panel["type"] = "timeserie" }},
	{11, false, func(f faultyPanel) { f.defaults["min"] = 1e6 }},
	// Nearly all that the panel shows is above its axis: a line that is cut off is missed though others are drawn.
	{20, false, func(f faultyPanel) {
		lowest, highest := bounds(f.lines)
		f.defaults["max"] = lowest + (highest-lowest)/10
	}},
}

// wrongIn are the panels with the faults that are seen so.
func wrongIn(faults []grafanaFault, seen func(grafanaFault) bool) (panels []int) {
	for _, f := range faults {
		if seen(f) {
			panels = append(panels, f.panel)
		}
	}
	return panels
}

// withFaults is the dashboard with all faults in it.
func withFaults(t *testing.T, dashboard []byte, lines map[int][]metricsLine) []byte {
	t.Helper()
	var d map[string]any
	if err := json.Unmarshal(dashboard, &d); err != nil {
		t.Fatal(err)
	}
	d["uid"], d["title"] = faultyUID, "Hardtack with faults"
	panels, _ := d["panels"].([]any)
	made := 0
	for _, p := range panels {
		panel, _ := p.(map[string]any)
		id, _ := panel["id"].(float64)
		i := slices.IndexFunc(grafanaFaults, func(f grafanaFault) bool { return f.panel == int(id) })
		if i < 0 {
			continue
		}
		targets, _ := panel["targets"].([]any)
		target, _ := targets[0].(map[string]any)
		config, _ := panel["fieldConfig"].(map[string]any)
		defaults, _ := config["defaults"].(map[string]any)
		grafanaFaults[i].change(faultyPanel{panel, target, defaults, lines[int(id)]})
		made++
	}
	if made != len(grafanaFaults) {
		t.Fatalf("%d of %d faults could be made", made, len(grafanaFaults))
	}
	data, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
