package cloudformation_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
)

// Every event is told once, the oldest first, however often the stack is asked for.
func TestProgress(t *testing.T) {
	w := newWorld(t)
	w.stacks.Poll = time.Second
	w.deploy(t, proposal(template("k8s", "one")))
	want := []string{
		"12:00:03 AWS::CloudFormation::Stack demo CREATE_IN_PROGRESS User Initiated",
		"12:00:03 AWS::EC2::SecurityGroup Guard CREATE_IN_PROGRESS", "12:00:03 AWS::Route53::HostedZone Zone CREATE_IN_PROGRESS",
		"12:00:06 AWS::EC2::SecurityGroup Guard CREATE_COMPLETE", "12:00:06 AWS::Route53::HostedZone Zone CREATE_COMPLETE",
		"12:00:06 AWS::CloudFormation::Stack demo CREATE_COMPLETE",
	}
	var got []string
	for _, e := range w.events {
		got = append(got, strings.TrimSpace(e.Time.Format("15:04:05 ")+e.Type+" "+e.Resource+" "+e.Status+" "+e.Reason))
	}
	if !slices.Equal(got, want) {
		t.Errorf("told:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	w.stacks.OnEvent = nil
	if err := w.stacks.Delete(t.Context(), "demo"); err != nil {
		t.Errorf("where nobody listens: %v", err)
	}
}

// eventsXML are events, the oldest first; CloudFormation answers with the newest first.
func eventsXML(events []cloudformation.Event) string {
	var text strings.Builder
	for i, e := range slices.Backward(events) {
		fmt.Fprintf(&text, "<member><EventId>%d</EventId><LogicalResourceId>%s</LogicalResourceId><ResourceType>%s</ResourceType>"+
			"<ResourceStatus>%s</ResourceStatus><ResourceStatusReason>%s</ResourceStatusReason></member>", i, e.Resource, e.Type, e.Status, e.Reason)
	}
	return "<StackEvents>" + text.String() + "</StackEvents>"
}

// The cause is the first resource that failed by itself. The events of one second come in any order.
func TestCauseOfAFailure(t *testing.T) {
	event := func(resource, kind, status, reason string) cloudformation.Event {
		return cloudformation.Event{Resource: resource, Type: kind, Status: status, Reason: reason}
	}
	begun := event("demo", "AWS::CloudFormation::Stack", "CREATE_IN_PROGRESS", "User Initiated")
	broken := event("Broken", "AWS::EC2::SecurityGroupIngress", "CREATE_FAILED", "no such group")
	other := event("Other", "AWS::IAM::Role", "CREATE_FAILED", "no such policy")
	cancelled := event("Zone", "AWS::Route53::HostedZone", "CREATE_FAILED", "Resource creation cancelled")
	stack := event("demo", "AWS::CloudFormation::Stack", "ROLLBACK_FAILED", "so it is")
	for _, tt := range []struct {
		name   string
		events []cloudformation.Event
		want   cloudformation.Failure
	}{
		{"one, and what was cancelled for it", []cloudformation.Event{begun, broken, cancelled, stack}, failureOf(broken)},
		{"one after what was cancelled for it", []cloudformation.Event{begun, cancelled, broken, stack}, failureOf(broken)},
		{"two", []cloudformation.Event{begun, other, broken, stack}, failureOf(other)},
		{"two the other way round", []cloudformation.Event{begun, broken, other, stack}, failureOf(broken)},
		{"nobody says which", []cloudformation.Event{begun, stack}, failureOf(cloudformation.Event{})},
	} {
		w := newWorld(t)
		plan := w.propose(t, proposal(bad))
		// A stack may have no event yet. Whatever then comes is new.
		w.answers["DescribeStackEvents"] = func(url.Values) string {
			if w.calls("ExecuteChangeSet") == 0 {
				return eventsXML(nil)
			}
			return eventsXML(tt.events)
		}
		_, err := w.stacks.Execute(t.Context(), plan)
		var f *cloudformation.Failure
		if !errors.As(err, &f) || *f != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, f, tt.want)
		}
		if len(w.events) != len(tt.events) || w.events[0].Resource != "demo" || w.events[0].Status != "CREATE_IN_PROGRESS" {
			t.Errorf("%s: told %+v", tt.name, w.events)
		}
	}
}

// failureOf is the failure of a creation of demo because of an event.
func failureOf(e cloudformation.Event) cloudformation.Failure {
	return cloudformation.Failure{Stack: "demo", Status: "ROLLBACK_COMPLETE", Resource: e.Resource, Type: e.Type, Reason: e.Reason}
}

// An interruption in the middle of a request is one like any other.
func TestInterruptedInARequest(t *testing.T) {
	w := newWorld(t)
	plan := w.propose(t, proposal(template("k8s", "one")))
	ctx, cancel := context.WithCancel(t.Context())
	w.account.SetFaults(awsfake.FaultFunc(func(c awsfake.Call) (f awsfake.Fault) {
		if c.Action == "DescribeStacks" {
			cancel()
		}
		return f
	}))
	_, err := w.stacks.Execute(ctx, plan)
	var left *cloudformation.Interrupted
	if !errors.As(err, &left) || left.Stack != "demo" || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
