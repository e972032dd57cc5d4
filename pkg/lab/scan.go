package lab

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Reached is the time at which a boot phase was reached, in seconds after power-on.
type Reached struct {
	Phase   timeline.Phase `json:"phase"`
	Seconds float64        `json:"seconds"`
}

// banners mark the phases before the agent runs, which it cannot report: texts with which the kernel and systemd begin
// on every console.
var banners = []struct {
	text  string
	phase timeline.Phase
}{
	{"Linux version ", timeline.PhaseKernel},
	{"systemd[1]: systemd ", timeline.PhaseSystemd},
	{"Welcome to ", timeline.PhaseSystemd},
}

// maxLine bounds an unfinished line, in bytes. The agent's timeline is one line.
const maxLine = 256 << 10

// scanner reads a machine's output and collects its phases, failures and timeline.
type scanner struct {
	started time.Time
	now     func() time.Time
	// changed is called after every change, without any lock held.
	changed func()

	mu       sync.Mutex
	last     time.Time
	reached  []Reached
	failures []reason.Failure
	timeline json.RawMessage
}

func newScanner(now func() time.Time, changed func()) *scanner {
	s := &scanner{started: now(), now: now, changed: changed}
	s.reached = []Reached{{timeline.PhasePower, 0}}
	s.last = s.started
	return s
}

// stream is one source of a machine's output: its console, or its journal.
type stream struct {
	scanner *scanner
	rest    []byte
}

// Write scans the next bytes. It never fails.
func (t *stream) Write(p []byte) (int, error) {
	s := t.scanner
	s.mu.Lock()
	s.last = s.now()
	t.rest = append(t.rest, p...)
	news := false
	for {
		i := bytes.IndexByte(t.rest, '\n')
		if i < 0 {
			break
		}
		news = s.line(string(t.rest[:i])) || news
		t.rest = t.rest[i+1:]
	}
	if len(t.rest) > maxLine {
		t.rest = nil
	}
	s.mu.Unlock()
	if news {
		s.changed()
	}
	return len(p), nil
}

// line scans one line and reports whether it changed anything.
func (s *scanner) line(text string) bool {
	if f, ok := reason.Parse(text); ok {
		s.recover(f.Unit)
		s.failures = append(s.failures, f)
		return true
	}
	if p, ok := timeline.ParseProgress(text); ok {
		works := s.recover(p.Units...)
		known := slices.Contains(timeline.Phases(role.All()), p.Phase)
		return known && s.reach(p.Phase) || works
	}
	if raw, ok := timeline.Find(text); ok {
		s.timeline, s.failures = raw, nil // every role works
		s.reach(timeline.PhaseReady)
		return true
	}
	for _, b := range banners {
		if strings.Contains(text, b.text) {
			return s.reach(b.phase)
		}
	}
	return false
}

// reach records a phase when it is reached for the first time; it returns false later.
func (s *scanner) reach(p timeline.Phase) bool {
	for _, r := range s.reached {
		if r.Phase == p {
			return false
		}
	}
	s.reached = append(s.reached, Reached{p, s.now().Sub(s.started).Seconds()})
	return true
}

// recover removes the failures of units that work now or report another failure, and reports whether there were any.
func (s *scanner) recover(units ...string) bool {
	was := len(s.failures)
	s.failures = slices.DeleteFunc(s.failures, func(f reason.Failure) bool { return slices.Contains(units, f.Unit) })
	return len(s.failures) < was
}

// scanned is the state of a scanner.
type scanned struct {
	Reached  []Reached
	Failures []reason.Failure
	Timeline json.RawMessage
	Last     time.Time
}

func (s *scanner) state() scanned {
	s.mu.Lock()
	defer s.mu.Unlock()
	return scanned{append([]Reached(nil), s.reached...), append([]reason.Failure(nil), s.failures...), s.timeline, s.last}
}
