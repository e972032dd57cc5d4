package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
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
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
)

// fault is a fault of the deployment: how to make it, the doctor's findings, and how to remove it.
type fault struct {
	name     string
	want     []string
	do, undo act
}

// act does something to the region.
type act func(context.Context) error

func (d *deployedFunction) faults() []fault {
	all := append(d.ruleFaults(), d.queueFaults()...)
	all = append(all, d.functionFaults()...)
	all = append(all, d.roleFaults()...)
	all = append(all, d.watchFaults()...)
	all = append(all, d.groupFaults()...)
	return append(all, d.recordFaults()...)
}

// call is a call of the SDK.
func call[I, O, P any](operation func(context.Context, I, ...P) (O, error), in I) act {
	return func(ctx context.Context) error {
		_, err := operation(ctx, in)
		return err
	}
}

// set is a change of the test's own stand-in.
func set[T any](mu *sync.Mutex, where *T, value T) act {
	return func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		*where = value
		return nil
	}
}

func (d *deployedFunction) ruleFaults() []fault {
	scaling, calls, sweep, target := d.ids["ScalingRule"], d.ids["CallsRule"], d.ids["SweepRule"], aws.String("queue")
	queue := aws.String("arn:aws:sqs:" + deployedRegion + ":123456789012:" + nameOfURL(d.ids["Queue"]))
	off, on, remove, aim, put := d.rules.DisableRule, d.rules.EnableRule, d.rules.RemoveTargets, d.rules.PutTargets, d.rules.PutRule
	pattern := func(groups string) act {
		return call(put, &eventbridge.PutRuleInput{Name: &scaling, EventPattern: aws.String(`{"source":["aws.autoscaling"],"detail":{"AutoScalingGroupName":[` + groups + `]}}`)})
	}
	return []fault{
		{"a rule is disabled", []string{"error rules.scaling.state"},
			call(off, &eventbridge.DisableRuleInput{Name: &scaling}), call(on, &eventbridge.EnableRuleInput{Name: &scaling})},
		{"the rule for calls is disabled", []string{"warning rules.calls.state"},
			call(off, &eventbridge.DisableRuleInput{Name: &calls}), call(on, &eventbridge.EnableRuleInput{Name: &calls})},
		{"the sweep is disabled", []string{"error rules.sweep.state"},
			call(off, &eventbridge.DisableRuleInput{Name: &sweep}), call(on, &eventbridge.EnableRuleInput{Name: &sweep})},
		{"a target is removed", []string{"error rules.sweep.target"},
			call(remove, &eventbridge.RemoveTargetsInput{Rule: &sweep, Ids: []string{*target}}),
			call(aim, &eventbridge.PutTargetsInput{Rule: &sweep, Targets: []ebtypes.Target{{Id: target, Arn: queue}}})},
		{"a target sends something else", []string{"error rules.scaling.target"},
			call(aim, &eventbridge.PutTargetsInput{Rule: &scaling, Targets: []ebtypes.Target{{Id: target, Arn: queue, Input: aws.String(`{}`)}}}),
			call(aim, &eventbridge.PutTargetsInput{Rule: &scaling, Targets: []ebtypes.Target{{Id: target, Arn: queue}}})},
		{"a pattern leaves a group out", []string{"error rules.scaling.pattern"}, pattern(`"demo-minions"`), pattern(`"demo-minions","demo-masters"`)},
		{"the sweep is slow", []string{"warning rules.sweep.schedule"},
			call(put, &eventbridge.PutRuleInput{Name: &sweep, ScheduleExpression: aws.String("rate(1 hour)")}), call(put, &eventbridge.PutRuleInput{Name: &sweep, ScheduleExpression: aws.String("rate(1 minute)")})},
	}
}

func nameOfURL(url string) string { return url[strings.LastIndexByte(url, '/')+1:] }

func (d *deployedFunction) queueFaults() []fault {
	dead, url := d.ids["DeadLetters"], d.ids["Queue"]
	var redrive string
	noRedrive := func(ctx context.Context) error {
		out, err := d.queues.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []sqstypes.QueueAttributeName{"All"}})
		if err != nil {
			return err
		}
		redrive = out.Attributes["RedrivePolicy"]
		return d.setQueue("RedrivePolicy", "")(ctx)
	}
	return []fault{
		{"a dead letter", []string{"error dead-letters.messages"},
			call(d.queues.SendMessage, &sqs.SendMessageInput{QueueUrl: &dead, MessageBody: aws.String("{}")}),
			call(d.queues.PurgeQueue, &sqs.PurgeQueueInput{QueueUrl: &dead})},
		{"messages are visible too soon", []string{"error queue.visibility"}, d.setQueue("VisibilityTimeout", "20"), d.setQueue("VisibilityTimeout", "362")},
		{"messages are visible rather soon", []string{"warning queue.visibility"}, d.setQueue("VisibilityTimeout", "60"), d.setQueue("VisibilityTimeout", "362")},
		{"nothing reads the queue", []string{"error queue.age"}, set(&d.mu, &d.alarms.age, 1200), set(&d.mu, &d.alarms.age, -1)},
		{"a message waits a little", nil, set(&d.mu, &d.alarms.age, 12), set(&d.mu, &d.alarms.age, -1)},
		{"the queue's policy lets another rule send", []string{"error queue.policy"},
			d.setQueue("Policy", strings.ReplaceAll(d.queuePolicy, d.ids["SweepRule"], "other")), d.setQueue("Policy", d.queuePolicy)},
		{"the queue's policy is gone", []string{"error queue.policy"}, d.setQueue("Policy", ""), d.setQueue("Policy", d.queuePolicy)},
		{"no dead-letter queue", []string{"error queue.redrive", "warning dead-letters"},
			noRedrive, func(ctx context.Context) error { return d.setQueue("RedrivePolicy", redrive)(ctx) }},
	}
}

