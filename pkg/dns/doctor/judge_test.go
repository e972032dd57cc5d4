package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/lambda"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/shipped"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

var testNow = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	testQueue = "arn:aws:sqs:eu-central-1:123456789012:pokes"
	testDead  = "arn:aws:sqs:eu-central-1:123456789012:dead"
	testRule  = "arn:aws:events:eu-central-1:123456789012:rule/"
)

func is[T any](v T) Known[T] { return Known[T]{Value: v} }

// expected is the template resolved for the settings and the queues "pokes" and "dead".
func expected(t *testing.T, s Settings) *shipped.Deployment {
	t.Helper()
	template, err := shipped.Parse(lambda.Template)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Expect(template, Facts{Function: is(Function{Name: "dns"}), Settings: is(s), Queue: is(Queue{ARN: testQueue}), Dead: is(Queue{ARN: testDead})})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// well is a deployment in which all is as it should be.
func well(t *testing.T) Facts {
	t.Helper()
	settings := Settings{Clusters: []Cluster{{"demo", []string{"demo-masters", "demo-minions"}}}, Zone: "Z1", Suffix: "k8s", Queue: "https://sqs/pokes"}
	stack := Stack{Name: "dns", Status: "UPDATE_COMPLETE", Resources: map[string]Resource{},
		Parameters: map[string]string{shipped.ParamCluster: "demo", shipped.ParamGroups: "demo-masters, demo-minions", shipped.ParamZone: "Z1", shipped.ParamSuffix: "k8s", shipped.ParamHook: "", shipped.ParamArchitecture: "arm64", shipped.ParamRetention: "14"}}
	d := expected(t, settings)
	for id, kind := range d.Types {
		stack.Resources[id] = Resource{Type: kind, ID: map[string]string{shipped.IDQueue: settings.Queue, shipped.IDLogs: "logs"}[id], Status: "CREATE_COMPLETE", Drift: "NOT_CHECKED"}
	}
	var rules []Rule
	for _, id := range []string{shipped.IDScaling, shipped.IDCalls, shipped.IDInstances, shipped.IDSweep} {
		rules = append(rules, Rule{LogicalID: id, Name: id, ARN: testRule + id, State: "ENABLED", Pattern: d.Rules[id].Pattern, Schedule: d.Rules[id].Schedule, Targets: []Target{{ARN: testQueue}}})
	}
	var decisions []Decision
	for _, tr := range Trials(settings, Place{"aws", "eu-central-1", "123456789012"}, testQueue, "logs", d) {
		for _, a := range tr.Actions {
			decisions = append(decisions, Decision{Trial: tr, Action: a, Decision: map[bool]string{true: "allowed", false: "implicitDeny"}[tr.Allowed]})
		}
	}
	var alarms []Alarm
	for _, a := range d.Alarms {
		alarms = append(alarms, Alarm{Metric: a.Metric, Name: a.Metric, State: "OK", Actions: 1, Enabled: true})
	}
	drain := Hook{"drain", "autoscaling:EC2_INSTANCE_TERMINATING", "CONTINUE", 5 * time.Minute}
	ready := Hook{"ready", "autoscaling:EC2_INSTANCE_LAUNCHING", "ABANDON", 20 * time.Minute}
	return Facts{
		Stack: is(stack), Settings: is(settings), Rules: is(rules), Role: is(decisions), Alarms: is(alarms),
		Function: is(Function{Name: "dns", ARN: "arn:aws:lambda:eu-central-1:123456789012:function:dns", Status: Status{State: "Active", Update: "Successful"}, Function: d.Function,
			Architecture: "arm64", LogGroup: "logs", CodeSHA256: "abc="}),
		Mappings: is([]Mapping{{Mapping: d.Mapping, ID: "1", Source: testQueue, State: "Enabled", ReportsFailures: true}}),
		Queue: is(Queue{Queue: d.Queue, ARN: testQueue, Encrypted: true, Policy: queuePolicy(
			`{"Effect":"Allow","Principal":{"Service":"events.amazonaws.com"},"Action":"sqs:SendMessage","Resource":"` + testQueue + `"}`)}),
		Dead:    is(Queue{Queue: d.DeadLetters, ARN: testDead}),
		Logs:    Logs{is(LogGroup{"logs", 14}), is([]Run{{Cluster: "demo", At: testNow.Add(-20 * time.Second), Changed: testNow.Add(-time.Hour)}})},
		Groups:  is([]Group{{Name: "demo-masters", Tags: tags("masters+etcd"), Hooks: []Hook{drain, ready}}, {Name: "demo-minions", Tags: tags("minions"), Hooks: []Hook{drain}}}),
		Records: map[string]Known[Records]{"demo": is(Records{Sets: 4, Written: testNow.Add(-time.Hour)})},
	}
}

func tags(role string) map[string]string { return map[string]string{"C": "demo", "R": role} }

func queuePolicy(statements ...string) string {
	return `{"Version":"2012-10-17","Statement":[` + strings.Join(statements, ",") + `]}`
}

func wanted(t *testing.T, f Facts) Wanted {
	t.Helper()
	return Wanted{Now: testNow, Shipped: expected(t, f.Settings.Value), Drain: 65 * time.Second, TagCluster: "C", TagRole: "R", Zip: &Zip{"dns.zip", "abc=", "arm64"}}
}

func TestJudgeWell(t *testing.T) {
	f := well(t)
	l := Judge(f, wanted(t, f))
	for _, c := range l {
		if c.State != OK || c.Next != "" {
			t.Errorf("%+v", c)
		}
	}
	if err := l.Err(); err != nil || len(l) < 50 || l.Count(OK) != len(l) {
		t.Errorf("%d checks, %v", len(l), err)
	}
}

// TestJudge breaks one thing at a time. Each finding is "state name: text", of which want has the beginning of the
// line and, after " ... ", what else it says.
func TestJudge(t *testing.T) {
	refused := &Refused{"x:Y", errors.New("AccessDenied: no")}
	for name, tt := range map[string]struct {
		change func(*Facts)
		want   []string
	}{
		"an update under way":   {func(f *Facts) { f.Stack.Value.Status = "UPDATE_IN_PROGRESS" }, []string{"warning stack: "}},
		"an update rolled back": {func(f *Facts) { f.Stack.Value.Status, f.Stack.Value.Reason = "UPDATE_ROLLBACK_COMPLETE", "quota" }, []string{"warning stack:  ... rolled back: quota"}},
		"a stack that failed":   {func(f *Facts) { f.Stack.Value.Status = "ROLLBACK_COMPLETE" }, []string{"error stack: dns is ROLLBACK_COMPLETE"}},
		"an older template":     {func(f *Facts) { delete(f.Stack.Value.Resources, "AgeAlarm") }, []string{"error stack.AgeAlarm: "}},
		"another template":      {func(f *Facts) { f.Stack.Value.Resources["Role"] = Resource{Type: "AWS::IAM::User"} }, []string{"error stack.Role: it is an AWS::IAM::User"}},
		"a resource that failed": {func(f *Facts) {
			f.Stack.Value.Resources["Role"] = Resource{Type: "AWS::IAM::Role", Status: "UPDATE_FAILED", Reason: "no"}
		}, []string{"error stack.Role:  ... UPDATE_FAILED: no"}},
		"drift of the stack": {func(f *Facts) {
			f.Stack.Value.Resources["Role"] = Resource{Type: "AWS::IAM::Role", Drift: "MODIFIED"}
			f.Stack.Value.Resources["AgeAlarm"] = Resource{Type: "AWS::CloudWatch::Alarm", Drift: "DELETED"}
		}, []string{"error stack.AgeAlarm: ", "warning stack.Role: "}},
		"a pending function": {func(f *Facts) { f.Function.Value.Status.State = "Pending" }, []string{"error function.state: dns is Pending"}},
		"an idle function":   {func(f *Facts) { f.Function.Value.Status.State = "Inactive" }, nil},
		"an update that fails": {func(f *Facts) {
			f.Function.Value.Status = Status{State: "Active", Update: "Failed", UpdateReason: "no such image"}
		}, []string{"error function.update:  ... Failed: no such image"}},
		"an update of the function": {func(f *Facts) { f.Function.Value.Status.Update = "InProgress" }, []string{"warning function.update: "}},
		"another runtime":           {func(f *Facts) { f.Function.Value.Runtime = "go1.x" }, []string{`error function.runtime: "go1.x"`}},
		"another processor":         {func(f *Facts) { f.Function.Value.Architecture = "x86_64" }, []string{"error function.architecture: x86_64"}},
		"other code":                {func(f *Facts) { f.Function.Value.CodeSHA256 = "def=" }, []string{"error function.code: sha256 def= is deployed, dns.zip has abc="}},
		"no concurrency":            {func(f *Facts) { f.Function.Value.Reserved = new(int) }, []string{"error function.concurrency: 0 is reserved"}},
		"much concurrency":          {func(f *Facts) { n := 10; f.Function.Value.Reserved = &n }, []string{"warning function.concurrency: 10"}},
		"a bad environment": {func(f *Facts) {
			f.Settings.Err = errors.New("HARDTACK_CLUSTERS: bad\nHARDTACK_ZONE_ID: bad")
		}, []string{"error function.environment: HARDTACK_CLUSTERS: bad", "error function.environment: HARDTACK_ZONE_ID: bad", "warning rules.calls.pattern: ", "warning rules.instances.pattern: ", "warning rules.scaling.pattern: "}},
		"no queue for reminders": {func(f *Facts) {
			f.Settings.Value.Queue = ""
			f.Stack.Value.Resources[shipped.IDQueue] = Resource{Type: "AWS::SQS::Queue"}
		}, []string{"warning function.environment: no queue for reminders"}},
		"another cluster":         {func(f *Facts) { f.Stack.Value.Parameters[shipped.ParamGroups] = "demo-masters" }, []string{"error function.environment: the clusters"}},
		"nothing reads the queue": {func(f *Facts) { f.Mappings.Value[0].Source = testDead }, []string{"error mapping: nothing reads"}},
		"a mapping that is made":  {func(f *Facts) { f.Mappings.Value[0].State = "Creating" }, []string{"warning mapping.state: Creating"}},
		"a mapping that fails":    {func(f *Facts) { f.Mappings.Value[0].LastResult = "PROBLEM: Function call failed" }, []string{"error mapping.result: PROBLEM"}},
		"failures are not told":   {func(f *Facts) { f.Mappings.Value[0].ReportsFailures = false }, []string{"error mapping.failures: "}},
		"another window":          {func(f *Facts) { f.Mappings.Value[0].Window = 0 }, []string{"warning mapping.window: 0s, where the template has 2s"}},
		"a crowd":                 {func(f *Facts) { f.Queue.Value.Visible = 5000 }, []string{"warning queue.messages: 5000"}},
		"another number of tries": {func(f *Facts) { f.Queue.Value.MaxReceive = 100 }, []string{"warning queue.redrive: "}},
		"an open queue":           {func(f *Facts) { f.Queue.Value.Encrypted = false }, []string{"warning queue.encryption: "}},
		"dead letters in flight":  {func(f *Facts) { f.Dead.Value.Flying = 2 }, []string{"error dead-letters.messages: 2"}},
		"a rule is gone":          {func(f *Facts) { f.Rules.Value[0] = Rule{LogicalID: shipped.IDScaling, Name: "x", Missing: true} }, []string{"error rules.scaling: there is none"}},
		"no trail":                {func(f *Facts) { f.Rules.Value[1].Targets = nil }, []string{"error rules.calls.target: "}},
		"a role that is bounded": {func(f *Facts) {
			f.Role.Value[0].Decision, f.Role.Value[0].Missing = "explicitDeny", []string{"aws:Foo"}
		}, []string{"error role.zone:  ... explicitDeny, for want of aws:Foo"}},
		"another log group": {func(f *Facts) { f.Logs.Group.Value.Name = "/aws/lambda/dns" }, []string{"error log.group: the function logs to /aws/lambda/dns"}},
		"another retention": {func(f *Facts) { f.Logs.Group.Value.Retention = 365 }, []string{"warning log.retention: 365 days"}},
		"no group":          {func(f *Facts) { f.Groups.Value[0] = Group{Name: "demo-masters", Missing: true} }, []string{"error groups.demo-masters: "}},
		"no role":           {func(f *Facts) { f.Groups.Value[1].Tags = tags("") }, []string{"error groups.demo-minions.tags:  ... no tag R"}},
		"no hook":           {func(f *Facts) { f.Groups.Value[1].Hooks = nil }, []string{"warning groups.demo-minions.drain: "}},
		"only the masters' hook": {func(f *Facts) {
			f.Groups.Value[1].Hooks = []Hook{{Name: role.EvictionHook, Transition: "autoscaling:EC2_INSTANCE_TERMINATING", Default: "CONTINUE", Heartbeat: time.Minute}}
		}, []string{"warning groups.demo-minions.drain: "}},
		"no launch hook":       {func(f *Facts) { f.Groups.Value[0].Hooks = f.Groups.Value[0].Hooks[:1] }, []string{"warning groups.demo-masters.launch: "}},
		"a finding of the run": {func(f *Facts) { f.Logs.Runs.Value[0].Problems = []string{"odd"} }, []string{"warning demo.reconcile:  ... odd"}},
		"a clock ahead":        {func(f *Facts) { f.Records["demo"] = is(Records{Sets: 4, Written: testNow.Add(time.Hour)}) }, []string{"warning demo.generation: "}},
		"a late message":       {func(f *Facts) { d := time.Hour; f.Queue.Value.Oldest = is(&d) }, []string{"error queue.age: the oldest message has waited for 1h0m0s"}},
		"records with a problem": {func(f *Facts) {
			f.Records["demo"] = is(Records{Sets: 4, Written: testNow, Problems: []string{"empty"}})
		}, []string{"warning demo.records: empty"}},
		"nothing may be read": {func(f *Facts) {
			*f = Facts{Stack: Known[Stack]{Err: refused}, Function: Known[Function]{Err: refused}, Settings: Known[Settings]{Err: ErrUnread}, Mappings: Known[[]Mapping]{Err: refused},
				Queue: Known[Queue]{Err: refused}, Dead: Known[Queue]{Err: ErrUnread}, Rules: Known[[]Rule]{Err: refused}, Role: Known[[]Decision]{Err: refused},
				Logs: Logs{Known[LogGroup]{Err: refused}, Known[[]Run]{Err: refused}}, Alarms: Known[[]Alarm]{Err: refused}, Groups: Known[[]Group]{Err: refused}}
		}, []string{"warning alarms: not known: AccessDenied: no: needs x:Y", "warning dead-letters: ", "warning function.environment: ", "warning function: ", "warning groups: ", "warning log: ", "warning mapping: ",
			"warning queue.policy: ", "warning queue: ", "warning reconcile: ", "warning role: ", "warning rules: ", "warning stack: "}},
		"the function is gone": {func(f *Facts) {
			f.Function, f.Settings.Err, f.Mappings.Err, f.Role.Err, f.Alarms.Err, f.Groups.Err = Known[Function]{Err: fmt.Errorf("dns: %w", ErrNotThere)}, ErrUnread, ErrUnread, ErrUnread, ErrUnread, ErrUnread
			f.Logs = Logs{Known[LogGroup]{Err: ErrUnread}, Known[[]Run]{Err: ErrUnread}}
		}, []string{"error function: dns: it does not exist", "warning alarms: not known: ", "warning function.environment: ", "warning groups: ", "warning log: ", "warning mapping: ", "warning reconcile: ", "warning role: ",
			"warning rules.calls.pattern: ", "warning rules.instances.pattern: ", "warning rules.scaling.pattern: "}},
		"the network is down": {func(f *Facts) { f.Alarms.Err = errors.New("no route") }, []string{"error alarms: not known: no route"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := well(t)
			tt.change(&f)
			var got []string
			for _, c := range Judge(f, wanted(t, f)) {
				if c.State == OK {
					continue
				}
				if c.Next == "" {
					t.Errorf("%s says no next step", c.Name)
				}
				got = append(got, fmt.Sprintf("%s %s: %s", c.State, c.Name, c.Text))
			}
			slices.Sort(got)
			ok := len(got) == len(tt.want)
			for i := 0; ok && i < len(got); i++ {
				begin, more, _ := strings.Cut(tt.want[i], " ... ")
				ok = strings.HasPrefix(got[i], begin) && strings.Contains(got[i], more)
			}
			if !ok {
				t.Errorf("(-want +got):\n%s", cmp.Diff(tt.want, got))
			}
		})
	}
}

// TestRulesWithoutAStack identifies the rules by their content.
func TestRulesWithoutAStack(t *testing.T) {
	f := well(t)
	f.Stack = Known[Stack]{}
	for i := range f.Rules.Value {
		f.Rules.Value[i].LogicalID = ""
	}
	if l := Judge(f, wanted(t, f)); l.Err() != nil || l.Count(Warning) > 0 {
		t.Errorf("%+v", l)
	}
	f.Rules.Value = f.Rules.Value[:3]
	if l := Judge(f, wanted(t, f)); l.Count(Error) != 1 || !slices.ContainsFunc(l, func(c Check) bool { return c.Name == "rules.sweep" && c.State == Error }) {
		t.Errorf("without a sweep: %+v", l)
	}
}

func TestQueuePolicy(t *testing.T) {
	const service = `"Principal":{"Service":"events.amazonaws.com"},"Action":"sqs:SendMessage","Resource":"` + testQueue + `"`
	for name, tt := range map[string]struct {
		statements []string
		sends      bool
		unknown    bool
	}{
		"nothing":                  {nil, false, false},
		"the service":              {[]string{`{"Effect":"Allow",` + service + `}`}, true, false},
		"this rule":                {[]string{`{"Effect":"Allow",` + service + `,"Condition":{"ArnEquals":{"aws:SourceArn":["x","` + testRule + `r"]}}}`}, true, false},
		"any rule":                 {[]string{`{"Effect":"Allow",` + service + `,"Condition":{"ArnLike":{"AWS:SourceArn":"` + testRule + `*"}}}`}, true, false},
		"its text":                 {[]string{`{"Effect":"Allow",` + service + `,"Condition":{"StringEquals":{"aws:SourceArn":"` + testRule + `r"}}}`}, true, false},
		"another rule":             {[]string{`{"Effect":"Allow",` + service + `,"Condition":{"ArnEquals":{"aws:SourceArn":"` + testRule + `other"}}}`}, false, false},
		"this account":             {[]string{`{"Effect":"Allow",` + service + `,"Condition":{"StringEquals":{"aws:SourceAccount":"123456789012"}}}`}, true, false},
		"another account":          {[]string{`{"Effect":"Allow",` + service + `,"Condition":{"StringEquals":{"aws:SourceAccount":"210987654321"}}}`}, false, false},
		"another service":          {[]string{`{"Effect":"Allow","Principal":{"Service":"sns.amazonaws.com"},"Action":"*","Resource":"*"}`}, false, false},
		"another action":           {[]string{`{"Effect":"Allow","Principal":"*","Action":"sqs:Receive*","Resource":"*"}`}, false, false},
		"another queue":            {[]string{`{"Effect":"Allow","Principal":"*","Action":"SQS:Send*","Resource":"` + testDead + `"}`}, false, false},
		"everybody":                {[]string{`{"Effect":"Allow","Principal":{"AWS":"*"},"Action":["SQS:Send*"],"Resource":["*"]}`}, true, false},
		"encrypted only":           {[]string{`{"Effect":"Allow",` + service + `}`, `{"Effect":"Deny","Principal":"*","Action":"sqs:*","Resource":"*","Condition":{"Bool":{"aws:SecureTransport":"false"}}}`}, true, false},
		"a no goes before a yes":   {[]string{`{"Effect":"Allow",` + service + `}`, `{"Effect":"Deny","Principal":"*","Action":"sqs:*","Resource":"*"}`}, false, false},
		"a condition nobody knows": {[]string{`{"Effect":"Allow",` + service + `,"Condition":{"StringEquals":{"aws:PrincipalOrgID":"o-1"}}}`}, false, true},
		"what it is not about":     {[]string{`{"Effect":"Deny","NotPrincipal":{"Service":"x"},"Action":"sqs:*","Resource":"*"}`}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := well(t)
			f.Rules.Value = []Rule{{Name: "r", ARN: testRule + "r"}}
			f.Queue.Value.Policy = queuePolicy(tt.statements...)
			var l List
			l.policy(f)
			want := OK
			if tt.unknown {
				want = Warning
			} else if !tt.sends {
				want = Error
			}
			if len(l) != 1 || l[0].State != want {
				t.Errorf("%+v, want %s", l, want)
			}
		})
	}
}

