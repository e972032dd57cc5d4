package main

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cftypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	logtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake/moto"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/function"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

const (
	deployedRegion = "eu-central-1"
	deployedStack  = "hardtack-dns"
)

// deployedFunction is a region with the template deployed. moto has CloudFormation, Lambda, SQS, EventBridge, IAM and
// the logs; awsfake has the zone and the groups, whose contract moto does not keep. Calls that moto does not have, or
// has wrong, are answered by fakes of this test, with the reason beside each.
type deployedFunction struct {
	clients
	gate
	url         string
	account     *awsfake.Account
	refusals    awsfake.Script
	alarms      *cloudWatch
	zone        string
	ids         map[string]string // physical, by logical id
	queuePolicy string
}

// clients are the test's own.
type clients struct {
	stacks *cloudformation.Client
	lambda *lambda.Client
	rules  *eventbridge.Client
	queues *sqs.Client
	logs   *cloudwatchlogs.Client
	iam    *iam.Client
	// inside calls moto's IAM for the fake simulator; its calls are not counted.
	inside *iam.Client
}

// gate is the proxy of every call.
type gate struct {
	moto    *httputil.ReverseProxy
	mu      sync.Mutex
	calls   map[string]int
	denied  string // "lambda:GetFunction"
	stalled string // never answered
	// untagged hides that the function is of a stack.
	untagged bool
	// policies are the role's as they were last read; nil after a call that may have changed them.
	policies []awsfake.Policy
}

// deployTemplate deploys the template, and has the function reconcile once.
func deployTemplate(t *testing.T) *deployedFunction {
	t.Helper()
	if err := exec.Command("python3", "-c", "import samtranslator, moto.server").Run(); err != nil {
		t.Skip("python3 has no samtranslator or moto: run scripts/setup --judges")
	}
	motoURL := moto.Start(t)
	target, err := url.Parse(motoURL)
	if err != nil {
		t.Fatal(err)
	}
	d := &deployedFunction{ids: map[string]string{}, alarms: &cloudWatch{age: -1}}
	d.calls = map[string]int{}
	d.moto = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, ModifyResponse: d.mend,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	d.account = awsfake.New(awsfake.Options{Rates: map[string]float64{"route53": 0}, Faults: &d.refusals})
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	d.url = server.URL
	c := d.config()
	d.inside = iam.NewFromConfig(c, func(o *iam.Options) { o.BaseEndpoint = &motoURL })
	d.stacks, d.lambda, d.rules = cloudformation.NewFromConfig(c), lambda.NewFromConfig(c), eventbridge.NewFromConfig(c)
	d.queues, d.logs, d.iam = sqs.NewFromConfig(c), cloudwatchlogs.NewFromConfig(c), iam.NewFromConfig(c)
	d.groups(t)
	// moto's CloudFormation gives every function x86_64.
	parameters := map[string]string{"ClusterName": "demo", "GroupNames": "demo-masters,demo-minions", "ZoneId": d.zone, "Architecture": "x86_64"}
	template, resources := translated(t, parameters)
	putObject(t, motoURL, "artifacts/dns.zip", testZip(t, elf.EM_X86_64))
	d.create(t, template, parameters)
	d.complete(t, resources)
	if err := d.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *deployedFunction) config() aws.Config {
	return aws.Config{Region: deployedRegion, BaseEndpoint: &d.url, RetryMaxAttempts: 1, Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")}
}

// groups makes the zone and the cluster's groups, with their hooks.
func (d *deployedFunction) groups(t *testing.T) {
	t.Helper()
	q := zone.Query{Name: "k8s", VPC: "vpc-0123456789abcdef0", Region: deployedRegion}
	var err error
	if d.zone, err = zone.CreateZone(t.Context(), route53.NewFromConfig(d.config()), q, "1"); err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]int{"masters": 3, "minions": 5} {
		group := "demo-" + name
		if err := d.account.AutoScaling().Create(awsfake.Group{Name: group, Max: 9, Desired: n, Tags: map[string]string{role.TagCluster: "demo", role.TagRole: name}}); err != nil {
			t.Fatal(err)
		}
	}
	d.account.Tick()
	err = errors.Join(d.account.AutoScaling().PutHook("demo-masters", drainHook()), d.account.AutoScaling().PutHook("demo-minions", drainHook()),
		d.account.AutoScaling().PutHook("demo-masters", awsfake.Hook{Name: "ready", Transition: "autoscaling:EC2_INSTANCE_LAUNCHING", Heartbeat: 20 * time.Minute}))
	if err != nil {
		t.Fatal(err)
	}
}