func (d *deployedFunction) functionFaults() []fault {
	id, pokes := d.ids["Function"], d.ids["FunctionPokes"]
	configure := d.lambda.UpdateFunctionConfiguration
	mapping := func(enabled bool, batch int32) act {
		return call(d.lambda.UpdateEventSourceMapping, &lambda.UpdateEventSourceMappingInput{UUID: &pokes, FunctionName: &id, Enabled: &enabled, BatchSize: &batch})
	}
	env := func(change map[string]string) act {
		all := map[string]string{"HARDTACK_CLUSTERS": "demo=demo-masters,demo-minions", "HARDTACK_ZONE_ID": d.zone, "HARDTACK_ZONE_NAME": "k8s", "HARDTACK_HOOK_NAME": "hardtack-drain", "HARDTACK_QUEUE_URL": d.ids["Queue"]}
		for k, v := range change {
			all[k] = v
		}
		return call(configure, &lambda.UpdateFunctionConfigurationInput{FunctionName: &id, Environment: &lambdatypes.Environment{Variables: all}})
	}
	size := func(memory, timeout int32) act {
		return call(configure, &lambda.UpdateFunctionConfigurationInput{FunctionName: &id, MemorySize: &memory, Timeout: &timeout})
	}
	unknown := []string{"error function.environment", "warning groups", "warning role", "warning rules.calls.pattern", "warning rules.instances.pattern", "warning rules.scaling.pattern"}
	return []fault{
		{"the mapping is disabled", []string{"error mapping.state"}, mapping(false, 1000), mapping(true, 1000)},
		{"the mapping takes few at once", []string{"warning mapping.batch"}, mapping(true, 10), mapping(true, 1000)},
		{"less memory", []string{"warning function.memory"}, size(128, 60), size(256, 60)},
		{"more time", []string{"error queue.visibility", "warning function.timeout"}, size(256, 600), size(256, 60)},
		{"concurrency is reserved", []string{"warning function.concurrency"},
			call(d.lambda.PutFunctionConcurrency, &lambda.PutFunctionConcurrencyInput{FunctionName: &id, ReservedConcurrentExecutions: aws.Int32(1)}),
			call(d.lambda.DeleteFunctionConcurrency, &lambda.DeleteFunctionConcurrencyInput{FunctionName: &id})},
		{"the environment lacks the zone", unknown, env(map[string]string{"HARDTACK_ZONE_ID": ""}), env(nil)},
		{"reminders go elsewhere", []string{"error function.environment"}, env(map[string]string{"HARDTACK_QUEUE_URL": d.ids["DeadLetters"]}), env(nil)},
		{"the hook is another's than the stack's", []string{"error function.environment", "error groups.demo-masters.drain", "error groups.demo-minions.drain"}, env(map[string]string{"HARDTACK_HOOK_NAME": "other"}), env(nil)},
	}
}

