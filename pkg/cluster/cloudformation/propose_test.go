package cloudformation_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudformation"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	formation "github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
)

func TestProposalIsCarriedOut(t *testing.T) {
	const address = "https://templates.s3.us-west-2.amazonaws.com/demo"
	role := strings.Replace(template("k8s", "one"), "Outputs:", `  Role:
    Type: AWS::IAM::Role
    Properties:
      RoleName: demo
      AssumeRolePolicyDocument:
        Version: "2012-10-17"
        Statement: [{Effect: Allow, Action: "sts:AssumeRole", Principal: {Service: ec2.amazonaws.com}}]
Outputs:`, 1)
	stored := formation.Proposal{Stack: "demo", URL: address, Parameters: map[string]string{"Vpc": "vpc-00000000000000001"}}
	tagged := stored
	tagged.Tags = map[string]string{"team": "a", "env": "b"}
	for _, tt := range []struct {
		name      string
		proposal  formation.Proposal
		resources int
		tags      string
	}{
		{"a template in S3", stored, 2, ""},
		{"a role with a name", proposal(role), 3, ""},
		{"tags", tagged, 2, "env=b team=a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.account.CloudFormation().AddObject(address, template("k8s", "one"))
			w.deploy(t, tt.proposal)
			resources, err := w.stacks.Resources(t.Context(), "demo")
			if err != nil || len(resources) != tt.resources {
				t.Errorf("%+v, %v; want %d", resources, err, tt.resources)
			}
			out, err := w.api.DescribeStacks(t.Context(), &cloudformation.DescribeStacksInput{StackName: &tt.proposal.Stack})
			if err != nil {
				t.Fatal(err)
			}
			var tags []string
			for _, tag := range out.Stacks[0].Tags {
				tags = append(tags, *tag.Key+"="+*tag.Value)
			}
			if got := strings.Join(tags, " "); got != tt.tags {
				t.Errorf("tags %q, want %q", got, tt.tags)
			}
		})
	}
}

// CloudFormation makes a change set that changes nothing, and then says that it failed.
func TestReasonsOfAFailedChangeSet(t *testing.T) {
	for _, tt := range []struct {
		reason    string
		unchanged bool
	}{
		{"The submitted information didn't contain changes. Submit different information to create a change set.", true},
		{"No updates are to be performed.", true},
		{"Template format error: Unresolved resource dependencies [Gone] in the Resources block of the template", false},
		{"Nothing to do: No updates are to be performed.", false},
		{"", false},
	} {
		w := newWorld(t)
		w.answers["DescribeChangeSet"] = func(url.Values) string {
			return "<Status>FAILED</Status><StatusReason>" + tt.reason + "</StatusReason>"
		}
		plan, err := w.stacks.Propose(t.Context(), proposal(template("k8s", "one")))
		switch {
		case tt.unchanged && (err != nil || !plan.Empty() || plan.Stack != "demo"):
			t.Errorf("%q: %+v, %v", tt.reason, plan, err)
		case !tt.unchanged && (err == nil || !strings.Contains(err.Error(), "stack demo: "+tt.reason)):
			t.Errorf("%q: %+v, %v", tt.reason, plan, err)
		}
		if left := w.left(t); left != "" {
			t.Errorf("%q: left %s", tt.reason, left)
		}
		if text, err := json.Marshal(plan); tt.unchanged && (err != nil || !strings.Contains(string(text), `"changes":[]`)) {
			t.Errorf("for programs, no changes are %s, %v", text, err)
		}
	}
}

