package main

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"regexp"
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
	"github.com/hardtack/packer-plugin-hardtack/pkg/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/function"
	"github.com/hardtack/packer-plugin-hardtack/pkg/zone"
)

const (
	deployedRegion = "eu-central-1"
	deployedStack  = "hardtack-dns"
)

// deployedFunction is a region with the template deployed. moto has CloudFormation, Lambda, SQS, EventBridge, IAM and
// the logs; awsfake has the zone and the groups, whose contract moto does not hold; where moto has not what a call
// needs, or has it wrong, a stand-in of this test answers, which is said beside each.
type deployedFunction struct {
	url      string
	moto     *httputil.ReverseProxy
	account  *awsfake.Account
	alarms   *cloudWatch
	zone     string
	faultsOf awsfake.Script
	ids      map[string]string // physical, by logical id

	stacks *cloudformation.Client
	lambda *lambda.Client
	rules  *eventbridge.Client
	queues *sqs.Client
	logs   *cloudwatchlogs.Client
	iam    *iam.Client

	mu     sync.Mutex
	calls  map[string]int
	denied string // "lambda:GetFunction"
	// untagged hides that the function is of a stack.
	untagged bool

	queuePolicy string
	// inside is moto's IAM, for the stand-in of the simulator, whose calls are nobody's.
	inside *iam.Client
	// policies are the role's as they were last read; nil after a call that may have changed them.
	policies []awsfake.Policy
}

// deployTemplate deploys the template, and has the function reconcile once.
func deployTemplate(t *testing.T) *deployedFunction {
	t.Helper()
	if err := exec.Command("python3", "-c", "import samtranslator, moto.server").Run(); err != nil {
		t.Skip("python3 has no samtranslator or moto: run scripts/setup --judges")
	}
	motoURL := startMoto(t)
	target, err := url.Parse(motoURL)
	if err != nil {
		t.Fatal(err)
	}
	d := &deployedFunction{moto: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)},
		calls: map[string]int{}, ids: map[string]string{}, alarms: &cloudWatch{age: -1}}
	d.moto.ModifyResponse = d.mend
	d.account = awsfake.New(awsfake.Options{Rates: map[string]float64{"route53": 0}, Faults: &d.faultsOf})
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
	d.reconcile(t)
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
		if err := d.account.AutoScaling().Create(awsfake.Group{Name: group, Max: 9, Desired: n, Tags: map[string]string{fleet.TagCluster: "demo", fleet.TagRole: name}}); err != nil {
			t.Fatal(err)
		}
	}
	d.account.Tick()
	for _, group := range []string{"demo-masters", "demo-minions"} {
		d.hook(t, group, awsfake.Hook{Name: "drain", Transition: "autoscaling:EC2_INSTANCE_TERMINATING", Heartbeat: 5 * time.Minute, Default: awsfake.Continue})
	}
	d.hook(t, "demo-masters", awsfake.Hook{Name: "ready", Transition: "autoscaling:EC2_INSTANCE_LAUNCHING", Heartbeat: 20 * time.Minute})
}

func (d *deployedFunction) hook(t *testing.T, group string, h awsfake.Hook) {
	t.Helper()
	if err := d.account.AutoScaling().PutHook(group, h); err != nil {
		t.Fatal(err)
	}
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

// complete makes what moto's CloudFormation leaves out, as the translated template has it: the queue's policy and the
// alarms; and puts right what it makes wrong: a role's policy is Python's text, and a log group's Arn lacks its ":*".
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
	d.setQueue(t, "Policy", d.queuePolicy)
	d.putRolePolicy(t, d.rolePolicy(t, true))
}

// resolve puts in the place of a template's references what they refer to.
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

// rolePolicy is the role's policy; python: as moto's CloudFormation has it.
func (d *deployedFunction) rolePolicy(t *testing.T, python bool) string {
	t.Helper()
	role, name := d.ids["Role"], "reconcile"
	out, err := d.iam.GetRolePolicy(t.Context(), &iam.GetRolePolicyInput{RoleName: &role, PolicyName: &name})
	if err != nil {
		t.Fatal(err)
	}
	text, err := url.QueryUnescape(*out.PolicyDocument)
	if err != nil {
		t.Fatal(err)
	}
	if python {
		text = strings.ReplaceAll(text, "'", `"`)
		text = strings.ReplaceAll(text, ":log-group:"+d.ids["Logs"]+`"`, ":log-group:"+d.ids["Logs"]+`:*"`)
	}
	return text
}

