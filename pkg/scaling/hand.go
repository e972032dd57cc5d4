package scaling

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

	"github.com/hardtack/packer-plugin-hardtack/pkg/rollout"
)

// one reads one group, which has a launch template.
func (c *Cluster) one(ctx context.Context, name string) (types.AutoScalingGroup, error) {
	out, err := c.Groups.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{name}})
	switch {
	case err != nil:
		return types.AutoScalingGroup{}, fmt.Errorf("reading group %s: %w", name, explain(err, "autoscaling:DescribeAutoScalingGroups"))
	case len(out.AutoScalingGroups) != 1 || out.AutoScalingGroups[0].LaunchTemplate == nil:
		return types.AutoScalingGroup{}, fmt.Errorf("reading group %s: it is gone, or has no launch template", name)
	}
	return out.AutoScalingGroups[0], nil
}

// Point has the group launch what version makes.
func (c *Cluster) Point(ctx context.Context, group string, version int) error {
	g, err := c.one(ctx, group)
	if err != nil {
		return err
	}
	_, err = c.Groups.UpdateAutoScalingGroup(ctx, &autoscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: &group, LaunchTemplate: spec(g, version)})
	if err != nil {
		return fmt.Errorf("having %s launch version %d of its template: %w", group, version, explain(err, "autoscaling:UpdateAutoScalingGroup, ec2:RunInstances and iam:PassRole"))
	}
	return nil
}

func spec(g types.AutoScalingGroup, version int) *types.LaunchTemplateSpecification {
	return &types.LaunchTemplateSpecification{LaunchTemplateId: g.LaunchTemplate.LaunchTemplateId, Version: aws.String(strconv.Itoa(version))}
}

// Replace ends a machine; its group launches another.
func (c *Cluster) Replace(ctx context.Context, machine string) error {
	_, err := c.Groups.TerminateInstanceInAutoScalingGroup(ctx, &autoscaling.TerminateInstanceInAutoScalingGroupInput{
		InstanceId: &machine, ShouldDecrementDesiredCapacity: aws.Bool(false),
	})
	var api smithy.APIError
	if errors.As(err, &api) && api.ErrorCode() == "ValidationError" && strings.Contains(api.ErrorMessage(), "not found") {
		return nil
	}
	if err != nil {
		return fmt.Errorf("replacing machine %s: %w", machine, explain(err, "autoscaling:TerminateInstanceInAutoScalingGroup"))
	}
	return nil
}

// Start begins AutoScaling's refresh to version To. Where all machines that are to be replaced are from one version, the
// group is set to it first: what a refresh that fails goes back to is what the group has when it begins, and
// CloudFormation has set that to the new version already.
func (c *Cluster) Start(ctx context.Context, step rollout.Step) (string, error) {
	g, err := c.one(ctx, step.Group)
	if err != nil {
		return "", err
	}
	back := step.From != 0
	if back && aws.ToString(g.LaunchTemplate.Version) != strconv.Itoa(step.From) {
		if err := c.Point(ctx, step.Group, step.From); err != nil {
			c.Log.Warn("this refresh cannot be rolled back by itself", "group", step.Group, "error", err)
			back = false
		}
	}
	wants := &types.RefreshPreferences{
		MinHealthyPercentage: aws.Int32(int32(c.Preferences.MinHealthy)), SkipMatching: aws.Bool(true), AutoRollback: aws.Bool(back),
		// A machine comes into service when all its roles work: there is nothing to warm up.
		InstanceWarmup: aws.Int32(0),
	}
	for _, percent := range c.Preferences.Checkpoints {
		wants.CheckpointPercentages = append(wants.CheckpointPercentages, int32(percent))
	}
	if len(wants.CheckpointPercentages) > 0 {
		wants.CheckpointDelay = aws.Int32(int32(c.Preferences.Delay))
	}
	out, err := c.Groups.StartInstanceRefresh(ctx, &autoscaling.StartInstanceRefreshInput{
		AutoScalingGroupName: &step.Group, Preferences: wants, DesiredConfiguration: &types.DesiredConfiguration{LaunchTemplate: spec(g, step.To)},
	})
	if err != nil {
		return "", fmt.Errorf("refreshing %s to version %d of its template: %w", step.Group, step.To, explain(err, "autoscaling:StartInstanceRefresh, ec2:RunInstances and iam:PassRole"))
	}
	return aws.ToString(out.InstanceRefreshId), nil
}

// Cancel ends AutoScaling's refresh of the group; what was replaced stays so. One that has ended is no error.
func (c *Cluster) Cancel(ctx context.Context, group string) error {
	_, err := c.Groups.CancelInstanceRefresh(ctx, &autoscaling.CancelInstanceRefreshInput{AutoScalingGroupName: &group})
	if err != nil && !ended(err) {
		return fmt.Errorf("cancelling the refresh of %s: %w", group, explain(err, "autoscaling:CancelInstanceRefresh"))
	}
	return nil
}

// TakeBack has AutoScaling undo its refresh of the group, or ends it where it cannot be undone. One that has ended is
// no error.
func (c *Cluster) TakeBack(ctx context.Context, group string) error {
	_, err := c.Groups.RollbackInstanceRefresh(ctx, &autoscaling.RollbackInstanceRefreshInput{AutoScalingGroupName: &group})
	var not *types.IrreversibleInstanceRefreshFault
	switch {
	case errors.As(err, &not):
		return c.Cancel(ctx, group)
	case err != nil && !ended(err):
		return fmt.Errorf("rolling back the refresh of %s: %w", group, explain(err, "autoscaling:RollbackInstanceRefresh"))
	}
	return nil
}

func ended(err error) bool {
	var none *types.ActiveInstanceRefreshNotFoundFault
	return errors.As(err, &none)
}
