package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	ebtypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dnssync"
	"github.com/hardtack/packer-plugin-hardtack/pkg/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/zone"
)

// fault is something that is wrong: how it comes, what the doctor finds then, and how it goes.
type fault struct {
	name     string
	want     []string
	do, undo func(t *testing.T)
}

func (d *deployedFunction) faults() []fault {
	all := append(d.ruleFaults(), d.queueFaults()...)
	all = append(all, d.functionFaults()...)
	all = append(all, d.roleFaults()...)
	all = append(all, d.watchFaults()...)
	all = append(all, d.groupFaults()...)
	return append(all, d.recordFaults()...)
}

// must is an action on the region that has to work.
func must[I, O any](call func(t *testing.T, in I) (O, error), in I) func(t *testing.T) {
	return func(t *testing.T) {
		t.Helper()
		if _, err := call(t, in); err != nil {
			t.Fatal(err)
		}
	}
}

func (d *deployedFunction) ruleFaults() []fault {
	scaling, calls, sweep, target := d.ids["ScalingRule"], d.ids["CallsRule"], d.ids["SweepRule"], aws.String("queue")
	queue := aws.String("arn:aws:sqs:" + deployedRegion + ":123456789012:" + nameOfURL(d.ids["Queue"]))
	off := func(t *testing.T, in *eventbridge.DisableRuleInput) (*eventbridge.DisableRuleOutput, error) {
		return d.rules.DisableRule(t.Context(), in)
	}
	on := func(t *testing.T, in *eventbridge.EnableRuleInput) (*eventbridge.EnableRuleOutput, error) {
		return d.rules.EnableRule(t.Context(), in)
	}
	remove := func(t *testing.T, in *eventbridge.RemoveTargetsInput) (*eventbridge.RemoveTargetsOutput, error) {
		return d.rules.RemoveTargets(t.Context(), in)
	}
	aim := func(t *testing.T, in *eventbridge.PutTargetsInput) (*eventbridge.PutTargetsOutput, error) {
		return d.rules.PutTargets(t.Context(), in)
	}
	put := func(t *testing.T, in *eventbridge.PutRuleInput) (*eventbridge.PutRuleOutput, error) {
		return d.rules.PutRule(t.Context(), in)
	}
	pattern := func(groups string) func(*testing.T) {
		return must(put, &eventbridge.PutRuleInput{Name: &scaling, EventPattern: aws.String(`{"source":["aws.autoscaling"],"detail":{"AutoScalingGroupName":[` + groups + `]}}`)})
	}
	return []fault{
		{"a rule is disabled", []string{"error rules.scaling.state"},
			must(off, &eventbridge.DisableRuleInput{Name: &scaling}), must(on, &eventbridge.EnableRuleInput{Name: &scaling})},
		{"the rule for calls is disabled", []string{"warning rules.calls.state"},
			must(off, &eventbridge.DisableRuleInput{Name: &calls}), must(on, &eventbridge.EnableRuleInput{Name: &calls})},
		{"the sweep is disabled", []string{"error rules.sweep.state"},
			must(off, &eventbridge.DisableRuleInput{Name: &sweep}), must(on, &eventbridge.EnableRuleInput{Name: &sweep})},
		{"a target is removed", []string{"error rules.sweep.target"},
			must(remove, &eventbridge.RemoveTargetsInput{Rule: &sweep, Ids: []string{*target}}),
			must(aim, &eventbridge.PutTargetsInput{Rule: &sweep, Targets: []ebtypes.Target{{Id: target, Arn: queue}}})},
		{"a target sends something else", []string{"error rules.scaling.target"},
			must(aim, &eventbridge.PutTargetsInput{Rule: &scaling, Targets: []ebtypes.Target{{Id: target, Arn: queue, Input: aws.String(`{}`)}}}),
			must(aim, &eventbridge.PutTargetsInput{Rule: &scaling, Targets: []ebtypes.Target{{Id: target, Arn: queue}}})},
		{"a pattern leaves a group out", []string{"error rules.scaling.pattern"}, pattern(`"demo-minions"`), pattern(`"demo-minions","demo-masters"`)},
		{"the sweep is slow", []string{"warning rules.sweep.schedule"},
			must(put, &eventbridge.PutRuleInput{Name: &sweep, ScheduleExpression: aws.String("rate(1 hour)")}), must(put, &eventbridge.PutRuleInput{Name: &sweep, ScheduleExpression: aws.String("rate(1 minute)")})},
	}
}