// Propose waits for an operation that is under way, and proposes for the stack as it is then.
func TestProposeWaits(t *testing.T) {
	w := newWorld(t)
	w.stacks.Poll = time.Second
	now := w.deploy(t, proposal(template("k8s", "one")))
	if _, err := w.api.DeleteStack(t.Context(), &cloudformation.DeleteStackInput{StackName: &now.ID}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.asleep = cancel
	var left *formation.Interrupted
	if _, err := w.stacks.Propose(ctx, proposal(template("k8s", "one"))); !errors.As(err, &left) || w.calls("CreateChangeSet") != 1 {
		t.Errorf("interrupted while it waits: %v", err)
	}
	w.asleep, w.events = nil, nil
	faults := &awsfake.Script{}
	faults.Add("DescribeStackEvents", awsfake.Fault{Refuse: awsfake.Throttled()})
	w.account.SetFaults(faults)
	_, err := w.stacks.Propose(t.Context(), proposal(template("k8s", "one")))
	if err == nil || w.calls("CreateChangeSet") != 1 || len(w.events) > 0 {
		t.Errorf("without knowing which event is the newest: %v, %+v", err, w.events)
	}
	if plan := w.propose(t, proposal(template("k8s", "one"))); !plan.Creates || plan.Stack != "demo" {
		t.Errorf("after a deletion: %+v", plan)
	}
	if told := w.told(); !strings.HasSuffix(told, "demo DELETE_COMPLETE") || strings.Contains(told, "CREATE") {
		t.Errorf("meanwhile: %s", told)
	}
}

func TestProposeRefusesAState(t *testing.T) {
	w := newWorld(t)
	if _, err := w.stacks.Execute(t.Context(), w.propose(t, proposal(bad))); err == nil {
		t.Fatal("it is made")
	}
	var state *formation.StateError
	_, err := w.stacks.Propose(t.Context(), proposal(template("k8s", "one")))
	if !errors.As(err, &state) || state.Stack != "demo" || state.Status != "ROLLBACK_COMPLETE" {
		t.Errorf("%v", err)
	}
}

func TestDiscard(t *testing.T) {
	t.Run("once", func(t *testing.T) {
		w := newWorld(t)
		plan := w.propose(t, proposal(template("k8s", "one")))
		for range 2 {
			if err := w.stacks.Discard(t.Context(), plan); err != nil || !plan.Empty() {
				t.Errorf("%+v, %v", plan, err)
			}
		}
		if n := w.calls("DeleteChangeSet"); n != 1 {
			t.Errorf("deleted %d times", n)
		}
	})
	t.Run("what was executed stays", func(t *testing.T) {
		w := newWorld(t)
		plan := w.propose(t, proposal(template("k8s", "one")))
		if _, err := w.stacks.Execute(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		if err := w.stacks.Discard(t.Context(), plan); err != nil || w.calls("DeleteChangeSet") != 0 {
			t.Errorf("%v, after %d deletions", err, w.calls("DeleteChangeSet"))
		}
	})
	t.Run("an update's change set alone", func(t *testing.T) {
		w := newWorld(t)
		w.deploy(t, proposal(template("k8s", "one")))
		plan := w.propose(t, proposal(template("k8s", "two")))
		asked := w.calls("DescribeStacks")
		if err := w.stacks.Discard(t.Context(), plan); err != nil || w.calls("DescribeStacks") != asked {
			t.Errorf("%v, after %d more questions", err, w.calls("DescribeStacks")-asked)
		}
		if left := w.left(t); left != "demo CREATE_COMPLETE 0" {
			t.Errorf("left: %s", left)
		}
	})
	t.Run("another has made the stack meanwhile", func(t *testing.T) {
		w := newWorld(t)
		first, second := w.propose(t, proposal(template("k8s", "one"))), w.propose(t, proposal(template("k8s", "two")))
		if _, err := w.stacks.Execute(t.Context(), first); err != nil || !second.Creates {
			t.Fatalf("%+v, %v", second, err)
		}
		if err := w.stacks.Discard(t.Context(), second); err != nil {
			t.Error(err)
		}
		if left := w.left(t); left != "demo CREATE_COMPLETE 0" {
			t.Errorf("left: %s", left)
		}
	})
	t.Run("another has removed the stack meanwhile", func(t *testing.T) {
		w := newWorld(t)
		plan := w.propose(t, proposal(template("k8s", "one")))
		faults, gone := &awsfake.Script{}, &awsfake.Error{Status: 400, Code: "ValidationError", Message: "Stack with id demo does not exist"}
		faults.Add("DescribeStacks", awsfake.Fault{Refuse: gone})
		w.account.SetFaults(faults)
		if err := w.stacks.Discard(t.Context(), plan); err != nil || w.calls("DeleteStack") != 0 {
			t.Errorf("%v, after %d deletions", err, w.calls("DeleteStack"))
		}
	})
	t.Run("not the stack, where its state is not known", func(t *testing.T) {
		w := newWorld(t)
		plan := w.propose(t, proposal(template("k8s", "one")))
		w.deny("DescribeStacks")
		if err := w.stacks.Discard(t.Context(), plan); err == nil || w.calls("DeleteStack") != 0 {
			t.Errorf("%v, after %d deletions", err, w.calls("DeleteStack"))
		}
	})
}
