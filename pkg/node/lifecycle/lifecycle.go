// Package lifecycle reports the progress of a machine's launch to its AutoScaling group.
//
// Its rule: it handles only the machine it runs on and one hook, and no open lifecycle action is not an error.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/smithy-go"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awsconfig"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/ready"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

// Options identify the machine and its launch hook.
type Options struct {
	// Endpoint replaces the AWS endpoints, for tests and the lab; empty means AWS.
	Endpoint string
	// Metadata is the endpoint of the instance metadata service, which provides the credentials and, if empty, the region
	// and the instance; empty means EC2's.
	Metadata         string
	Region, Instance string
	// Group is the AutoScaling group, Hook its launch hook. An empty Group is looked up at the first call: by Tag, if set,
	// which returns the group in the instance's own tags ("" if none), else from AutoScaling.
	Group, Hook string
	Tag         func(ctx context.Context) (string, error)
}

// Launch is the launch of one machine. It is safe for concurrent use.
type Launch struct {
	options Options

	mu  sync.Mutex
	api *autoscaling.Client
}

var _ ready.Launch = (*Launch)(nil)

// New makes no request: region, instance and credentials are looked up at the first call, and again until that
// succeeds, since a machine's metadata service may answer late.
func New(o Options) *Launch { return &Launch{options: o} }

// connect returns the client, after looking up what the options leave empty.
func (l *Launch) connect(ctx context.Context) (*autoscaling.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.api != nil {
		return l.api, nil
	}
	o := l.options
	if o.Instance == "" || o.Region == "" {
		d, err := awsconfig.Machine{Metadata: o.Metadata}.Identity(ctx)
		if err != nil {
			return nil, reason.Errorf(reason.Metadata, "asking the metadata service which instance this is: %w", err)
		}
		o.Instance, o.Region = d.InstanceID, d.Region
	}
	c, err := awsconfig.Machine{Endpoint: o.Endpoint, Metadata: o.Metadata, Region: o.Region}.Load(ctx)
	if err != nil {
		return nil, err
	}
	api := autoscaling.NewFromConfig(c)
	if o.Group == "" {
		if o.Group, err = groupOf(ctx, api, o); err != nil {
			return nil, err
		}
	}
	if o.Group == "" {
		// Not cached: AutoScaling may not list a new instance yet. A machine without a group has nothing to complete.
		l.options = o
		return api, ready.ErrNoAction
	}
	l.api, l.options = api, o
	return l.api, nil
}

// groupOf returns the group that launched the machine, or "".
func groupOf(ctx context.Context, api *autoscaling.Client, o Options) (string, error) {
	if o.Tag != nil {
		if name, err := o.Tag(ctx); name != "" || err != nil {
			return name, err
		}
	}
	i, err := describe(ctx, api, o.Instance)
	return aws.ToString(i.AutoScalingGroupName), err
}

// describe returns AutoScaling's description of an instance; the zero value if it is in no group.
func describe(ctx context.Context, api *autoscaling.Client, instance string) (types.AutoScalingInstanceDetails, error) {
	out, err := api.DescribeAutoScalingInstances(ctx, &autoscaling.DescribeAutoScalingInstancesInput{InstanceIds: []string{instance}})
	if err != nil {
		return types.AutoScalingInstanceDetails{}, fmt.Errorf("asking AutoScaling about machine %s: %w", instance, explain(err, "DescribeAutoScalingInstances"))
	}
	for _, i := range out.AutoScalingInstances {
		return i, nil
	}
	return types.AutoScalingInstanceDetails{}, nil
}

// State returns the machine's lifecycle state, "" if it is in no group.
func (l *Launch) State(ctx context.Context) (string, error) {
	api, err := l.connect(ctx)
	if err != nil && !errors.Is(err, ready.ErrNoAction) {
		return "", err
	}
	i, err := describe(ctx, api, l.options.Instance)
	return aws.ToString(i.LifecycleState), err
}

// Heartbeat restarts the heartbeat timeout of the launch hook.
func (l *Launch) Heartbeat(ctx context.Context) error {
	api, err := l.connect(ctx)
	if err != nil {
		return err
	}
	_, err = api.RecordLifecycleActionHeartbeat(ctx, &autoscaling.RecordLifecycleActionHeartbeatInput{
		AutoScalingGroupName: &l.options.Group, LifecycleHookName: &l.options.Hook, InstanceId: &l.options.Instance,
	})
	if err != nil {
		return fmt.Errorf("hook %s of group %s: %w", l.options.Hook, l.options.Group, explain(err, "RecordLifecycleActionHeartbeat"))
	}
	return nil
}

// Complete completes the launch hook, which puts the machine into service.
func (l *Launch) Complete(ctx context.Context) error {
	api, err := l.connect(ctx)
	if err != nil {
		return err
	}
	_, err = api.CompleteLifecycleAction(ctx, &autoscaling.CompleteLifecycleActionInput{
		AutoScalingGroupName: &l.options.Group, LifecycleHookName: &l.options.Hook, InstanceId: &l.options.Instance, LifecycleActionResult: aws.String("CONTINUE"),
	})
	if err != nil {
		return fmt.Errorf("completing hook %s of group %s: %w", l.options.Hook, l.options.Group, explain(err, "CompleteLifecycleAction"))
	}
	return nil
}

// explain adds the reason of a failed boot to an error, with the permission to allow. No open lifecycle action is
// ready.ErrNoAction.
func explain(err error, action string) error {
	var api smithy.APIError
	switch {
	case errors.Is(err, awsconfig.ErrMetadata):
		return reason.With(reason.Metadata, err)
	case errors.Is(err, awsconfig.ErrNoRole):
		return reason.With(reason.Permission, err)
	case !errors.As(err, &api):
		return err
	case api.ErrorCode() == "ValidationError" && strings.Contains(api.ErrorMessage(), "No active Lifecycle Action found"):
		return ready.ErrNoAction
	case awserr.KindOf(err) == awserr.Denied:
		return &reason.Error{Reason: reason.Permission, Err: err, Next: "allow autoscaling:" + action + " for the group's instance role"}
	}
	return err
}
