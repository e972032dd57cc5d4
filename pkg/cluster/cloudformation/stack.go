package cloudformation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/smithy-go"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
)

// DefaultPoll is the time between two polls of an operation.
const DefaultPoll = 5 * time.Second

// Stacks operates on the stacks of one account and region.
type Stacks struct {
	API   *cloudformation.Client
	Clock clock.Clock
	// Poll is the time between two polls of an operation; 0 is DefaultPoll.
	Poll time.Duration
	Log  *slog.Logger
	// OnEvent is called with every event of an operation, oldest first. It may be nil.
	OnEvent func(Event)
}

// Stack is the state of a stack.
type Stack struct {
	Name   string `json:"name"`
	ID     string `json:"id"`
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
	// Protected reports whether termination protection is on; it has to be turned off before the stack can be deleted.
	Protected bool `json:"protected"`
	// Parameters are the values as given. Resolved are the resolved values of those that name a parameter in Parameter
	// Store.
	Parameters map[string]string `json:"parameters"`
	Resolved   map[string]string `json:"resolved,omitempty"`
	Outputs    map[string]string `json:"outputs"`
}

// Made reports whether the stack has ever had resources. A stack that is only being reviewed has none.
func (s *Stack) Made() bool { return s != nil && s.Status != string(types.StackStatusReviewInProgress) }

// Busy reports whether an operation is under way.
func (s *Stack) Busy() bool { return s.Made() && strings.HasSuffix(s.Status, "_IN_PROGRESS") }

// Updatable reports whether the stack can be updated in its present state.
func (s *Stack) Updatable() bool {
	return slices.Contains([]string{"CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "IMPORT_COMPLETE", "IMPORT_ROLLBACK_COMPLETE"}, s.Status)
}

// Deleted is the status of a deleted stack or resource.
const Deleted = "DELETE_COMPLETE"

// Describe reads a stack by its name or id. A deleted stack is only found by its id. The error is ErrNoStack if there is
// none.
func (s *Stacks) Describe(ctx context.Context, name string) (*Stack, error) {
	out, err := s.API.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &name})
	var api smithy.APIError
	switch {
	case errors.As(err, &api) && api.ErrorCode() == "ValidationError" && strings.Contains(api.ErrorMessage(), "does not exist"):
		return nil, fmt.Errorf("reading stack %s: %w", name, ErrNoStack)
	case err != nil:
		return nil, fmt.Errorf("reading stack %s: %w", name, awserr.Explain(err, "cloudformation:DescribeStacks"))
	case len(out.Stacks) != 1:
		return nil, fmt.Errorf("reading stack %s: %d stacks are described", name, len(out.Stacks))
	}
	return stackOf(out.Stacks[0]), nil
}

func stackOf(in types.Stack) *Stack {
	out := &Stack{
		Name: aws.ToString(in.StackName), ID: aws.ToString(in.StackId), Status: string(in.StackStatus), Reason: aws.ToString(in.StackStatusReason),
		Protected: aws.ToBool(in.EnableTerminationProtection), Parameters: map[string]string{}, Resolved: map[string]string{}, Outputs: map[string]string{},
	}
	for _, p := range in.Parameters {
		key := aws.ToString(p.ParameterKey)
		out.Parameters[key] = aws.ToString(p.ParameterValue)
		if p.ResolvedValue != nil {
			out.Resolved[key] = *p.ResolvedValue
		}
	}
	for _, o := range in.Outputs {
		out.Outputs[aws.ToString(o.OutputKey)] = aws.ToString(o.OutputValue)
	}
	return out
}

// Resources returns the resources of a stack by their logical names.
func (s *Stacks) Resources(ctx context.Context, name string) (map[string]Resource, error) {
	out := map[string]Resource{}
	pages := cloudformation.NewListStackResourcesPaginator(s.API, &cloudformation.ListStackResourcesInput{StackName: &name})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading the resources of stack %s: %w", name, awserr.Explain(err, "cloudformation:ListStackResources"))
		}
		for _, r := range page.StackResourceSummaries {
			out[aws.ToString(r.LogicalResourceId)] = Resource{Type: aws.ToString(r.ResourceType), ID: aws.ToString(r.PhysicalResourceId), Status: string(r.ResourceStatus)}
		}
	}
	return out, nil
}

// Resource is a resource of a stack.
type Resource struct {
	Type   string `json:"type"`
	ID     string `json:"id"`
	Status string `json:"status"`
}

// Protect turns the stack's termination protection on or off.
func (s *Stacks) Protect(ctx context.Context, name string, on bool) error {
	_, err := s.API.UpdateTerminationProtection(ctx, &cloudformation.UpdateTerminationProtectionInput{StackName: &name, EnableTerminationProtection: &on})
	if err != nil {
		return fmt.Errorf("setting the termination protection of stack %s: %w", name, awserr.Explain(err, "cloudformation:UpdateTerminationProtection"))
	}
	return nil
}
