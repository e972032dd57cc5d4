package autoscaling

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/smithy-go"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
)

// describeGroup reads a group that has a launch template.
func (c *Cluster) describeGroup(ctx context.Context, name string) (types.AutoScalingGroup, error) {
	out, err := c.Groups.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{name}})
	switch {
	case err != nil:
		return types.AutoScalingGroup{}, fmt.Errorf("reading group %s: %w", name, awserr.Explain(err, "autoscaling:DescribeAutoScalingGroups"))
	case len(out.AutoScalingGroups) != 1 || launchTemplate(out.AutoScalingGroups[0]) == nil:
		return types.AutoScalingGroup{}, fmt.Errorf("reading group %s: it is gone, or has no launch template", name)
	}
	return out.AutoScalingGroups[0], nil
}

// Point sets the version of the launch template from which the group launches machines.
func (c *Cluster) Point(ctx context.Context, group string, version int) error {
	g, err := c.describeGroup(ctx, group)
	if err != nil {
		return err
	}
	in := &autoscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: &group}
	in.LaunchTemplate, in.MixedInstancesPolicy = withVersion(g, version)
	_, err = c.Groups.UpdateAutoScalingGroup(ctx, in)
	if err != nil {
		return fmt.Errorf("setting the version that %s launches to %d: %w", group, version, awserr.Explain(err, "autoscaling:UpdateAutoScalingGroup, ec2:RunInstances and iam:PassRole"))
	}
	return nil
}

// Replace ends a machine; its group launches another. It succeeds if the machine is already gone.
func (c *Cluster) Replace(ctx context.Context, machine string) error {
	_, err := c.Groups.TerminateInstanceInAutoScalingGroup(ctx, &autoscaling.TerminateInstanceInAutoScalingGroupInput{
		InstanceId: &machine, ShouldDecrementDesiredCapacity: aws.Bool(false),
	})
	var api smithy.APIError
	if errors.As(err, &api) && api.ErrorCode() == "ValidationError" && strings.Contains(api.ErrorMessage(), "not found") {
		return nil
	}
	if err != nil {
		return fmt.Errorf("replacing machine %s: %w", machine, awserr.Explain(err, "autoscaling:TerminateInstanceInAutoScalingGroup"))
	}
	return nil
}

// Empty ends every machine of the groups, through their hooks: no group launches another.
func (c *Cluster) Empty(ctx context.Context) error {
	groups, err := c.groups(ctx)
	if err != nil {
		return err
	}
	for _, g := range groups {
		if aws.ToInt32(g.DesiredCapacity) == 0 { // and so is its minimum
			continue
		}
		_, err := c.Groups.UpdateAutoScalingGroup(ctx, &autoscaling.UpdateAutoScalingGroupInput{
			AutoScalingGroupName: g.AutoScalingGroupName, MinSize: aws.Int32(0), DesiredCapacity: aws.Int32(0),
		})
		if err != nil {
			return fmt.Errorf("emptying group %s: %w", aws.ToString(g.AutoScalingGroupName), awserr.Explain(err, "autoscaling:UpdateAutoScalingGroup"))
		}
	}
	return nil
}

// Start starts AutoScaling's refresh to version To. If all machines that are to be replaced have one version, the group
// is set to it first: a failed refresh rolls back to the version that the group had at the start, and CloudFormation has
// already set that to the new one.
func (c *Cluster) Start(ctx context.Context, step rollout.Step) (string, error) {
	g, err := c.describeGroup(ctx, step.Group)
	if err != nil {
		return "", err
	}
	back := step.From != 0
	if back && aws.ToString(launchTemplate(g).Version) != strconv.Itoa(step.From) {
		if err := c.Point(ctx, step.Group, step.From); err != nil {
			c.Log.Warn("this refresh cannot be rolled back by itself", "group", step.Group, "error", err)
			back = false
		}
	}
	wants := &types.RefreshPreferences{
		MinHealthyPercentage: aws.Int32(int32(c.Preferences.MinHealthy)), SkipMatching: aws.Bool(true), AutoRollback: aws.Bool(back),
		// A machine is only in service once all its roles work, so that it needs no time to warm up.
		InstanceWarmup: aws.Int32(0),
	}
	// AWS does not say whether machines that are launched ahead may exceed the group's maximum: they would be waited for in vain.
	switch room := aws.ToInt32(g.MaxSize) > aws.ToInt32(g.DesiredCapacity); {
	case room && c.Preferences.MaxHealthy > 0:
		wants.MaxHealthyPercentage = aws.Int32(int32(c.Preferences.MaxHealthy))
	case c.Preferences.MaxHealthy > 100:
		wants.MinHealthyPercentage = aws.Int32(int32(min(c.Preferences.MinHealthy, minHealthyWithoutRoom)))
		c.Log.Warn("machines end before their replacements start, since the group has as many as it may have: a larger aws.max in the document makes room",
			"group", step.Group, "max", aws.ToInt32(g.MaxSize))
	}
	for _, percent := range c.Preferences.Checkpoints {
		wants.CheckpointPercentages = append(wants.CheckpointPercentages, int32(percent))
	}
	if len(wants.CheckpointPercentages) > 0 {
		wants.CheckpointDelay = aws.Int32(int32(c.Preferences.Delay))
	}
	in := &autoscaling.StartInstanceRefreshInput{AutoScalingGroupName: &step.Group, Preferences: wants, DesiredConfiguration: &types.DesiredConfiguration{}}
	in.DesiredConfiguration.LaunchTemplate, in.DesiredConfiguration.MixedInstancesPolicy = withVersion(g, step.To)
	out, err := c.Groups.StartInstanceRefresh(ctx, in)
	if err != nil {
		return "", fmt.Errorf("refreshing %s to version %d of its template: %w", step.Group, step.To, awserr.Explain(err, "autoscaling:StartInstanceRefresh, ec2:RunInstances and iam:PassRole"))
	}
	return aws.ToString(out.InstanceRefreshId), nil
}

// Cancel cancels AutoScaling's refresh of the group; machines that were replaced already stay. It succeeds if no refresh
// is under way.
func (c *Cluster) Cancel(ctx context.Context, group string) error {
	_, err := c.Groups.CancelInstanceRefresh(ctx, &autoscaling.CancelInstanceRefreshInput{AutoScalingGroupName: &group})
	if err != nil && !noRefresh(err) {
		return fmt.Errorf("cancelling the refresh of %s: %w", group, awserr.Explain(err, "autoscaling:CancelInstanceRefresh"))
	}
	return nil
}

// TakeBack rolls back AutoScaling's refresh of the group, or cancels it if it cannot be rolled back. It succeeds if no
// refresh is under way.
func (c *Cluster) TakeBack(ctx context.Context, group string) error {
	_, err := c.Groups.RollbackInstanceRefresh(ctx, &autoscaling.RollbackInstanceRefreshInput{AutoScalingGroupName: &group})
	var irreversible *types.IrreversibleInstanceRefreshFault
	switch {
	case errors.As(err, &irreversible):
		return c.Cancel(ctx, group)
	case err != nil && !noRefresh(err):
		return fmt.Errorf("rolling back the refresh of %s: %w", group, awserr.Explain(err, "autoscaling:RollbackInstanceRefresh"))
	}
	return nil
}

func noRefresh(err error) bool {
	var none *types.ActiveInstanceRefreshNotFoundFault
	return errors.As(err, &none)
}
