package autoscaling_test

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/google/go-cmp/cmp/cmpopts"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/autoscaling"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
)

// refresh is the newest refresh of the minions.
func (w *world) refresh() types.InstanceRefresh {
	w.t.Helper()
	out, err := w.scaling.DescribeInstanceRefreshes(w.t.Context(), &sdk.DescribeInstanceRefreshesInput{AutoScalingGroupName: aws.String("demo-minions")})
	assert.NilError(w.t, err)
	assert.Assert(w.t, len(out.InstanceRefreshes) > 0)
	return out.InstanceRefreshes[0]
}

// What AWS refuses is an error that names the permission, in every step. What is not there any more is none where it was to go.
func TestStepsFail(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "default")
	w.create("demo-old", "minions")
	point := func(c *autoscaling.Cluster, ctx context.Context) error { return c.Point(ctx, "demo-minions", 1) }
	replace := func(c *autoscaling.Cluster, ctx context.Context) error { return c.Replace(ctx, "i-0123456789abcdef0") }
	start := func(c *autoscaling.Cluster, ctx context.Context) error {
		_, err := c.Start(ctx, rollout.Step{Group: "demo-minions", To: 1})
		return err
	}
	refuse := func(code, message string) awsfake.Fault {
		return awsfake.Fault{Refuse: &awsfake.Error{Status: 400, Code: code, Message: message}}
	}
	for name, tt := range map[string]struct {
		step   func(*autoscaling.Cluster, context.Context) error
		action string // the call that is refused
		fault  awsfake.Fault
		want   string // a part of the error; empty is none
	}{
		"point: the group":   {point, "DescribeAutoScalingGroups", denied, "allow autoscaling:DescribeAutoScalingGroups"},
		"point: the version": {point, "UpdateAutoScalingGroup", denied, "allow autoscaling:UpdateAutoScalingGroup"},
		"point: a group that is gone": {func(c *autoscaling.Cluster, ctx context.Context) error { return c.Point(ctx, "demo-none", 1) }, "", awsfake.Fault{},
			"reading group demo-none"},
		"point: a group without a launch template": {func(c *autoscaling.Cluster, ctx context.Context) error { return c.Point(ctx, "demo-old", 1) }, "", awsfake.Fault{},
			"reading group demo-old"},
		"replace": {replace, "TerminateInstanceInAutoScalingGroup", denied, "allow autoscaling:TerminateInstanceInAutoScalingGroup"},
		"replace: gone": {replace, "TerminateInstanceInAutoScalingGroup", refuse("ValidationError", "Instance Id not found - No managed instance found for instance ID: i-0123456789abcdef0"),
			""},
		"replace: not so": {replace, "TerminateInstanceInAutoScalingGroup", refuse("ValidationError", "Instance is not in a state that allows this"), "replacing machine"},
		"replace: another thing is not found": {replace, "TerminateInstanceInAutoScalingGroup", refuse("ResourceContention", "the role was not found"),
			"replacing machine"},
		"empty: the groups": {(*autoscaling.Cluster).Empty, "DescribeAutoScalingGroups", denied, "allow autoscaling:DescribeAutoScalingGroups"},
		"empty: a group":    {(*autoscaling.Cluster).Empty, "UpdateAutoScalingGroup", denied, "allow autoscaling:UpdateAutoScalingGroup"},
		"start: the group":  {start, "DescribeAutoScalingGroups", denied, "allow autoscaling:DescribeAutoScalingGroups"},
		"start: it":         {start, "StartInstanceRefresh", denied, "allow autoscaling:StartInstanceRefresh"},
		"cancel": {func(c *autoscaling.Cluster, ctx context.Context) error { return c.Cancel(ctx, "demo-minions") }, "CancelInstanceRefresh", denied,
			"allow autoscaling:CancelInstanceRefresh"},
		"take back": {func(c *autoscaling.Cluster, ctx context.Context) error { return c.TakeBack(ctx, "demo-minions") }, "RollbackInstanceRefresh", denied,
			"allow autoscaling:RollbackInstanceRefresh"},
	} {
		t.Run(name, func(t *testing.T) {
			w.account.SetFaults(nil)
			if tt.action != "" {
				w.faults(tt.action, 1, tt.fault)
			}
			err := tt.step(w.cluster, t.Context())
			if tt.want == "" {
				assert.NilError(t, err)
			} else {
				assert.ErrorContains(t, err, tt.want)
			}
		})
	}
	assert.Equal(t, len(w.account.AutoScaling().Instances("demo-minions")), 2)
}

