package awsfake

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// activityRecords is how many activities one call of DescribeScalingActivities returns at most, and by default (API reference).
const activityRecords = 100

// The states of an activity that no event has (API reference, Activity).
const (
	activitySuccessful   = "Successful"
	activityMidLifecycle = "MidLifecycleAction"
)

// How AutoScaling describes an activity; the machine follows where there is one.
const (
	textLaunch    = "Launching a new EC2 instance"
	textTerminate = "Terminating EC2 instance"
)

// activity is what a group did about one machine.
type activity struct {
	id, cause, description string
	started                time.Time
	// ended is zero while it is under way.
	ended           time.Time
	status, message string
	of              *instance
}

// open begins an activity of a group.
func (s *AutoScaling) open(i *instance, what string) {
	g, ok := s.groups[i.Group]
	if !ok {
		return
	}
	if i.ID != "" {
		what += ": " + i.ID
	}
	g.activities = append(g.activities, &activity{id: i.activity, cause: i.cause, description: what, started: i.started, status: eventStatusInProgress, of: i})
}

// close ends the activity that an instance has open; the event of it has the status of AutoScaling's events, where a success is still
// in progress.
func (g *group) close(i *instance, now time.Time, status, message string) {
	for _, a := range g.activities {
		if a.id != i.activity || !a.ended.IsZero() {
			continue
		}
		if a.ended, a.status, a.message = now, status, message; status != eventStatusFailed {
			a.status = activitySuccessful
		}
	}
}

type xmlScalingActivity struct {
	xmlActivity
	Ended    string `xml:"EndTime,omitempty"`
	Message  string `xml:"StatusMessage,omitempty"`
	Progress int    `xml:"Progress"`
	ARN      string `xml:"AutoScalingGroupARN,omitempty"`
}

func (g *group) activityXML(a *activity) xmlScalingActivity {
	x := xmlScalingActivity{xmlActivity: xmlActivity{ActivityID: a.id, Group: g.Name, Cause: a.cause, Started: stamp(a.started), Status: a.status, Description: a.description}, Message: a.message, Progress: 50, ARN: g.arn}
	switch {
	case !a.ended.IsZero():
		x.Ended, x.Progress = stamp(a.ended), 100
	case strings.HasSuffix(a.of.State, ":Wait") && a.of.activity == a.id:
		x.Status = activityMidLifecycle
	}
	return x
}

// describeActivities lists the activities of a group or of all: those under way first, and the newest of both kinds first ("Activities are
// sorted by start time. Activities still in progress are described first"). So one that waits at a hook is before a failure that is newer.
func (s *AutoScaling) describeActivities(p params) (any, error) {
	for name := range p {
		known := []string{"ActivityIds", "AutoScalingGroupName", "IncludeDeletedGroups", "MaxRecords", "NextToken", "Action", "Version"}
		if plain, _, _ := strings.Cut(name, "."); !slices.Contains(known, plain) {
			return nil, malformed("The parameter %s is not recognized (or awsfake does not model it)", name)
		}
	}
	size, err := p.integer("MaxRecords", activityRecords)
	if err != nil {
		return nil, err
	}
	if size < 1 || size > activityRecords {
		return nil, malformed("1 validation error detected: Value '%d' at 'maxRecords' failed to satisfy constraint: Member must have value between 1 and %d", size, activityRecords)
	}
	groups := s.sorted()
	if name := p.get("AutoScalingGroupName"); name != "" {
		g, err := s.find(name)
		if err != nil {
			return nil, err
		}
		groups = []*group{g}
	}
	ids := p.list("ActivityIds.member")
	list := []xmlScalingActivity{}
	for _, g := range groups {
		for _, a := range slices.Backward(g.activities) {
			if len(ids) == 0 || slices.Contains(ids, a.id) {
				list = append(list, g.activityXML(a))
			}
		}
	}
	slices.SortStableFunc(list, func(a, b xmlScalingActivity) int {
		return cmp.Or(cmp.Compare(a.Progress/100, b.Progress/100), strings.Compare(b.Started, a.Started))
	})
	list, token, err := page(list, size, p.get("NextToken"))
	if err != nil {
		return nil, err
	}
	return struct {
		Activities []xmlScalingActivity `xml:"Activities>member"`
		NextToken  string               `xml:"NextToken,omitempty"`
	}{list, token}, nil
}