func TestSamePattern(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{`{"a":["x","y"],"b":{"c":["z"]}}`, `{"b":{"c":["z"]},"a":["y","x"]}`, true},
		{`{"a":["x"]}`, `{"a":["x","y"]}`, false},
		{`{"a":[{"prefix":"x"}]}`, `{"a":["x"]}`, false},
		{`{"a":["x"]`, `{"a":["x"]`, false},
	} {
		if got := samePattern(tt.a, tt.b); got != tt.want {
			t.Errorf("%s and %s: %t", tt.a, tt.b, got)
		}
	}
}

// A statement that the trials name and the template does not have would be a trial of nothing.
func TestTrialsHaveActions(t *testing.T) {
	s := well(t).Settings.Value
	for _, tr := range Trials(s, Place{"aws", "eu-central-1", "123456789012"}, testQueue, "logs", expected(t, s)) {
		if len(tr.Actions) == 0 {
			t.Errorf("%s (%s) tries no action", tr.Path, tr.What)
		}
	}
}

// A function without a stack may have several clusters: each has its alarm. Clusters that were not read have none.
func TestExpectAlarms(t *testing.T) {
	template, err := shipped.Parse(lambda.Template)
	if err != nil {
		t.Fatal(err)
	}
	f := Facts{Function: is(Function{Name: "dns"}), Settings: is(Settings{Clusters: []Cluster{{"a", []string{"a-1"}}, {"b", []string{"b-1"}}}}), Dead: is(Queue{ARN: testDead})}
	d, err := Expect(template, f)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range d.Alarms {
		got = append(got, a.Metric+" "+a.Value)
	}
	want := []string{"ApproximateNumberOfMessagesVisible dead", "Errors dns", "Throttles dns", "Failures a", "Kept a", "Reconciles a", "Failures b", "Kept b", "Reconciles b"}
	if diff := cmp.Diff(want, got); diff != "" || d.MaxAge != 5*time.Minute {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAgo(t *testing.T) {
	for d, want := range map[time.Duration]string{-time.Minute: "0 s ago", 119 * time.Second: "119 s ago", 119 * time.Minute: "119 min ago", 47 * time.Hour: "47 h ago", 50 * time.Hour: "2 days ago"} {
		if got := ago(testNow, testNow.Add(-d)); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}
