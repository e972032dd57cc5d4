package lab

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/qemu"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet/metadata"
)

// Fault is a fault of the machines that a group launches from then on, or what else is theirs alone. The zero value is no fault.
type Fault struct {
	// Skew is how far the machine's clock is ahead at power-on; negative if it is behind.
	Skew time.Duration `json:"skew,omitempty"`
	// NoTime has the time server not answer the machine, which else corrects its clock.
	NoTime bool `json:"no_time,omitempty"`
	// Accel replaces the accelerator of the machine; empty leaves the lab's.
	Accel qemu.Accel `json:"accel,omitempty"`
	// UserData replaces the user data of the group's launch template; nil leaves them.
	UserData []byte `json:"user_data,omitempty"`
	// Metadata are faults of the metadata service's answers.
	Metadata []metadata.Fault `json:"metadata,omitempty"`
}

// setFault sets the fault of the machines that a group launches from now on.
func (h *host) setFault(group string, f Fault) error {
	g, ok := h.plan.groupIn(h.account, group)
	if !ok {
		return fmt.Errorf("there is no group %q", group)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults[g.Name] = f
	return nil
}

// putFault sets a group's fault. No CLI command does it: it is for tests of machines.
func (d *daemon) putFault(w http.ResponseWriter, r *http.Request) {
	var f Fault
	if err := json.NewDecoder(r.Body).Decode(&f); err != nil {
		writeError(w, http.StatusBadRequest, fmt.Errorf("reading the fault: %w", err))
		return
	}
	if err := d.host.setFault(r.PathValue("name"), f); err != nil {
		writeError(w, http.StatusNotFound, err)
		return
	}
	writeJSON(w, struct{}{})
}
