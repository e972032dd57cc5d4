package cloudformation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
)

// Event is an event of a stack.
type Event struct {
	Time     time.Time `json:"time"`
	Resource string    `json:"resource"`
	Type     string    `json:"type"`
	Status   string    `json:"status"`
	Reason   string    `json:"reason,omitempty"`
	id       string
}

// Execute executes a plan and waits until the operation has ended. It does nothing if the plan is empty.
func (s *Stacks) Execute(ctx context.Context, plan *Plan) (*Stack, error) {
	if plan.Empty() {
		return s.Describe(ctx, plan.Stack)
	}
	last, err := s.newestEvent(ctx, plan.stack)
	if err != nil {
		return nil, errors.Join(err, s.Discard(ctx, plan))
	}
	_, err = s.API.ExecuteChangeSet(ctx, &cloudformation.ExecuteChangeSetInput{ChangeSetName: &plan.set, StackName: &plan.stack})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("executing the change set of stack %s: %w", plan.Stack, awserr.Explain(err, "cloudformation:ExecuteChangeSet")), s.Discard(ctx, plan))
	}
	plan.set = ""
	return s.waitFor(ctx, plan.stack, last, "CREATE_COMPLETE", "UPDATE_COMPLETE")
}

// Delete deletes a stack and waits until it is gone. It succeeds if the stack does not exist.
func (s *Stacks) Delete(ctx context.Context, name string) error {
	now, err := s.Describe(ctx, name)
	if errors.Is(err, ErrNoStack) {
		return nil
	}
	if err != nil {
		return err
	}
	if now.Protected {
		return &ProtectedError{Stack: name}
	}
	last, err := s.newestEvent(ctx, now.ID)
	if err != nil {
		return err
	}
	if _, err := s.API.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: &now.ID}); err != nil {
		return fmt.Errorf("deleting stack %s: %w", name, awserr.Explain(err, "cloudformation:DeleteStack"))
	}
	_, err = s.waitFor(ctx, now.ID, last, Deleted)
	return err
}

// waitFor follows an operation and fails unless the stack reaches one of the wanted states.
func (s *Stacks) waitFor(ctx context.Context, id, last string, wanted ...string) (*Stack, error) {
	now, err := s.follow(ctx, id, last)
	if err != nil || slices.Contains(wanted, now.Status) {
		return now, err
	}
	f := &Failure{Stack: now.Name, Status: now.Status}
	events, err := s.eventsSince(context.WithoutCancel(ctx), id, last)
	for _, e := range events {
		// A resource whose operation was cancelled because another one failed is not the cause.
		if strings.HasSuffix(e.Status, "_FAILED") && !strings.Contains(e.Reason, "cancelled") && e.Resource != now.Name {
			f.Resource, f.Type, f.Reason = e.Resource, e.Type, e.Reason
			break
		}
	}
	return now, errors.Join(f, err)
}

// follow reports every event after the one with the id last, until no operation is under way. Every event is after an empty id.
func (s *Stacks) follow(ctx context.Context, id, last string) (*Stack, error) {
	for {
		// Read the state first: then all events that led to it are reported.
		now, err := s.Describe(ctx, id)
		var events []Event
		if err == nil {
			events, err = s.eventsSince(ctx, id, last)
		}
		if ctx.Err() != nil {
			return nil, &Interrupted{Stack: nameOf(id), Err: ctx.Err()}
		}
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			last = e.id
			if s.OnEvent != nil {
				s.OnEvent(e)
			}
		}
		if !strings.HasSuffix(now.Status, "_IN_PROGRESS") {
			return now, nil
		}
		if s.Clock.Sleep(ctx, cmp.Or(s.Poll, DefaultPoll)) != nil {
			return nil, &Interrupted{Stack: now.Name, Err: ctx.Err()}
		}
	}
}

// nameOf is the stack's name in its id, arn:aws:cloudformation:REGION:ACCOUNT:stack/NAME/ID.
func nameOf(id string) string {
	_, rest, _ := strings.Cut(id, "/")
	name, _, _ := strings.Cut(rest, "/")
	return name
}

// newestEvent is the id of the stack's newest event; empty if it has none.
func (s *Stacks) newestEvent(ctx context.Context, id string) (string, error) {
	out, err := s.API.DescribeStackEvents(ctx, &cloudformation.DescribeStackEventsInput{StackName: &id})
	if err != nil {
		return "", fmt.Errorf("reading the events of stack %s: %w", nameOf(id), awserr.Explain(err, "cloudformation:DescribeStackEvents"))
	}
	if len(out.StackEvents) == 0 {
		return "", nil
	}
	return aws.ToString(out.StackEvents[0].EventId), nil
}

// eventsSince returns the events after the event with the id last, oldest first.
func (s *Stacks) eventsSince(ctx context.Context, id, last string) ([]Event, error) {
	var out []Event
	pages := cloudformation.NewDescribeStackEventsPaginator(s.API, &cloudformation.DescribeStackEventsInput{StackName: &id})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading the events of stack %s: %w", nameOf(id), awserr.Explain(err, "cloudformation:DescribeStackEvents"))
		}
		for _, e := range page.StackEvents {
			if aws.ToString(e.EventId) == last {
				slices.Reverse(out)
				return out, nil
			}
			out = append(out, Event{
				Time: aws.ToTime(e.Timestamp), Resource: aws.ToString(e.LogicalResourceId), Type: aws.ToString(e.ResourceType),
				Status: string(e.ResourceStatus), Reason: aws.ToString(e.ResourceStatusReason), id: aws.ToString(e.EventId),
			})
		}
	}
	slices.Reverse(out)
	return out, nil
}
