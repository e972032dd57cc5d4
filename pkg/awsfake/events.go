package awsfake

import (
	"encoding/json"
	"fmt"
	"time"
)

// The detail-types of aws.autoscaling that are emitted, as the EventBridge reference lists them
// (https://docs.aws.amazon.com/eventbridge/latest/ref/events-ref-autoscaling.html).
const (
	EventLaunch           = "EC2 Instance Launch Successful"
	EventLaunchFailed     = "EC2 Instance Launch Unsuccessful"
	EventTerminate        = "EC2 Instance Terminate Successful"
	EventTerminateFailed  = "EC2 Instance Terminate Unsuccessful"
	EventLaunchAction     = "EC2 Instance-launch Lifecycle Action"
	EventTerminateAction  = "EC2 Instance-terminate Lifecycle Action"
	EventRefreshStarted   = "EC2 Auto Scaling Instance Refresh Started"
	EventRefreshSucceeded = "EC2 Auto Scaling Instance Refresh Succeeded"
	EventRefreshCancelled = "EC2 Auto Scaling Instance Refresh Cancelled"
	originEC2             = "EC2"
	originGroup           = "AutoScalingGroup"
	transitionLaunching   = "autoscaling:EC2_INSTANCE_LAUNCHING"
	transitionTerminating = "autoscaling:EC2_INSTANCE_TERMINATING"
	eventSource           = "aws.autoscaling"
	eventTime             = "2006-01-02T15:04:05Z"
	eventStatusFailed     = "Failed"
	eventStatusInProgress = "InProgress"
)

// Event is an event as EventBridge delivers it. Its shape is that of the EC2 Auto Scaling User Guide's event
// reference: https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-event-reference.html
type Event struct {
	Version    string          `json:"version"`
	ID         string          `json:"id"`
	DetailType string          `json:"detail-type"`
	Source     string          `json:"source"`
	Account    string          `json:"account"`
	Time       string          `json:"time"`
	Region     string          `json:"region"`
	Resources  []string        `json:"resources"`
	Detail     json.RawMessage `json:"detail"`
}

// scalingDetail is the detail of launches and terminations ("Successful scaling events",
// "Unsuccessful scaling events" of the same reference).
type scalingDetail struct {
	StatusCode           string         `json:"StatusCode"`
	Description          string         `json:"Description,omitempty"`
	AutoScalingGroupName string         `json:"AutoScalingGroupName"`
	ActivityID           string         `json:"ActivityId"`
	Details              scalingDetails `json:"Details"`
	RequestID            string         `json:"RequestId"`
	StatusMessage        string         `json:"StatusMessage"`
	EndTime              string         `json:"EndTime"`
	EC2InstanceID        string         `json:"EC2InstanceId"`
	StartTime            string         `json:"StartTime"`
	Cause                string         `json:"Cause"`
	route
}

type scalingDetails struct {
	Zone   string `json:"Availability Zone"`
	Subnet string `json:"Subnet ID"`
}

// route is an instance's origin and destination: EC2 or AutoScalingGroup.
type route struct {
	Origin      string `json:"Origin"`
	Destination string `json:"Destination"`
}

// actionDetail is the detail of lifecycle actions ("Lifecycle action events" of the reference).
type actionDetail struct {
	LifecycleActionToken string `json:"LifecycleActionToken"`
	AutoScalingGroupName string `json:"AutoScalingGroupName"`
	LifecycleHookName    string `json:"LifecycleHookName"`
	EC2InstanceID        string `json:"EC2InstanceId"`
	LifecycleTransition  string `json:"LifecycleTransition"`
	NotificationMetadata string `json:"NotificationMetadata,omitempty"`
	route
}

// refreshDetail is the detail of instance refreshes
// (https://docs.aws.amazon.com/autoscaling/ec2/userguide/instance-refresh-eventbridge-events.html).
type refreshDetail struct {
	InstanceRefreshID    string `json:"InstanceRefreshId"`
	AutoScalingGroupName string `json:"AutoScalingGroupName"`
	// CheckpointPercentage is only in the event of a checkpoint.
	CheckpointPercentage int `json:"CheckpointPercentage,omitempty"`
}

// Events is the account's event bus.
type Events struct {
	account *Account
	serial  int
	sent    []Event
	queues  []target
}

// target is a queue that receives events, like an EventBridge rule with an SQS target.
type target struct {
	queue string
	match func(Event) bool
}

// ToQueue sends every event for which match is true to a queue, as an EventBridge rule with that queue as target does;
// a nil match matches every event. The message's body is the event's JSON.
func (b *Events) ToQueue(queueURL string, match func(Event) bool) {
	b.account.locked(func() { b.queues = append(b.queues, target{queueURL, match}) })
}

// Sent returns every event that was emitted, including those that no queue received.
func (b *Events) Sent() (events []Event) {
	b.account.locked(func() { events = append(events, b.sent...) })
	return events
}

func (b *Events) now() time.Time { return b.account.regional.agenda.now }

// emit sends an event with this detail.
func (b *Events) emit(detailType string, resources []string, detail any) {
	raw, err := json.Marshal(detail)
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", detail, err)) // the details are types of this package
	}
	b.serial++
	e := Event{
		Version: "0", ID: uuidOf("event", b.serial), DetailType: detailType, Source: eventSource, Account: owner,
		Time: b.now().UTC().Format(eventTime), Region: HomeRegion, Resources: resources, Detail: raw,
	}
	b.sent = append(b.sent, e)
	b.account.regional.agenda.after(0, func() { b.arrive(e) })
}

func (b *Events) arrive(e Event) {
	for _, t := range b.queues {
		if t.match == nil || t.match(e) {
			body, err := json.Marshal(e)
			if err != nil {
				panic(fmt.Sprintf("encoding an event: %v", err))
			}
			b.account.regional.sqs.put(t.queue, string(body), 0)
		}
	}
}
