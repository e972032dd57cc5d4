package awsfake

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/smithy-go"
)

const step = time.Second

// masters makes a group over the wire.
func (b *bench) masters(t *testing.T, name string, desired int) {
	t.Helper()
	_, err := b.autoscaling.CreateAutoScalingGroup(t.Context(), &autoscaling.CreateAutoScalingGroupInput{
		AutoScalingGroupName: aws.String(name), MinSize: aws.Int32(0), MaxSize: aws.Int32(10), DesiredCapacity: aws.Int32(int32(desired)),
		AvailabilityZones: []string{"us-west-2a", "us-west-2b"}, LaunchConfigurationName: aws.String("hardtack"),
		Tags: []types.Tag{
			{Key: aws.String("KubernetesCluster"), Value: aws.String("demo"), PropagateAtLaunch: aws.Bool(true)},
			{Key: aws.String("Role"), Value: aws.String("masters"), PropagateAtLaunch: aws.Bool(true)},
			{Key: aws.String("Private"), Value: aws.String("yes"), PropagateAtLaunch: aws.Bool(false)},
		},
	})
	if err != nil {
		t.Fatalf("creating %s: %v", name, err)
	}
}

func (b *bench) hook(t *testing.T, group, name, transition string, heartbeat int32, result string) {
	t.Helper()
	err := b.account.AutoScaling().PutHook(group, Hook{
		Name: name, Transition: transition, Heartbeat: time.Duration(heartbeat) * time.Second, Default: result, Metadata: "additional-info",
	})
	if err != nil {
		t.Fatalf("putting hook %s: %v", name, err)
	}
}

// describe is one group as the SDK sees it.
func (b *bench) describe(t *testing.T, name string) types.AutoScalingGroup {
	t.Helper()
	out, err := b.autoscaling.DescribeAutoScalingGroups(t.Context(), &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{name}})
	if err != nil || len(out.AutoScalingGroups) != 1 {
		t.Fatalf("describing %s: %v, %v", name, out, err)
	}
	return out.AutoScalingGroups[0]
}

// states lists the states of a group's instances in the order of their launch.
func (b *bench) states(t *testing.T, name string) []string {
	t.Helper()
	list := []string{}
	for _, i := range b.describe(t, name).Instances {
		list = append(list, string(i.LifecycleState))
	}
	return list
}

func (b *bench) wantStates(t *testing.T, name string, want ...string) {
	t.Helper()
	if got := b.states(t, name); !slices.Equal(got, want) {
		t.Fatalf("at %s %s is %q, want %q", b.clock.Now().Format(time.TimeOnly), name, got, want)
	}
}

func wantCode(t *testing.T, err error, code, message string) {
	t.Helper()
	var api smithy.APIError
	if !errors.As(err, &api) || api.ErrorCode() != code || message != "" && api.ErrorMessage() != message {
		t.Errorf("got %v, want %s: %s", err, code, message)
	}
}

