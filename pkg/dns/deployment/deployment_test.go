package deployment

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
)

func TestExplain(t *testing.T) {
	call := func(service, operation, code, message string) error {
		return fmt.Errorf("reading: %w", &smithy.OperationError{ServiceID: service, OperationName: operation, Err: &smithy.GenericAPIError{Code: code, Message: message}})
	}
	for _, tt := range []struct {
		err        error
		permission string
		gone       bool
	}{
		{call("Lambda", "GetFunction", "AccessDeniedException", "no"), "lambda:GetFunction", false},
		{call("CloudWatch Logs", "FilterLogEvents", "AccessDeniedException", "no"), "logs:FilterLogEvents", false},
		{call("EC2", "DescribeInstances", "UnauthorizedOperation", "no"), "ec2:DescribeInstances", false},
		{call("EventBridge", "DescribeRule", "ResourceNotFoundException", "no rule"), "", true},
		{call("SQS", "GetQueueUrl", "AWS.SimpleQueueService.NonExistentQueue", "no queue"), "", true},
		{call("CloudFormation", "DescribeStacks", "ValidationError", "Stack with id x does not exist"), "", true},
		{call("CloudFormation", "DescribeStacks", "ValidationError", "1 validation error"), "", false},
		{call("IAM", "SimulatePrincipalPolicy", "Throttling", "Rate exceeded"), "", false},
		{io.ErrUnexpectedEOF, "", false},
	} {
		got := Explain(tt.err)
		var refused *doctor.Refused
		if errors.As(got, &refused) != (tt.permission != "") || refused != nil && refused.Permission != tt.permission || errors.Is(got, doctor.ErrNotThere) != tt.gone {
			t.Errorf("%v is %v", tt.err, got)
		}
	}
	if got := Explain(call("Lambda", "GetFunction", "ExpiredTokenException", "old")); !strings.Contains(got.Error(), "sign in again") {
		t.Errorf("old credentials are %v", got)
	}
	if Explain(nil) != nil {
		t.Error("no error is one")
	}
}

// TestRunOf reads lines as the function's own logger writes them.
func TestRunOf(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Microsecond)
	line := func(log func(*slog.Logger)) string {
		var out bytes.Buffer
		log(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Time(slog.TimeKey, now)
			}
			return a
		}})))
		return out.String()
	}
	sync := func(r reconcile.Report) string {
		return line(func(l *slog.Logger) { l.InfoContext(t.Context(), "sync", "report", r, "pokes", 1) })
	}
	for name, tt := range map[string]struct {
		line string
		want doctor.Run
		ok   bool
	}{
		"idle":        {sync(reconcile.Report{Cluster: "demo", AgeSeconds: 90}), doctor.Run{Cluster: "demo", At: now, Changed: now.Add(-90 * time.Second)}, true},
		"a change":    {sync(reconcile.Report{Cluster: "demo", Changed: true, AgeSeconds: 90}), doctor.Run{Cluster: "demo", At: now, Changed: now}, true},
		"never yet":   {sync(reconcile.Report{Cluster: "demo"}), doctor.Run{Cluster: "demo", At: now}, true},
		"a finding":   {sync(reconcile.Report{Cluster: "demo", Problems: problem.List{{Text: "odd", Severity: problem.Warning}}}), doctor.Run{Cluster: "demo", At: now, Problems: []string{"warning: odd"}}, true},
		"a failure":   {line(func(l *slog.Logger) { l.Error("sync", "cluster", "demo", "error", errors.New("no")) }), doctor.Run{Cluster: "demo", At: now, Err: "no"}, true},
		"another":     {line(func(l *slog.Logger) { l.Info("reminder", "cluster", "demo") }), doctor.Run{}, false},
		"Lambda's":    {"REPORT RequestId: 1 Duration: 3 ms", doctor.Run{}, false},
		"the metrics": {`{"_aws":{"Timestamp":1},"Cluster":"demo","Failures":0}`, doctor.Run{}, false},
	} {
		got, ok := runOf(tt.line)
		if diff := cmp.Diff(tt.want, got); ok != tt.ok || ok && diff != "" {
			t.Errorf("%s: %t (-want +got):\n%s", name, ok, diff)
		}
	}
}

func TestPermissions(t *testing.T) {
	long, err := Permissions(Target{Stack: "a-stack-whose-name-is-longer-than-cloudformation-keeps"})
	if err != nil || !bytes.Contains(long, []byte(`"arn:*:sqs:*:*:a-stack-whose-name-is-lo*"`)) || !bytes.Contains(long, []byte(`stack/a-stack-whose-name-is-longer-than-cloudformation-keeps/*"`)) {
		t.Errorf("%v: %s", err, long)
	}
	any, err := Permissions(Target{})
	if err != nil || !json.Valid(any) || !bytes.Contains(any, []byte(`"arn:*:lambda:*:*:function:*"`)) {
		t.Errorf("%v: %s", err, any)
	}
}

// The policy only reads, and of functions, queues, rules and logs only the stack's.
func TestPermissionsReachNothingForeign(t *testing.T) {
	document, err := Permissions(Target{Stack: "hardtack-dns-demo"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := awsfake.ParsePolicy(document)
	if err != nil {
		t.Fatal(err)
	}
	if grows := p.Growth(); len(grows) > 0 {
		t.Errorf("it could be widened by %q", grows)
	}
	const here = ":us-west-2:123456789012:"
	foreign := []string{
		"arn:aws:lambda" + here + "function:other", "arn:aws:sqs" + here + "other", "arn:aws:events" + here + "rule/other", "arn:aws:iam::123456789012:role/other",
		"arn:aws:logs" + here + "log-group:other", "arn:aws:cloudformation" + here + "stack/other/1", "arn:aws:ssm" + here + "parameter/hardtack/demo/masters/kubernetes-ca.key",
	}
	for _, s := range p {
		for _, action := range s.Actions {
			_, verb, _ := strings.Cut(action, ":")
			if !slices.ContainsFunc([]string{"Describe", "Get", "List", "Filter", "Simulate"}, func(read string) bool { return strings.HasPrefix(verb, read) }) {
				t.Errorf("%s does not only read", action)
			}
			for _, arn := range foreign {
				if got := awsfake.Decision([]awsfake.Policy{p}, action, arn, nil); got != "implicitDeny" && !slices.Contains(s.Resources, "*") {
					t.Errorf("%s on %s: %s", action, arn, got)
				}
			}
		}
	}
}
