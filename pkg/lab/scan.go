package lab

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/reason"
)

// Phase is how far a machine has come.
type Phase string

// The phases in the order of a boot. Not every role has all: etcd and API are a control plane's, Kubelet a
// minion's.
const (
	PhasePower    Phase = "power"
	PhaseKernel   Phase = "kernel"
	PhaseSystemd  Phase = "systemd"
	PhaseUserData Phase = "user data"
	PhaseCerts    Phase = "certs"
	PhaseEtcd     Phase = "etcd"
	PhaseAPI      Phase = "api"
	PhaseKubelet  Phase = "kubelet"
	PhaseReady    Phase = "ready"
)

// Phases lists all of them in order.
func Phases() []Phase {
	return []Phase{PhasePower, PhaseKernel, PhaseSystemd, PhaseUserData, PhaseCerts, PhaseEtcd, PhaseAPI, PhaseKubelet, PhaseReady}
}

// Reached is a phase with how long after power-on it was reached.
type Reached struct {
	Phase   Phase   `json:"phase"`
	Seconds float64 `json:"seconds"`
}

// unitPhases are the phases that a unit's start means, by the unit's name without its suffix.
var unitPhases = map[string]Phase{
	"hardtack-userdata": PhaseUserData, "hardtack-certs-masters": PhaseCerts, "hardtack-certs-etcd": PhaseCerts, "hardtack-bootstrap": PhaseCerts,
	"etcd": PhaseEtcd, "kube-apiserver": PhaseAPI, "kubelet": PhaseKubelet,
}

// agentPhases are the phases that a word of the agent means. Its words come from the machine itself, also when systemd
// has left the console to a getty.
var agentPhases = map[string]Phase{
	"write  /etc/hardtack/machine.yaml": PhaseUserData, "minted  /run/hardtack/pki/": PhaseCerts, "wrote  /run/hardtack/pki/": PhaseCerts,
	"msg=works check=etcd": PhaseEtcd, "msg=works check=api": PhaseAPI, "msg=works check=kubelet": PhaseKubelet,
}

var (
	agentLine = regexp.MustCompile(`hardtack-[a-z-]+\[[0-9]+\]: .*?(write  /etc/hardtack/machine\.yaml|(?:minted|wrote)  /run/hardtack/pki/|msg=works check=(?:etcd|api|kubelet)\b)`)
	// escapes are what colours a console: CSI sequences, and OSC ones up to their end.
	escapes = regexp.MustCompile("\x1b(\\[[0-9;?!]*[A-Za-z]|\\][^\x07\x1b]*(\x07|\x1b\\\\)|[()][A-Z0-9])")
	// unitLine is systemd's word on the console. A long name is cut with an ellipsis.
	unitLine = regexp.MustCompile(`(Started|Finished) ([A-Za-z0-9@_:-]+)(\.service|\.[a-z]*…|…)`)
)

// maxLine bounds a line that is kept until it ends, in bytes. The agent's timeline is one.
const maxLine = 256 << 10

// scanner reads what a machine says as it comes, and notes what that says about the machine.
type scanner struct {
	started time.Time
	now     func() time.Time
	// changed is told of everything new, without any lock.
	changed func()

	mu       sync.Mutex
	last     time.Time
	reached  []Reached
	failures []reason.Failure
	timeline json.RawMessage
}

func newScanner(now func() time.Time, changed func()) *scanner {
	s := &scanner{started: now(), now: now, changed: changed}
	s.reached = []Reached{{PhasePower, 0}}
	s.last = s.started
	return s
}

// stream is one of the places where a machine speaks: its console, its journal.
type stream struct {
	scanner *scanner
	rest    []byte
}

// Write takes the next bytes. It never fails.
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

// line reads one line and reports whether it says anything new.
func (s *scanner) line(text string) bool {
	text = strings.TrimSpace(escapes.ReplaceAllString(text, ""))
	if f, ok := reason.Parse(text); ok {
		s.fail(f)
		return true
	}
	if raw, ok := timelineOf(text); ok {
		s.timeline, s.failures = raw, nil // every role works
		s.reach(PhaseReady)
		return true
	}
	switch {
	case strings.Contains(text, "Linux version "):
		return s.reach(PhaseKernel)
	case strings.Contains(text, "systemd[1]: systemd ") || strings.HasPrefix(text, "Welcome to "):
		return s.reach(PhaseSystemd)
	}
	if m := agentLine.FindStringSubmatch(text); m != nil {
		return s.reach(agentPhases[m[1]])
	}
	m := unitLine.FindStringSubmatch(text)
	if m == nil {
		return false
	}
	works := s.recover(m[2], m[3] == "…")
	phase, ok := unitPhases[m[2]]
	return ok && s.reach(phase) || works
}

// reach notes the first time that a phase is reached; false later.
func (s *scanner) reach(p Phase) bool {
	for _, r := range s.reached {
		if r.Phase == p {
			return false
		}
	}
	s.reached = append(s.reached, Reached{p, s.now().Sub(s.started).Seconds()})
	return true
}

// fail notes a unit's failure in place of its former one.
func (s *scanner) fail(f reason.Failure) {
	s.recover(strings.TrimSuffix(f.Unit, ".service"), false)
	s.failures = append(s.failures, f)
}

// recover forgets what had been wrong with a unit that works now, whose name may be cut, and reports whether there was
// anything.
func (s *scanner) recover(unit string, cut bool) bool {
	var left []reason.Failure
	for _, f := range s.failures {
		name := strings.TrimSuffix(f.Unit, ".service")
		if name != unit && (!cut || !strings.HasPrefix(name, unit)) {
			left = append(left, f)
		}
	}
	was := len(s.failures)
	s.failures = left
	return len(left) < was
}

// timelineMark is what the agent's line about the whole boot begins with.
const timelineMark = `{"hardtack":"timeline"`

// timelineOf finds the boot timeline in a line.
func timelineOf(text string) (json.RawMessage, bool) {
	i := strings.Index(text, timelineMark)
	if i < 0 {
		return nil, false
	}
	var raw json.RawMessage
	if err := json.NewDecoder(strings.NewReader(text[i:])).Decode(&raw); err != nil {
		return nil, false
	}
	return raw, true
}

// scanned is what a console has said so far.
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
