package awsfake

import (
	"iter"
	"slices"
)

// The states of a scaling activity that are modelled (API reference, ScalingActivityStatusCode).
const (
	activitySuccessful = "Successful"
	activityWaiting    = "MidLifecycleAction"
)

type xmlActivity struct {
	ActivityID string `xml:"ActivityId"`
	Group      string `xml:"AutoScalingGroupName"`
	Cause      string `xml:"Cause"`
	Started    string `xml:"StartTime"`
	Status     string `xml:"StatusCode"`
	Progress   int    `xml:"Progress"`
	// Description names the instance.
	Description string `xml:"Description"`
	Ended       string `xml:"EndTime,omitempty"`
	Message     string `xml:"StatusMessage,omitempty"`
}

type xmlActivities struct {
	Activities []xmlActivity `xml:"Activities>member"`
}

// activities describes what was just begun for instances.
func (s *AutoScaling) activities(group, what string, ids []string) xmlActivities {
	var out xmlActivities
	for _, id := range ids {
		s.serial++
		out.Activities = append(out.Activities, xmlActivity{
			ActivityID: uuidOf("activity", s.serial), Group: group, Cause: "user request", Started: stamp(s.now()),
			Status: eventStatusInProgress, Progress: 50, Description: what + ": " + id,
		})
	}
	return out
}

// finished notes an activity that has ended: what its event says, in the words of the API.
func (s *AutoScaling) finished(g *group, i *instance, description, status, message string) {
	code := activitySuccessful
	if status == eventStatusFailed {
		code = eventStatusFailed
	}
	if description == "" {
		description = "Launching a new EC2 instance.  Status Reason: " + message
	}
	g.activities = append(g.activities, xmlActivity{
		ActivityID: i.activity, Group: g.Name, Cause: i.cause, Started: stamp(i.started), Ended: stamp(s.now()), Status: code, Progress: 100,
		Description: description, Message: message,
	})
}

// describeActivities lists a group's activities, the newest first: what is under way, and then what has ended.
func (s *AutoScaling) describeActivities(p params) (any, error) {
	g, err := s.find(p.get("AutoScalingGroupName"))
	if err != nil {
		return nil, err
	}
	size, err := p.records(maxRecords)
	if err != nil {
		return nil, err
	}
	var list []xmlActivity
	for _, i := range slices.Backward(g.instances) {
		x := xmlActivity{ActivityID: i.activity, Group: g.Name, Cause: i.cause, Started: stamp(i.started), Status: eventStatusInProgress, Progress: 30}
		switch i.State {
		case StatePendingWait, StateTerminatingWait:
			x.Status, x.Progress = activityWaiting, 40
		case StatePending, StatePendingProceed, StateTerminating, StateTerminatingProceed:
		default:
			continue
		}
		x.Description = "Terminating EC2 instance: " + i.ID
		if counts(i.State) {
			x.Description = "Launching a new EC2 instance: " + i.ID
		}
		list = append(list, x)
	}
	list = append(list, slices.Collect(backwards(g.activities))...)
	if ids := p.list("ActivityIds.member"); len(ids) > 0 {
		list = slices.DeleteFunc(list, func(x xmlActivity) bool { return !slices.Contains(ids, x.ActivityID) })
	}
	list, token, err := page(list, size, p.get("NextToken"))
	if err != nil {
		return nil, err
	}
	return struct {
		Activities []xmlActivity `xml:"Activities>member"`
		NextToken  string        `xml:"NextToken,omitempty"`
	}{list, token}, nil
}

func backwards[T any](list []T) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, item := range slices.Backward(list) {
			if !yield(item) {
				return
			}
		}
	}
}
