package fleet

import (
	"context"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// hooksOf counts the calls about groups with three hooks, of which one is for launches.
type hooksOf struct{ described, completed int }

func (h *hooksOf) DescribeLifecycleHooks(context.Context, *autoscaling.DescribeLifecycleHooksInput, ...func(*autoscaling.Options)) (*autoscaling.DescribeLifecycleHooksOutput, error) {
	h.described++
	hook := func(name, transition string) astypes.LifecycleHook {
		return astypes.LifecycleHook{LifecycleHookName: &name, LifecycleTransition: aws.String("autoscaling:EC2_INSTANCE_" + transition)}
	}
	return &autoscaling.DescribeLifecycleHooksOutput{LifecycleHooks: []astypes.LifecycleHook{
		hook("a", "TERMINATING"), hook("b", "TERMINATING"), hook("c", "LAUNCHING"), hook(role.EvictionHook, "TERMINATING")}}, nil
}

func (h *hooksOf) CompleteLifecycleAction(_ context.Context, in *autoscaling.CompleteLifecycleActionInput, _ ...func(*autoscaling.Options)) (*autoscaling.CompleteLifecycleActionOutput, error) {
	h.completed++
	if name := aws.ToString(in.LifecycleHookName); name != "a" && name != "b" || aws.ToString(in.LifecycleActionResult) != "CONTINUE" {
		return nil, fmt.Errorf("hook %s was completed with %s", name, aws.ToString(in.LifecycleActionResult))
	}
	return nil, nil
}

// With every hook of theirs, a group's hooks are read once for all of its machines.
func TestHooksAreReadOnceAGroup(t *testing.T) {
	api := &hooksOf{}
	h := Hooks{API: api, Name: role.AllHooks}
	for i := range 50 {
		if err := h.Complete(t.Context(), fmt.Sprint("group-", i%2), fmt.Sprint("i-", i)); err != nil {
			t.Fatal(err)
		}
	}
	if api.described != 2 || api.completed != 100 {
		t.Errorf("%d readings and %d completions, want 2 and 100", api.described, api.completed)
	}
}
