package awsfake

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/google/go-cmp/cmp"
)

// refreshed is a bench with a group m of four from version 1 of a template that has a second version.
func refreshBench(t *testing.T, o Options, version string) (*bench, string) {
	t.Helper()
	b := newBench(t, o)
	id := b.createTemplate(t, "demo", launchRequest(imageA, "one"))
	b.templateGroup(t, "m", id, version, 4)
	b.pass(time.Minute)
	b.addVersion(t, id, launchRequest(imageB, "two"))
	return b, id
}

// to is the desired configuration of a refresh to a version.
func to(id, version string) *types.DesiredConfiguration {
	return &types.DesiredConfiguration{LaunchTemplate: &types.LaunchTemplateSpecification{LaunchTemplateId: &id, Version: &version}}
}

func (b *bench) start(t *testing.T, desired *types.DesiredConfiguration, p *types.RefreshPreferences) {
	t.Helper()
	_, err := b.autoscaling.StartInstanceRefresh(t.Context(), &autoscaling.StartInstanceRefreshInput{AutoScalingGroupName: aws.String("m"), DesiredConfiguration: desired, Preferences: p})
	if err != nil {
		t.Fatalf("starting a refresh: %v", err)
	}
}

func (b *bench) refresh(t *testing.T) types.InstanceRefresh {
	t.Helper()
	out, err := b.autoscaling.DescribeInstanceRefreshes(t.Context(), &autoscaling.DescribeInstanceRefreshesInput{AutoScalingGroupName: aws.String("m")})
	if err != nil {
		t.Fatal(err)
	}
	return out.InstanceRefreshes[0]
}

// progress returns the described state of a refresh, and how many instances serve from each version.
func (b *bench) progress(t *testing.T) string {
	t.Helper()
	r := b.refresh(t)
	versions := map[string]int{}
	for _, i := range b.account.AutoScaling().Instances("m") {
		if i.State == StateInService {
			versions[i.Template.Version]++
		}
	}
	return fmt.Sprintf("%s %d%% left %d, serving %d+%d", r.Status, *r.PercentageComplete, *r.InstancesToUpdate, versions["1"], versions["2"])
}

func TestRefreshCheckpoints(t *testing.T) {
	b, id := refreshBench(t, Options{AutoScaling: AutoScalingOptions{Step: step}}, "1")
	b.start(t, to(id, "2"), &types.RefreshPreferences{
		MinHealthyPercentage: aws.Int32(75), CheckpointPercentages: []int32{25, 50, 100}, CheckpointDelay: aws.Int32(600), SkipMatching: aws.Bool(true),
	})
	_, err := b.autoscaling.UpdateAutoScalingGroup(t.Context(), &autoscaling.UpdateAutoScalingGroupInput{
		AutoScalingGroupName: aws.String("m"), LaunchTemplate: &types.LaunchTemplateSpecification{LaunchTemplateId: &id, Version: aws.String("2")},
	})
	wantCode(t, err, "ValidationError", "An active instance refresh with a desired configuration exists. All configuration options derived from the desired configuration are not available for update while the instance refresh is active.")
	var got []string
	for range 5 {
		b.pass(5 * time.Minute)
		got = append(got, b.progress(t))
	}
	want := []string{
		"InProgress 25% left 3, serving 3+1", "InProgress 25% left 3, serving 3+1", // five minutes of the ten that it waits have passed
		"InProgress 50% left 2, serving 2+2", "InProgress 50% left 2, serving 2+2", "Successful 100% left 0, serving 0+4",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("every five minutes (-want +got):\n%s", diff)
	}
	if v := *b.describe(t, "m").LaunchTemplate.Version; v != "2" {
		t.Errorf("after the refresh the group launches version %s", v)
	}
	var events []string
	for _, e := range b.account.Events().Sent() {
		if strings.Contains(e.DetailType, "Refresh") {
			events = append(events, strings.TrimPrefix(e.DetailType, "EC2 Auto Scaling Instance Refresh "))
		}
	}
	if diff := cmp.Diff([]string{"Started", "Checkpoint Reached", "Checkpoint Reached", "Succeeded"}, events); diff != "" {
		t.Errorf("the events (-want +got):\n%s", diff)
	}
	b.start(t, nil, &types.RefreshPreferences{SkipMatching: aws.Bool(true)})
	b.pass(0)
	if got := b.progress(t); got != "Successful 100% left 0, serving 0+4" {
		t.Errorf("a refresh of what matches: %s", got)
	}
}