func drainHook() awsfake.Hook {
	return awsfake.Hook{Name: "hardtack-drain", Transition: "autoscaling:EC2_INSTANCE_TERMINATING", Heartbeat: 5 * time.Minute, Default: awsfake.Continue}
}

func (d *deployedFunction) create(t *testing.T, template string, parameters map[string]string) {
	t.Helper()
	in := cloudformation.CreateStackInput{StackName: aws.String(deployedStack), TemplateBody: &template, Capabilities: []cftypes.Capability{cftypes.CapabilityCapabilityIam}}
	for k, v := range parameters {
		in.Parameters = append(in.Parameters, cftypes.Parameter{ParameterKey: aws.String(k), ParameterValue: aws.String(v)})
	}
	if _, err := d.stacks.CreateStack(t.Context(), &in); err != nil {
		t.Fatal(err)
	}
	out, err := d.stacks.ListStackResources(t.Context(), &cloudformation.ListStackResourcesInput{StackName: in.StackName})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range out.StackResourceSummaries {
		if r.LogicalResourceId != nil {
			d.ids[*r.LogicalResourceId] = *r.PhysicalResourceId
		}
	}
}

// complete makes the resources that moto's CloudFormation leaves out of the translated template, the queue's policy
// and the alarms, and corrects others: a role's policy is Python's text, and a log group's Arn lacks its ":*".
func (d *deployedFunction) complete(t *testing.T, resources map[string]map[string]any) {
	t.Helper()
	for id, p := range resources {
		if _, there := d.ids[id]; !there {
			d.ids[id] = deployedStack + "-" + id + "-X"
			if kind := p["\x00type"]; kind != "AWS::SQS::QueuePolicy" && kind != "AWS::CloudWatch::Alarm" {
				t.Fatalf("moto did not make %s, an %s", id, kind)
			}
		}
	}
	d.alarms = newCloudWatch(t, resources, d.resolve)
	policy, err := json.Marshal(d.resolve(resources["QueuePolicy"]["PolicyDocument"]))
	if err != nil {
		t.Fatal(err)
	}
	d.queuePolicy = string(policy)
	role, err := d.rolePolicy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	role = strings.ReplaceAll(role, "'", `"`)
	role = strings.ReplaceAll(role, ":log-group:"+d.ids["Logs"]+`"`, ":log-group:"+d.ids["Logs"]+`:*"`)
	if err := errors.Join(d.setQueue("Policy", d.queuePolicy)(t.Context()), d.putRolePolicy(t.Context(), role)); err != nil {
		t.Fatal(err)
	}
}

// resolve replaces a template's references by their values.
func (d *deployedFunction) resolve(v any) any {
	switch v := v.(type) {
	case []any:
		out := []any{}
		for _, e := range v {
			out = append(out, d.resolve(e))
		}
		return out
	case map[string]any:
		if ref, ok := v["Ref"].(string); ok {
			if ref == "ClusterName" {
				return "demo"
			}
			return d.ids[ref]
		}
		if get, ok := v["Fn::GetAtt"].([]any); ok {
			id, attribute := get[0].(string), get[1].(string)
			name := d.ids[id][strings.LastIndexByte(d.ids[id], '/')+1:]
			switch {
			case attribute == "QueueName":
				return name
			case strings.HasSuffix(id, "Rule"):
				return "arn:aws:events:" + deployedRegion + ":123456789012:rule/" + name
			}
			return "arn:aws:sqs:" + deployedRegion + ":123456789012:" + name
		}
		out := map[string]any{}
		for k, e := range v {
			out[k] = d.resolve(e)
		}
		return out
	}
	return v
}

