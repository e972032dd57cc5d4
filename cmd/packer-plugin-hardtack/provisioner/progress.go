package provisioner

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/packer-plugin-sdk/packer"

	"github.com/hardtack/packer-plugin-hardtack/pkg/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/fetch"
)

// interval is the time between two lines about the same work. A line is a call to Packer's process:
// one for each read would take longer than the work (Ui.TrackProgress does that).
const interval = 5 * time.Second

// progress tells Packer's Ui about fetching and baking.
type progress struct{ ui packer.Ui }

var (
	_ fetch.Progress = progress{}
	_ bake.Progress  = (*steps)(nil)
)

// Start is fetch.Progress's.
func (p progress) Start(what string, total int64) fetch.Meter {
	return &meter{ui: p.ui, what: what, total: total, began: time.Now(), told: time.Now()}
}

// meter is one piece of work. It says nothing about work that is soon done.
type meter struct {
	ui          packer.Ui
	what        string
	done, total int64
	began, told time.Time
}

// Add is fetch.Meter's.
func (m *meter) Add(n int64) {
	m.done += n
	if time.Since(m.told) < interval {
		return
	}
	m.told = time.Now()
	m.ui.Say(m.what + ": " + amount(m.done, m.total))
}

// Done is fetch.Meter's. The error is told by whoever gets it.
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

// steps tells about a bake. The stream is written by a goroutine of its own.
type steps struct {
	ui    packer.Ui
	mu    sync.Mutex
	meter *meter
}

// Step is bake.Progress's.
func (s *steps) Step(text string) {
	s.mu.Lock()
	s.meter = nil
	s.mu.Unlock()
	s.ui.Say("hardtack: " + text)
}

// Sent is bake.Progress's.
func (s *steps) Sent(n, total int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.meter == nil {
		s.meter = &meter{ui: s.ui, what: "hardtack: written", total: total, began: time.Now(), told: time.Now()}
	}
	s.meter.Add(n)
}