func TestRefreshBounds(t *testing.T) {
	for _, tt := range []struct {
		name       string
		lowest     int32
		wantLowest int
	}{
		{"one at a time", 100, 3},
		{"half at a time", 50, 2},
		{"all at once", 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, id := refreshBench(t, Options{AutoScaling: AutoScalingOptions{Step: step}}, "1")
			b.start(t, to(id, "2"), &types.RefreshPreferences{MinHealthyPercentage: &tt.lowest})
			lowest, highest := 4, 4
			for range 100 {
				serving, all := 0, 0
				for _, i := range b.account.AutoScaling().Instances("m") {
					if i.State == StateInService {
						serving++
					}
					if counts(i.State) {
						all++
					}
				}
				lowest, highest = min(lowest, serving), max(highest, all)
				b.pass(step / 2)
			}
			if got := b.progress(t); got != "Successful 100% left 0, serving 0+4" {
				t.Errorf("it ends with %s", got)
			}
			if lowest != tt.wantLowest || highest != 4 {
				t.Errorf("%d to %d instances, want %d to 4", lowest, highest, tt.wantLowest)
			}
		})
	}
}

// TestRefreshAhead launches before it terminates, as far as the group's maximum goes.
func TestRefreshAhead(t *testing.T) {
	for _, tt := range []struct {
		name            string
		lowest, highest int32
		limit           int32
		want            string
	}{
		{"one more of four", 100, 110, 5, "Successful 100% left 0, serving 0+4; 4 to 5"},
		{"the exact bound leaves no way", 100, 100, 5, "Successful 100% left 0, serving 0+4; 4 to 5"},
		{"twice as many", 100, 200, 8, "Successful 100% left 0, serving 0+4; 4 to 8"},
		{"both ways", 75, 125, 5, "Successful 100% left 0, serving 0+4; 3 to 5"},
		{"no room", 100, 110, 4, "InProgress 0% left 4, serving 4+0; 4 to 4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, id := refreshBench(t, Options{AutoScaling: AutoScalingOptions{Step: step}}, "1")
			if _, err := b.autoscaling.UpdateAutoScalingGroup(t.Context(), &autoscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: aws.String("m"), MaxSize: &tt.limit}); err != nil {
				t.Fatal(err)
			}
			b.start(t, to(id, "2"), &types.RefreshPreferences{MinHealthyPercentage: &tt.lowest, MaxHealthyPercentage: &tt.highest})
			lowest, highest := 4, 4
			for range 100 {
				serving, all := b.account.AutoScaling().sizes("m")
				lowest, highest = min(lowest, serving), max(highest, all)
				b.pass(step / 2)
			}
			if got := fmt.Sprintf("%s; %d to %d", b.progress(t), lowest, highest); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func TestRefreshAheadRefused(t *testing.T) {
	for what, p := range map[string]types.RefreshPreferences{
		"MaxHealthyPercentage must be between 100 and 200, is 99":                                                 {MinHealthyPercentage: aws.Int32(90), MaxHealthyPercentage: aws.Int32(99)},
		"You must specify MinHealthyPercentage when you specify MaxHealthyPercentage":                             {MaxHealthyPercentage: aws.Int32(110)},
		"The difference between MaxHealthyPercentage and MinHealthyPercentage cannot be greater than 100, is 101": {MinHealthyPercentage: aws.Int32(50), MaxHealthyPercentage: aws.Int32(151)},
	} {
		b, id := refreshBench(t, Options{}, "1")
		_, err := b.autoscaling.StartInstanceRefresh(t.Context(), &autoscaling.StartInstanceRefreshInput{AutoScalingGroupName: aws.String("m"), DesiredConfiguration: to(id, "2"), Preferences: &p})
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %s", err, what)
		}
	}
}

func TestRefreshWaitsForHooksAndWarmup(t *testing.T) {
	b, id := refreshBench(t, Options{AutoScaling: AutoScalingOptions{Step: step}}, "1")
	b.hook(t, "m", "drain", transitionTerminating, 600, Continue)
	b.start(t, to(id, "2"), &types.RefreshPreferences{MinHealthyPercentage: aws.Int32(75), InstanceWarmup: aws.Int32(300)})
	b.pass(0)
	held := b.account.AutoScaling().Instances("m")[0]
	b.pass(2 * step)
	if got := b.progress(t); got != "InProgress 0% left 4, serving 3+1" {
		t.Errorf("the new one serves and is cold: %s", got)
	}
	b.pass(4 * time.Minute)
	if got := b.progress(t); got != "InProgress 0% left 4, serving 3+1" {
		t.Errorf("after four of the five minutes: %s", got)
	}
	b.pass(time.Minute)
	if got := b.progress(t); got != "InProgress 25% left 3, serving 2+2" {
		t.Errorf("after five minutes: %s", got)
	}
	if i := b.account.AutoScaling().Instances("m")[0]; i.ID != held.ID || i.State != StateTerminatingWait {
		t.Errorf("the first one is not held by its hook: %+v", i)
	}
	if err := b.account.AutoScaling().Complete("m", "drain", held.ID, Continue); err != nil {
		t.Fatal(err)
	}
	b.pass(step)
	if m, _ := b.account.EC2().Machine(held.ID); m.State != MachineTerminated {
		t.Errorf("the first one is %s after its hook", m.State)
	}
}

func TestRefreshCancelAndRollback(t *testing.T) {
	ctx := t.Context()
	half := &types.RefreshPreferences{MinHealthyPercentage: aws.Int32(75), CheckpointPercentages: []int32{50, 100}}
	t.Run("cancel", func(t *testing.T) {
		b, id := refreshBench(t, Options{AutoScaling: AutoScalingOptions{Step: step}}, "1")
		_, err := b.autoscaling.CancelInstanceRefresh(ctx, &autoscaling.CancelInstanceRefreshInput{AutoScalingGroupName: aws.String("m")})
		wantCode(t, err, "ActiveInstanceRefreshNotFound", "")
		b.start(t, to(id, "2"), half)
		b.pass(step / 2)
		if _, err := b.autoscaling.CancelInstanceRefresh(ctx, &autoscaling.CancelInstanceRefreshInput{AutoScalingGroupName: aws.String("m")}); err != nil {
			t.Fatal(err)
		}
		if s := b.refresh(t).Status; s != types.InstanceRefreshStatusCancelling {
			t.Errorf("while a machine comes up the refresh is %s", s)
		}
		b.pass(5 * time.Minute)
		if got := b.progress(t); got != "Cancelled 25% left 3, serving 3+1" {
			t.Errorf("then: %s", got)
		}
		if v := *b.describe(t, "m").LaunchTemplate.Version; v != "1" {
			t.Errorf("the group launches version %s", v)
		}
	})
	t.Run("rollback", func(t *testing.T) {
		b, id := refreshBench(t, Options{AutoScaling: AutoScalingOptions{Step: step}}, "1")
		b.start(t, to(id, "2"), half)
		b.pass(5 * time.Minute)
		if got := b.progress(t); got != "InProgress 50% left 2, serving 2+2" {
			t.Fatalf("at the checkpoint: %s", got)
		}
		if _, err := b.autoscaling.RollbackInstanceRefresh(ctx, &autoscaling.RollbackInstanceRefreshInput{AutoScalingGroupName: aws.String("m")}); err != nil {
			t.Fatal(err)
		}
		if r := b.refresh(t); r.Status != types.InstanceRefreshStatusRollbackInProgress || *r.RollbackDetails.PercentageCompleteOnRollback != 50 || *r.PercentageComplete > 50 {
			t.Errorf("the refresh is %+v", r)
		}
		b.pass(5 * time.Minute)
		if got := b.progress(t); got != "RollbackSuccessful 0% left 4, serving 4+0" {
			t.Errorf("then: %s", got)
		}
		if v := *b.describe(t, "m").LaunchTemplate.Version; v != "1" {
			t.Errorf("the group launches version %s", v)
		}
	})
	t.Run("irreversible", func(t *testing.T) {
		b, id := refreshBench(t, Options{}, "$Latest")
		_, err := b.autoscaling.StartInstanceRefresh(ctx, &autoscaling.StartInstanceRefreshInput{
			AutoScalingGroupName: aws.String("m"), DesiredConfiguration: to(id, "2"), Preferences: &types.RefreshPreferences{AutoRollback: aws.Bool(true)},
		})
		wantCode(t, err, "ValidationError", "")
		b.start(t, to(id, "2"), half)
		_, err = b.autoscaling.RollbackInstanceRefresh(ctx, &autoscaling.RollbackInstanceRefreshInput{AutoScalingGroupName: aws.String("m")})
		wantCode(t, err, "IrreversibleInstanceRefresh", "")
	})
}

// TestRefreshFails lets no machine be launched any more: after an hour the refresh is given up.
func TestRefreshFails(t *testing.T) {
	for _, back := range []bool{false, true} {
		broken := false
		o := Options{AutoScaling: AutoScalingOptions{Step: step, Refuse: func(action, _ string) error {
			if broken && action == "launch" {
				return errors.New("Server.InternalError: Internal error on launch")
			}
			return nil
		}}}
		b, id := refreshBench(t, o, "1")
		broken = true
		b.start(t, to(id, "2"), &types.RefreshPreferences{MinHealthyPercentage: aws.Int32(50), AutoRollback: &back})
		for range 59 {
			b.pass(time.Minute)
		}
		if got := b.progress(t); !strings.HasPrefix(got, "InProgress 0%") {
			t.Fatalf("after 59 minutes: %s", got)
		}
		b.pass(5 * time.Minute)
		want := types.InstanceRefreshStatusFailed
		if back {
			want = types.InstanceRefreshStatusRollbackInProgress
		}
		if r := b.refresh(t); r.Status != want || r.StatusReason == nil {
			t.Fatalf("after an hour the refresh is %s (%v), want %s", r.Status, r.StatusReason, want)
		}
		broken = false
		for range 10 {
			b.pass(time.Minute)
		}
		if back {
			want = types.InstanceRefreshStatusRollbackSuccessful
		}
		if r := b.refresh(t); r.Status != want {
			t.Errorf("once machines can be launched again the refresh is %s, want %s", r.Status, want)
		}
		if got := b.progress(t); !strings.HasSuffix(got, "serving 4+0") {
			t.Errorf("once machines can be launched again: %s", got)
		}
	}
}

func TestRefreshRefusals(t *testing.T) {
	b, id := refreshBench(t, Options{}, "1")
	for _, tt := range []struct {
		name    string
		desired *types.DesiredConfiguration
		p       types.RefreshPreferences
		message string
	}{
		{"checkpoints out of order", nil, types.RefreshPreferences{CheckpointPercentages: []int32{50, 20}}, "CheckpointPercentages must be unique, in ascending order and from 1 to 100"},
		{"a delay alone", nil, types.RefreshPreferences{CheckpointDelay: aws.Int32(1)}, "You must specify CheckpointPercentages when you specify CheckpointDelay"},
		{"back from nowhere", nil, types.RefreshPreferences{AutoRollback: aws.Bool(true)}, "AutoRollback is not supported: There is no desired configuration specified for the instance refresh."},
		{"no such version", to(id, "9"), types.RefreshPreferences{}, "You must use a valid fully-formed launch template. Could not find the specified version 9 for the launch template with ID " + id + "."},
		{"alarms", nil, types.RefreshPreferences{AlarmSpecification: &types.AlarmSpecification{Alarms: []string{"a"}}}, "awsfake does not model Preferences.AlarmSpecification"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := b.autoscaling.StartInstanceRefresh(t.Context(), &autoscaling.StartInstanceRefreshInput{AutoScalingGroupName: aws.String("m"), DesiredConfiguration: tt.desired, Preferences: &tt.p})
			wantCode(t, err, "ValidationError", tt.message)
		})
	}
}

