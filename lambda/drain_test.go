package lambda_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

// TestDrain follows one machine from its termination to its end, and the one that replaces it into the record.
func TestDrain(t *testing.T) {
	r := newRegion(t, false)
	id := r.terminate(t, "demo-minions")
	r.wantState(t, "demo-minions", id, "Terminating:Wait")
	if done, failed := r.poll(t); done != 2 || failed != 0 { // its termination, its replacement's launch
		t.Errorf("%d messages done, %d failed, want 2 and 0", done, failed)
	}
	r.wantRecords(t, 3, 4)
	r.wantState(t, "demo-minions", id, "Terminating:Wait")
	if done, failed := r.poll(t); done+failed != 0 {
		t.Errorf("%d messages before the reminder is due", done+failed)
	}
	r.wantCompleted(t, 0)

	r.wantReminder(t)
	if done, failed := r.poll(t); done != 1 || failed != 0 {
		t.Errorf("%d reminders done, %d failed", done, failed)
	}
	r.wantCompleted(t, 1)
	r.wantState(t, "demo-minions", id, "")
	if left := r.waiting(); len(left) != 0 {
		t.Errorf("reminders that nobody needs: %+v", left)
	}
	r.wantRecords(t, 3, 4)

	next := r.account.AutoScaling().Instances("demo-minions")[4].ID
	r.wantState(t, "demo-minions", next, "Pending:Wait")
	_, err := r.scaling.CompleteLifecycleAction(t.Context(), &autoscaling.CompleteLifecycleActionInput{
		AutoScalingGroupName: aws.String("demo-minions"), LifecycleHookName: aws.String("ready"), InstanceId: &next, LifecycleActionResult: aws.String("CONTINUE")})
	if err != nil {
		t.Fatal(err)
	}
	r.account.Tick()
	if done, failed := r.poll(t); done != 2 || failed != 0 { // the old one's end, the new one's launch
		t.Errorf("%d messages done, %d failed, want 2 and 0", done, failed)
	}
	r.wantRecords(t, 3, 5)
	for code, n := range r.account.Refused() {
		t.Errorf("%d calls were refused with %s", n, code)
	}
}

// TestShippedFunctionReminds is as far as the function can be followed that is shipped as it is, with the machine's own
// clock: the record is right, and the reminder waits for the record's TTL (5 s) and the minute that Route 53 may take.
func TestShippedFunctionReminds(t *testing.T) {
	var r region
	r.start(t, awsfake.Options{}, false, bootstrap(t, ""))
	id := r.terminate(t, "demo-minions")
	if done, failed := r.poll(t); done != 2 || failed != 0 {
		t.Errorf("%d messages done, %d failed, want 2 and 0", done, failed)
	}
	r.wantRecords(t, 3, 4)
	r.wantState(t, "demo-minions", id, "Terminating:Wait")
	r.wantCompleted(t, 0)
	list := r.waiting()
	if len(list) != 1 || !strings.Contains(list[0].Body, `"source":"hardtack.dns"`) || list[0].Received != 0 {
		t.Fatalf("messages that wait: %+v, want one reminder", list)
	}
}

// TestDrainWithoutReminder: a reminder that is lost costs nothing but time, since the sweep finds the hook too.
func TestDrainWithoutReminder(t *testing.T) {
	r := newRegion(t, false)
	r.faults.Add("SendMessage", awsfake.Fault{Refuse: &awsfake.Error{Status: 403, Code: "AccessDeniedException", Message: "no"}})
	id := r.terminate(t, "demo-masters")
	if done, failed := r.poll(t); failed != 0 {
		t.Errorf("%d messages done, %d failed: a reminder is not worth a failure", done, failed)
	}
	if list := r.waiting(); len(list) != 0 {
		t.Fatalf("messages that wait: %+v", list)
	}
	r.pass(t, 2*time.Minute)
	r.send(t, schedule)
	r.poll(t)
	r.wantCompleted(t, 1)
	r.wantState(t, "demo-masters", id, "")
}

