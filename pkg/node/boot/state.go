package boot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/userdata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// statePath is the record of the last run, for the next boot and for operators.
const statePath = "/var/lib/hardtack/userdata.json"

// state is the record of the last successful run.
type state struct {
	// InstanceID is the machine's id according to the source, and Machine according to the hardware.
	InstanceID string `json:"instance_id"`
	// LaunchIndex is the machine's launch index according to the source; nil if it did not say, or was not asked.
	LaunchIndex *int   `json:"launch_index,omitempty"`
	Machine     string `json:"machine"`
	Source      string `json:"source"`
	// Digest is the sha256 of the user data, in hex.
	Digest string   `json:"digest"`
	Roles  role.Set `json:"roles"`
	// Files are the paths that the user data asked for, in the order in which they are written.
	Files []string `json:"files"`
	// Created are those of Files that user data has made, and that are no one else's: nothing was there before.
	Created []string `json:"created"`
}

// volumeCopy is the user data of the volume that was read at the first boot, which all later boots use.
const volumeCopy = "/var/lib/hardtack/userdata.volume"

// isMachine reports whether the state is that of this hardware, and not of a machine whose disk was copied. Hardware
// without an id cannot be told apart.
func (a *agent) isMachine(s state) bool { return len(s.Roles) > 0 && s.Machine == a.machine.id }

// loadState returns the state of the last run, or the zero state: where it cannot be read nothing is
// known of the machine's past, which is what the zero state says.
func (a *agent) loadState(report *Report) state {
	var s state
	data, err := os.ReadFile(a.path(statePath))
	if errors.Is(err, fs.ErrNotExist) {
		return state{}
	}
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		report.Findings.Add(problem.Problem{File: statePath, Severity: problem.Warning, Text: "is not used: " + err.Error()})
		return state{}
	}
	return s
}

// stateStep is the step that writes the state.
func (a *agent) stateStep(s state) (step, error) {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return step{}, fmt.Errorf("encoding %s: %w", statePath, err)
	}
	return a.step(userdata.File{Path: statePath, Content: append(data, '\n'), Mode: 0o600})
}
