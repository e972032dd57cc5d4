package fleet

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
)

// LaunchesAPI is the part of AutoScaling's client that Launches uses.
type LaunchesAPI interface {
	CompleteLifecycleAction(ctx context.Context, in *autoscaling.CompleteLifecycleActionInput, opts ...func(*autoscaling.Options)) (*autoscaling.CompleteLifecycleActionOutput, error)
	RecordLifecycleActionHeartbeat(ctx context.Context, in *autoscaling.RecordLifecycleActionHeartbeatInput, opts ...func(*autoscaling.Options)) (*autoscaling.RecordLifecycleActionHeartbeatOutput, error)
}

// Launches answers the groups' hook for launches, for machines that must not. It is safe for concurrent use.
type Launches struct {
	API LaunchesAPI
	// Hook is the hook's name, which the cluster's document has.
	Hook string
}

var _ controller.Launches = (*Launches)(nil)

// Complete puts a machine into service.
func (l *Launches) Complete(ctx context.Context, group, instance string) (bool, error) {
	_, err := l.API.CompleteLifecycleAction(ctx, &autoscaling.CompleteLifecycleActionInput{
		AutoScalingGroupName: &group, LifecycleHookName: &l.Hook, InstanceId: &instance, LifecycleActionResult: aws.String("CONTINUE"),
	})
	return l.answer(err, "completing", "CompleteLifecycleAction", group, instance)
}

// Heartbeat restarts the hook's time.
func (l *Launches) Heartbeat(ctx context.Context, group, instance string) (bool, error) {
	_, err := l.API.RecordLifecycleActionHeartbeat(ctx, &autoscaling.RecordLifecycleActionHeartbeatInput{
		AutoScalingGroupName: &group, LifecycleHookName: &l.Hook, InstanceId: &instance,
	})
	return l.answer(err, "restarting the time of", "RecordLifecycleActionHeartbeat", group, instance)
}

func (l *Launches) answer(err error, doing, action, group, instance string) (bool, error) {
	if isCompleted(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s hook %s of machine %s in group %s: %w", doing, l.Hook, instance, group, awserr.Explain(err, "autoscaling:"+action+" on this group for the masters' role"))
	}
	return true, nil
}
