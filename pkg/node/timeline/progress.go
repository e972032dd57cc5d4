package timeline

import (
	"encoding/json"
	"io"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Phase is a stage that a boot has reached.
type Phase string

// The phases in the order of a boot. Power, the kernel and systemd are seen from outside the machine. The agent reports
// the others: those of single daemons by the names of the checks of pkg/node/ready, and PhaseReady by the timeline.
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

// phases lists all phases; a phase with a role only exists on machines of that role.
var phases = []struct {
	phase Phase
	role  role.Role
}{
	{phase: PhasePower}, {phase: PhaseKernel}, {phase: PhaseSystemd}, {phase: PhaseUserData}, {phase: PhaseCerts},
	{PhaseEtcd, role.Etcd}, {PhaseAPI, role.Masters}, {PhaseKubelet, role.Minions}, {phase: PhaseReady},
}

// Phases lists the phases of a machine with these roles, in order.
func Phases(roles role.Set) []Phase {
	var list []Phase
	for _, p := range phases {
		if p.role == "" || roles.Has(p.role) {
			list = append(list, p.phase)
		}
	}
	return list
}

// Progress is a completed step of a boot.
type Progress struct {
	// Phase is the phase that the step has reached. It may be one that Phases does not list; empty is none.
	Phase Phase `json:"phase,omitempty"`
	// Units are units that work from now on, so that earlier reports of their failures are obsolete.
	Units []string `json:"units"`
	// At is in milliseconds since the kernel began.
	At int64 `json:"at"`
}

// markProgress begins the line of a step.
const markProgress = `{"hardtack":"progress",`

// Line is the step as a line of the journal and the console, without the newline.
func (p Progress) Line() string { return line(markProgress, p) }

// Write writes the line to w.
func (p Progress) Write(w io.Writer) error {
	_, err := io.WriteString(w, p.Line()+"\n")
	return err
}

// ParseProgress finds a step in a line of a console, which may have other text before and after it.
func ParseProgress(line string) (Progress, bool) {
	var p Progress
	raw, ok := find(line, markProgress)
	return p, ok && json.Unmarshal(raw, &p) == nil
}

// line renders a value as JSON after a mark.
func line(mark string, v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers and strings always marshal
	}
	return mark + string(text[1:])
}

// find returns the JSON that begins with the mark.
func find(line, mark string) (json.RawMessage, bool) {
	i := strings.Index(line, mark)
	if i < 0 {
		return nil, false
	}
	var raw json.RawMessage
	err := json.NewDecoder(strings.NewReader(line[i:])).Decode(&raw)
	return raw, err == nil
}
