package exporter

import (
	"bytes"
	"math"
	"os/exec"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// TestText has Prometheus' parser, and its linter where that is, judge what is written.
func TestText(t *testing.T) {
	plain, labelled := newFamily("plain_bytes", "A \\ and\na line."), newFamily("labelled", "Of two labels.", "zone", "name")
	values := []string{"", "a", "a\"b", `a\n`, "a\nb", "a\\", "ü{}=,", "\xff"}
	metrics := []Metric{gauge(plain, 2<<30)}
	for i, v := range values {
		metrics = append(metrics, gauge(labelled, float64(i)/3, "z", v))
	}
	metrics = append(metrics, gauge(labelled, math.Inf(1), "inf", ""), gauge(labelled, math.NaN(), "nan", ""))
	var text bytes.Buffer
	if err := writeText(&text, metrics); err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	found, err := parser.TextToMetricFamilies(bytes.NewReader(text.Bytes()))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text.String())
	}
	if p := found["hardtack_plain_bytes"]; p.GetHelp() != plain.help || p.GetMetric()[0].GetGauge().GetValue() != 2<<30 {
		t.Errorf("%v", p)
	}
	read := map[string]float64{}
	for _, m := range found["hardtack_labelled"].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		read[labels["zone"]+" "+labels["name"]] = m.GetGauge().GetValue()
	}
	for i, v := range values {
		if got, ok := read["z "+strings.ToValidUTF8(v, "�")]; !ok || got != float64(i)/3 {
			t.Errorf("%q: %v, %v", v, got, ok)
		}
	}
	if !math.IsInf(read["inf "], 1) || !math.IsNaN(read["nan "]) || len(read) != len(values)+2 {
		t.Errorf("%v", read)
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not on PATH: run scripts/setup --judges, and the test by make")
	}
	lint := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	lint.Stdin = &text
	if out, err := lint.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
