package lambda_test

import (
	"encoding/json"
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
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
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
		r.hook(t, group, awsfake.Hook{Name: "hardtack-drain", Transition: terminating, Heartbeat: 10 * time.Minute, Default: awsfake.Continue})
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
