package cloudformation_test

import (
	"context"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
)

// Each call may be refused. The error then names the permission, and nothing is left of what was only to be looked at.
func TestRefusedCalls(t *testing.T) {
	const made, none = "demo CREATE_COMPLETE 0", ""
	one, two := proposal(template("k8s", "one")), proposal(template("k8s", "two"))
	type operation func(ctx context.Context, s *cloudformation.Stacks, plan *cloudformation.Plan) error
	propose := func(ctx context.Context, s *cloudformation.Stacks, _ *cloudformation.Plan) error {
		_, err := s.Propose(ctx, two)
		return err
	}
	execute := func(ctx context.Context, s *cloudformation.Stacks, plan *cloudformation.Plan) error {
		_, err := s.Execute(ctx, plan)
		return err
	}
	discard := func(ctx context.Context, s *cloudformation.Stacks, plan *cloudformation.Plan) error {
		return s.Discard(ctx, plan)
	}
	remove := func(ctx context.Context, s *cloudformation.Stacks, _ *cloudformation.Plan) error {
		return s.Delete(ctx, "demo")
	}
	resources := func(ctx context.Context, s *cloudformation.Stacks, _ *cloudformation.Plan) error {
		_, err := s.Resources(ctx, "demo")
		return err
	}
	protect := func(ctx context.Context, s *cloudformation.Stacks, _ *cloudformation.Plan) error {
		return s.Protect(ctx, "demo", true)
	}
	for _, tt := range []struct {
		name, action string
		exists       bool
		do           operation
		left         string
	}{
		{"propose", "DescribeStacks", false, propose, none},
		{"propose", "CreateChangeSet", false, propose, none},
		{"propose", "DescribeChangeSet", false, propose, none},
		{"propose", "DescribeChangeSet", true, propose, made},
		{"execute", "DescribeStackEvents", false, execute, none},
		{"execute", "DescribeStackEvents", true, execute, made},
		{"execute", "ExecuteChangeSet", false, execute, none},
		{"execute", "ExecuteChangeSet", true, execute, made},
		{"discard", "DeleteChangeSet", true, discard, "demo CREATE_COMPLETE 1"},
		{"discard", "DescribeStacks", false, discard, "demo REVIEW_IN_PROGRESS 0"},
		{"discard", "DeleteStack", false, discard, "demo REVIEW_IN_PROGRESS 0"},
		{"delete", "DescribeStacks", true, remove, made},
		{"delete", "DescribeStackEvents", true, remove, made},
		{"delete", "DeleteStack", true, remove, made},
		{"resources", "ListStackResources", true, resources, made},
		{"protect", "UpdateTerminationProtection", true, protect, made},
	} {
		w := newWorld(t)
		if tt.exists {
			w.deploy(t, one)
		}
		var plan *cloudformation.Plan
		if tt.name == "execute" || tt.name == "discard" {
			plan = w.propose(t, two)
		}
		w.deny(tt.action)
		err := tt.do(t.Context(), w.stacks, plan)
		if err == nil || !strings.Contains(err.Error(), "(allow cloudformation:"+tt.action+")") {
			t.Errorf("%s without %s: %v", tt.name, tt.action, err)
		}
		w.deny("")
		if left := w.left(t); left != tt.left {
			t.Errorf("%s without %s leaves %q, want %q", tt.name, tt.action, left, tt.left)
		}
	}
}

// An operation that CloudFormation has begun may become unreadable. It is not taken for done, and no call ends the program.
func TestProgressThatCannotBeRead(t *testing.T) {
	for _, action := range []string{"DescribeStacks", "DescribeStackEvents"} {
		w := newWorld(t)
		plan := w.propose(t, proposal(template("k8s", "one")))
		begun := false
		w.account.SetFaults(awsfake.FaultFunc(func(c awsfake.Call) (f awsfake.Fault) {
			begun = begun || c.Action == "ExecuteChangeSet"
			if begun && c.Action == action {
				f.Refuse = &awsfake.Error{Status: 403, Code: "AccessDenied", Message: "not you"}
			}
			return f
		}))
		now, err := w.stacks.Execute(t.Context(), plan)
		if err == nil || !strings.Contains(err.Error(), "(allow cloudformation:"+action+")") || now != nil {
			t.Errorf("without %s: %+v, %v", action, now, err)
		}
	}
}

// A policy for one stack alone suffices for everything that is done with it, as the actions' resource types say (Service Authorization
// Reference, CloudFormation).
func TestOnePolicyForOneStack(t *testing.T) {
	w := newWorld(t)
	w.account.SetPolicy("AKIDEXAMPLE", awsfake.Policy{
		{Actions: []string{"cloudformation:*"}, Resources: []string{"arn:aws:cloudformation:*:*:stack/demo/*"}},
	})
	if err := w.stacks.Discard(t.Context(), w.propose(t, proposal(template("k8s", "one")))); err != nil {
		t.Errorf("looking: %v", err)
	}
	w.deploy(t, proposal(template("k8s", "one")))
	w.deploy(t, proposal(template("k8s", "two")))
	if _, err := w.stacks.Resources(t.Context(), "demo"); err != nil {
		t.Errorf("its resources: %v", err)
	}
	for _, on := range []bool{true, false} {
		if err := w.stacks.Protect(t.Context(), "demo", on); err != nil {
			t.Errorf("its protection: %v", err)
		}
	}
	if err := w.stacks.Delete(t.Context(), "demo"); err != nil {
		t.Errorf("deleting it: %v", err)
	}
}
