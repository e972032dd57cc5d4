package awsfake

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/google/go-cmp/cmp"
)

func TestDeletion(t *testing.T) {
	b := smallStack(t)
	ctx := t.Context()
	demo := aws.String("demo")
	if _, err := b.stacks.UpdateTerminationProtection(ctx, &cloudformation.UpdateTerminationProtectionInput{StackName: demo, EnableTerminationProtection: aws.Bool(true)}); err != nil {
		t.Fatal(err)
	}
	_, err := b.stacks.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: demo})
	wantCode(t, err, "ValidationError", fmt.Sprintf("Stack [%s] cannot be deleted while TerminationProtection is enabled", *b.stackNow(t).StackId))
	if _, err := b.stacks.UpdateTerminationProtection(ctx, &cloudformation.UpdateTerminationProtectionInput{StackName: demo, EnableTerminationProtection: aws.Bool(false)}); err != nil {
		t.Fatal(err)
	}
	// The group's machines are held by a hook, and the group waits for them.
	b.hook(t, "small", "drain", transitionTerminating, 600, Continue)
	if _, err := b.stacks.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: demo}); err != nil {
		t.Fatal(err)
	}
	b.pass(5 * time.Minute)
	if s := b.stackNow(t).StackStatus; s != types.StackStatusDeleteInProgress {
		t.Errorf("with machines that drain the stack is %s", s)
	}
	for _, i := range b.account.AutoScaling().Instances("small") {
		if i.State != StateTerminatingWait {
			t.Errorf("an instance is %s", i.State)
		}
		if err := b.account.AutoScaling().Complete("small", "drain", i.ID, Continue); err != nil {
			t.Error(err)
		}
	}
	wantStatus(t, b, b.end(t), types.StackStatusDeleteComplete)
	if n := len(b.running()) + len(b.account.Roles()) + len(b.account.EC2().SecurityGroups()) + len(b.account.EC2().LaunchTemplates()); n != 0 {
		t.Errorf("%d resources are left", n)
	}
	// Deleting a missing stack is no error.
	if _, err := b.stacks.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: demo}); err != nil {
		t.Error(err)
	}
}

const zoneTemplate = `Resources:
  Zone: {Type: AWS::Route53::HostedZone, Properties: {Name: k8s, VPCs: [{VPCId: vpc-00000000000000001, VPCRegion: us-west-2}]}}
  Record: {Type: AWS::Route53::RecordSet, POLICY Properties: {HostedZoneId: !Ref Zone, Name: a.k8s., Type: A, TTL: 5, ResourceRecords: [192.0.2.1]}}
`