func (d *deployedFunction) roleFaults() []fault {
	var policy string
	edit := func(old, by string) act {
		return func(ctx context.Context) (err error) {
			if policy, err = d.rolePolicy(ctx); err != nil {
				return err
			}
			changed := strings.ReplaceAll(policy, old, by)
			if changed == policy {
				return fmt.Errorf("%q is not in %s", old, policy)
			}
			return d.putRolePolicy(ctx, changed)
		}
	}
	back := func(ctx context.Context) error { return d.putRolePolicy(ctx, policy) }
	role, more := d.ids["Role"], aws.String("more")
	return []fault{
		{"a permission is removed", []string{"error role.queue"}, edit(`"sqs:SendMessage"`, `"sqs:GetQueueUrl"`), back},
		{"the role may not complete a group's hooks", []string{"error role.hooks"}, edit(`autoScalingGroupName/demo-masters`, `autoScalingGroupName/other`), back},
		{"the role may write every record of the zone", []string{"error role.foreign"}, edit(`"*.demo.k8s"`, `"*"`), back},
		{"the role may write without saying what", []string{"error role.foreign"}, edit(`"Null"`, `"StringNotEquals"`), back},
		{"more is attached to the role", []string{"error role.foreign", "error role.other"},
			call(d.iam.PutRolePolicy, &iam.PutRolePolicyInput{RoleName: &role, PolicyName: more, PolicyDocument: aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["route53:*","iam:PassRole"],"Resource":"*"}]}`)}),
			call(d.iam.DeleteRolePolicy, &iam.DeleteRolePolicyInput{RoleName: &role, PolicyName: more})},
	}
}

func (d *deployedFunction) watchFaults() []fault {
	group := d.ids["Logs"]
	failures, age, throttles, crashes := d.alarms.alarm("FailuresAlarm"), d.alarms.alarm("AgeAlarm"), d.alarms.alarm("ThrottlesAlarm"), d.alarms.alarm("ErrorsAlarm")
	return []fault{
		{"an alarm", []string{"error alarms.Failures"}, set(&d.mu, &failures.StateValue, "ALARM"), set(&d.mu, &failures.StateValue, "OK")},
		{"an alarm without data", nil, set(&d.mu, &age.StateValue, "INSUFFICIENT_DATA"), set(&d.mu, &age.StateValue, "OK")},
		{"an alarm is gone", []string{"warning alarms.Throttles"}, set(&d.mu, &throttles.MetricName, "Other"), set(&d.mu, &throttles.MetricName, "Throttles")},
		{"an alarm is silent", []string{"warning alarms.Errors"}, set(&d.mu, &crashes.ActionsEnabled, false), set(&d.mu, &crashes.ActionsEnabled, true)},
		{"the log is kept for ever", []string{"warning log.retention"},
			call(d.logs.DeleteRetentionPolicy, &cloudwatchlogs.DeleteRetentionPolicyInput{LogGroupName: &group}),
			call(d.logs.PutRetentionPolicy, &cloudwatchlogs.PutRetentionPolicyInput{LogGroupName: &group, RetentionInDays: aws.Int32(14)})},
		{"the function has not run for a day", []string{"error demo.reconcile"}, d.forget, d.sweep},
		{"the last reconcile failed", []string{"error demo.reconcile"}, d.fail, d.sweep},
		{"the function ran ten minutes ago", []string{"error demo.reconcile"}, func(ctx context.Context) error {
			line := fmt.Sprintf(`{"time":%q,"level":"INFO","msg":"sync","report":{"cluster":"demo","age_seconds":1},"events":0}`, time.Now().Add(-10*time.Minute).Format(time.RFC3339Nano))
			return errors.Join(d.forget(ctx), d.log(ctx, line+"\n"))
		}, d.sweep},
	}
}

// fail is a reconcile that AWS refuses.
func (d *deployedFunction) fail(ctx context.Context) error {
	d.refusals.Add("DescribeAutoScalingGroups", awsfake.Fault{Refuse: &awsfake.Error{Status: 403, Code: "AccessDenied", Message: "not now"}})
	failed, err := d.reconcile(ctx)
	if failed == nil {
		return errors.Join(err, errors.New("the function does not fail"))
	}
	return err
}

func (d *deployedFunction) groupFaults() []fault {
	with := func(change func(*awsfake.Hook)) act {
		return func(context.Context) error {
			h := drainHook()
			change(&h)
			return d.account.AutoScaling().PutHook("demo-minions", h)
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

func (d *deployedFunction) retag(cluster string) act {
	return func(context.Context) error {
		return d.account.AutoScaling().SetTag("demo-minions", "KubernetesCluster", &cluster)
	}
}

var generationValue = regexp.MustCompile(`generation=[^ "]+`)

// recordFaults change the zone behind the function's back.
func (d *deployedFunction) recordFaults() []fault {
	var before []record.Set
	swap := func(change func([]record.Set) []record.Set) act {
		return func(ctx context.Context) error {
			z, have, err := d.records(ctx)
			if err != nil {
				return err
			}
			before = have
			return z.CompareAndSwap(ctx, "demo", have, change(have))
		}
	}
	back := func(ctx context.Context) error {
		z, have, err := d.records(ctx)
		if err != nil {
			return err
		}
		return z.CompareAndSwap(ctx, "demo", have, before)
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
		g := "generation=" + reconcile.NewGeneration(time.Now().Add(-24*time.Hour), 1)
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
		// Without the control record nothing says whose the records are, and nobody can plan a change of them.
		{"no generation record", []string{"error demo.records"}, swap(func(sets []record.Set) []record.Set {
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

// records are the cluster's in the zone.
func (d *deployedFunction) records(ctx context.Context) (z *zone.Route53, have []record.Set, err error) {
	z, err = zone.NewRoute53(route53.NewFromConfig(d.config()), d.zone, record.DefaultPolicy())
	if err != nil {
		return nil, nil, err
	}
	have, err = z.Read(ctx, "demo")
	return z, have, err
}
