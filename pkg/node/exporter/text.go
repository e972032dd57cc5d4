package exporter

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Metric is the value of a gauge, with the values of its labels.
//
// Gauges are all that there is, and are written here: Prometheus' own client is 2.4 MB of the agent, and fills tables in memory at
// the start of each of its commands.
type Metric struct {
	family *family
	value  float64
	labels []string
}

// family is what the metrics of one name have in common.
type family struct {
	name, help string
	labels     []string
}

func newFamily(name, help string, labels ...string) *family {
	return &family{"hardtack_" + name, help, labels}
}

func gauge(f *family, value float64, labels ...string) Metric {
	if len(labels) != len(f.labels) {
		panic(fmt.Sprintf("%s has the labels %q, and gets the values %q", f.name, f.labels, labels))
	}
	return Metric{f, value, labels}
}

// contentType is that of https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format.
const contentType = "text/plain; version=0.0.4; charset=utf-8"

var (
	escapeHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	escapeLabel = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// writeText writes the metrics by their names, as Prometheus reads them.
func writeText(w io.Writer, metrics []Metric) error {
	lines := map[*family][]string{}
	for _, m := range metrics {
		lines[m.family] = append(lines[m.family], m.line())
	}
	for _, f := range slices.SortedFunc(maps.Keys(lines), func(a, b *family) int { return cmp.Compare(a.name, b.name) }) {
		slices.Sort(lines[f])
		_, err := fmt.Fprintf(w, "# HELP %s %s\n# TYPE %[1]s gauge\n%[3]s\n", f.name, escapeHelp.Replace(f.help), strings.Join(lines[f], "\n"))
		if err != nil {
			return err
		}
	}
	return nil
}

func (m Metric) line() string {
	var labels []string
	for i, name := range m.family.labels {
		labels = append(labels, name+`="`+escapeLabel.Replace(strings.ToValidUTF8(m.labels[i], "�"))+`"`)
	}
	text := m.family.name
	if len(labels) > 0 {
		text += "{" + strings.Join(labels, ",") + "}"
	}
	return text + " " + strconv.FormatFloat(m.value, 'g', -1, 64)
}
