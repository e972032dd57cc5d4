package formation

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
)

// Event is one of a stack's.
type Event struct {
	Time     time.Time `json:"time"`
	Resource string    `json:"resource"`
	Type     string    `json:"type"`
	Status   string    `json:"status"`
	Reason   string    `json:"reason,omitempty"`
	id       string
}

// Failure is an operation that did not succeed.
type Failure struct {
	Stack  string `json:"stack"`
	Status string `json:"status"`
	// Resource is what failed first, and Reason why; empty where no event says so.
	Resource string `json:"resource"`
	Type     string `json:"type"`
	Reason   string `json:"reason"`
}

func (f *Failure) Error() string {
	text := fmt.Sprintf("stack %s is %s", f.Stack, f.Status)
	if f.Resource != "" {
		text += fmt.Sprintf(": %s (%s) failed: %s", f.Resource, f.Type, f.Reason)
	}
	return text + "\n" + next(f.Stack, f.Status)
}

// Interrupted is what waiting ends with when the context has ended: CloudFormation goes on.
type Interrupted struct {
	Stack string
	Err   error
}

func (i *Interrupted) Error() string {
	return fmt.Sprintf("stopped watching: CloudFormation goes on with stack %s; hardtack stack status shows it, and the same command again waits for it", i.Stack)
}

func (i *Interrupted) Unwrap() error { return i.Err }

// Execute carries a plan out and waits for its end. One that is empty is done already.
func (s *Stacks) Execute(ctx context.Context, plan *Plan) (*Stack, error) {
	if plan.Empty() {
		return s.Describe(ctx, plan.Stack)
	}
	seen, err := s.newest(ctx, plan.stack)
	if err != nil {
		return nil, errors.Join(err, s.Discard(ctx, plan))
	}
	_, err = s.API.ExecuteChangeSet(ctx, &cloudformation.ExecuteChangeSetInput{ChangeSetName: &plan.set, StackName: &plan.stack})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("executing the change set of stack %s: %w", plan.Stack, explain(err, "cloudformation:ExecuteChangeSet")), s.Discard(ctx, plan))
	}
	plan.set = ""
	return s.succeed(ctx, plan.stack, seen, "CREATE_COMPLETE", "UPDATE_COMPLETE")
}

// Delete deletes a stack and waits for its end. One that is not there is no error.
func (s *Stacks) Delete(ctx context.Context, name string) error {
	now, err := s.Describe(ctx, name)
	if errors.Is(err, ErrNoStack) {
		return nil
	}
	if err != nil {
		return err
	}
	if now.Protected {
		return fmt.Errorf("deleting stack %s: it is protected: hardtack stack apply --protect=false takes that away", name)
	}
	seen, err := s.newest(ctx, now.ID)
	if err != nil {
		return err
	}
	if _, err := s.API.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: &now.ID}); err != nil {
		return fmt.Errorf("deleting stack %s: %w", name, explain(err, "cloudformation:DeleteStack"))
	}
	_, err = s.succeed(ctx, now.ID, seen, "DELETE_COMPLETE")
	return err
}

// succeed follows an operation, and has an error where it does not come to one of the wanted states.
func (s *Stacks) succeed(ctx context.Context, id, seen string, wanted ...string) (*Stack, error) {
	now, err := s.follow(ctx, id, seen)
	if err != nil || slices.Contains(wanted, now.Status) {
		return now, err
	}
	f := &Failure{Stack: now.Name, Status: now.Status}
	events, err := s.since(context.WithoutCancel(ctx), id, seen)
	for _, e := range events {
		// What was only cancelled because something else failed is not the reason.
		if strings.HasSuffix(e.Status, "_FAILED") && !strings.Contains(e.Reason, "cancelled") && e.Resource != now.Name {
			f.Resource, f.Type, f.Reason = e.Resource, e.Type, e.Reason
			break
		}
	}
	return now, errors.Join(f, err)
}

// follow tells every event after seen until nothing is under way.
func (s *Stacks) follow(ctx context.Context, id, seen string) (*Stack, error) {
	var err error
	if seen == "" {
		if seen, err = s.newest(ctx, id); err != nil {
			return nil, err
		}
	}
	for {
		// The state first: every event that came before it is then told.
		now, err := s.Describe(ctx, id)
		var events []Event
		if err == nil {
			events, err = s.since(ctx, id, seen)
		}
		if ctx.Err() != nil {
			return nil, &Interrupted{Stack: nameOf(id), Err: ctx.Err()}
		}
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			seen = e.id
			if s.Tell != nil {
				s.Tell(e)
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
	parts := strings.Split(id, "/")
	if len(parts) < 2 {
		return id
	}
	return parts[1]
}

// newest is the id of the stack's newest event.
func (s *Stacks) newest(ctx context.Context, id string) (string, error) {
	out, err := s.API.DescribeStackEvents(ctx, &cloudformation.DescribeStackEventsInput{StackName: &id})
	if err != nil {
		return "", fmt.Errorf("reading the events of stack %s: %w", nameOf(id), explain(err, "cloudformation:DescribeStackEvents"))
	}
	if len(out.StackEvents) == 0 {
		return "", nil
	}
	return aws.ToString(out.StackEvents[0].EventId), nil
}

// since are the events after the one that was seen, in their order.
func (s *Stacks) since(ctx context.Context, id, seen string) ([]Event, error) {
	var out []Event
	pages := cloudformation.NewDescribeStackEventsPaginator(s.API, &cloudformation.DescribeStackEventsInput{StackName: &id})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading the events of stack %s: %w", nameOf(id), explain(err, "cloudformation:DescribeStackEvents"))
		}
		for _, e := range page.StackEvents {
			if aws.ToString(e.EventId) == seen {
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
