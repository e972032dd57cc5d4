package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"text/tabwriter"
	"time"
)

// figures are the times that the tests measured. They are written when all tests have ended.
var figures measured

// measured collects figures. It is safe for use by several tests.
type measured struct {
	mu   sync.Mutex
	rows []figure
}

// figure is the duration of one boot, in milliseconds.
type figure struct {
	Machine string `json:"machine"`
	// Firmware is power-on to the kernel; RoleFiles is power-on to the reader's end; Reader is the reader's own time.
	Firmware  int64 `json:"firmware_ms"`
	RoleFiles int64 `json:"role_files_ms"`
	Reader    int64 `json:"reader_ms"`
	// Report is power-on to the probe's start, when multi-user.target was reached.
	Report int64 `json:"report_ms"`
}

func (m *measured) add(name string, b *Booted) {
	r := b.Units[reader]
	ms := func(d time.Duration) int64 { return d.Milliseconds() }
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows = append(m.rows, figure{
		Machine: name, Firmware: ms(b.Firmware), RoleFiles: ms(b.Firmware + r.Exited), Reader: ms(r.Exited - r.Started),
		Report: ms(b.Firmware + b.Uptime),
	})
}

// write prints the figures and leaves them in file; without any it does nothing.
func (m *measured) write(file string) error {
	if len(m.rows) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "machine\tfirmware ms\trole files after ms\treader ms\tprobe after ms\t")
	for _, r := range m.rows {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t\n", r.Machine, r.Firmware, r.RoleFiles, r.Reader, r.Report)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(m.rows, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file+".part", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".part", file)
}
