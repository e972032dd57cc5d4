package formation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/smithy-go"
)

// Clock is the time; tests bring their own.
type Clock interface {
	Now() time.Time
	// Sleep waits for d or until ctx ends, whose error it then returns.
	Sleep(ctx context.Context, d time.Duration) error
}

// DefaultPoll is the time between two looks at what is under way.
const DefaultPoll = 5 * time.Second

// Stacks are an account's and a region's.
type Stacks struct {
	API   *cloudformation.Client
	Clock Clock
	// Poll is the time between two looks at what is under way; 0 is DefaultPoll.
	Poll time.Duration
	Log  *slog.Logger
	// Tell is called with every event of what is under way, in their order; nil is nobody.
	Tell func(Event)
}

// ErrNoStack is when there is no stack of the name.
var ErrNoStack = errors.New("there is no such stack")

// Stack is one as it is.
type Stack struct {
	Name   string `json:"name"`
	ID     string `json:"id"`
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
	// Protected: it cannot be deleted before its termination protection is taken away.
	Protected bool `json:"protected"`
	// Parameters are as they were given, Resolved those that stand for something else, as they were understood.
	Parameters map[string]string `json:"parameters"`
	Resolved   map[string]string `json:"resolved,omitempty"`
	Outputs    map[string]string `json:"outputs"`
}

// Made reports whether the stack has ever had resources: one that is only being reviewed has none.
func (s *Stack) Made() bool { return s != nil && s.Status != string(types.StackStatusReviewInProgress) }

// Busy reports whether an operation is under way.
func (s *Stack) Busy() bool { return s.Made() && strings.HasSuffix(s.Status, "_IN_PROGRESS") }

// Describe reads a stack by its name, or by its id also after it was deleted.
func (s *Stacks) Describe(ctx context.Context, name string) (*Stack, error) {
	out, err := s.API.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &name})
	var api smithy.APIError
	switch {
	case errors.As(err, &api) && api.ErrorCode() == "ValidationError" && strings.Contains(api.ErrorMessage(), "does not exist"):
		return nil, fmt.Errorf("reading stack %s: %w", name, ErrNoStack)
	case err != nil:
		return nil, fmt.Errorf("reading stack %s: %w", name, explain(err, "cloudformation:DescribeStacks"))
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

// Resources are the stack's, by their logical names: what each is in AWS.
func (s *Stacks) Resources(ctx context.Context, name string) (map[string]Resource, error) {
	out := map[string]Resource{}
	pages := cloudformation.NewListStackResourcesPaginator(s.API, &cloudformation.ListStackResourcesInput{StackName: &name})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading the resources of stack %s: %w", name, explain(err, "cloudformation:ListStackResources"))
		}
		for _, r := range page.StackResourceSummaries {
			out[aws.ToString(r.LogicalResourceId)] = Resource{Type: aws.ToString(r.ResourceType), ID: aws.ToString(r.PhysicalResourceId), Status: string(r.ResourceStatus)}
		}
	}
	return out, nil
}

// Resource is one of a stack's.
type Resource struct {
	Type   string `json:"type"`
	ID     string `json:"id"`
	Status string `json:"status"`
}

// Protect sets or takes away the stack's termination protection.
func (s *Stacks) Protect(ctx context.Context, name string, on bool) error {
	_, err := s.API.UpdateTerminationProtection(ctx, &cloudformation.UpdateTerminationProtectionInput{StackName: &name, EnableTerminationProtection: &on})
	if err != nil {
		return fmt.Errorf("setting the termination protection of stack %s: %w", name, explain(err, "cloudformation:UpdateTerminationProtection"))
	}
	return nil
}

// explain adds what to do to what AWS answers.
func explain(err error, action string) error {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return err
	}
	switch code := api.ErrorCode(); {
	case strings.HasPrefix(code, "AccessDenied"):
		return fmt.Errorf("%w (allow %s)", err, action)
	case code == "ExpiredToken", code == "InvalidClientTokenId":
		return fmt.Errorf("%w (AWS does not take these credentials: sign in again, and check the clock)", err)
	}
	return err
}