// How many machines a refresh leaves in service, and how many it may have meanwhile, is what the caller prefers as far as the group has
// room for it.
func TestStartPreferences(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		most        int32 // the group has two machines
		preferences autoscaling.Preferences
		want        types.RefreshPreferences
	}{
		"ahead, with checkpoints": {3, autoscaling.Preferences{MinHealthy: 100, MaxHealthy: 110, Checkpoints: []int{50, 100}, Delay: 60},
			types.RefreshPreferences{MinHealthyPercentage: aws.Int32(100), MaxHealthyPercentage: aws.Int32(110), CheckpointPercentages: []int32{50, 100}, CheckpointDelay: aws.Int32(60)}},
		"not ahead":             {3, autoscaling.Preferences{MinHealthy: 100}, types.RefreshPreferences{MinHealthyPercentage: aws.Int32(100)}},
		"no room":               {2, autoscaling.Preferences{MinHealthy: 100, MaxHealthy: 110}, types.RefreshPreferences{MinHealthyPercentage: aws.Int32(90)}},
		"no room, fewer anyway": {2, autoscaling.Preferences{MinHealthy: 50, MaxHealthy: 110}, types.RefreshPreferences{MinHealthyPercentage: aws.Int32(50)}},
		"no room, and none is wanted": {2, autoscaling.Preferences{MinHealthy: 95, MaxHealthy: 100},
			types.RefreshPreferences{MinHealthyPercentage: aws.Int32(95)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "default")
			_, err := w.scaling.UpdateAutoScalingGroup(t.Context(), &sdk.UpdateAutoScalingGroupInput{AutoScalingGroupName: aws.String("demo-minions"), MaxSize: &tt.most})
			assert.NilError(t, err)
			w.cluster.Preferences = tt.preferences
			_, err = w.cluster.Start(t.Context(), rollout.Step{Group: "demo-minions", From: 1, To: 1})
			assert.NilError(t, err)
			got := w.refresh().Preferences
			want := tt.want
			want.SkipMatching, want.AutoRollback, want.InstanceWarmup = aws.Bool(true), aws.Bool(true), aws.Int32(0)
			assert.DeepEqual(t, *got, want, cmpopts.IgnoreUnexported(types.RefreshPreferences{}), cmpopts.EquateEmpty())
		})
	}
}

// A group is set to the version to which a failed refresh goes back, unless it is there already. Where there is none, or that fails, the
// refresh is not rolled back by itself: it would go back to the version that does not work.
func TestStartGoesBack(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		from    int
		fault   awsfake.Fault
		updates int
		at      int // the group's version after the start
		back    bool
	}{
		"to the version before": {1, awsfake.Fault{}, 1, 1, true},
		"it is there already":   {2, awsfake.Fault{}, 0, 2, true},
		"to none":               {0, awsfake.Fault{}, 0, 2, false},
		"may not be set":        {1, denied, 1, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "default")
			w.publish(imageB)
			w.deploy("default")
			before := w.account.Calls()["autoscaling:UpdateAutoScalingGroup"]
			w.faults("UpdateAutoScalingGroup", 1, tt.fault)
			_, err := w.cluster.Start(t.Context(), rollout.Step{Group: "demo-minions", From: tt.from, To: 2})
			assert.NilError(t, err)
			assert.Equal(t, w.account.Calls()["autoscaling:UpdateAutoScalingGroup"]-before, tt.updates)
			assert.Equal(t, w.read("minions").Launches.Number, tt.at)
			assert.Equal(t, aws.ToBool(w.refresh().Preferences.AutoRollback), tt.back)
		})
	}
}

// A refresh that cannot be rolled back is cancelled.
func TestTakeBackCancels(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "default")
	_, err := w.scaling.StartInstanceRefresh(t.Context(), &sdk.StartInstanceRefreshInput{AutoScalingGroupName: aws.String("demo-minions")})
	assert.NilError(t, err)
	assert.NilError(t, w.cluster.TakeBack(t.Context(), "demo-minions"))
	w.settle()
	assert.Equal(t, w.refresh().Status, types.InstanceRefreshStatusCancelled)
}
