package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/hardtack/packer-plugin-hardtack/pkg/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/userdata"
)

// statePath is where a run leaves what it did, for the next boot and for people.
const statePath = "/var/lib/hardtack/userdata.json"

// state is what the last successful run did.
type state struct {
	// InstanceID is what the source called the machine, and Machine what its hardware said.
	InstanceID string `json:"instanceId"`
	Machine    string `json:"machine"`
	Source     string `json:"source"`
	// Digest is the sha256 of the user data, in hex.
	Digest string   `json:"digest"`
	Roles  role.Set `json:"roles"`
	// Files are the paths that the user data asked for, in the order in which they are written.
	Files []string `json:"files"`
}

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