// TestRefreshStopsAtWhatNeverComesUp has a launch hook that is never completed: launches are abandoned again and
// again, no other machine is touched, and after an hour the refresh is rolled back.
func TestRefreshStopsAtWhatNeverComesUp(t *testing.T) {
	b, id := refreshBench(t, Options{AutoScaling: AutoScalingOptions{Step: step}}, "1")
	b.hook(t, "m", "ready", transitionLaunching, 900, Abandon)
	b.start(t, to(id, "2"), &types.RefreshPreferences{MinHealthyPercentage: aws.Int32(75), AutoRollback: aws.Bool(true)})
	for range 60 {
		b.pass(time.Minute)
		if got := b.progress(t); !strings.HasSuffix(got, "serving 3+0") {
			t.Fatalf("the refresh goes on: %s", got)
		}
	}
	for range 30 {
		b.pass(time.Minute)
	}
	if got := b.refresh(t); got.Status != types.InstanceRefreshStatusRollbackInProgress {
		t.Errorf("after an hour and a half the refresh is %s", got.Status)
	}
	for _, i := range b.account.AutoScaling().Instances("m") {
		if i.State == StatePendingWait {
			if err := b.account.AutoScaling().Complete("m", "ready", i.ID, Continue); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.pass(time.Minute)
	if got := b.progress(t); got != "RollbackSuccessful 0% left 4, serving 4+0" {
		t.Errorf("once one comes up: %s", got)
	}
}

// TestRefreshKeepsItsBounds refreshes groups of all sizes with all sorts of preferences, and looks at every step: the
// bounds are worked out from the words of the API reference.
func TestRefreshKeepsItsBounds(t *testing.T) {
	for seed := range uint64(150) {
		random := rand.New(rand.NewPCG(seed, 5))
		desired, lowest := 1+random.IntN(8), random.IntN(101)
		p := refreshPreferences{MinHealthy: &lowest, SkipMatching: random.IntN(2) == 0}
		least, most := min((desired*lowest+99)/100, desired-1), desired
		if random.IntN(2) == 0 {
			p.MaxHealthy = aws.Int(100 + random.IntN(lowest+1))
			least, most = (desired*lowest+99)/100, desired**p.MaxHealthy/100
			if least == desired && most == desired {
				most++
			}
		}
		if random.IntN(3) == 0 {
			p.Checkpoints, p.CheckpointDelay = []int{1 + random.IntN(50), 51 + random.IntN(49), 100}, aws.Int(random.IntN(600))
		}
		if random.IntN(3) == 0 {
			p.Warmup = aws.Int(random.IntN(120))
		}
		b := newBench(t, Options{AutoScaling: AutoScalingOptions{Step: time.Duration(random.IntN(20)) * time.Second}})
		id := b.createTemplate(t, "demo", launchRequest(imageA, "one"))
		b.templateGroup(t, "m", id, "1", int32(desired))
		b.pass(time.Minute)
		b.addVersion(t, id, launchRequest(imageB, "two"))
		b.account.locked(func() {
			b.account.AutoScaling().groups["m"].Max = most
			if _, err := b.account.AutoScaling().startRefresh("m", p, &LaunchRef{ID: id, Version: "2"}); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
		for steps := 0; b.active("m"); steps++ {
			serving, all := b.account.AutoScaling().sizes("m")
			if serving < least || all > most {
				t.Fatalf("seed %d: %d of %d serve and there are %d; the bounds are %d and %d: %+v", seed, serving, desired, all, least, most, p)
			}
			if steps > 2000 {
				t.Fatalf("seed %d never ends: %s", seed, b.progress(t))
			}
			b.pass(5 * time.Second)
		}
		if got, want := b.progress(t), fmt.Sprintf("Successful 100%% left 0, serving 0+%d", desired); got != want {
			t.Errorf("seed %d ends with %s, want %s", seed, got, want)
		}
	}
}

// active reports whether a group's refresh goes on.
func (b *bench) active(name string) (active bool) {
	b.account.locked(func() { active = b.account.AutoScaling().groups[name].refreshing() != nil })
	return active
}

// sizes are how many instances of a group serve, and how many count.
func (s *AutoScaling) sizes(name string) (serving, all int) {
	for _, i := range s.Instances(name) {
		if i.State == StateInService {
			serving++
		}
		if counts(i.State) {
			all++
		}
	}
	return serving, all
}
