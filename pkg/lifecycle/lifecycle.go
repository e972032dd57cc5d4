// Package lifecycle tells an AutoScaling group how far one of its machines is.
//
// Its rule: it speaks of the machine that it runs on and of one hook only, and "there is nothing to complete" is an
// answer like any other.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/smithy-go"

	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/ready"
	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsconfig"
)

// Options say which machine's launch it is.
type Options struct {
	// Endpoint stands in for AWS; empty is AWS.
	Endpoint string
	// Metadata is the endpoint of the instance metadata service, which gives the credentials and, where they are
	// empty, the region and the instance; empty is the usual one.
	Metadata         string
	Region, Instance string
	// Group is the AutoScaling group, Hook the hook that holds machines which it launches.
	Group, Hook string
}

// Launch is the launch of one machine. It is safe for concurrent use.
type Launch struct {
	options Options

	mu  sync.Mutex
	api *autoscaling.Client
}

var _ ready.Launch = (*Launch)(nil)

// New asks nothing yet: region, instance and credentials are found at the first question, and again until they are,
// since a machine's metadata service may answer late.
func New(o Options) *Launch { return &Launch{options: o} }

// connect returns the client.
func (l *Launch) connect(ctx context.Context) (*autoscaling.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.api != nil {
		return l.api, nil
	}
	o := l.options
	if o.Instance == "" || o.Region == "" {
		d, err := awsconfig.Metadata(o.Metadata).GetInstanceIdentityDocument(ctx, nil)
		if err != nil {
			return nil, reason.Errorf(reason.Metadata, "asking the metadata service which instance this is: %w", err)
		}
		o.Instance, o.Region = d.InstanceID, d.Region
	}
	c, err := awsconfig.Machine{Endpoint: o.Endpoint, Metadata: o.Metadata, Region: o.Region}.Load(ctx)
	if err != nil {
		return nil, err
	}
	l.api, l.options = autoscaling.NewFromConfig(c), o
	return l.api, nil
}

// State asks for the machine's lifecycle state.
func (l *Launch) State(ctx context.Context) (string, error) {
	api, err := l.connect(ctx)
	if err != nil {
		return "", err
	}
	out, err := api.DescribeAutoScalingInstances(ctx, &autoscaling.DescribeAutoScalingInstancesInput{InstanceIds: []string{l.options.Instance}})
	if err != nil {
		return "", fmt.Errorf("asking for the state of machine %s: %w", l.options.Instance, explain(err, "DescribeAutoScalingInstances"))
	}
	for _, i := range out.AutoScalingInstances {
		return aws.ToString(i.LifecycleState), nil
	}
	return "", nil
}

// Heartbeat gives the launch another heartbeat timeout.
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

// Complete lets the machine into service.
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

// explain gives an answer its meaning, and a refusal the action to allow.
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
	case strings.HasPrefix(api.ErrorCode(), "AccessDenied"), api.ErrorCode() == "UnauthorizedOperation":
		return &reason.Error{Reason: reason.Permission, Err: err, Next: "allow autoscaling:" + action + " for the group's instance role"}
	}
	return err
}