func TestZonesOfStacks(t *testing.T) {
	b := stackBench(t, Options{Rates: map[string]float64{"route53": 0}})
	kept := strings.Replace(zoneTemplate, "POLICY", "DeletionPolicy: RetainExceptOnCreate,", 1)
	s := b.deploy(t, types.ChangeSetTypeCreate, kept, nil)
	wantStatus(t, b, s, types.StackStatusCreateComplete)
	stack := b.account.CloudFormation().stacks[0]
	zone := stack.resources["Zone"].physical
	sets, err := b.account.Route53().RecordSets(zone)
	if err != nil || len(sets) != 3 {
		t.Errorf("the zone has %+v, %v", sets, err)
	}
	if _, err := b.stacks.DeleteStack(t.Context(), &cloudformation.DeleteStackInput{StackName: aws.String("demo")}); err != nil {
		t.Fatal(err)
	}
	s = b.end(t)
	wantStatus(t, b, s, types.StackStatusDeleteFailed)
	if want := "The following resource(s) failed to delete: [Zone]. "; *s.StackStatusReason != want {
		t.Errorf("the reason is %q", *s.StackStatusReason)
	}
	if !strings.Contains(b.stackStory(), "Zone DELETE_FAILED The specified hosted zone contains non-required resource record sets and so cannot be deleted.") {
		t.Errorf("the events:\n%s", b.stackStory())
	}
	// A record that was changed outside the stack cannot be deleted.
	b = stackBench(t, Options{Rates: map[string]float64{"route53": 0}})
	b.deploy(t, types.ChangeSetTypeCreate, strings.Replace(zoneTemplate, "POLICY", "", 1), nil)
	zone = b.account.CloudFormation().stacks[0].resources["Zone"].physical
	set := RecordSet{Name: "a.k8s.", Type: "A", TTL: 5, Values: []string{"192.0.2.2"}}
	if _, err := b.account.Route53().ChangeResourceRecordSets(t.Context(), zone, []Change{{Action: "UPSERT", Set: set}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.stacks.DeleteStack(t.Context(), &cloudformation.DeleteStackInput{StackName: aws.String("demo")}); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, b, b.end(t), types.StackStatusDeleteFailed)
	if left := sortedKeys(b.account.CloudFormation().stacks[0].resources); !slices.Equal(left, []string{"Record", "Zone"}) {
		t.Errorf("left: %q", left)
	}
}

// TestRenderedStackRolls goes the way of a cluster: an empty stack, its machines, another image that only reaches the
// launch templates, a refresh that brings it to the machines, and the way back.
func TestRenderedStackRolls(t *testing.T) {
	b := stackBench(t, Options{CloudFormation: CloudFormationOptions{Step: time.Second}, Rates: map[string]float64{"route53": 0, "ssm": 0, "ssm:PutParameter": 0}})
	body := rendered(t, "default")
	etcd := []string{"EtcdSubnetIds", "subnet-0000000000000000a", "EtcdZones", "us-west-2a"}
	wantStatus(t, b, b.deploy(t, types.ChangeSetTypeCreate, body, vpcParameters(append(etcd, "Machines", "no")...)), types.StackStatusCreateComplete)
	if n := len(b.running()); n != 0 {
		t.Fatalf("%d machines run before there are to be any", n)
	}
	set := b.propose(t, types.ChangeSetTypeUpdate, body, vpcParameters(append(etcd, "Machines", "yes")...))
	want := []string{
		"Modify GroupMasters False [Static DesiredCapacity Never DirectModification] [Static MinSize Never DirectModification]",
		"Modify GroupMinions False [Static DesiredCapacity Never DirectModification] [Static MinSize Never DirectModification]",
	}
	if diff := cmp.Diff(want, proposed(set)); diff != "" {
		t.Errorf("the machines come (-want +got):\n%s", diff)
	}
	wantStatus(t, b, b.deploy(t, types.ChangeSetTypeUpdate, body, vpcParameters(append(etcd, "Machines", "yes")...)), types.StackStatusUpdateComplete)
	b.join(t)
	first := b.images()
	if diff := cmp.Diff(map[string]int{imageA: 3}, first); diff != "" {
		t.Errorf("the machines' images (-want +got):\n%s", diff)
	}
	for _, image := range []string{imageB, imageA} {
		b.promote(t, image)
		wantStatus(t, b, b.deploy(t, types.ChangeSetTypeUpdate, body, vpcParameters(append(etcd, "Machines", "yes")...)), types.StackStatusUpdateComplete)
		b.join(t)
		if diff := cmp.Diff(first, b.images()); diff != "" {
			t.Errorf("the stack's update has changed machines (-before +after):\n%s", diff)
		}
		for group, lowest := range map[string]int{"demo-minions": 50, "demo-masters": 0} {
			b.account.locked(func() {
				if _, err := b.account.AutoScaling().startRefresh(group, refreshPreferences{MinHealthy: &lowest}, nil); err != nil {
					t.Error(err)
				}
			})
		}
		for b.active("demo-minions") || b.active("demo-masters") {
			b.pass(10 * time.Second)
			b.join(t)
		}
		first = b.images()
		if diff := cmp.Diff(map[string]int{image: 3}, first); diff != "" {
			t.Errorf("after the refreshes (-want +got):\n%s", diff)
		}
	}
}

// promote makes the channel name another image.
func (b *bench) promote(t *testing.T, image string) {
	t.Helper()
	if _, err := b.account.SSM().Put(Parameter{Name: parameterOfImage, Value: image}, true); err != nil {
		t.Fatal(err)
	}
}

// join completes every lifecycle action, as machines that come up and are drained do.
func (b *bench) join(t *testing.T) {
	t.Helper()
	for range 10 {
		for _, name := range []string{"demo-masters", "demo-minions"} {
			for _, i := range b.account.AutoScaling().Instances(name) {
				for hook := range i.Tokens {
					if err := b.account.AutoScaling().Complete(name, hook, i.ID, Continue); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		b.pass(time.Second)
	}
}

// images counts the machines that run from each image.
func (b *bench) images() map[string]int {
	images := map[string]int{}
	for _, m := range b.running() {
		images[m.Image]++
	}
	return images
}

// TestDeletionWaits deletes a stack whose security group a machine outside the stack needs for a while.
func TestDeletionWaits(t *testing.T) {
	b := stackBench(t, Options{})
	wantStatus(t, b, b.deploy(t, types.ChangeSetTypeCreate, small, given("Size", "2")), types.StackStatusCreateComplete)
	door := b.account.CloudFormation().stacks[0].resources["Door"].physical
	other, err := b.account.EC2().Run(Machine{Zone: HomeRegion + "a", Launch: &LaunchData{SecurityGroups: []string{door}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.stacks.DeleteStack(t.Context(), &cloudformation.DeleteStackInput{StackName: aws.String("demo")}); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		b.pass(30 * time.Second)
	}
	if s := b.stackNow(t).StackStatus; s != types.StackStatusDeleteInProgress || len(b.running()) != 1 {
		t.Errorf("the stack is %s, and %d machines run", s, len(b.running()))
	}
	b.account.EC2().Terminate(other.ID)
	wantStatus(t, b, b.end(t), types.StackStatusDeleteComplete)
}