func nameOfURL(url string) string { return url[strings.LastIndexByte(url, '/')+1:] }

func (d *deployedFunction) queueFaults() []fault {
	dead, url := d.ids["DeadLetters"], d.ids["Queue"]
	set := func(attribute, value string) func(*testing.T) {
		return func(t *testing.T) { d.setQueue(t, attribute, value) }
	}
	attribute := func(t *testing.T, name string) string {
		out, err := d.queues.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []sqstypes.QueueAttributeName{"All"}})
		if err != nil {
			t.Fatal(err)
		}
		return out.Attributes[name]
	}
	var redrive string
	age := func(seconds float64) func(*testing.T) { return func(*testing.T) { d.alarms.age = seconds } }
	return []fault{
		{"a dead letter", []string{"error dead-letters.messages"},
			must(func(t *testing.T, in *sqs.SendMessageInput) (*sqs.SendMessageOutput, error) {
				return d.queues.SendMessage(t.Context(), in)
			}, &sqs.SendMessageInput{QueueUrl: &dead, MessageBody: aws.String("{}")}),
			must(func(t *testing.T, in *sqs.PurgeQueueInput) (*sqs.PurgeQueueOutput, error) {
				return d.queues.PurgeQueue(t.Context(), in)
			}, &sqs.PurgeQueueInput{QueueUrl: &dead})},
		{"messages are visible too soon", []string{"error queue.visibility"}, set("VisibilityTimeout", "20"), set("VisibilityTimeout", "192")},
		{"messages are visible rather soon", []string{"warning queue.visibility"}, set("VisibilityTimeout", "60"), set("VisibilityTimeout", "192")},
		{"nothing reads the queue", []string{"error queue.age"}, age(1200), age(-1)},
		{"a message waits a little", nil, age(12), age(-1)},
		{"the queue's policy lets another rule send", []string{"error queue.policy"},
			set("Policy", strings.ReplaceAll(d.queuePolicy, d.ids["SweepRule"], "other")), set("Policy", d.queuePolicy)},
		{"the queue's policy is gone", []string{"error queue.policy"}, set("Policy", ""), set("Policy", d.queuePolicy)},
		{"no dead-letter queue", []string{"error queue.redrive", "warning dead-letters"},
			func(t *testing.T) { redrive = attribute(t, "RedrivePolicy"); d.setQueue(t, "RedrivePolicy", "") },
			func(t *testing.T) { d.setQueue(t, "RedrivePolicy", redrive) }},
	}
}