func TestLifeOfAnInstance(t *testing.T) {
	b := newBench(t, Options{AutoScaling: AutoScalingOptions{Step: step}})
	b.masters(t, "m", 0)
	b.hook(t, "m", "up", transitionLaunching, 60, Abandon)
	b.hook(t, "m", "down", transitionTerminating, 60, Continue)
	if _, err := b.autoscaling.SetDesiredCapacity(t.Context(), &autoscaling.SetDesiredCapacityInput{AutoScalingGroupName: aws.String("m"), DesiredCapacity: aws.Int32(1)}); err != nil {
		t.Fatal(err)
	}
	b.wantStates(t, "m", "Pending")
	b.pass(step)
	b.wantStates(t, "m", "Pending:Wait")
	id := *b.describe(t, "m").Instances[0].InstanceId
	b.pass(50 * time.Second)
	_, err := b.autoscaling.RecordLifecycleActionHeartbeat(t.Context(), &autoscaling.RecordLifecycleActionHeartbeatInput{
		AutoScalingGroupName: aws.String("m"), LifecycleHookName: aws.String("up"), InstanceId: &id,
	})
	if err != nil {
		t.Fatal(err)
	}
	b.pass(50 * time.Second) // beyond the first minute, within the second
	b.wantStates(t, "m", "Pending:Wait")
	complete := func(hook, token, id string) error {
		in := &autoscaling.CompleteLifecycleActionInput{AutoScalingGroupName: aws.String("m"), LifecycleHookName: &hook, LifecycleActionResult: aws.String(Continue)}
		if token != "" {
			in.LifecycleActionToken = &token
		} else {
			in.InstanceId = &id
		}
		_, err := b.autoscaling.CompleteLifecycleAction(t.Context(), in)
		return err
	}
	if err := complete("up", b.account.AutoScaling().Instances("m")[0].Tokens["up"], ""); err != nil {
		t.Fatal(err)
	}
	b.wantStates(t, "m", "Pending:Proceed")
	b.pass(step)
	b.wantStates(t, "m", "InService")
	wantCode(t, complete("up", "", id), "ValidationError", "No active Lifecycle Action found with instance ID "+id)

	_, err = b.autoscaling.TerminateInstanceInAutoScalingGroup(t.Context(), &autoscaling.TerminateInstanceInAutoScalingGroupInput{InstanceId: &id, ShouldDecrementDesiredCapacity: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	b.wantStates(t, "m", "Terminating")
	b.pass(step)
	b.wantStates(t, "m", "Terminating:Wait")
	if m, _ := b.account.EC2().Machine(id); m.State != MachineRunning {
		t.Errorf("an instance that waits for its termination is %s", m.State)
	}
	if err := complete("down", "", id); err != nil {
		t.Fatal(err)
	}
	b.wantStates(t, "m", "Terminating:Proceed")
	b.pass(step)
	b.wantStates(t, "m")
	if m, _ := b.account.EC2().Machine(id); m.State != MachineTerminated || m.Private.IsValid() {
		t.Errorf("the machine is %s with address %v", m.State, m.Private)
	}
}

func TestHookTimeouts(t *testing.T) {
	for _, test := range []struct {
		result string
		want   []string // of the first instance, a moment after its minute is over
	}{
		{Continue, []string{"InService"}},
		{Abandon, []string{"Pending:Wait"}}, // another one: the first is gone
	} {
		t.Run(test.result, func(t *testing.T) {
			b := newBench(t, Options{})
			b.masters(t, "m", 0)
			b.hook(t, "m", "up", transitionLaunching, 60, test.result)
			if err := b.account.AutoScaling().SetDesired("m", 1); err != nil {
				t.Fatal(err)
			}
			first := b.account.AutoScaling().Instances("m")[0].ID
			b.pass(59 * time.Second)
			b.wantStates(t, "m", "Pending:Wait")
			b.pass(time.Second)
			b.wantStates(t, "m", test.want...)
			if kept := b.account.AutoScaling().Instances("m")[0].ID == first; kept != (test.result == Continue) {
				t.Errorf("%s: first instance kept: %v", test.result, kept)
			}
		})
	}
}

func TestHeartbeatsEnd(t *testing.T) {
	b := newBench(t, Options{})
	b.masters(t, "m", 0)
	b.hook(t, "m", "up", transitionLaunching, 30, Abandon)
	s := b.account.AutoScaling()
	if err := s.SetDesired("m", 1); err != nil {
		t.Fatal(err)
	}
	id := s.Instances("m")[0].ID
	beats := 0
	for ; s.Instances("m")[0].ID == id; beats++ {
		b.account.locked(func() { _ = s.heartbeat("m", "up", "", id) })
		b.pass(29 * time.Second)
	}
	// 100 heartbeats of 30 s are 3000 s; one every 29 s is 103 and a part.
	if beats != 104 {
		t.Errorf("an instance was held for %d heartbeats", beats)
	}
}

func TestReplacement(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(*bench, string) error
	}{
		{"machine dies", func(b *bench, id string) error { b.account.EC2().Terminate(id); return nil }},
		{"terminated without decrement", func(b *bench, id string) error { return b.account.AutoScaling().Terminate(id, false) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, Options{})
			b.masters(t, "m", 3)
			id := b.account.AutoScaling().Instances("m")[1].ID
			if err := test.do(b, id); err != nil {
				t.Fatal(err)
			}
			b.account.Tick()
			b.wantStates(t, "m", "InService", "InService", "InService")
			for _, i := range b.account.AutoScaling().Instances("m") {
				if i.ID == id {
					t.Errorf("%s is still in the group", id)
				}
			}
		})
	}
}

