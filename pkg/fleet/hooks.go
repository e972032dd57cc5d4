package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/smithy-go"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dnssync"
)

// terminating is the transition of the hooks that hold a machine until it has left DNS.
const terminating = "autoscaling:EC2_INSTANCE_TERMINATING"

// HooksAPI is what of AutoScaling's client hooks need.
type HooksAPI interface {
	DescribeLifecycleHooks(ctx context.Context, in *autoscaling.DescribeLifecycleHooksInput, opts ...func(*autoscaling.Options)) (*autoscaling.DescribeLifecycleHooksOutput, error)
	CompleteLifecycleAction(ctx context.Context, in *autoscaling.CompleteLifecycleActionInput, opts ...func(*autoscaling.Options)) (*autoscaling.CompleteLifecycleActionOutput, error)
}

// Hooks completes the termination hooks of AutoScaling groups.
type Hooks struct {
	API HooksAPI
	// Name is the hook to complete; empty: every hook of the group that holds terminating machines.
	Name string
}

var _ dnssync.Hooks = (*Hooks)(nil)

// Complete lets the machine end, by its instance id: a token of an event that was lost is not needed.
func (h *Hooks) Complete(ctx context.Context, group, instanceID string) error {
	names := []string{h.Name}
	if h.Name == "" {
		out, err := h.API.DescribeLifecycleHooks(ctx, &autoscaling.DescribeLifecycleHooksInput{AutoScalingGroupName: &group})
		if err != nil {
			return fmt.Errorf("reading the hooks of group %s: %w", group, explainHooks(err))
		}
		names = names[:0]
		for _, hook := range out.LifecycleHooks {
			if aws.ToString(hook.LifecycleTransition) == terminating {
				names = append(names, aws.ToString(hook.LifecycleHookName))
			}
		}
	}
	for _, name := range names {
		_, err := h.API.CompleteLifecycleAction(ctx, &autoscaling.CompleteLifecycleActionInput{
			AutoScalingGroupName: &group, LifecycleHookName: &name, InstanceId: &instanceID, LifecycleActionResult: aws.String("CONTINUE"),
		})
		if err != nil && !over(err) {
			return fmt.Errorf("completing hook %s of machine %s in group %s: %w", name, instanceID, group, explainHooks(err))
		}
	}
	return nil
}

// over reports the answer for a machine that waits no longer, or is gone.
func over(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == "ValidationError" && strings.Contains(api.ErrorMessage(), "No active Lifecycle Action found")
}

func explainHooks(err error) error {
	var api smithy.APIError
	if errors.As(err, &api) && strings.HasPrefix(api.ErrorCode(), "AccessDenied") {
		return fmt.Errorf("%w (allow autoscaling:DescribeLifecycleHooks and autoscaling:CompleteLifecycleAction for this role)", err)
	}
	return explain(err)
}