func (d *deployedFunction) functionFaults() []fault {
	id, pokes := d.ids["Function"], d.ids["FunctionPokes"]
	configure := func(t *testing.T, in *lambda.UpdateFunctionConfigurationInput) (*lambda.UpdateFunctionConfigurationOutput, error) {
		return d.lambda.UpdateFunctionConfiguration(t.Context(), in)
	}
	mapping := func(enabled bool, batch int32) func(*testing.T) {
		return must(func(t *testing.T, in *lambda.UpdateEventSourceMappingInput) (*lambda.UpdateEventSourceMappingOutput, error) {
			return d.lambda.UpdateEventSourceMapping(t.Context(), in)
		}, &lambda.UpdateEventSourceMappingInput{UUID: &pokes, FunctionName: &id, Enabled: &enabled, BatchSize: &batch})
	}
	env := func(change map[string]string) func(*testing.T) {
		all := map[string]string{"HARDTACK_CLUSTERS": "demo=demo-masters,demo-minions", "HARDTACK_ZONE_ID": d.zone, "HARDTACK_ZONE_NAME": "k8s", "HARDTACK_HOOK_NAME": "", "HARDTACK_QUEUE_URL": d.ids["Queue"]}
		for k, v := range change {
			all[k] = v
		}
		return must(configure, &lambda.UpdateFunctionConfigurationInput{FunctionName: &id, Environment: &lambdatypes.Environment{Variables: all}})
	}
	size := func(memory, timeout int32) func(*testing.T) {
		return must(configure, &lambda.UpdateFunctionConfigurationInput{FunctionName: &id, MemorySize: &memory, Timeout: &timeout})
	}
	unknown := []string{"error function.environment", "warning groups", "warning role", "warning rules.calls.pattern", "warning rules.scaling.pattern"}
	return []fault{
		{"the mapping is disabled", []string{"error mapping.state"}, mapping(false, 1000), mapping(true, 1000)},
		{"the mapping takes few at once", []string{"warning mapping.batch"}, mapping(true, 10), mapping(true, 1000)},
		{"less memory", []string{"warning function.memory"}, size(128, 30), size(256, 30)},
		{"more time", []string{"error queue.visibility", "warning function.timeout"}, size(256, 300), size(256, 30)},
		{"concurrency is reserved", []string{"warning function.concurrency"},
			must(func(t *testing.T, in *lambda.PutFunctionConcurrencyInput) (*lambda.PutFunctionConcurrencyOutput, error) {
				return d.lambda.PutFunctionConcurrency(t.Context(), in)
			}, &lambda.PutFunctionConcurrencyInput{FunctionName: &id, ReservedConcurrentExecutions: aws.Int32(1)}),
			must(func(t *testing.T, in *lambda.DeleteFunctionConcurrencyInput) (*lambda.DeleteFunctionConcurrencyOutput, error) {
				return d.lambda.DeleteFunctionConcurrency(t.Context(), in)
			}, &lambda.DeleteFunctionConcurrencyInput{FunctionName: &id})},
		{"the environment lacks the zone", unknown, env(map[string]string{"HARDTACK_ZONE_ID": ""}), env(nil)},
		{"reminders go elsewhere", []string{"error function.environment"}, env(map[string]string{"HARDTACK_QUEUE_URL": d.ids["DeadLetters"]}), env(nil)},
		{"the hook is another's than the stack's", []string{"error function.environment", "error groups.demo-masters.drain", "error groups.demo-minions.drain"}, env(map[string]string{"HARDTACK_HOOK_NAME": "other"}), env(nil)},
	}
}