func TestInstanceRefresh(t *testing.T) {
	b := newBench(t, Options{AutoScaling: AutoScalingOptions{Step: step}})
	b.masters(t, "m", 4)
	b.pass(step)
	before := map[string]bool{}
	for _, i := range b.account.AutoScaling().Instances("m") {
		before[i.ID] = true
	}
	in := &autoscaling.StartInstanceRefreshInput{AutoScalingGroupName: aws.String("m"), Preferences: &types.RefreshPreferences{MinHealthyPercentage: aws.Int32(75)}}
	if _, err := b.autoscaling.StartInstanceRefresh(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	_, err := b.autoscaling.StartInstanceRefresh(t.Context(), in)
	wantCode(t, err, "InstanceRefreshInProgress", "")
	for range 20 {
		serving := 0
		for _, state := range b.states(t, "m") {
			if state == StateInService {
				serving++
			}
		}
		if serving < 3 {
			t.Fatalf("%d instances serve, the minimum is 3", serving)
		}
		b.pass(step)
	}
	for _, i := range b.account.AutoScaling().Instances("m") {
		if before[i.ID] || i.State != StateInService {
			t.Errorf("%s is %s, old: %v", i.ID, i.State, before[i.ID])
		}
	}
	out, err := b.autoscaling.DescribeInstanceRefreshes(t.Context(), &autoscaling.DescribeInstanceRefreshesInput{AutoScalingGroupName: aws.String("m")})
	if err != nil || out.InstanceRefreshes[0].Status != types.InstanceRefreshStatusSuccessful {
		t.Errorf("the refresh is %v, %v", out, err)
	}
}

func TestDescribeGroups(t *testing.T) {
	b := newBench(t, Options{})
	for n := range 120 {
		role := []string{"masters", "minions"}[n%2]
		err := b.account.AutoScaling().Create(Group{Name: fmt.Sprintf("g%03d", n), Max: 1, Tags: map[string]string{"KubernetesCluster": "demo", "Role": role}})
		if err != nil {
			t.Fatal(err)
		}
	}
	filters := []types.Filter{{Name: aws.String("tag:KubernetesCluster"), Values: []string{"demo"}}, {Name: aws.String("tag:Role"), Values: []string{"masters", "etcd"}}}
	pages, seen := 0, 0
	p := autoscaling.NewDescribeAutoScalingGroupsPaginator(b.autoscaling, &autoscaling.DescribeAutoScalingGroupsInput{Filters: filters, MaxRecords: aws.Int32(25)})
	for p.HasMorePages() {
		out, err := p.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pages, seen = pages+1, seen+len(out.AutoScalingGroups)
	}
	if pages != 3 || seen != 60 {
		t.Errorf("%d groups in %d pages, want 60 in 3", seen, pages)
	}
	for _, test := range []struct {
		in      *autoscaling.DescribeAutoScalingGroupsInput
		code    string
		message string
	}{
		{&autoscaling.DescribeAutoScalingGroupsInput{MaxRecords: aws.Int32(101)}, "ValidationError", ""},
		{&autoscaling.DescribeAutoScalingGroupsInput{NextToken: aws.String("nonsense")}, "InvalidNextToken", "The token 'nonsense' is invalid."},
		{&autoscaling.DescribeAutoScalingGroupsInput{Filters: []types.Filter{{Name: aws.String("color")}}}, "ValidationError", ""},
	} {
		_, err := b.autoscaling.DescribeAutoScalingGroups(t.Context(), test.in)
		wantCode(t, err, test.code, test.message)
	}
}

func TestGroupErrors(t *testing.T) {
	b := newBench(t, Options{})
	b.masters(t, "m", 1)
	_, err := b.autoscaling.SetDesiredCapacity(t.Context(), &autoscaling.SetDesiredCapacityInput{AutoScalingGroupName: aws.String("m"), DesiredCapacity: aws.Int32(11)})
	wantCode(t, err, "ValidationError", "New SetDesiredCapacity value 11 is above max value 10 for the AutoScalingGroup.")
	err = b.account.AutoScaling().PutHook("m", Hook{Name: "h", Transition: "sideways"})
	if err == nil || err.Error() != "ValidationError: Invalid LifecycleTransition: sideways" {
		t.Errorf("a hook of an unknown transition: %v", err)
	}
}

func TestTags(t *testing.T) {
	b := newBench(t, Options{})
	b.masters(t, "m", 1)
	m, _ := b.account.EC2().Machine(b.account.AutoScaling().Instances("m")[0].ID)
	if m.Tags["Role"] != "masters" || m.Tags["aws:autoscaling:groupName"] != "m" || m.Tags["Private"] != "" {
		t.Errorf("the machine has tags %v", m.Tags)
	}
}
