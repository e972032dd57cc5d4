package lambda_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/lambda"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/function"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/shipped"
)

// strs is a policy's list, which JSON has as a text where there is one.
type strs []string

func (s *strs) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*s = strs{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(s))
}

type statement struct {
	Sid, Effect      string
	Action, Resource strs
	Condition        map[string]map[string]strs
}

// deployment is what testdata/deploy.py prints.
type deployment struct {
	Zone, Status string
	Outputs      map[string]string
	Policies     map[string]struct{ Statement []statement }
	Attached     []any
	Rules        []struct {
		Name, State, EventPattern, ScheduleExpression string
		Matches                                       []string
		Targets                                       []struct{ Arn string }
	}
	Queue, DeadLetters map[string]string
	Function           struct {
		Runtime, Handler    string
		MemorySize, Timeout int
		Environment         struct{ Variables map[string]string }
	}
	Mappings []struct {
		BatchSize, MaximumBatchingWindowInSeconds int
		EventSourceArn                            string
		FunctionResponseTypes                     []string
		ScalingConfig                             struct{ MaximumConcurrency int }
	}
	LogGroups  []struct{ RetentionInDays int }
	Translated struct {
		Resources map[string]struct {
			Type       string
			Properties map[string]any
		}
	}
}

var deployOnce sync.Once

// deployable reports whether there is what translates and deploys the template.
var deployable = sync.OnceValue(func() bool {
	return exec.Command("python3", "-c", "import samtranslator, moto.events, boto3").Run() == nil
})

// deployed translates the template and deploys it to moto, once.
var deployed = func() func(t *testing.T) deployment {
	var out []byte
	var failed string
	var missing bool
	return func(t *testing.T) deployment {
		t.Helper()
		deployOnce.Do(func() {
			if missing = !deployable(); missing {
				return
			}
			cmd := exec.Command("python3", "-W", "ignore", "testdata/deploy.py", "template.yaml", "events", zipped(t))
			var stderr strings.Builder
			cmd.Stderr = &stderr
			var err error
			if out, err = cmd.Output(); err != nil {
				failed = err.Error() + ": " + stderr.String()
			}
		})
		if missing {
			t.Skip("python3 has no samtranslator, moto or boto3: run scripts/setup --judges")
		}
		if failed != "" {
			t.Fatalf("deploying to moto: %s", failed)
		}
		var d deployment
		if err := json.Unmarshal(out, &d); err != nil {
			t.Fatalf("reading what was deployed: %v", err)
		}
		return d
	}
}()

func TestTemplateIsLintClean(t *testing.T) {
	if _, err := exec.LookPath("cfn-lint"); err != nil {
		t.Skip("cfn-lint is not installed: run scripts/setup --judges")
	}
	if out, err := exec.Command("cfn-lint", "template.yaml").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("cfn-lint: %v\n%s", err, out)
	}
}