func (d *deployedFunction) roleFaults() []fault {
	var policy string
	edit := func(old, by string) func(*testing.T) {
		return func(t *testing.T) {
			policy = d.rolePolicy(t, false)
			changed := strings.ReplaceAll(policy, old, by)
			if changed == policy {
				t.Fatalf("%q is not in %s", old, policy)
			}
			d.putRolePolicy(t, changed)
		}
	}
	back := func(t *testing.T) { d.putRolePolicy(t, policy) }
	role, more := d.ids["Role"], aws.String("more")
	return []fault{
		{"a permission is removed", []string{"error role.queue"}, edit(`"sqs:SendMessage"`, `"sqs:GetQueueUrl"`), back},
		{"the role may not complete a group's hooks", []string{"error role.hooks"}, edit(`autoScalingGroupName/demo-masters`, `autoScalingGroupName/other`), back},
		{"the role may write every record of the zone", []string{"error role.foreign"}, edit(`"*.demo.k8s"`, `"*"`), back},
		{"the role may write without saying what", []string{"error role.foreign"}, edit(`"Null"`, `"StringNotEquals"`), back},
		{"more is attached to the role", []string{"error role.foreign", "error role.other"},
			must(func(t *testing.T, in *iam.PutRolePolicyInput) (*iam.PutRolePolicyOutput, error) {
				return d.iam.PutRolePolicy(t.Context(), in)
			}, &iam.PutRolePolicyInput{RoleName: &role, PolicyName: more, PolicyDocument: aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["route53:*","iam:PassRole"],"Resource":"*"}]}`)}),
			must(func(t *testing.T, in *iam.DeleteRolePolicyInput) (*iam.DeleteRolePolicyOutput, error) {
				return d.iam.DeleteRolePolicy(t.Context(), in)
			}, &iam.DeleteRolePolicyInput{RoleName: &role, PolicyName: more})},
	}
}

func (d *deployedFunction) watchFaults() []fault {
	group := d.ids["Logs"]
	state := func(id, state string) func(*testing.T) {
		return func(*testing.T) { d.alarms.alarm(id).StateValue = state }
	}
	metric := func(id, name string) func(*testing.T) {
		return func(*testing.T) { d.alarms.alarm(id).MetricName = name }
	}
	sweep := func(t *testing.T) {
		if d.reconcile(t) {
			t.Fatal("the function fails")
		}
	}
	return []fault{
		{"an alarm", []string{"error alarms.Failures"}, state("FailuresAlarm", "ALARM"), state("FailuresAlarm", "OK")},
		{"an alarm without data", nil, state("AgeAlarm", "INSUFFICIENT_DATA"), state("AgeAlarm", "OK")},
		{"an alarm is gone", []string{"warning alarms.Throttles"}, metric("ThrottlesAlarm", "Other"), metric("ThrottlesAlarm", "Throttles")},
		{"an alarm is silent", []string{"warning alarms.Errors"}, func(*testing.T) { d.alarms.alarm("ErrorsAlarm").ActionsEnabled = false }, func(*testing.T) { d.alarms.alarm("ErrorsAlarm").ActionsEnabled = true }},
		{"the log is kept for ever", []string{"warning log.retention"},
			must(func(t *testing.T, in *cloudwatchlogs.DeleteRetentionPolicyInput) (*cloudwatchlogs.DeleteRetentionPolicyOutput, error) {
				return d.logs.DeleteRetentionPolicy(t.Context(), in)
			}, &cloudwatchlogs.DeleteRetentionPolicyInput{LogGroupName: &group}),
			must(func(t *testing.T, in *cloudwatchlogs.PutRetentionPolicyInput) (*cloudwatchlogs.PutRetentionPolicyOutput, error) {
				return d.logs.PutRetentionPolicy(t.Context(), in)
			}, &cloudwatchlogs.PutRetentionPolicyInput{LogGroupName: &group, RetentionInDays: aws.Int32(14)})},
		{"the function has not run for a day", []string{"error demo.reconcile"}, d.forget, sweep},
		{"the last reconcile failed", []string{"error demo.reconcile"}, func(t *testing.T) {
			d.faultsOf.Add("DescribeAutoScalingGroups", awsfake.Fault{Refuse: &awsfake.Error{Status: 403, Code: "AccessDenied", Message: "not now"}})
			if !d.reconcile(t) {
				t.Fatal("the function does not fail")
			}
		}, sweep},
		{"the function ran ten minutes ago", []string{"error demo.reconcile"}, func(t *testing.T) {
			d.forget(t)
			d.log(t, fmt.Sprintf(`{"time":%q,"level":"INFO","msg":"sync","report":{"cluster":"demo","age_seconds":1},"pokes":0}`, time.Now().Add(-10*time.Minute).Format(time.RFC3339Nano))+"\n")
		}, sweep},
	}
}

func (d *deployedFunction) groupFaults() []fault {
	drain := awsfake.Hook{Name: "drain", Transition: "autoscaling:EC2_INSTANCE_TERMINATING", Heartbeat: 5 * time.Minute, Default: awsfake.Continue}
	with := func(change func(*awsfake.Hook)) func(*testing.T) {
		return func(t *testing.T) {
			h := drain
			change(&h)
			d.hook(t, "demo-minions", h)
		}
	}
	back := with(func(*awsfake.Hook) {})
	return []fault{
		{"a hook abandons", []string{"error groups.demo-minions.drain"}, with(func(h *awsfake.Hook) { h.Default = "ABANDON" }), back},
		{"a hook is short", []string{"error groups.demo-minions.drain"}, with(func(h *awsfake.Hook) { h.Heartbeat = 45 * time.Second }), back},
		// A group that is not the cluster's any more is in no record: its machines would leave, were it not that a
		// group has to vanish twice.
		{"a group has lost its tag", []string{"error groups.demo-minions.tags", "warning demo.records"}, d.retag("other"), d.retag("demo")},
	}
}

func (d *deployedFunction) retag(cluster string) func(*testing.T) {
	return func(t *testing.T) {
		if err := d.account.AutoScaling().SetTag("demo-minions", "KubernetesCluster", &cluster); err != nil {
			t.Fatal(err)
		}
	}
}

var generationValue = regexp.MustCompile(`generation=[^ "]+`)

// recordFaults change the zone behind the function's back.
func (d *deployedFunction) recordFaults() []fault {
	var before []record.Set
	swap := func(change func([]record.Set) []record.Set) func(*testing.T) {
		return func(t *testing.T) {
			z := d.records(t)
			have, err := z.Read(t.Context(), "demo")
			if err != nil {
				t.Fatal(err)
			}
			before = have
			if err := z.CompareAndSwap(t.Context(), "demo", have, change(have)); err != nil {
				t.Fatal(err)
			}
		}
	}
	back := func(t *testing.T) {
		z := d.records(t)
		have, err := z.Read(t.Context(), "demo")
		if err == nil {
			err = z.CompareAndSwap(t.Context(), "demo", have, before)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	minionLost := func(sets []record.Set) []record.Set {
		return each(sets, func(s record.Set) (record.Set, bool) {
			if s.Name == "minions.demo.k8s." {
				s.Values = s.Values[1:]
			}
			return s, true
		})
	}
	old := func(sets []record.Set) []record.Set {
		g := "generation=" + dnssync.NewGeneration(time.Now().Add(-24*time.Hour), 1)
		return each(sets, func(s record.Set) (record.Set, bool) {
			var values []string
			for _, v := range s.Values {
				values = append(values, generationValue.ReplaceAllString(v, g))
			}
			s.Values = values
			return s, true
		})
	}
	return []fault{
		{"a stale generation record", []string{"error demo.generation"}, swap(old), back},
		{"drift", []string{"warning demo.records"}, swap(minionLost), back},
		{"drift that nobody mends", []string{"error demo.generation", "error demo.records"}, swap(func(s []record.Set) []record.Set { return old(minionLost(s)) }), back},
		{"no generation record", []string{"error demo.generation", "error demo.records"}, swap(func(sets []record.Set) []record.Set {
			return each(sets, func(s record.Set) (record.Set, bool) { return s, s.Name != "_hardtack.demo.k8s." })
		}), back},
		{"no records at all", []string{"error demo.generation", "error demo.records"}, swap(func([]record.Set) []record.Set { return nil }), back},
	}
}

// each changes sets, and leaves out those of which keep is false.
func each(sets []record.Set, change func(record.Set) (s record.Set, keep bool)) (out []record.Set) {
	for _, s := range sets {
		if changed, keep := change(s); keep {
			out = append(out, changed)
		}
	}
	return out
}

func (d *deployedFunction) records(t *testing.T) dnssync.Zone {
	t.Helper()
	z, err := zone.NewRoute53(route53.NewFromConfig(d.config()), d.zone, record.DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	return z
}
