package function

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dnssync"
)

// What reminders look like: the form of an EventBridge event, so that there is one form to read.
const (
	sourceScaling  = "aws.autoscaling"
	sourceSchedule = "aws.events"
	sourceReminder = "hardtack.dns"
	detailReminder = "Hook Due"
)

// event is as much of an EventBridge event as is looked at.
type event struct {
	Source     string    `json:"source"`
	DetailType string    `json:"detail-type"`
	Time       time.Time `json:"time,omitzero"`
	Detail     detail    `json:"detail"`
}

// detail names what the event is about: every event of AutoScaling has the group, a call that
// CloudTrail has recorded too, a reminder the cluster, a schedule's event neither.
type detail struct {
	Group   string `json:"AutoScalingGroupName,omitempty"`
	Request struct {
		Group string `json:"autoScalingGroupName,omitempty"`
	} `json:"requestParameters,omitzero"`
	Cluster string `json:"cluster,omitempty"`
}

var errGroup = errors.New("the group is not in the allow-list")

// poke says which clusters an event makes worth looking at, and whether something had happened (a
// schedule and a reminder only say that time has passed). The error is why the event could not be
// read, for the log; clusters is valid with it too.
func (s Scope) poke(body []byte) (clusters []string, pokes []dnssync.Poke, err error) {
	var e event
	if err := json.Unmarshal(body, &e); err != nil {
		return s.clusters, []dnssync.Poke{{}}, fmt.Errorf("reading an event: %w", err)
	}
	group := cmp.Or(e.Detail.Group, e.Detail.Request.Group)
	switch {
	case e.Source == sourceScaling && group != "":
		cluster, ok := s.byGroup[group]
		if !ok {
			return nil, nil, fmt.Errorf("reading an event %q of group %q: %w", e.DetailType, group, errGroup)
		}
		return []string{cluster}, []dnssync.Poke{{At: e.Time}}, nil
	case e.Source == sourceSchedule:
		return s.clusters, nil, nil
	case e.Source == sourceReminder && slices.Contains(s.clusters, e.Detail.Cluster):
		return []string{e.Detail.Cluster}, nil, nil
	default:
		return s.clusters, []dnssync.Poke{{At: e.Time}}, fmt.Errorf("reading an event: nothing says whose it is (source %q, detail-type %q)", e.Source, e.DetailType)
	}
}