func TestDeployedPolicy(t *testing.T) {
	d := deployed(t)
	if d.Status != "CREATE_COMPLETE" || len(d.Attached) != 0 || len(d.Policies) != 1 {
		t.Fatalf("stack %s, managed policies %v, policies %v", d.Status, d.Attached, d.Policies)
	}
	zone := "arn:aws:route53:::hostedzone/" + d.Zone
	group := "arn:*:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/"
	want := map[string]strs{ // every action that is allowed, and on what
		"route53:ListResourceRecordSets": {zone}, "route53:ChangeResourceRecordSets": {zone},
		"autoscaling:DescribeAutoScalingGroups": {"*"}, "autoscaling:DescribeLifecycleHooks": {"*"},
		"ec2:DescribeInstances": {"*"}, "ec2:DescribeVolumes": {"*"},
		"autoscaling:CompleteLifecycleAction": {group + "demo-masters", group + "demo-minions"},
		"sqs:ReceiveMessage":                  {d.Queue["QueueArn"]}, "sqs:DeleteMessage": {d.Queue["QueueArn"]},
		"sqs:GetQueueAttributes": {d.Queue["QueueArn"]}, "sqs:SendMessage": {d.Queue["QueueArn"]},
		"logs:CreateLogStream": nil, "logs:PutLogEvents": nil,
	}
	got := map[string]strs{}
	for _, s := range d.Policies["reconcile"].Statement {
		for _, a := range s.Action {
			got[a] = s.Resource
			if strings.HasPrefix(a, "logs:") && !strings.Contains(strings.Join(s.Resource, ""), ":log-group:hardtack-dns-Logs-") {
				t.Errorf("%s on %v", a, s.Resource)
			} else if strings.HasPrefix(a, "logs:") {
				got[a] = nil
			}
		}
		switch s.Sid {
		case "ReplaceTheClustersRecords":
			const key = "route53:ChangeResourceRecordSets"
			conditions := map[string]map[string]strs{
				"ForAllValues:StringLike":   {key + "NormalizedRecordNames": {"*.demo.k8s"}},
				"ForAllValues:StringEquals": {key + "RecordTypes": {"A", "AAAA", "SRV", "TXT"}, key + "Actions": {"CREATE", "DELETE"}},
				"Null":                      {key + "NormalizedRecordNames": {"false"}, key + "RecordTypes": {"false"}, key + "Actions": {"false"}},
			}
			if diff := cmp.Diff(conditions, s.Condition); diff != "" {
				t.Errorf("conditions of the write (-want +got):\n%s", diff)
			}
		case "FinishHooks", "ReadTheFleet":
			if diff := cmp.Diff(map[string]map[string]strs{"StringEquals": {"aws:RequestedRegion": {motoRegion}}}, s.Condition); diff != "" {
				t.Errorf("conditions of completing hooks (-want +got):\n%s", diff)
			}
		default:
			if s.Condition != nil {
				t.Errorf("%s has conditions %v", s.Sid, s.Condition)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("allowed (-want +got):\n%s", diff)
	}
}

// motoRegion is where testdata/deploy.py deploys to, testRegion where awsfake's account is.
const (
	motoRegion = "eu-central-1"
	testRegion = "us-west-2"
)

// deployedPolicy is the deployed role's policy for another account's zone and queue.
func deployedPolicy(t *testing.T, zone string) awsfake.Policy {
	t.Helper()
	d := deployed(t)
	document, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": d.Policies["reconcile"].Statement})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(d.Zone, zone, d.Queue["QueueArn"], "arn:aws:sqs:"+testRegion+":123456789012:pokes", motoRegion, testRegion).Replace(string(document))
	p, err := awsfake.ParsePolicy([]byte(text))
	if err != nil {
		t.Fatalf("IAM would not take %s: %v", text, err)
	}
	return p
}

// TestDeployedPolicyHolds asks for what the function needs and for what it must not do.
func TestDeployedPolicyHolds(t *testing.T) {
	a, zone, queue, url := account(t)
	a.AddRole("function", deployedPolicy(t, zone))
	if err := a.AutoScaling().PutHook("demo-masters", awsfake.Hook{Name: "hardtack-drain", Transition: "autoscaling:EC2_INSTANCE_TERMINATING"}); err != nil {
		t.Fatal(err)
	}
	elsewhere, err := a.SQS().CreateQueue("others", nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.Issue("function", "dns", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	config := func(region string) aws.Config {
		return aws.Config{Region: region, BaseEndpoint: &url, RetryMaxAttempts: 1, HTTPClient: awshttp.Client(nil),
			Credentials: credentials.NewStaticCredentialsProvider(c.AccessKey, c.Secret, c.Token)}
	}
	complete := func(group, region string) error {
		_, err := autoscaling.NewFromConfig(config(region)).CompleteLifecycleAction(t.Context(), &autoscaling.CompleteLifecycleActionInput{
			AutoScalingGroupName: &group, LifecycleHookName: aws.String("hardtack-drain"), InstanceId: aws.String("i-0123456789abcdef0"), LifecycleActionResult: aws.String("CONTINUE")})
		return err
	}
	send := func(queue string) error {
		_, err := sqs.NewFromConfig(config(testRegion)).SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &queue, MessageBody: aws.String("x")})
		return err
	}
	end := func() error {
		id := a.AutoScaling().Instances("demo-masters")[0].ID
		_, err := autoscaling.NewFromConfig(config(testRegion)).TerminateInstanceInAutoScalingGroup(t.Context(), &autoscaling.TerminateInstanceInAutoScalingGroupInput{InstanceId: &id, ShouldDecrementDesiredCapacity: aws.Bool(false)})
		return err
	}
	for name, tt := range map[string]struct {
		err  error
		want string // the code of the answer; that no such hook waits is allowed
	}{
		"its group": {complete("demo-masters", testRegion), "ValidationError"}, "its other group": {complete("demo-minions", testRegion), "ValidationError"},
		"another group": {complete("else-minions", testRegion), "AccessDenied"}, "another region": {complete("demo-masters", "eu-west-1"), "AccessDenied"},
		"its queue": {send(queue), ""}, "another queue": {send(elsewhere), "AccessDeniedException"}, "ending a machine": {end(), "AccessDenied"},
	} {
		var api smithy.APIError
		if got := tt.err; tt.want == "" && got != nil || tt.want != "" && (!errors.As(got, &api) || api.ErrorCode() != tt.want) {
			t.Errorf("%s: %v, want %q", name, got, tt.want)
		}
	}
}

// TestDeployedPolicyReachesNothingForeign asks for each action that the role has on what is not the cluster's. What the
// role may do depends on no state that it can change, so this holds after each of its calls too.
func TestDeployedPolicyReachesNothingForeign(t *testing.T) {
	p := deployedPolicy(t, "ZCLUSTER")
	if grows := p.Growth(); len(grows) > 0 {
		t.Errorf("the role could widen its own policy by %q", grows)
	}
	const account, key = "arn:aws:%s:us-west-2:123456789012:", "route53:ChangeResourceRecordSets"
	record := func(name, kind, action string) map[string][]string {
		return map[string][]string{"aws:RequestedRegion": {testRegion}, key + "NormalizedRecordNames": {name}, key + "RecordTypes": {kind}, key + "Actions": {action}}
	}
	ours := record("masters.demo.k8s", "A", "CREATE")
	if got := awsfake.Decision([]awsfake.Policy{p}, key, "arn:aws:route53:::hostedzone/ZCLUSTER", ours); got != "allowed" {
		t.Errorf("a record of its own: %s", got)
	}
	var actions []string
	for _, s := range p {
		for _, action := range s.Actions {
			if !slices.Contains(s.Resources, "*") { // those that take no resource only read
				actions = append(actions, action)
			} else if verb := action[strings.Index(action, ":")+1:]; !strings.HasPrefix(verb, "Describe") {
				t.Errorf("%s is allowed on everything", action)
			}
		}
	}
	if len(actions) < 8 {
		t.Fatalf("the role has only %q", actions)
	}
	foreign := []string{
		"arn:aws:route53:::hostedzone/ZOTHER", "arn:aws:route53:::hostedzone/ZCLUSTER2",
		fmt.Sprintf(account, "autoscaling") + "autoScalingGroup:u:autoScalingGroupName/else-minions",
		fmt.Sprintf(account, "autoscaling") + "autoScalingGroup:u:autoScalingGroupName/demo-minions-2",
		fmt.Sprintf(account, "sqs") + "others", fmt.Sprintf(account, "logs") + "log-group:/aws/lambda/other:log-stream:x",
		fmt.Sprintf(account, "ssm") + "parameter/hardtack/demo/masters/kubernetes-ca.key",
	}
	for _, action := range actions {
		for _, arn := range foreign {
			if got := awsfake.Decision([]awsfake.Policy{p}, action, arn, ours); got != "implicitDeny" {
				t.Errorf("%s on %s: %s", action, arn, got)
			}
		}
	}
	for _, c := range []map[string][]string{
		record("masters.other.k8s", "A", "CREATE"), record("demo.k8s", "A", "CREATE"), record("masters.demo.k8s", "NS", "CREATE"),
		record("masters.demo.k8s", "A", "UPSERT"), {"aws:RequestedRegion": {testRegion}},
	} {
		if got := awsfake.Decision([]awsfake.Policy{p}, key, "arn:aws:route53:::hostedzone/ZCLUSTER", c); got != "implicitDeny" {
			t.Errorf("a record %v: %s", c, got)
		}
	}
}

// TestAPIZonePolicy: with a public zone, the function may write two names there, and nothing without one.
func TestAPIZonePolicy(t *testing.T) {
	template, err := shipped.Parse(lambda.Template)
	if err != nil {
		t.Fatal(err)
	}
	const change = "route53:ChangeResourceRecordSets"
	decide := func(zone, name, kind string) string {
		d, err := template.Deploy(shipped.Stack{Parameters: map[string]string{shipped.ParamCluster: "demo", shipped.ParamZone: "Z1",
			shipped.ParamAPIZone: zone, shipped.ParamAPISuffix: "example.com", shipped.ParamGroups: "a"}, References: map[string]string{"AWS::Partition": "aws", "AWS::Region": testRegion,
			"Queue.Arn": "arn:aws:sqs:us-west-2:123456789012:q", "Logs.Arn": "arn:aws:logs:us-west-2:123456789012:log-group:l:*"}})
		if err != nil {
			t.Fatal(err)
		}
		document, err := d.PolicyDocument()
		if err != nil {
			t.Fatal(err)
		}
		p, err := awsfake.ParsePolicy(document)
		if err != nil {
			t.Fatal(err)
		}
		return awsfake.Decision([]awsfake.Policy{p}, change, "arn:aws:route53:::hostedzone/Z2", map[string][]string{
			change + "NormalizedRecordNames": {name}, change + "RecordTypes": {kind}, change + "Actions": {"CREATE"}})
	}
	for _, tt := range []struct{ zone, name, kind, want string }{
		{"Z2", "api.demo.example.com", "A", "allowed"}, {"Z2", "_hardtack.demo.example.com", "TXT", "allowed"},
		{"Z2", "masters.demo.example.com", "A", "implicitDeny"}, {"Z2", "www.example.com", "A", "implicitDeny"},
		{"Z2", "api.demo.example.com", "NS", "implicitDeny"}, {"", "api.demo.example.com", "A", "implicitDeny"},
	} {
		if got := decide(tt.zone, tt.name, tt.kind); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

func TestDeployedRulesMatchEverySample(t *testing.T) {
	d := deployed(t)
	matched := map[string]bool{}
	scheduled := false
	for _, r := range d.Rules {
		if r.State != "ENABLED" || len(r.Targets) != 1 || r.Targets[0].Arn != d.Queue["QueueArn"] {
			t.Errorf("rule %s is %s and sends to %v", r.Name, r.State, r.Targets)
		}
		for _, m := range r.Matches {
			matched[m] = true
		}
		scheduled = scheduled || r.ScheduleExpression == "rate(1 minute)"
		if strings.Contains(r.EventPattern, "CloudTrail") != slices.Contains(r.Matches, "standby-enter") {
			t.Errorf("rule %s matches %v", r.Name, r.Matches)
		}
	}
	if !scheduled {
		t.Error("no rule runs every minute")
	}
	files, err := filepath.Glob("events/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("finding the samples: %v", err)
	}
	types := map[string]bool{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var e struct {
			DetailType string `json:"detail-type"`
		}
		if err := json.Unmarshal(text, &e); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		name := strings.TrimSuffix(filepath.Base(f), ".json")
		types[e.DetailType] = true
		if matched[name] == (name == "schedule" || name == "machine-running") { // a launch is AutoScaling's event
			t.Errorf("%s matches a rule: %t", name, matched[name])
		}
	}
	// 17 of AutoScaling's own, CloudTrail's, the schedule's, and three of EC2's.
	if len(types) != 22 {
		t.Errorf("the samples have %d detail-types: %v", len(types), types)
	}
}

func TestDeployedQueueAndFunction(t *testing.T) {
	d := deployed(t)
	var redrive struct {
		Arn string `json:"deadLetterTargetArn"`
		Max int    `json:"maxReceiveCount"`
	}
	if err := json.Unmarshal([]byte(d.Queue["RedrivePolicy"]), &redrive); err != nil || redrive.Arn != d.DeadLetters["QueueArn"] || redrive.Max != 5 {
		t.Errorf("redrive %v (%v)", redrive, err)
	}
	if d.Queue["VisibilityTimeout"] != "362" || d.Function.Timeout != 60 {
		t.Errorf("visibility %s s, function's timeout %d s: want six times it and the window", d.Queue["VisibilityTimeout"], d.Function.Timeout)
	}
	if len(d.Mappings) != 1 {
		t.Fatalf("mappings %v", d.Mappings)
	}
	m := d.Mappings[0]
	if m.BatchSize != 1000 || m.MaximumBatchingWindowInSeconds != 2 || m.ScalingConfig.MaximumConcurrency != 2 ||
		!slices.Equal(m.FunctionResponseTypes, []string{"ReportBatchItemFailures"}) || m.EventSourceArn != d.Queue["QueueArn"] {
		t.Errorf("mapping %+v", m)
	}
	if f := d.Function; f.Runtime != "provided.al2023" || f.Handler != "bootstrap" {
		t.Errorf("function %+v", f)
	}
	// The function understands what the template tells it.
	env := d.Function.Environment.Variables
	env[function.EnvRegion], env[function.EnvKey], env[function.EnvSecret], env[function.EnvZone] = "r", "k", "s", "Z1" // moto's zones have no Z
	s, err := function.Read(func(k string) string { return env[k] })
	if err != nil || !slices.Equal(s.Scope.AllGroups(), []string{"demo-masters", "demo-minions"}) || s.Suffix != "k8s" || s.Queue != d.Outputs["QueueUrl"] {
		t.Errorf("settings %+v, %v", s, err)
	}
	if len(d.LogGroups) != 1 || d.LogGroups[0].RetentionInDays != 14 {
		t.Errorf("log groups %v", d.LogGroups)
	}
}

// What moto's CloudFormation leaves out is looked at as it was translated.
func TestTranslatedTemplate(t *testing.T) {
	d := deployed(t)
	alarms := map[string]bool{}
	for name, r := range d.Translated.Resources {
		switch r.Type {
		case "AWS::CloudWatch::Alarm":
			alarms[r.Properties["Namespace"].(string)+" "+r.Properties["MetricName"].(string)] = true
			// Only the dead man's alarm is raised by silence, and each tells when it is over.
			silence := r.Properties["TreatMissingData"] == "breaching"
			if silence != (r.Properties["MetricName"] == "Reconciles") || r.Properties["OKActions"] == nil || r.Properties["AlarmActions"] == nil {
				t.Errorf("alarm %s: %v", name, r.Properties)
			}
		case "AWS::Lambda::Function":
			if diff := cmp.Diff([]any{map[string]any{"Ref": "Architecture"}}, r.Properties["Architectures"]); diff != "" {
				t.Errorf("architectures (-want +got):\n%s", diff)
			}
		case "AWS::SQS::QueuePolicy":
			if name == "DeadLettersPolicy" {
				continue
			}
			text, err := json.Marshal(r.Properties)
			if err != nil || !strings.Contains(string(text), `{"ArnEquals":{"aws:SourceArn":[{"Fn::GetAtt":["ScalingRule","Arn"]},{"Fn::GetAtt":["CallsRule","Arn"]},{"Fn::GetAtt":["InstancesRule","Arn"]},{"Fn::GetAtt":["SweepRule","Arn"]}]}}`) {
				t.Errorf("%s: %s, %v", name, text, err)
			}
		}
	}
	for _, want := range []string{"AWS/SQS ApproximateNumberOfMessagesVisible", "AWS/SQS ApproximateAgeOfOldestMessage", "AWS/Lambda Errors", "AWS/Lambda Throttles",
		function.Namespace + " Failures", function.Namespace + " Kept", function.Namespace + " Reconciles"} {
		if !alarms[want] {
			t.Errorf("no alarm for %s", want)
		}
	}
}

// What `sam build` runs for BuildMethod go1.x: go build in CodeUri, without flags of ours.
func TestSAMBuilds(t *testing.T) {
	cmd := exec.Command("go", "build", "-o", filepath.Join(t.TempDir(), "bootstrap"), ".")
	cmd.Env = append(os.Environ(), "GOFLAGS=-trimpath -buildvcs=false -tags=lambda.norpc -ldflags=-s", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
