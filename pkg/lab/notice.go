package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet/metadata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// NoticeKinds are the kinds of Notice: what EC2 calls its own, and for scheduled events their codes.
var NoticeKinds = []string{"spot", "rebalance", "instance-stop", "instance-retirement", "instance-reboot", "system-reboot", "system-maintenance", "none"}

// Notice is what is announced to a machine through its metadata, as EC2 does it.
type Notice struct {
	// Kind is one of NoticeKinds; "none" takes all notices back. Only machines without the control plane are spot instances.
	Kind string `json:"kind"`
	// In is the time until what is announced comes. EC2 gives spot instances two minutes.
	In time.Duration `json:"in"`
}

// metadata is the notice as the metadata service has it.
func (n Notice) metadata(now time.Time) (metadata.Notices, error) {
	if !slices.Contains(NoticeKinds, n.Kind) {
		return metadata.Notices{}, fmt.Errorf("%q is no kind of notice: it is one of %s", n.Kind, strings.Join(NoticeKinds, ", "))
	}
	if n.In < 0 {
		return metadata.Notices{}, fmt.Errorf("a notice of what came %v ago: it announces what is to come", -n.In)
	}
	at := now.Add(n.In)
	switch n.Kind {
	case "none":
		return metadata.Notices{}, nil
	case "spot":
		return metadata.Notices{Interruption: &metadata.Interruption{Action: "terminate", Time: at}}, nil
	case "rebalance":
		return metadata.Notices{Rebalance: at}, nil
	}
	return metadata.Notices{Scheduled: []metadata.Event{{Code: n.Kind, NotBefore: at, NotAfter: at.Add(time.Hour)}}}, nil
}

// spot reports whether a machine is a spot instance. Those without the control plane are, so that every kind of notice can be tried
// on them; nobody runs etcd or an API server on spot instances.
func (g *guest) spot() bool { return !g.group.Roles.Has(role.Masters) && !g.group.Roles.Has(role.Etcd) }

// announce has a machine's metadata announce something. What was announced before is taken back. A spot instance loses its power
// when its time has come, unless that was taken back; a scheduled event does not come.
func (h *host) announce(id string, n Notice) error {
	notices, err := n.metadata(time.Now())
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.guests[id]
	if g == nil {
		return fmt.Errorf("there is no machine %s", id)
	}
	if g.power() == nil {
		return fmt.Errorf("machine %s does not run", id)
	}
	if h.closed {
		return fmt.Errorf("the lab is going down")
	}
	if !g.spot() && (notices.Interruption != nil || !notices.Rebalance.IsZero()) {
		return fmt.Errorf("machine %s runs a part of the control plane, and is no spot instance: EC2 announces %s only to those", id, n.Kind)
	}
	if g.interrupted != nil {
		g.interrupted()
	}
	h.runner.Announce(id, notices)
	if notices.Interruption == nil {
		return nil
	}
	ctx, stop := h.life()
	g.interrupted = stop
	h.tasks.Go(func() {
		defer stop()
		select {
		case <-ctx.Done():
		case <-time.After(n.In):
			if running := g.power(); running != nil {
				g.setEnd("interrupted")
				_ = running.Stop() // run reports how it ended
			}
		}
	})
	return nil
}

// postNotice announces something to a machine.
func (d *daemon) postNotice(w http.ResponseWriter, r *http.Request) {
	var n Notice
	if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
		writeError(w, http.StatusBadRequest, fmt.Errorf("reading the notice: %w", err))
		return
	}
	if err := d.host.announce(r.PathValue("id"), n); err != nil {
		writeError(w, http.StatusConflict, err)
		return
	}
	writeJSON(w, struct{}{})
}

// Announce announces something to a machine, as EC2 does it.
func (c *Client) Announce(ctx context.Context, id string, n Notice) error {
	body, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encoding a notice: %w", err)
	}
	return c.send(ctx, http.MethodPost, "/v1/machines/"+url.PathEscape(id)+"/notice", bytes.NewReader(body), &struct{}{})
}
