package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/smithy-go"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// hooksOf counts the calls about groups with three hooks, of which one is for launches.
type hooksOf struct {
	described, completed int
	refuse               error
}

func (h *hooksOf) DescribeLifecycleHooks(context.Context, *autoscaling.DescribeLifecycleHooksInput, ...func(*autoscaling.Options)) (*autoscaling.DescribeLifecycleHooksOutput, error) {
	h.described++
	if h.refuse != nil {
		return nil, h.refuse
	}
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

// Hooks that cannot be read are not none: the machine would wait, and nobody would know why.
func TestHooksThatCannotBeRead(t *testing.T) {
	api := &hooksOf{refuse: &smithy.GenericAPIError{Code: "AccessDenied"}}
	h := Hooks{API: api, Name: role.AllHooks}
	err := h.Complete(t.Context(), "g", "i-1")
	if !errors.Is(err, api.refuse) || !strings.Contains(err.Error(), "allow autoscaling:DescribeLifecycleHooks") || api.completed != 0 {
		t.Errorf("%v, with %d completions", err, api.completed)
	}
	api.refuse = nil
	if err := h.Complete(t.Context(), "g", "i-1"); err != nil || api.completed != 2 {
		t.Errorf("%v, with %d completions", err, api.completed)
	}
}

// What was read of a group's hooks is used for half a minute, and for how long one holds for five.
func TestHooksAreReadAgain(t *testing.T) {
	api := &hooksOf{}
	h := Hooks{API: api, Name: role.AllHooks}
	e := Evictions{API: evictionsOf{hooks: api}}
	for i, age := range []time.Duration{0, hooksFor / 2, hooksFor + time.Second} {
		h.known = map[string]groupHooks{"g": {read: time.Now().Add(-age)}}
		before := api.described
		if err := h.Complete(t.Context(), "g", "i-1"); err != nil {
			t.Fatal(err)
		}
		if again := api.described > before; again != (i == 2) {
			t.Errorf("hooks that were read %s ago are read again: %t", age, again)
		}
	}
	for i, age := range []time.Duration{0, drainLife / 2, drainLife + time.Second} {
		e.drains = map[string]drain{"g": {time.Minute, time.Now().Add(-age)}}
		before := api.described
		if _, err := e.Drain(t.Context(), "g"); err != nil {
			t.Fatal(err)
		}
		if again := api.described > before; again != (i == 2) {
			t.Errorf("a time that was read %s ago is read again: %t", age, again)
		}
	}
}

// evictionsOf is AutoScaling of which only the hooks are asked for.
type evictionsOf struct {
	EvictionsAPI
	hooks *hooksOf
}

func (e evictionsOf) DescribeLifecycleHooks(ctx context.Context, in *autoscaling.DescribeLifecycleHooksInput,
	opts ...func(*autoscaling.Options)) (*autoscaling.DescribeLifecycleHooksOutput, error) {
	return e.hooks.DescribeLifecycleHooks(ctx, in, opts...)
}

// AutoScaling says of a machine that does not wait, and of one that is gone, that the request is not valid, and why. Every other
// refusal is one.
func TestIsCompleted(t *testing.T) {
	const gone = "No active Lifecycle Action found with instance ID i-1"
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"no error":          {nil, false},
		"no error of AWS's": {errors.New(gone), false},
		"it does not wait":  {fmt.Errorf("completing: %w", &smithy.GenericAPIError{Code: "ValidationError", Message: gone}), true},
		"another mistake":   {&smithy.GenericAPIError{Code: "ValidationError", Message: "Group name not found"}, false},
		"another refusal":   {&smithy.GenericAPIError{Code: "ResourceContention", Message: gone}, false},
	} {
		if got := isCompleted(tt.err); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
