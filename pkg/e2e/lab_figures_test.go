package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

// roleFigure is the resources that a machine uses once it is ready, in bytes.
type roleFigure struct {
	Group string `json:"group"`
	Roles string `json:"roles"`
	// Memory is the used memory: MemTotal less MemAvailable.
	Memory int64 `json:"memory_bytes"`
	// Disk is the used part of the root file system, the image included; Written is the overlay on the image.
	Disk    int64 `json:"disk_bytes"`
	Written int64 `json:"written_bytes"`
}

// takes reads every machine's figures, and writes them to build/NAME.
func (r *running) takes(t *testing.T, s lab.Status, name string) {
	t.Helper()
	var rows []roleFigure
	for _, m := range s.Machines {
		if m.Power != "on" {
			continue
		}
		row := roleFigure{Group: m.Group, Roles: m.Roles}
		out := r.ask(t, m.ID, `awk '/^MemTotal/{t=$2}/^MemAvailable/{a=$2}END{print (t-a)*1024}' /proc/meminfo; df -B1 --output=used / | tail -n1`)
		if n, err := fmt.Sscan(out, &row.Memory, &row.Disk); err != nil || row.Memory <= 0 || row.Disk <= 0 {
			t.Errorf("what %s takes: %d numbers in %q: %v", m.ID, n, out, err)
		}
		overlay, err := os.Stat(filepath.Join(r.home.Dir, "machines", m.ID, lab.OverlayFile))
		if err != nil {
			t.Error(err)
			continue
		}
		row.Written = overlay.Size()
		rows = append(rows, row)
	}
	text, err := json.MarshalIndent(rows, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", text)
	keep(t, name, text)
}