func (d *deployedFunction) putRolePolicy(t *testing.T, text string) {
	t.Helper()
	role, name := d.ids["Role"], "reconcile"
	if _, err := d.iam.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{RoleName: &role, PolicyName: &name, PolicyDocument: &text}); err != nil {
		t.Fatal(err)
	}
}

// setQueue sets an attribute of the queue. moto drops the policy when another attribute is set, so it goes with it.
func (d *deployedFunction) setQueue(t *testing.T, attribute, value string) {
	t.Helper()
	url, attributes := d.ids["Queue"], map[string]string{"Policy": d.queuePolicy}
	attributes[attribute] = value
	if _, err := d.queues.SetQueueAttributes(t.Context(), &sqs.SetQueueAttributesInput{QueueUrl: &url, Attributes: attributes}); err != nil {
		t.Fatal(err)
	}
}

// reconcile is one sweep of the function itself, whose log goes where Lambda sends it. It reports whether it failed.
func (d *deployedFunction) reconcile(t *testing.T) (failed bool) {
	t.Helper()
	id := d.ids["Function"]
	out, err := d.lambda.GetFunction(t.Context(), &lambda.GetFunctionInput{FunctionName: &id})
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{function.EnvRegion: deployedRegion, function.EnvKey: "AKIDROLE", function.EnvSecret: "secret", function.EnvEndpoint: d.url}
	for k, v := range out.Configuration.Environment.Variables {
		env[k] = v
	}
	s, err := function.Read(func(k string) string { return env[k] })
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	h, err := function.Connect(s, &log, slog.New(slog.NewJSONHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Invoke(t.Context(), []byte(`{"source":"aws.events"}`))
	d.log(t, log.String())
	return err != nil
}

// log writes lines to the function's log group.
func (d *deployedFunction) log(t *testing.T, text string) {
	t.Helper()
	group, stream := d.ids["Logs"], fmt.Sprintf("2026/%d", time.Now().UnixNano())
	if _, err := d.logs.CreateLogStream(t.Context(), &cloudwatchlogs.CreateLogStreamInput{LogGroupName: &group, LogStreamName: &stream}); err != nil {
		t.Fatal(err)
	}
	var list []logtypes.InputLogEvent
	for line := range strings.Lines("START RequestId: 0 Version: $LATEST\n" + text) {
		list = append(list, logtypes.InputLogEvent{Message: aws.String(strings.TrimSuffix(line, "\n")), Timestamp: aws.Int64(time.Now().UnixMilli())})
	}
	if _, err := d.logs.PutLogEvents(t.Context(), &cloudwatchlogs.PutLogEventsInput{LogGroupName: &group, LogStreamName: &stream, LogEvents: list}); err != nil {
		t.Fatal(err)
	}
}

// forget empties the log.
func (d *deployedFunction) forget(t *testing.T) {
	t.Helper()
	group := d.ids["Logs"]
	out, err := d.logs.DescribeLogStreams(t.Context(), &cloudwatchlogs.DescribeLogStreamsInput{LogGroupName: &group})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range out.LogStreams {
		if _, err := d.logs.DeleteLogStream(t.Context(), &cloudwatchlogs.DeleteLogStreamInput{LogGroupName: &group, LogStreamName: s.LogStreamName}); err != nil {
			t.Fatal(err)
		}
	}
}

var (
	credentialScope = regexp.MustCompile(`Credential=[^/]+/\d+/[^/]+/([^/]+)/aws4_request`)
	functionPath    = regexp.MustCompile(`^/2015-03-31/functions/([^/]+)$`)
)

// ServeHTTP sends a call to who stands in for its service.
func (d *deployedFunction) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	scope := credentialScope.FindStringSubmatch(r.Header.Get("Authorization"))
	body, err := io.ReadAll(r.Body)
	if err != nil || scope == nil {
		http.Error(w, "the call is not signed", http.StatusForbidden)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	service, operation := scope[1], operationOf(r, body)
	action := strings.Replace(service, "monitoring", "cloudwatch", 1) + ":" + operation
	d.mu.Lock()
	d.calls[action]++
	denied := d.denied == action
	d.mu.Unlock()
	switch {
	case denied:
		deny(w, service, action)
	case service == "route53" || service == "autoscaling" || service == "ec2":
		d.account.Handler().ServeHTTP(w, r)
	case service == "monitoring":
		d.alarms.serve(w, operation, body)
	case action == "iam:SimulatePrincipalPolicy":
		form, err := url.ParseQuery(string(body))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		d.simulate(w, r, form)
	case action == "cloudformation:DescribeStackResources":
		d.stackResources(w)
	default:
		d.moto.ServeHTTP(w, r)
		if service == "iam" {
			d.mu.Lock()
			d.policies = nil
			d.mu.Unlock()
		}
	}
}

// operationOf is the operation of a call, in each of the protocols that are spoken here.
func operationOf(r *http.Request, body []byte) string {
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		return target[strings.LastIndexByte(target, '.')+1:]
	}
	if _, name, ok := strings.Cut(r.URL.Path, "/operation/"); ok {
		return name
	}
	if form, err := url.ParseQuery(string(body)); err == nil && form.Has("Action") {
		return form.Get("Action")
	}
	switch path := r.URL.Path; {
	case functionPath.MatchString(path) && r.Method == http.MethodGet:
		return "GetFunction"
	case strings.HasPrefix(path, "/2015-03-31/event-source-mappings") && r.Method == http.MethodGet:
		return "ListEventSourceMappings"
	case strings.HasSuffix(path, "/rrset") && r.Method == http.MethodGet:
		return "ListResourceRecordSets"
	}
	return r.Method + " " + r.URL.Path
}

// mend puts right what moto answers. A list that is a stack's parameter is Python's text, and a function of a stack
// has no tags and no LoggingConfig.
func (d *deployedFunction) mend(r *http.Response) error {
	if r.StatusCode != http.StatusOK {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	body = bytes.ReplaceAll(body, []byte("<ParameterValue>['demo-masters', 'demo-minions']<"), []byte("<ParameterValue>demo-masters,demo-minions<"))
	if functionPath.MatchString(r.Request.URL.Path) && r.Request.Method == http.MethodGet {
		var got map[string]any
		if err := json.Unmarshal(body, &got); err != nil {
			return err
		}
		got["Configuration"].(map[string]any)["LoggingConfig"] = map[string]any{"LogFormat": "Text", "LogGroup": d.ids["Logs"]}
		if !d.untagged {
			got["Tags"] = map[string]string{"aws:cloudformation:stack-name": deployedStack}
		}
		if body, err = json.Marshal(got); err != nil {
			return err
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.Header.Set("Content-Length", fmt.Sprint(len(body)))
	return nil
}

// stackResources stands in for moto's, which has entries without a name for what it does not make.
func (d *deployedFunction) stackResources(w http.ResponseWriter) {
	type member struct{ LogicalResourceId, PhysicalResourceId, ResourceType, ResourceStatus, Timestamp string }
	var list []member
	for id, physical := range d.ids {
		kind := map[bool]string{true: "AWS::CloudWatch::Alarm", false: "AWS::Events::Rule"}[strings.HasSuffix(id, "Alarm")]
		if fixed, ok := map[string]string{"Function": "AWS::Lambda::Function", "FunctionPokes": "AWS::Lambda::EventSourceMapping", "Queue": "AWS::SQS::Queue", "DeadLetters": "AWS::SQS::Queue",
			"QueuePolicy": "AWS::SQS::QueuePolicy", "Role": "AWS::IAM::Role", "Logs": "AWS::Logs::LogGroup"}[id]; ok {
			kind = fixed
		}
		list = append(list, member{id, physical, kind, "CREATE_COMPLETE", "2026-03-01T12:00:00Z"})
	}
	writeXML(w, http.StatusOK, struct {
		XMLName xml.Name `xml:"DescribeStackResourcesResponse"`
		Members []member `xml:"DescribeStackResourcesResult>StackResources>member"`
	}{Members: list})
}