// TestDrainUnderFaults: throttled calls and lost replies change neither the records nor how often a hook ends.
func TestDrainUnderFaults(t *testing.T) {
	throttle, lose := awsfake.Fault{Refuse: awsfake.Throttled()}, awsfake.Fault{LoseReply: true}
	for name, tt := range map[string]struct {
		action    string
		faults    []awsfake.Fault
		completed int    // calls
		refused   string // the code that the fault, and nothing else, has led to
	}{
		"reading the groups is throttled":           {"DescribeAutoScalingGroups", []awsfake.Fault{throttle, throttle}, 1, "Throttling"},
		"reading the machines is throttled":         {"DescribeInstances", []awsfake.Fault{throttle}, 1, "RequestLimitExceeded"},
		"reading the records is throttled":          {"ListResourceRecordSets", []awsfake.Fault{throttle, throttle, throttle}, 1, "Throttling"},
		"writing is throttled":                      {"ChangeResourceRecordSets", []awsfake.Fault{throttle, throttle, throttle}, 1, "Throttling"},
		"the reply to a write is lost":              {"ChangeResourceRecordSets", []awsfake.Fault{lose}, 1, ""},
		"completing is throttled":                   {"CompleteLifecycleAction", []awsfake.Fault{throttle}, 2, "Throttling"},
		"the reply to completing is lost":           {"CompleteLifecycleAction", []awsfake.Fault{lose}, 2, "ValidationError"},
		"the reply to sending a reminder is lost":   {"SendMessage", []awsfake.Fault{lose}, 1, ""},
		"reading the groups' answer is lost, twice": {"DescribeAutoScalingGroups", []awsfake.Fault{lose, lose}, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t, false)
			r.faults.Add(tt.action, tt.faults...)
			id := r.terminate(t, "demo-minions")
			if done, failed := r.poll(t); done != 2 || failed != 0 {
				t.Errorf("%d messages done, %d failed", done, failed)
			}
			r.wantRecords(t, 3, 4)
			list := r.waiting()
			if want := map[bool]int{true: 2, false: 1}[tt.action == "SendMessage"]; len(list) != want {
				t.Fatalf("messages that wait: %+v, want %d reminders", list, want)
			}
			r.pass(t, list[len(list)-1].Visible.Sub(r.clock.Now()))
			if _, failed := r.poll(t); failed != 0 {
				t.Errorf("%d reminders failed", failed)
			}
			r.wantCompleted(t, tt.completed)
			r.wantState(t, "demo-minions", id, "")
			r.wantRecords(t, 3, 4)
			for code, n := range r.account.Refused() {
				if code != tt.refused {
					t.Errorf("%d calls were refused with %s", n, code)
				}
			}
			if tt.refused != "" && r.account.Refused()[tt.refused] == 0 {
				t.Errorf("no call was refused with %s: the fault did not happen", tt.refused)
			}
		})
	}
}

// TestDrainTriesAgain: what fails comes back by the queue, and is done then.
func TestDrainTriesAgain(t *testing.T) {
	r := newRegion(t, false)
	r.faults.Add("DescribeAutoScalingGroups", awsfake.Fault{Refuse: &awsfake.Error{Status: 403, Code: "AccessDenied", Message: "not now"}})
	id := r.terminate(t, "demo-minions")
	if done, failed := r.poll(t); done != 1 || failed != 1 {
		t.Errorf("%d messages done, %d failed: one stands for all, want 1 and 1", done, failed)
	}
	r.wantRecords(t, 3, 5)
	r.wantState(t, "demo-minions", id, "Terminating:Wait")
	r.pass(t, 362*time.Second) // the queue's visibility timeout
	if done, failed := r.poll(t); done != 1 || failed != 0 {
		t.Errorf("the second time %d messages done, %d failed", done, failed)
	}
	r.wantRecords(t, 3, 4)
	r.wantReminder(t)
	r.poll(t)
	r.wantState(t, "demo-minions", id, "")
}

// TestDrainOfAForeignGroup: neither an event nor a tag makes a group the cluster's.
func TestDrainOfAForeignGroup(t *testing.T) {
	r := newRegion(t, true)
	id := r.terminate(t, "else-minions")
	before := r.account.Calls()
	if done, failed := r.poll(t); done != 2 || failed != 0 {
		t.Errorf("%d messages done, %d failed, want its termination and its replacement's launch done", done, failed)
	}
	for call, n := range r.account.Calls() {
		if n != before[call] && !strings.HasPrefix(call, "sqs:") {
			t.Errorf("its events led to %s", call)
		}
	}
	r.send(t, schedule)
	r.poll(t)
	r.wantRecords(t, 3, 5)
	r.wantCompleted(t, 0)
	if list := r.waiting(); len(list) != 0 {
		t.Errorf("reminders for it: %+v", list)
	}
	r.wantState(t, "else-minions", id, "Terminating:Wait")
	r.pass(t, 10*time.Minute) // its own hook's time
	r.wantState(t, "else-minions", id, "")
	r.wantCompleted(t, 0)

	err := r.account.AutoScaling().Complete("else-minions", "drain", id, awsfake.Continue)
	var refusal *awsfake.Error
	if !errors.As(err, &refusal) || refusal.Code != "ValidationError" {
		t.Errorf("its hook: %v, want none that waits", err)
	}
}
