// Package notice has the notices by which EC2 announces that a machine will end or stop, and what is done about each.
//
// Its rule: a machine says what EC2 has told it, and nothing else. What follows is decided by the masters, from the policy of
// the machine's group, which the machine cannot change: one that lies can only have its own pods moved away.
package notice

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Condition is the type of the condition in a node's status by which the machine passes on its notices: its status is True
// while there are any, and its message is that of Format. A node may write its own status, and no other node's.
const Condition = "hardtack.dev/Ending"

// Kind is a kind of notice.
type Kind string

// The kinds, by their urgency.
const (
	// Spot: EC2 takes a spot instance back, two minutes after the notice.
	Spot Kind = "spot"
	// Scheduled: EC2 will stop, retire or reboot the instance, or its host, at a time that it has announced days before.
	Scheduled Kind = "scheduled"
	// Rebalance: a spot instance is at a higher risk than others to be taken back.
	Rebalance Kind = "rebalance"
)

// The paths of the notices in the metadata of an instance.
const (
	SpotPath      = "meta-data/spot/instance-action"
	ScheduledPath = "meta-data/events/maintenance/scheduled"
	RebalancePath = "meta-data/events/recommendations/rebalance"
)

// Notice is one notice.
type Notice struct {
	Kind Kind
	// Action is what EC2 will do, in its words: "terminate", "stop", "system-reboot"; of Rebalance it is "recommendation".
	Action string
	// At is when it will do that, at the earliest; of Rebalance it is when EC2 said so.
	At time.Time
}

func (n Notice) String() string {
	return fmt.Sprintf("%s %s at %s", n.Kind, n.Action, n.At.UTC().Format(time.RFC3339))
}

// Reason is the reason of the condition of a node whose most urgent notice this is.
func (n Notice) Reason() string {
	switch n.Kind {
	case Spot:
		return "SpotInterruption"
	case Scheduled:
		return "ScheduledEvent"
	case Rebalance:
	}
	return "RebalanceRecommendation"
}

// Format writes notices as the message of a condition.
func Format(all []Notice) string {
	var texts []string
	for _, n := range all {
		texts = append(texts, n.String())
	}
	return strings.Join(texts, "; ")
}

// maxMessage bounds a message that is read, in bytes: it is a node's, which may write what it likes.
const maxMessage = 4 << 10

// form is compiled when it is first needed: every command of the agent would start later for it.
var form = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(spot|scheduled|rebalance) ([a-z][a-z-]{0,40}) at (\S{20,25})$`)
})

// Parse reads what Format writes, and nothing else.
func Parse(message string) ([]Notice, error) {
	if len(message) > maxMessage {
		return nil, fmt.Errorf("notices of %d bytes, which is more than %d", len(message), maxMessage)
	}
	var all []Notice
	for text := range strings.SplitSeq(message, "; ") {
		parts := form().FindStringSubmatch(text)
		if parts == nil {
			return nil, fmt.Errorf("%.100q is not a notice of the form \"KIND ACTION at TIME\"", text)
		}
		at, err := time.Parse(time.RFC3339, parts[3])
		if err != nil {
			return nil, fmt.Errorf("the time of notice %.100q: %w", text, err)
		}
		all = append(all, Notice{Kind(parts[1]), parts[2], at})
	}
	return all, nil
}

// ReadSpot reads the content of SpotPath ("Spot Instance interruption notices" in EC2's user guide), which exists once the
// instance is to be interrupted.
func ReadSpot(content []byte) (Notice, error) {
	var in struct {
		Action string    `json:"action"`
		Time   time.Time `json:"time"`
	}
	if err := json.Unmarshal(content, &in); err != nil {
		return Notice{}, fmt.Errorf("reading %s: %w", SpotPath, err)
	}
	return checked(Notice{Spot, in.Action, in.Time}, SpotPath)
}

// ReadRebalance reads the content of RebalancePath ("EC2 instance rebalance recommendations"), which exists once there is one.
func ReadRebalance(content []byte) (Notice, error) {
	var in struct {
		Time time.Time `json:"noticeTime"`
	}
	if err := json.Unmarshal(content, &in); err != nil {
		return Notice{}, fmt.Errorf("reading %s: %w", RebalancePath, err)
	}
	return checked(Notice{Rebalance, "recommendation", in.Time}, RebalancePath)
}

// scheduledTime is how the times of scheduled events are written; those of the other notices are RFC 3339's.
const scheduledTime = "2 Jan 2006 15:04:05 GMT"

// ReadScheduled reads the content of ScheduledPath ("Scheduled events for your instances"), and returns the events that are
// not over, the earliest first. An instance without any has an empty list there.
func ReadScheduled(content []byte) ([]Notice, error) {
	var in []struct {
		Code, State, NotBefore string
	}
	if err := json.Unmarshal(content, &in); err != nil {
		return nil, fmt.Errorf("reading %s: %w", ScheduledPath, err)
	}
	var all []Notice
	for _, e := range in {
		if e.State == "completed" || e.State == "canceled" {
			continue
		}
		at, err := time.Parse(scheduledTime, e.NotBefore)
		if err != nil {
			return nil, fmt.Errorf("reading %s: the time of event %s: %w", ScheduledPath, e.Code, err)
		}
		n, err := checked(Notice{Scheduled, e.Code, at}, ScheduledPath)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	slices.SortStableFunc(all, func(a, b Notice) int { return a.At.Compare(b.At) })
	return all, nil
}

// checked returns an error for a notice that Parse would not read.
func checked(n Notice, path string) (Notice, error) {
	n.At = n.At.UTC().Truncate(time.Second)
	if _, err := Parse(n.String()); err != nil || n.At.IsZero() {
		return Notice{}, fmt.Errorf("reading %s: it announces %q at %v, which is not of the documented form", path, n.Action, n.At)
	}
	return n, nil
}
