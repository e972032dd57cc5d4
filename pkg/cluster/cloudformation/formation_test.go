package cloudformation_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
)

func TestLife(t *testing.T) {
	w := newWorld(t)
	plan := w.propose(t, proposal(template("k8s", "one")))
	if !plan.Creates || plan.Empty() || summary(plan.Changes) != "Add Guard; Add Zone" {
		t.Errorf("a new stack: %+v", plan)
	}
	if err := w.stacks.Discard(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	if left := w.left(t); left != "" {
		t.Errorf("after a look: %s", left)
	}

	now := w.deploy(t, proposal(template("k8s", "one")))
	if now.Status != "CREATE_COMPLETE" || !strings.HasPrefix(now.Outputs["ZoneId"], "Z") || now.Parameters["Note"] != "none" {
		t.Errorf("made: %+v", now)
	}
	if first, last := w.events[0], w.events[len(w.events)-1]; first.Status != "CREATE_IN_PROGRESS" || last.Resource != "demo" || last.Status != "CREATE_COMPLETE" {
		t.Errorf("events from %+v to %+v", first, last)
	}

	calls := w.account.Calls()["cloudformation:ExecuteChangeSet"]
	plan = w.propose(t, proposal(template("k8s", "one")))
	if again, err := w.stacks.Execute(t.Context(), plan); err != nil || !plan.Empty() || again.Status != "CREATE_COMPLETE" || w.account.Calls()["cloudformation:ExecuteChangeSet"] != calls {
		t.Errorf("again: %+v, %+v, %v", plan, again, err)
	}
	if left := w.left(t); left != "demo CREATE_COMPLETE 0" {
		t.Errorf("after no change: %s", left)
	}

	w.events = nil
	change := cloudformation.Proposal{Stack: "demo", Parameters: map[string]string{"Note": "x"}, Keep: []string{"Vpc"}}
	plan = w.propose(t, change)
	if got := summary(plan.Changes); got != "Modify Guard False Tags/Never/Note" {
		t.Errorf("another parameter: %s", got)
	}
	if now, err := w.stacks.Execute(t.Context(), plan); err != nil || now.Status != "UPDATE_COMPLETE" || w.events[0].Status != "UPDATE_IN_PROGRESS" {
		t.Errorf("%+v, %v, %+v", now, err, w.events)
	}
	resources, err := w.stacks.Resources(t.Context(), "demo")
	if err != nil || len(resources) != 2 || resources["Zone"].ID != now.Outputs["ZoneId"] {
		t.Errorf("%+v, %v", resources, err)
	}
	if err := w.stacks.Delete(t.Context(), "demo"); err != nil {
		t.Error(err)
	}
	if _, err := w.stacks.Describe(t.Context(), "demo"); !errors.Is(err, cloudformation.ErrNoStack) {
		t.Errorf("%v", err)
	}
	if err := w.stacks.Delete(t.Context(), "demo"); err != nil {
		t.Errorf("deleting twice: %v", err)
	}
}

func TestReplacementIsGated(t *testing.T) {
	w := newWorld(t)
	w.deploy(t, proposal(template("k8s", "one")))
	plan := w.propose(t, proposal(template("other", "two")))
	if got := summary(plan.Changes); got != "Modify Guard True GroupDescription/Always; Modify Zone True Name/Always" {
		t.Errorf("%s", got)
	}
	err := cloudformation.Gate(plan.Changes, nil)
	if err == nil || strings.Contains(err.Error(), "Guard") {
		t.Fatalf("%v", err)
	}
	for _, part := range []string{"Zone Z", "would be replaced by its Name", "every record in it"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v\nwants %s", err, part)
		}
	}
	if err := cloudformation.Gate(plan.Changes, []string{"Zone"}); err != nil {
		t.Error(err)
	}
	if err := cloudformation.Gate(plan.Changes, []string{"Zone", "Volume"}); err == nil || !strings.Contains(err.Error(), "Volume is allowed to be replaced, but these changes do not") {
		t.Errorf("%v", err)
	}
	if err := w.stacks.Discard(t.Context(), plan); err != nil {
		t.Error(err)
	}
}

