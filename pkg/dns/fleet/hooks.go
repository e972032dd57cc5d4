package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/smithy-go"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// terminating is the transition of termination hooks, which hold a machine until it has left DNS.
const terminating = "autoscaling:EC2_INSTANCE_TERMINATING"

// hookActions are the permissions that Complete needs.
const hookActions = "autoscaling:DescribeLifecycleHooks and autoscaling:CompleteLifecycleAction"

// HooksAPI is the part of AutoScaling's client that Hooks uses.
type HooksAPI interface {
	DescribeLifecycleHooks(ctx context.Context, in *autoscaling.DescribeLifecycleHooksInput, opts ...func(*autoscaling.Options)) (*autoscaling.DescribeLifecycleHooksOutput, error)
	CompleteLifecycleAction(ctx context.Context, in *autoscaling.CompleteLifecycleActionInput, opts ...func(*autoscaling.Options)) (*autoscaling.CompleteLifecycleActionOutput, error)
}

// Hooks completes the termination hooks of AutoScaling groups.
type Hooks struct {
	API HooksAPI
	// Name is the hook to complete; empty is role.DrainHook. role.AllHooks is every termination hook of the group but
	// role.EvictionHook, which the masters answer: also hooks of others, whose work on the machine ends with that.
	Name string

	mu    sync.Mutex
	known map[string]groupHooks
}

// groupHooks are a group's hooks on termination, as they were at a time.
type groupHooks struct {
	names []string
	read  time.Time
}

// hooksFor is how long a reading of a group's hooks is used: for all machines of one call.
const hooksFor = 30 * time.Second

var _ reconcile.Hooks = (*Hooks)(nil)

// Complete completes the hooks of a machine by its instance id; the token of an event, which may be lost, is not needed.
func (h *Hooks) Complete(ctx context.Context, group, instanceID string) error {
	names := []string{cmp.Or(h.Name, role.DrainHook)}
	if h.Name == role.AllHooks {
		var err error
		if names, err = h.all(ctx, group); err != nil {
			return err
		}
	}
	for _, name := range names {
		_, err := h.API.CompleteLifecycleAction(ctx, &autoscaling.CompleteLifecycleActionInput{
			AutoScalingGroupName: &group, LifecycleHookName: &name, InstanceId: &instanceID, LifecycleActionResult: aws.String("CONTINUE"),
		})
		if err != nil && !isCompleted(err) {
			return fmt.Errorf("completing hook %s of machine %s in group %s: %w", name, instanceID, group, explain(err, hookActions))
		}
	}
	return nil
}

// all returns the hooks on termination of a group but the masters' own. They are read once for many machines.
func (h *Hooks) all(ctx context.Context, group string) ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if k := h.known[group]; time.Since(k.read) < hooksFor { // hooks that were never read are as old as can be
		return k.names, nil
	}
	out, err := h.API.DescribeLifecycleHooks(ctx, &autoscaling.DescribeLifecycleHooksInput{AutoScalingGroupName: &group})
	if err != nil {
		return nil, fmt.Errorf("reading the hooks of group %s: %w", group, explain(err, hookActions))
	}
	k := groupHooks{read: time.Now()}
	for _, hook := range out.LifecycleHooks {
		if name := aws.ToString(hook.LifecycleHookName); aws.ToString(hook.LifecycleTransition) == terminating && name != role.EvictionHook {
			k.names = append(k.names, name)
		}
	}
	if h.known == nil {
		h.known = map[string]groupHooks{}
	}
	h.known[group] = k
	return k.names, nil
}

// isCompleted reports whether the error is about a machine that is no longer waiting, or gone.
func isCompleted(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == "ValidationError" && strings.Contains(api.ErrorMessage(), "No active Lifecycle Action found")
}
