package metadata

import (
	"cmp"
	"fmt"
	"time"
)

// Notices are what EC2 announces to an instance. The zero value is nothing.
type Notices struct {
	// Interruption is that of a spot instance; nil is none, and so it is for any other instance.
	Interruption *Interruption `json:"interruption,omitempty"`
	// Rebalance is when EC2 recommended to replace a spot instance; zero is never.
	Rebalance time.Time `json:"rebalance,omitzero"`
	// Scheduled are the scheduled events.
	Scheduled []Event `json:"scheduled,omitempty"`
}

// Interruption is the interruption of a spot instance.
type Interruption struct {
	// Action is "terminate", "stop" or "hibernate", at Time.
	Action string    `json:"action"`
	Time   time.Time `json:"time"`
}

// Event is a scheduled event.
type Event struct {
	// Code is "instance-stop", "instance-retirement", "instance-reboot", "system-reboot" or "system-maintenance".
	Code string `json:"code"`
	// State is "active", "completed" or "canceled"; empty is active.
	State string `json:"state,omitempty"`
	// NotBefore and NotAfter are the earliest begin and the latest end; a zero NotAfter is not shown.
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after,omitzero"`
}

// SetNotices replaces the notices of an instance.
func (s *Service) SetNotices(instanceID string, n Notices) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notices[instanceID] = n
}

// noticesOf returns the notices of an instance. Only a spot instance has those of spot instances.
func (s *Service) noticesOf(i Instance) Notices {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.notices[i.ID]
	if !i.Spot {
		n.Interruption, n.Rebalance = nil, time.Time{}
	}
	return n
}

// eventTime is the form of the times of scheduled events, which is not that of other notices.
const eventTime = "2 Jan 2006 15:04:05 GMT"

// tree returns the paths of the notices. What is announced to spot instances does not exist before it is announced (EC2's user
// guide, "Spot Instance interruption notices", "EC2 instance rebalance recommendations"); the list of scheduled events is there
// and empty, which aws-node-termination-handler relies on.
func (n Notices) tree() map[string][]byte {
	type event struct {
		NotBefore, Code, Description string
		EventID                      string `json:"EventId"`
		NotAfter                     string `json:",omitempty"`
		State                        string
	}
	events := []event{}
	for i, e := range n.Scheduled {
		one := event{NotBefore: e.NotBefore.UTC().Format(eventTime), Code: e.Code, Description: "scheduled " + e.Code, EventID: fmt.Sprintf("instance-event-%017x", i), State: cmp.Or(e.State, "active")}
		if !e.NotAfter.IsZero() {
			one.NotAfter = e.NotAfter.UTC().Format(eventTime)
		}
		events = append(events, one)
	}
	tree := map[string][]byte{"meta-data/events/maintenance/scheduled": indent(events)}
	if n.Interruption != nil {
		tree["meta-data/spot/instance-action"] = indent(Interruption{n.Interruption.Action, seconds(n.Interruption.Time)})
	}
	if !n.Rebalance.IsZero() {
		tree["meta-data/events/recommendations/rebalance"] = indent(struct {
			NoticeTime time.Time `json:"noticeTime"`
		}{seconds(n.Rebalance)})
	}
	return tree
}