// rolePolicy is the role's policy.
func (d *deployedFunction) rolePolicy(ctx context.Context) (string, error) {
	role, name := d.ids["Role"], "reconcile"
	out, err := d.iam.GetRolePolicy(ctx, &iam.GetRolePolicyInput{RoleName: &role, PolicyName: &name})
	if err != nil {
		return "", err
	}
	return url.QueryUnescape(*out.PolicyDocument)
}

func (d *deployedFunction) putRolePolicy(ctx context.Context, text string) error {
	role, name := d.ids["Role"], "reconcile"
	_, err := d.iam.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: &role, PolicyName: &name, PolicyDocument: &text})
	return err
}

// setQueue sets an attribute of the queue. moto drops the policy when another attribute is set, so it goes with it.
func (d *deployedFunction) setQueue(attribute, value string) act {
	return func(ctx context.Context) error {
		url, attributes := d.ids["Queue"], map[string]string{"Policy": d.queuePolicy}
		attributes[attribute] = value
		_, err := d.queues.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: &url, Attributes: attributes})
		return err
	}
}

// reconcile is one sweep of the function itself, whose log goes where Lambda sends it. failed is the function's error.
func (d *deployedFunction) reconcile(ctx context.Context) (failed, err error) {
	id := d.ids["Function"]
	out, err := d.lambda.GetFunction(ctx, &lambda.GetFunctionInput{FunctionName: &id})
	if err != nil {
		return nil, err
	}
	env := map[string]string{function.EnvRegion: deployedRegion, function.EnvKey: "AKIDROLE", function.EnvSecret: "secret", function.EnvEndpoint: d.url}
	maps.Copy(env, out.Configuration.Environment.Variables)
	s, err := function.Read(func(k string) string { return env[k] })
	if err != nil {
		return nil, err
	}
	var log bytes.Buffer
	h, err := function.Connect(s, &log, slog.New(slog.NewJSONHandler(&log, nil)))
	if err != nil {
		return nil, err
	}
	_, failed = h.Invoke(ctx, []byte(`{"source":"aws.events"}`))
	return failed, d.log(ctx, log.String())
}

// sweep is a reconcile that has to work.
func (d *deployedFunction) sweep(ctx context.Context) error {
	return errors.Join(d.reconcile(ctx))
}

// log writes lines to the function's log group.
func (d *deployedFunction) log(ctx context.Context, text string) error {
	group, stream := d.ids["Logs"], fmt.Sprintf("2026/%d", time.Now().UnixNano())
	_, err := d.logs.CreateLogStream(ctx, &cloudwatchlogs.CreateLogStreamInput{LogGroupName: &group, LogStreamName: &stream})
	if err != nil {
		return err
	}
	var list []logtypes.InputLogEvent
	for line := range strings.Lines("START RequestId: 0 Version: $LATEST\n" + text) {
		list = append(list, logtypes.InputLogEvent{Message: aws.String(strings.TrimSuffix(line, "\n")), Timestamp: aws.Int64(time.Now().UnixMilli())})
	}
	_, err = d.logs.PutLogEvents(ctx, &cloudwatchlogs.PutLogEventsInput{LogGroupName: &group, LogStreamName: &stream, LogEvents: list})
	return err
}

// forget empties the log.
func (d *deployedFunction) forget(ctx context.Context) error {
	group := d.ids["Logs"]
	out, err := d.logs.DescribeLogStreams(ctx, &cloudwatchlogs.DescribeLogStreamsInput{LogGroupName: &group})
	if err != nil {
		return err
	}
	for _, s := range out.LogStreams {
		if _, err := d.logs.DeleteLogStream(ctx, &cloudwatchlogs.DeleteLogStreamInput{LogGroupName: &group, LogStreamName: s.LogStreamName}); err != nil {
			return err
		}
	}
	return nil
}
