package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awshttp"
)

// region is the function deployed in a region in virtual time: its groups have hooks, events reach the queue as the
// template's rule lets them, and poll is what Lambda does with the queue.
type region struct {
	account *awsfake.Account
	clock   *awsfake.VirtualClock
	faults  awsfake.Script
	zone    string
	queue   string
	service *service
	process *process
	sqs     *sqs.Client
	scaling *autoscaling.Client
	file    string // of the function's clock
}

const (
	launching   = "autoscaling:EC2_INSTANCE_LAUNCHING"
	terminating = "autoscaling:EC2_INSTANCE_TERMINATING"
	completes   = "autoscaling:CompleteLifecycleAction"
)

// newRegion starts the function in virtual time. every: events of all groups reach the queue, not only those that the
// rule is for.
func newRegion(t *testing.T, every bool) *region {
	t.Helper()
	r := &region{clock: awsfake.NewVirtualClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)), file: filepath.Join(t.TempDir(), "clock")}
	r.pass(t, 0)
	r.start(t, awsfake.Options{Clock: r.clock}, every, bootstrap(t, "testdata/clock/clock.go"), "HARDTACK_TEST_CLOCK="+r.file)
	return r
}

// start fills the region, starts the function and has it sweep once.
func (r *region) start(t *testing.T, o awsfake.Options, every bool, program string, env ...string) {
	t.Helper()
	var url string
	o.Faults = &r.faults
	r.account, r.zone, r.queue, url = accountWith(t, o)
	for _, group := range []string{"demo-masters", "demo-minions", "else-minions"} {
		r.hook(t, group, awsfake.Hook{Name: "drain", Transition: terminating, Heartbeat: 10 * time.Minute, Default: awsfake.Continue})
	}
	r.hook(t, "demo-minions", awsfake.Hook{Name: "ready", Transition: launching, Heartbeat: time.Hour})
	r.account.Events().ToQueue(r.queue, func(e awsfake.Event) bool { return every || strings.Contains(string(e.Detail), `"demo-m`) })
	r.account.AddRole("function", r.policy(t))
	key, err := r.account.Issue("function", "dns", 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	owner := r.account.AddUser("owner", awsfake.Administrator())
	r.sqs, r.scaling = sqs.NewFromConfig(r.config(url, key)), autoscaling.NewFromConfig(r.config(url, owner))
	r.service = newService(t)
	r.process = startProgram(t, r.service, program, append(env,
		"AWS_ENDPOINT_URL="+url, "HARDTACK_ZONE_ID="+r.zone, "HARDTACK_QUEUE_URL="+r.queue,
		"AWS_ACCESS_KEY_ID="+key.AccessKey, "AWS_SECRET_ACCESS_KEY="+key.Secret, "AWS_SESSION_TOKEN="+key.Token)...)
	t.Cleanup(func() {
		if r.process.stop(); t.Failed() {
			t.Logf("the function's log:\n%s", r.process.log)
		}
	})
	r.send(t, schedule)
	r.poll(t)
	r.wantRecords(t, 3, 5)
}

// policy is the deployed one where the judges are there to deploy it.
func (r *region) policy(t *testing.T) awsfake.Policy {
	t.Helper()
	if !deployable() {
		return awsfake.Administrator()
	}
	return deployedPolicy(t, r.zone)
}

func (r *region) config(url string, c awsfake.Credentials) aws.Config {
	return aws.Config{Region: testRegion, BaseEndpoint: &url, RetryMaxAttempts: 1, HTTPClient: awshttp.Client(nil),
		Credentials: credentials.NewStaticCredentialsProvider(c.AccessKey, c.Secret, c.Token)}
}

func (r *region) hook(t *testing.T, group string, h awsfake.Hook) {
	t.Helper()
	if err := r.account.AutoScaling().PutHook(group, h); err != nil {
		t.Fatal(err)
	}
}

// pass moves the time of the account and of the function.
func (r *region) pass(t *testing.T, d time.Duration) {
	t.Helper()
	r.clock.Advance(d)
	if r.account != nil {
		r.account.Tick()
	}
	if err := os.WriteFile(r.file, []byte(r.clock.Now().Format(time.RFC3339Nano)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// poll hands everything that is visible to the function, as Lambda does: in one batch, by the function's own role, and
// what the function does not return as failed is deleted. It returns how many messages were done and failed.
func (r *region) poll(t *testing.T) (done, failed int) {
	t.Helper()
	var batch events.SQSEvent
	for {
		out, err := r.sqs.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &r.queue, MaxNumberOfMessages: 10,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll}})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Messages) == 0 {
			break
		}
		for _, m := range out.Messages {
			batch.Records = append(batch.Records, events.SQSMessage{MessageId: *m.MessageId, ReceiptHandle: *m.ReceiptHandle, Body: *m.Body, Attributes: m.Attributes, EventSource: "aws:sqs", AWSRegion: testRegion})
		}
	}
	if len(batch.Records) == 0 {
		return 0, 0
	}
	payload, err := json.Marshal(batch)
	if err != nil {
		t.Fatal(err)
	}
	answer := r.service.invoke(t, r.process, payload)
	var got events.SQSEventResponse
	if err := json.Unmarshal(answer.body, &got); err != nil || answer.kind != "response" {
		t.Fatalf("%s: %s: %v", answer.kind, answer.body, err)
	}
	for _, m := range batch.Records {
		if slices.ContainsFunc(got.BatchItemFailures, func(f events.SQSBatchItemFailure) bool { return f.ItemIdentifier == m.MessageId }) {
			failed++
			continue
		}
		if _, err := r.sqs.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &r.queue, ReceiptHandle: &m.ReceiptHandle}); err != nil {
			t.Fatal(err)
		}
		done++
	}
	return done, failed
}

