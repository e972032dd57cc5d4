package cloudformation_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
)

// The states of a stack and what each allows ("Understand stack status codes", CloudFormation User Guide).
func TestStates(t *testing.T) {
	const deletable, rollback, again, events = "only be deleted", "continue its rollback", "apply again", "its events say why"
	for _, tt := range []struct {
		status, next          string
		made, busy, updatable bool
	}{
		{"REVIEW_IN_PROGRESS", events, false, false, false},
		{"CREATE_IN_PROGRESS", events, true, true, false},
		{"CREATE_COMPLETE", events, true, false, true},
		{"CREATE_FAILED", deletable, true, false, false},
		{"ROLLBACK_IN_PROGRESS", events, true, true, false},
		{"ROLLBACK_COMPLETE", deletable, true, false, false},
		{"ROLLBACK_FAILED", deletable, true, false, false},
		{"UPDATE_IN_PROGRESS", events, true, true, false},
		{"UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", events, true, true, false},
		{"UPDATE_COMPLETE", events, true, false, true},
		{"UPDATE_FAILED", rollback, true, false, false},
		{"UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS", events, true, true, false},
		{"UPDATE_ROLLBACK_COMPLETE", again, true, false, true},
		{"UPDATE_ROLLBACK_FAILED", rollback, true, false, false},
		{"DELETE_IN_PROGRESS", events, true, true, false},
		{"DELETE_FAILED", deletable, true, false, false},
		{"IMPORT_COMPLETE", events, true, false, true},
		{"IMPORT_ROLLBACK_COMPLETE", events, true, false, true},
	} {
		s := &cloudformation.Stack{Status: tt.status}
		if s.Made() != tt.made || s.Busy() != tt.busy || s.Updatable() != tt.updatable {
			t.Errorf("%s: made %v, busy %v, updatable %v", tt.status, s.Made(), s.Busy(), s.Updatable())
		}
		deletes, rolls := cloudformation.OnlyDeletable(tt.status), cloudformation.NeedsRollback(tt.status)
		if deletes != (tt.next == deletable) || rolls != (tt.next == rollback) {
			t.Errorf("%s: deletable %v, to be rolled back %v", tt.status, deletes, rolls)
		}
		for _, err := range []error{
			&cloudformation.StateError{Stack: "demo", Status: tt.status}, &cloudformation.Failure{Stack: "demo", Status: tt.status},
		} {
			if text := err.Error(); !strings.Contains(text, "stack demo is "+tt.status) || !strings.HasSuffix(text, tt.next) {
				t.Errorf("%s: %s; want %s", tt.status, text, tt.next)
			}
		}
	}
	var none *cloudformation.Stack
	if none.Made() || none.Busy() {
		t.Error("a stack that is none is made")
	}
}

// A failure names the resource that failed, or none where none is known.
func TestFailureNamesItsResource(t *testing.T) {
	f := &cloudformation.Failure{Stack: "demo", Status: "DELETE_FAILED"}
	if strings.Contains(f.Error(), "failed:") || strings.Contains(f.Error(), "()") {
		t.Errorf("without a resource: %s", f.Error())
	}
	f.Resource, f.Type, f.Reason = "Zone", cloudformation.TypeZone, "it has records"
	if !strings.Contains(f.Error(), "Zone (AWS::Route53::HostedZone) failed: it has records") {
		t.Errorf("with a resource: %s", f.Error())
	}
}

func TestDescribe(t *testing.T) {
	w := newWorld(t)
	w.answers["DescribeStacks"] = func(url.Values) string {
		return `<Stacks><member><StackName>demo</StackName><StackId>arn:aws:cloudformation:us-west-2:1:stack/demo/1</StackId>
<StackStatus>UPDATE_COMPLETE</StackStatus><StackStatusReason>so it is</StackStatusReason>
<EnableTerminationProtection>true</EnableTerminationProtection>
<Parameters><member><ParameterKey>Image</ParameterKey><ParameterValue>/image</ParameterValue><ResolvedValue>ami-1</ResolvedValue></member>
<member><ParameterKey>Vpc</ParameterKey><ParameterValue>vpc-1</ParameterValue></member></Parameters>
<Outputs><member><OutputKey>ZoneId</OutputKey><OutputValue>Z1</OutputValue></member></Outputs></member></Stacks>`
	}
	now, err := w.stacks.Describe(t.Context(), "demo")
	want := &cloudformation.Stack{
		Name: "demo", ID: "arn:aws:cloudformation:us-west-2:1:stack/demo/1", Status: "UPDATE_COMPLETE", Reason: "so it is", Protected: true,
		Parameters: map[string]string{"Image": "/image", "Vpc": "vpc-1"}, Resolved: map[string]string{"Image": "ami-1"},
		Outputs: map[string]string{"ZoneId": "Z1"},
	}
	if diff := cmp.Diff(want, now); diff != "" || err != nil {
		t.Errorf("the stack (-want +got), %v:\n%s", err, diff)
	}
	w.answers["DescribeStacks"] = func(url.Values) string { return `<Stacks></Stacks>` }
	if now, err := w.stacks.Describe(t.Context(), "demo"); err == nil || errors.Is(err, cloudformation.ErrNoStack) || now != nil {
		t.Errorf("an answer without a stack: %+v, %v", now, err)
	}
}

// Only one refusal means that there is no stack. Each other one would let a second stack be proposed, or a deletion be taken for done.
func TestOnlyAMissingStackIsNone(t *testing.T) {
	for _, tt := range []struct {
		code, message string
		none          bool
	}{
		{"ValidationError", "Stack with id demo does not exist", true},
		{"ValidationError", "1 validation error detected: Value 'de_mo' at 'stackName' failed to satisfy constraint", false},
		{"InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.", false},
	} {
		w := newWorld(t)
		w.account.SetFaults(awsfake.FaultFunc(func(c awsfake.Call) (f awsfake.Fault) {
			if c.Action == "DescribeStacks" {
				f.Refuse = &awsfake.Error{Status: 400, Code: tt.code, Message: tt.message}
			}
			return f
		}))
		if now, err := w.stacks.Describe(t.Context(), "demo"); err == nil || now != nil || errors.Is(err, cloudformation.ErrNoStack) != tt.none {
			t.Errorf("%s: %+v, %v", tt.message, now, err)
		}
		if err := w.stacks.Delete(t.Context(), "demo"); (err == nil) != tt.none {
			t.Errorf("deleting, %s: %v", tt.message, err)
		}
	}
}

func TestResources(t *testing.T) {
	w := newWorld(t)
	now := w.deploy(t, proposal(template("k8s", "one")))
	got, err := w.stacks.Resources(t.Context(), "demo")
	want := map[string]cloudformation.Resource{
		"Guard": {Type: "AWS::EC2::SecurityGroup", ID: got["Guard"].ID, Status: "CREATE_COMPLETE"},
		"Zone":  {Type: "AWS::Route53::HostedZone", ID: now.Outputs["ZoneId"], Status: "CREATE_COMPLETE"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || !strings.HasPrefix(got["Guard"].ID, "sg-") {
		t.Errorf("the resources (-want +got), %v:\n%s", err, diff)
	}
}
