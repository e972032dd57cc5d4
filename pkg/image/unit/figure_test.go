package unit_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/figure"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

//go:generate go test -count=1 -run TestBootOrderFigure . -update

// TestBootOrderFigure draws units/boot-order.svg from what the shipped units say of their order.
func TestBootOrderFigure(t *testing.T) {
	t.Parallel()
	all, problems := unit.Load(units.FS)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	shown := map[string]unit.Unit{}
	for _, u := range all {
		// A timer's service is no part of a boot.
		if u.Kind() == "service" && len(u.Values("Install", "WantedBy")) > 0 {
			shown[u.Name] = u
		}
	}
	if len(shown) < 15 || len(shown[unit.UserData].Options) == 0 {
		t.Fatalf("%d units are started at boot", len(shown))
	}
	golden.Assert(t, string(drawOrder(shown, needed(orders(shown)))), "../../../../units/boot-order.svg")
}

// orders has for each unit those that it starts after, of the units that are shown.
func orders(shown map[string]unit.Unit) map[string]map[string]bool {
	after := map[string]map[string]bool{}
	for name := range shown {
		after[name] = map[string]bool{}
	}
	for name, u := range shown {
		for _, o := range u.Values("Unit", "After") {
			for word := range strings.FieldsSeq(o.Value) {
				if _, ours := shown[word]; ours {
					after[name][word] = true
				}
			}
		}
		for _, o := range u.Values("Unit", "Before") {
			for word := range strings.FieldsSeq(o.Value) {
				if _, ours := shown[word]; ours {
					after[word][name] = true
				}
			}
		}
	}
	return after
}

// needed leaves out the orders that follow from others.
func needed(after map[string]map[string]bool) map[string][]string {
	var reaches func(from, to string) bool
	reaches = func(from, to string) bool {
		for next := range after[from] {
			if next == to || reaches(next, to) {
				return true
			}
		}
		return false
	}
	out := map[string][]string{}
	for name, before := range after {
		out[name] = []string{}
		for _, b := range slices.Sorted(maps.Keys(before)) {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(before)), func(other string) bool { return other != b && reaches(other, b) }) {
				out[name] = append(out[name], b)
			}
		}
	}
	return out
}

// drawOrder puts each unit behind those that it waits for, in the lane of its role.
func drawOrder(shown map[string]unit.Unit, after map[string][]string) []byte {
	const left, top, box, gap, high = 130.0, 64.0, 176.0, 44.0, 24.0
	var rank func(name string) int
	rank = func(name string) (r int) {
		for _, b := range after[name] {
			r = max(r, rank(b)+1)
		}
		return r
	}
	lanes := append([]role.Role{""}, role.All()...)
	colours := []string{figure.Grey, figure.Sky, figure.Green, figure.Orange}
	columns := 0
	at := map[string][2]float64{}
	y := top
	type lane struct{ y, height float64 }
	drawn := make([]lane, len(lanes))
	for i, l := range lanes {
		filled := map[int]int{}
		for _, name := range slices.Sorted(maps.Keys(shown)) {
			if r, _ := shown[name].Role(); r != l {
				continue
			}
			column := rank(name)
			columns = max(columns, column+1)
			at[name] = [2]float64{left + float64(column)*(box+gap), y + float64(filled[column])*(high+14)}
			filled[column]++
		}
		height := float64(slices.Max(append(slices.Collect(maps.Values(filled)), 1))) * (high + 14)
		drawn[i] = lane{y, height}
		y += height + 18
	}
	f := figure.New(left+float64(columns)*(box+gap), y+24, "What a machine starts, and after what: a machine has the first lane and those of its roles")
	for i, l := range lanes {
		f.Line(20, drawn[i].y-12, left+float64(columns)*(box+gap)-20, drawn[i].y-12, figure.Grid)
		text := string(l)
		if text == "" {
			text = "every machine"
		}
		f.Text(20, drawn[i].y+16, figure.Plain, text)
	}
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		for _, b := range after[name] {
			f.Arrow(at[b][0]+box, at[b][1]+high/2, at[name][0], at[name][1]+high/2)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		u := shown[name]
		r, _ := u.Role()
		p := at[name]
		f.Rect(p[0], p[1], box, high, colours[slices.Index(lanes, r)], u.Value("Unit", "Description").Value)
		f.Middle(p[0]+box/2, p[1]+16, figure.Inside, u.Short())
	}
	f.Text(20, y+10, figure.Muted, "An arrow is After= or Before= of the units; those that follow from others are left out. systemd starts what no arrow holds back at once.")
	return f.Bytes()
}