func (r *region) send(t *testing.T, body string) {
	t.Helper()
	if _, err := r.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &r.queue, MessageBody: &body}); err != nil {
		t.Fatal(err)
	}
}

// terminate ends a group's first instance through the API; it is replaced.
func (r *region) terminate(t *testing.T, group string) (id string) {
	t.Helper()
	id = r.account.AutoScaling().Instances(group)[0].ID
	_, err := r.scaling.TerminateInstanceInAutoScalingGroup(t.Context(), &autoscaling.TerminateInstanceInAutoScalingGroupInput{
		InstanceId: &id, ShouldDecrementDesiredCapacity: aws.Bool(false)})
	if err != nil {
		t.Fatal(err)
	}
	r.account.Tick()
	return id
}

func (r *region) wantRecords(t *testing.T, masters, minions int) {
	t.Helper()
	if got := values(t, r.account, r.zone); got["masters.demo.k8s."] != masters || got["minions.demo.k8s."] != minions {
		t.Errorf("records %v, want %d masters and %d minions", got, masters, minions)
	}
}

// wantState checks an instance's lifecycle state; empty: it has left its group and its machine is terminated.
func (r *region) wantState(t *testing.T, group, id, want string) {
	t.Helper()
	got := ""
	for _, i := range r.account.AutoScaling().Instances(group) {
		if i.ID == id {
			got = i.State
		}
	}
	if m, _ := r.account.EC2().Machine(id); got != want || (want == "") != (m.State == awsfake.MachineTerminated) {
		t.Errorf("%s is %q and its machine %s, want %q", id, got, m.State, want)
	}
}

// waiting are the messages that are not visible yet.
func (r *region) waiting() (list []awsfake.Message) {
	for _, m := range r.account.SQS().Messages(r.queue) {
		if m.Visible.After(r.account.Clock().Now()) {
			list = append(list, m)
		}
	}
	return list
}

// wantReminder checks that one reminder of the cluster waits, and lets time pass until it arrives.
func (r *region) wantReminder(t *testing.T) {
	t.Helper()
	list := r.waiting()
	if len(list) != 1 || !strings.Contains(list[0].Body, `"source":"hardtack.dns"`) || !strings.Contains(list[0].Body, `"cluster":"demo"`) || list[0].Received != 0 {
		t.Fatalf("messages that wait: %+v, want one reminder", list)
	}
	r.pass(t, list[0].Visible.Sub(r.clock.Now()))
}

func (r *region) wantCompleted(t *testing.T, n int) {
	t.Helper()
	if got := r.account.Calls()[completes]; got != n {
		t.Errorf("CompleteLifecycleAction was called %d times, want %d", got, n)
	}
}

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
	r.pass(t, 192*time.Second) // the queue's visibility timeout
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