func TestGate(t *testing.T) {
	change := func(action, kind, replacement string, kept bool) []cloudformation.Change {
		return []cloudformation.Change{{Action: action, Resource: "R", Type: kind, Replacement: replacement, Kept: kept}}
	}
	// As CloudFormation's change sets say of a group (the registry's conditionalCreateOnlyProperties).
	of := func(kind string, properties ...cloudformation.Property) []cloudformation.Change {
		changes := change("Modify", kind, "Conditional", false)
		changes[0].Properties = properties
		return changes
	}
	image := cloudformation.Property{Name: "LaunchTemplate", Recreates: "Conditionally", Cause: "LaunchTemplate.LatestVersionNumber"}
	subnets := cloudformation.Property{Name: "VPCZoneIdentifier", Recreates: "Conditionally"}
	size := cloudformation.Property{Name: "MaxSize", Recreates: "Never"}
	name := cloudformation.Property{Name: "AutoScalingGroupName", Recreates: "Always"}
	renamed := cloudformation.Property{Name: "AutoScalingGroupName", Recreates: "Always", Cause: "Name"}
	const group, zone, volume = "AWS::AutoScaling::AutoScalingGroup", "AWS::Route53::HostedZone", "AWS::EC2::Volume"
	for _, tt := range []struct {
		name    string
		changes []cloudformation.Change
		want    string
	}{
		{"a group is removed", change("Remove", group, "", false), "would be removed: that loses all its machines at once"},
		{"a group is changed", change("Modify", group, "False", false), ""},
		{"a group may be replaced", change("Modify", group, "Conditional", false), "would be replaced, perhaps"},
		{"a group's image", of(group, image), ""},
		{"a group's image, subnets and size", of(group, image, size, subnets), ""},
		{"a group's image and size", of(group, image, size), ""},
		{"a group's image, and perhaps its name", of(group, image, name), "would be replaced, perhaps by its AutoScalingGroupName"},
		{"a group's name, for two causes", of(group, name, renamed), "would be replaced, perhaps by its AutoScalingGroupName: that loses"},
		{"a group's something", of(group, image, cloudformation.Property{Name: "Something", Recreates: "Conditionally"}), "would be replaced, perhaps by its Something"},
		{"a group, nobody says by what", of(group, size), "would be replaced, perhaps"},
		{"a volume's LaunchTemplate", of(volume, image), "would be replaced, perhaps by its LaunchTemplate"},
		{"a zone stays", change("Remove", zone, "", true), ""},
		{"a volume", change("Modify", volume, "True", false), "what is on it"},
		{"a role", change("Remove", "AWS::IAM::Role", "", false), ""},
		{"a new zone", change("Add", zone, "", false), ""},
	} {
		if err := cloudformation.Gate(tt.changes, nil); (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// bad is a template with a resource that fails.
var bad = strings.Replace(template("k8s", "one"), "Outputs:", `  Broken:
    Type: AWS::EC2::SecurityGroupIngress
    Properties: {GroupId: sg-0123456789abcdef0, IpProtocol: tcp, FromPort: 1, ToPort: 1, CidrIp: 10.0.0.0/8}
Outputs:`, 1)

func TestFailure(t *testing.T) {
	w := newWorld(t)
	_, err := w.stacks.Execute(t.Context(), w.propose(t, proposal(bad)))
	var f *cloudformation.Failure
	if !errors.As(err, &f) || f.Status != "ROLLBACK_COMPLETE" || f.Resource != "Broken" || !strings.Contains(f.Reason, "sg-0123456789abcdef0") || !strings.Contains(err.Error(), "it can only be deleted") {
		t.Errorf("%v, %+v", err, f)
	}
	if _, err := w.stacks.Propose(t.Context(), proposal(template("k8s", "one"))); err == nil || !strings.Contains(err.Error(), "ROLLBACK_COMPLETE: it can only be deleted") {
		t.Errorf("on top of a failed creation: %v", err)
	}
	if err := w.stacks.Delete(t.Context(), "demo"); err != nil {
		t.Error(err)
	}
	w.deploy(t, proposal(template("k8s", "one")))
	_, err = w.stacks.Execute(t.Context(), w.propose(t, proposal(bad)))
	if !errors.As(err, &f) || f.Status != "UPDATE_ROLLBACK_COMPLETE" || f.Resource != "Broken" || !strings.Contains(err.Error(), "everything is as it was before") {
		t.Errorf("an update: %v", err)
	}
	w.deploy(t, proposal(template("k8s", "two"))) // and on it goes
}

func TestRefusals(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct{ name, body, want string }{
		{"no template", "Resources: [", "making a change set of stack demo: "},
		{"a parameter is missing", strings.Replace(template("k8s", "one"), "Vpc: {Type: AWS::EC2::VPC::Id}", "Vpc: {Type: AWS::EC2::VPC::Id}\n  More: {Type: String}", 1), "More"},
	} {
		if _, err := w.stacks.Propose(t.Context(), proposal(tt.body)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if left := w.left(t); left != "" {
		t.Errorf("left: %s", left)
	}
	w.account.SetPolicy("AKIDEXAMPLE", awsfake.Policy{})
	if _, err := w.stacks.Describe(t.Context(), "demo"); err == nil || !strings.Contains(err.Error(), "(allow cloudformation:DescribeStacks)") {
		t.Errorf("%v", err)
	}
}

// An interrupted Propose leaves no change set; an interrupted Execute returns an error that says what continues.
func TestInterrupted(t *testing.T) {
	w := newWorld(t)
	w.stacks.Poll = time.Second // shorter than any step of the account
	ctx, cancel := context.WithCancel(t.Context())
	w.asleep = cancel
	if _, err := w.stacks.Propose(ctx, proposal(template("k8s", "one"))); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	w.asleep = nil
	if left := w.left(t); left != "" {
		t.Errorf("left: %s", left)
	}

	ctx, cancel = context.WithCancel(t.Context())
	plan := w.propose(t, proposal(template("k8s", "one")))
	w.asleep = cancel
	_, err := w.stacks.Execute(ctx, plan)
	var left *cloudformation.Interrupted
	if !errors.As(err, &left) || left.Stack != "demo" || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "CloudFormation goes on with stack demo") {
		t.Errorf("%v", err)
	}
	w.asleep, w.events = nil, nil
	// The same command again waits for it, tells what happens from now on, and finds nothing to change.
	if plan := w.propose(t, proposal(template("k8s", "one"))); !plan.Empty() || plan.Creates {
		t.Errorf("again: %+v", plan)
	}
	if got := w.told(); got != "Guard CREATE_COMPLETE, Zone CREATE_COMPLETE, demo CREATE_COMPLETE" && got != "Zone CREATE_COMPLETE, Guard CREATE_COMPLETE, demo CREATE_COMPLETE" {
		t.Errorf("meanwhile: %s", got)
	}
	if left := w.left(t); left != "demo CREATE_COMPLETE 0" {
		t.Errorf("left: %s", left)
	}
}

func TestDelete(t *testing.T) {
	w := newWorld(t)
	now := w.deploy(t, proposal(template("k8s", "one")))
	if err := w.stacks.Protect(t.Context(), "demo", true); err != nil {
		t.Fatal(err)
	}
	if err := w.stacks.Delete(t.Context(), "demo"); err == nil || !strings.Contains(err.Error(), "stack demo is protected") {
		t.Errorf("%v", err)
	}
	if err := w.stacks.Protect(t.Context(), "demo", false); err != nil {
		t.Fatal(err)
	}
	zones := route53.New(route53.Options{Region: "us-west-2", BaseEndpoint: w.api.Options().BaseEndpoint, Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")})
	name, id, ttl, value := "x.k8s", now.Outputs["ZoneId"], int64(5), "10.0.0.1"
	_, err := zones.ChangeResourceRecordSets(t.Context(), &route53.ChangeResourceRecordSetsInput{HostedZoneId: &id, ChangeBatch: &types.ChangeBatch{Changes: []types.Change{{
		Action: types.ChangeActionCreate, ResourceRecordSet: &types.ResourceRecordSet{Name: &name, Type: types.RRTypeA, TTL: &ttl, ResourceRecords: []types.ResourceRecord{{Value: &value}}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	var f *cloudformation.Failure
	if err := w.stacks.Delete(t.Context(), "demo"); !errors.As(err, &f) || f.Status != "DELETE_FAILED" || f.Resource != "Zone" || f.Type != "AWS::Route53::HostedZone" {
		t.Errorf("a zone with records: %v", err)
	}
}
