package function

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
)

// Reminders have the form of an EventBridge event, so that only one form must be parsed.
const (
	sourceScaling  = "aws.autoscaling"
	sourceSchedule = "aws.events"
	sourceMachines = "aws.ec2"
	sourceReminder = "hardtack.dns"
	detailReminder = "Hook Due"
)

// event has the fields of an EventBridge event that are used.
type event struct {
	Source     string    `json:"source"`
	DetailType string    `json:"detail-type"`
	Time       time.Time `json:"time,omitzero"`
	Detail     detail    `json:"detail"`
}

// detail names the event's subject: every event of AutoScaling has the group, also a call recorded by CloudTrail; a
// reminder has the cluster; a scheduled event has neither.
type detail struct {
	Group   string `json:"AutoScalingGroupName,omitempty"`
	Request struct {
		Group string `json:"autoScalingGroupName,omitempty"`
	} `json:"requestParameters,omitzero"`
	Cluster string `json:"cluster,omitempty"`
}

var errGroup = errors.New("the group is not in the allow-list")

// parse returns the clusters that an event selects, and its time if something happened (schedules and reminders only
// mean that time has passed). The error is why the event is unreadable, for the log; clusters is valid with it too.
func (s Scope) parse(body []byte) (clusters []string, triggers []reconcile.Event, err error) {
	var e event
	if err := json.Unmarshal(body, &e); err != nil {
		return s.clusters, []reconcile.Event{{}}, fmt.Errorf("reading an event: %w", err)
	}
	group := cmp.Or(e.Detail.Group, e.Detail.Request.Group)
	switch {
	case e.Source == sourceScaling && group != "":
		cluster, ok := s.byGroup[group]
		if !ok {
			return nil, nil, fmt.Errorf("reading an event %q of group %q: %w", e.DetailType, group, errGroup)
		}
		return []string{cluster}, []reconcile.Event{{At: e.Time}}, nil
	case e.Source == sourceSchedule:
		return s.clusters, nil, nil
	case e.Source == sourceMachines: // an instance, which may be anybody's
		return s.clusters, []reconcile.Event{{At: e.Time}}, nil
	case e.Source == sourceReminder && slices.Contains(s.clusters, e.Detail.Cluster):
		return []string{e.Detail.Cluster}, nil, nil
	case string(bytes.TrimSpace(body)) == "{}": // as a person sends it
		return s.clusters, []reconcile.Event{{}}, nil
	default:
		return s.clusters, []reconcile.Event{{At: e.Time}}, fmt.Errorf("reading an event: its group or cluster is unknown (source %q, detail-type %q)", e.Source, e.DetailType)
	}
}
