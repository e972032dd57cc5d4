package provisioner

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/packer-plugin-sdk/packer"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/fetch"
)

// interval is the time between two lines about the same work. Each line is a call to Packer's process: a call for each
// read (Ui.TrackProgress) would take longer than the work.
const interval = 5 * time.Second

// progress reports fetching to Packer's Ui.
type progress struct{ ui packer.Ui }

var (
	_ fetch.Progress = progress{}
	_ bake.Progress  = (*steps)(nil)
)

// Start implements fetch.Progress.
func (p progress) Start(what string, total int64) fetch.Meter {
	return &meter{ui: p.ui, what: what, total: total, began: time.Now(), reported: time.Now()}
}

// meter reports one piece of work. It prints nothing if the work is done soon.
type meter struct {
	ui              packer.Ui
	what            string
	done, total     int64
	began, reported time.Time
}

// Add implements fetch.Meter.
func (m *meter) Add(n int64) {
	m.done += n
	if time.Since(m.reported) < interval {
		return
	}
	m.reported = time.Now()
	m.ui.Say(m.what + ": " + amount(m.done, m.total))
}

// Done implements fetch.Meter. It does not print err, which the fetcher returns.
func (m *meter) Done(err error) {
	if took := time.Since(m.began); err == nil && took >= interval {
		m.ui.Say(fmt.Sprintf("%s: done in %.0f s", m.what, took.Seconds()))
	}
}

func amount(done, total int64) string {
	if total <= 0 {
		return fmt.Sprintf("%.1f MB", float64(done)/1e6)
	}
	return fmt.Sprintf("%.1f of %.1f MB", float64(done)/1e6, float64(total)/1e6)
}

// steps reports a bake. Another goroutine calls Sent.
type steps struct {
	ui    packer.Ui
	mu    sync.Mutex
	meter *meter
}

// Step implements bake.Progress.
func (s *steps) Step(text string) {
	s.mu.Lock()
	s.meter = nil
	s.mu.Unlock()
	s.ui.Say("hardtack: " + text)
}

// Sent implements bake.Progress.
func (s *steps) Sent(n, total int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.meter == nil {
		s.meter = &meter{ui: s.ui, what: "hardtack: written", total: total, began: time.Now(), reported: time.Now()}
	}
	s.meter.Add(n)
}
