package shipped_test

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/lambda"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/function"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/shipped"
)

func deploy(t *testing.T, s shipped.Stack) *shipped.Deployment {
	t.Helper()
	template, err := shipped.Parse(lambda.Template)
	assert.NilError(t, err)
	d, err := template.Deploy(s)
	assert.NilError(t, err)
	return d
}

// demo is a whole deployment: nothing of it stays a reference.
func demo() shipped.Stack {
	return shipped.Stack{
		Parameters: map[string]string{shipped.ParamCluster: "demo", shipped.ParamZone: "Z1", shipped.ParamGroups: "demo-masters, demo-minions"},
		References: map[string]string{
			"AWS::Partition": "aws-cn", "AWS::Region": "cn-north-1", shipped.IDQueue: "https://queue", "Queue.Arn": "arn:queue", "Queue.QueueName": "queue",
			"DeadLetters.Arn": "arn:dead", "DeadLetters.QueueName": "dead", "Logs.Arn": "arn:logs", shipped.IDFunction: "dns",
		},
	}
}

// A figure that is missing in the template must not be a zero that is compared with.
func TestEveryFigureIsThere(t *testing.T) {
	d := deploy(t, demo())
	f, m := d.Function, d.Mapping
	assert.Assert(t, f.Runtime != "" && f.Handler != "" && f.Memory > 0 && f.Timeout >= time.Second, "%+v", f)
	assert.Assert(t, m.Batch > 0 && m.Concurrency > 0 && m.Window > 0, "%+v", m)
	assert.Assert(t, d.Queue.Visibility >= 6*f.Timeout+m.Window, "Lambda asks for six times the function's timeout, and the window")
	assert.Assert(t, d.Queue.Retention > 0 && d.Queue.MaxReceive > 0 && d.DeadLetters.Retention > d.Queue.Retention)
	assert.Equal(t, d.Queue.DeadLetterARN, "arn:dead")
	assert.Equal(t, d.MaxAge, 5*d.Rules[shipped.IDSweep].Every, "five sweeps")
	assert.Equal(t, d.LogRetention, "14")
	assert.Equal(t, d.Rules[shipped.IDSweep].Every, time.Minute)
	assert.Equal(t, len(d.Rules), 4)
	assert.Equal(t, len(d.Alarms), 7)
	for _, a := range d.Alarms {
		assert.Assert(t, a.Namespace != "" && a.Metric != "" && a.Dimension != "" && a.Value != "", "%+v", a)
	}
	for _, id := range []string{shipped.IDFunction, shipped.IDMapping, shipped.IDQueue, shipped.IDDeadLetters, shipped.IDScaling, shipped.IDCalls, shipped.IDInstances, shipped.IDSweep, shipped.IDRole, shipped.IDLogs} {
		assert.Assert(t, d.Types[id] != "", id)
	}
}

// The function accepts the environment that the template sets.
func TestEnvironment(t *testing.T) {
	env := deploy(t, demo()).Function.Environment
	env[function.EnvRegion], env[function.EnvKey], env[function.EnvSecret] = "r", "k", "s"
	s, err := function.Read(func(k string) string { return env[k] })
	assert.NilError(t, err)
	assert.DeepEqual(t, s.Scope.AllGroups(), []string{"demo-masters", "demo-minions"})
	assert.Equal(t, s.Suffix+" "+s.Queue+" "+s.Zone, "k8s https://queue Z1")
}

func TestPolicyDocument(t *testing.T) {
	d := deploy(t, demo())
	text, err := d.PolicyDocument()
	assert.NilError(t, err)
	assert.Assert(t, !strings.Contains(string(text), "${"), "%s", text)
	for _, want := range []string{
		`"arn:*:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/demo-masters","arn:*:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/demo-minions"`,
		`"arn:aws-cn:route53:::hostedzone/Z1"`, `"*.demo.k8s"`, `"aws:RequestedRegion":["cn-north-1"]`, `"Null"`,
	} {
		assert.Assert(t, strings.Contains(string(text), want), "%s in %s", want, text)
	}
	assert.Assert(t, strings.Contains(d.Rules[shipped.IDScaling].Pattern, `["demo-masters","demo-minions"]`), d.Rules[shipped.IDScaling].Pattern)
}

// Without a stack the figures are known, and references stay unresolved.
func TestWithoutAStack(t *testing.T) {
	d := deploy(t, shipped.Stack{})
	assert.Equal(t, d.Function.Environment["HARDTACK_ZONE_ID"], "${ZoneId}")
	assert.Equal(t, d.Queue.DeadLetterARN, "${DeadLetters.Arn}")
}

func TestParseRefuses(t *testing.T) {
	for name, want := range map[string]string{
		"Resources: [": "reading the function's template",
		"Resources: {A: {Type: x, Properties: !Cidr a}}":                                                           "!Cidr of a text",
		"Resources: {A: {Type: x, Properties: {Timeout: !Select [1, [2]]}}}":                                       "!Select of 2 values",
		"Resources: {A: {Type: 'AWS::Events::Rule', Properties: {ScheduleExpression: cron(0)}}}":                   "only rate(1 minute)",
		"Resources: {A: {Type: 'AWS::CloudWatch::Alarm', Properties: {MetricName: x}}}":                            "0 dimensions",
		"Resources: {A: {Type: 'AWS::Serverless::Function', Properties: {Handler: x}}}":                            "0 events",
		"Resources: {A: {Type: 'AWS::SQS::Queue', Properties: {VisibilityTimeout: !Ref Other, QueueName: 'hey'}}}": "reading A",
	} {
		template, err := shipped.Parse([]byte(name))
		if err == nil {
			_, err = template.Deploy(shipped.Stack{})
		}
		assert.ErrorContains(t, err, want)
	}
}
