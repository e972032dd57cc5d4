package lab

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/vnet/metadata"
)

// Fault is what is wrong with the machines that a group launches from then on. The zero value is nothing.
type Fault struct {
	// Skew is how far the machine's clock is ahead at power-on; negative is behind.
	Skew time.Duration `json:"skew,omitempty"`
	// UserData replaces what the group's launch template says; nil does not.
	UserData []byte `json:"user_data,omitempty"`
	// Metadata is what goes wrong with requests to the metadata service.
	Metadata []metadata.Fault `json:"metadata,omitempty"`
}

// setFault changes what is wrong with a group's machines to come.
func (h *host) setFault(group string, f Fault) error {
	g, ok := h.daemon.plan.group(group)
	if !ok {
		return fmt.Errorf("there is no group %q", group)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults[g.Name] = f
	return nil
}

// putFault takes a group's fault from a client. There is no verb for it: it is for tests of machines.
func (d *Daemon) putFault(w http.ResponseWriter, r *http.Request) {
	var f Fault
	if err := json.NewDecoder(r.Body).Decode(&f); err != nil {
		refuse(w, http.StatusBadRequest, fmt.Errorf("reading the fault: %w", err))
		return
	}
	if err := d.host.setFault(r.PathValue("name"), f); err != nil {
		refuse(w, http.StatusNotFound, err)
		return
	}
	answer(w, struct{}{})
}
