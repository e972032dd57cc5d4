package lab

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/evict"
)

// NodeEvent is an Event of a node that the masters' controller has written: what became of its pods.
type NodeEvent struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// ReadNodeEvents reads the controller's Events of a node from an API server.
func ReadNodeEvents(ctx context.Context, client *http.Client, server, node string) ([]NodeEvent, error) {
	query := url.Values{"fieldSelector": {"involvedObject.kind=Node,source=hardtack-controller,involvedObject.name=" + node}}
	var list struct {
		Items []struct {
			NodeEvent
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		} `json:"items"`
	}
	if err := getJSON(ctx, client, server+"/api/v1/namespaces/default/events?"+query.Encode(), &list); err != nil {
		return nil, fmt.Errorf("asking for the events of node %s: %w", node, err)
	}
	events := make([]NodeEvent, 0, len(list.Items))
	for _, item := range list.Items {
		item.Name = item.Metadata.Name
		events = append(events, item.NodeEvent)
	}
	return events, nil
}

// events reads the events of a node as an administrator.
func (c *kubernetes) events(ctx context.Context, node string) ([]NodeEvent, error) {
	client, err := c.client(ctx)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	return ReadNodeEvents(ctx, client, "https://"+c.forward, node)
}

func (d *daemon) getEvents(w http.ResponseWriter, r *http.Request) {
	events, err := d.cluster.events(r.Context(), r.PathValue("name"))
	if err != nil {
		writeError(w, http.StatusServiceUnavailable, err)
		return
	}
	writeJSON(w, events)
}

func (d *daemon) postEnd(w http.ResponseWriter, r *http.Request) {
	if err := d.region.end(r.Context(), r.PathValue("id")); err != nil {
		writeError(w, http.StatusConflict, err)
		return
	}
	d.board.bump()
	writeJSON(w, struct{}{})
}

// end has the group of a machine end it, and replace it.
func (r *region) end(ctx context.Context, id string) error {
	_, err := autoscaling.NewFromConfig(r.owner).TerminateInstanceInAutoScalingGroup(ctx, &autoscaling.TerminateInstanceInAutoScalingGroupInput{
		InstanceId: &id, ShouldDecrementDesiredCapacity: aws.Bool(false),
	})
	if err != nil {
		return fmt.Errorf("ending machine %s: %w", id, err)
	}
	return nil
}

// Farewell is what became of a machine that was ended, and of its pods.
type Farewell struct {
	Machine string `json:"machine"`
	Group   string `json:"group"`
	// Moved: the masters say that all pods have left it.
	Moved bool `json:"moved"`
	// Left is what they say of pods that have not; empty if that is nothing.
	Left string `json:"left,omitempty"`
	// Unknown is why nothing is known of its pods: it is no node, or the masters have said nothing. Empty if something is.
	Unknown string        `json:"unknown,omitempty"`
	Took    time.Duration `json:"-"`
	Seconds int64         `json:"seconds"`
}

// farewellPoll is the time between two looks at a machine that ends.
const farewellPoll = 2 * time.Second

// End has a machine's group end it: its hooks hold it until the masters have moved its pods away and its address has left DNS, or
// until their times are over. It returns when the machine is gone. said is called with every state of AutoScaling and every Event
// of the controller as it comes. When ctx ends, the machine goes on ending.
func (c *Client) End(ctx context.Context, m MachineStatus, said func(text string)) (Farewell, error) {
	f := farewell{client: c, said: said, known: map[string]bool{}, out: Farewell{Machine: m.ID, Group: m.Group}}
	if m.NodeReady == nil {
		f.out.Unknown = "it is no node"
	} else if before, err := c.nodeEvents(ctx, m.Name); err == nil {
		for _, e := range before { // of an earlier machine with the address
			f.known[e.Name+e.Message] = true
		}
	}
	began := time.Now()
	if err := c.call(ctx, http.MethodPost, "/v1/machines/"+m.ID+"/end", &struct{}{}); err != nil {
		return f.out, err
	}
	for {
		gone, err := f.look(ctx, m)
		f.out.Took = time.Since(began)
		f.out.Seconds = int64(f.out.Took / time.Second)
		switch {
		case err == nil && gone:
			return f.out, nil
		case ctx.Err() != nil:
			return f.out, fmt.Errorf("no longer waiting: machine %s goes on ending: %w", m.ID, ctx.Err())
		case err != nil:
			return f.out, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(farewellPoll):
		}
	}
}

func (c *Client) nodeEvents(ctx context.Context, node string) ([]NodeEvent, error) {
	var list []NodeEvent
	err := c.call(ctx, http.MethodGet, "/v1/nodes/"+url.PathEscape(node)+"/events", &list)
	return list, err
}

// farewell follows a machine that ends.
type farewell struct {
	client *Client
	said   func(string)
	// known are the events that were there or were said, and state is the last one.
	known map[string]bool
	state string
	out   Farewell
}

// look says what is new, and reports whether the machine is gone.
func (f *farewell) look(ctx context.Context, m MachineStatus) (bool, error) {
	s, err := f.client.Status(ctx)
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(s.Machines, func(now MachineStatus) bool { return now.ID == m.ID })
	gone := i < 0 || s.Machines[i].Power == "off" && s.Machines[i].Lifecycle == ""
	if m.NodeReady != nil {
		f.hear(ctx, m.Name)
	}
	if !gone && s.Machines[i].Lifecycle != f.state {
		f.state = s.Machines[i].Lifecycle
		f.said(m.ID + " is " + f.state)
	}
	return gone, nil
}

// hear says the controller's new events. The API may be away for a while: what it is asked last decides.
func (f *farewell) hear(ctx context.Context, node string) {
	events, err := f.client.nodeEvents(ctx, node)
	switch {
	case err != nil && !f.out.Moved && f.out.Left == "":
		f.out.Unknown = err.Error()
	case err == nil && !f.out.Moved && f.out.Left == "":
		f.out.Unknown = "the masters have said nothing of its pods: its hook's time was over before"
	}
	slices.SortFunc(events, func(a, b NodeEvent) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range events {
		if f.known[e.Name+e.Message] {
			continue
		}
		f.known[e.Name+e.Message] = true
		f.said(e.Message)
		switch e.Reason {
		case evict.ReasonEvicted:
			f.out.Moved, f.out.Unknown = true, ""
		case evict.ReasonIncomplete:
			f.out.Left, f.out.Unknown = e.Message, ""
		}
	}
}
