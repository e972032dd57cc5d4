package formation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
)

// Proposal is what a stack is to be.
type Proposal struct {
	Stack string
	// Template is the body, URL where it is in S3 in its place; neither is the template that the stack has.
	Template, URL string
	// Parameters are given; Keep are those that stay as they are.
	Parameters map[string]string
	Keep       []string
}

// Plan is a change set, and what it would do.
type Plan struct {
	Stack string `json:"stack"`
	// Creates: there is no stack yet.
	Creates bool     `json:"creates"`
	Changes []Change `json:"changes"`
	// set is the change set's id, stack the stack's; empty where nothing would change.
	set, stack string
}

// Empty reports whether there is nothing to do.
func (p *Plan) Empty() bool { return p.set == "" }

// cleanUpTime is how long what an interrupted caller leaves behind may take to be removed.
const cleanUpTime = time.Minute

// Propose makes a change set and describes it. The caller executes or discards it. Where nothing would change the plan
// is empty, and nothing is left behind; nor is it where an error is returned.
func (s *Stacks) Propose(ctx context.Context, p Proposal) (*Plan, error) {
	now, err := s.Describe(ctx, p.Stack)
	if err != nil && !errors.Is(err, ErrNoStack) {
		return nil, err
	}
	if now, err = s.settled(ctx, now); err != nil {
		return nil, err
	}
	plan := &Plan{Stack: p.Stack, Creates: !now.Made(), Changes: []Change{}}
	if err := s.createSet(ctx, p, plan); err != nil {
		return nil, err
	}
	if err := s.describeSet(ctx, plan); err != nil {
		return nil, errors.Join(err, s.Discard(ctx, plan))
	}
	return plan, nil
}

// settled waits for an operation that is under way, and says what has to be done before another can begin.
func (s *Stacks) settled(ctx context.Context, now *Stack) (*Stack, error) {
	if now.Busy() {
		s.Log.Info("waiting for what is under way", "stack", now.Name, "status", now.Status)
		var err error
		if now, err = s.follow(ctx, now.ID, ""); err != nil {
			return nil, err
		}
	}
	if !now.Made() {
		return now, nil
	}
	switch now.Status {
	case "CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "IMPORT_COMPLETE", "IMPORT_ROLLBACK_COMPLETE":
		return now, nil
	case "DELETE_COMPLETE":
		return nil, nil
	}
	return nil, fmt.Errorf("stack %s is %s: %s", now.Name, now.Status, next(now.Name, now.Status))
}

// next is what to do about a stack that has come to this state.
func next(stack, status string) string {
	switch status {
	case "ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED":
		return "it can only be deleted: hardtack stack delete --yes, and then apply again"
	case "UPDATE_ROLLBACK_COMPLETE":
		return "everything is as it was before; mend the reason and apply again"
	case "UPDATE_ROLLBACK_FAILED", "UPDATE_FAILED":
		return "mend the reason, then aws cloudformation continue-update-rollback --stack-name " + stack
	}
	return "aws cloudformation describe-stack-events --stack-name " + stack
}

func (s *Stacks) createSet(ctx context.Context, p Proposal, plan *Plan) error {
	in := &cloudformation.CreateChangeSetInput{
		StackName: &p.Stack, ChangeSetName: aws.String("hardtack-" + strconv.FormatInt(s.Clock.Now().UnixNano(), 36)),
		ChangeSetType: types.ChangeSetTypeUpdate, Capabilities: []types.Capability{types.CapabilityCapabilityIam},
	}
	if plan.Creates {
		in.ChangeSetType = types.ChangeSetTypeCreate
	}
	switch {
	case p.Template != "":
		in.TemplateBody = &p.Template
	case p.URL != "":
		in.TemplateURL = &p.URL
	default:
		in.UsePreviousTemplate = aws.Bool(true)
	}
	for _, key := range slices.Sorted(maps.Keys(p.Parameters)) {
		in.Parameters = append(in.Parameters, types.Parameter{ParameterKey: &key, ParameterValue: aws.String(p.Parameters[key])})
	}
	for _, key := range p.Keep {
		in.Parameters = append(in.Parameters, types.Parameter{ParameterKey: &key, UsePreviousValue: aws.Bool(true)})
	}
	out, err := s.API.CreateChangeSet(ctx, in)
	if err != nil {
		return fmt.Errorf("making a change set of stack %s: %w", p.Stack, explain(err, "cloudformation:CreateChangeSet"))
	}
	plan.set, plan.stack = aws.ToString(out.Id), aws.ToString(out.StackId)
	return nil
}

// unchanged are the beginnings of the reasons for which a change set is not made because there is nothing to change.
var unchanged = []string{"The submitted information didn't contain changes", "No updates are to be performed"}

// describeSet waits until the change set is made, and reads it. One that changes nothing is removed.
func (s *Stacks) describeSet(ctx context.Context, plan *Plan) error {
	in := &cloudformation.DescribeChangeSetInput{ChangeSetName: &plan.set, StackName: &plan.stack}
	for {
		out, err := s.API.DescribeChangeSet(ctx, in)
		if err != nil {
			return fmt.Errorf("reading the change set of stack %s: %w", plan.Stack, explain(err, "cloudformation:DescribeChangeSet"))
		}
		reason := aws.ToString(out.StatusReason)
		switch out.Status {
		case types.ChangeSetStatusFailed:
			if slices.ContainsFunc(unchanged, func(text string) bool { return strings.HasPrefix(reason, text) }) {
				return s.Discard(ctx, plan)
			}
			return fmt.Errorf("making a change set of stack %s: %s", plan.Stack, reason)
		case types.ChangeSetStatusCreateComplete:
			for _, c := range out.Changes {
				if c.ResourceChange != nil {
					plan.Changes = append(plan.Changes, changeOf(c.ResourceChange))
				}
			}
			if out.NextToken == nil {
				return nil
			}
			in.NextToken = out.NextToken
			continue
		}
		if err := s.Clock.Sleep(ctx, cmp.Or(s.Poll, DefaultPoll)); err != nil {
			return err
		}
	}
}

// Discard removes the change set, and a stack that was only there for it. It also works once ctx has ended.
func (s *Stacks) Discard(ctx context.Context, plan *Plan) error {
	if plan.Empty() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	for {
		_, err := s.API.DeleteChangeSet(ctx, &cloudformation.DeleteChangeSetInput{ChangeSetName: &plan.set, StackName: &plan.stack})
		var early *types.InvalidChangeSetStatusException // it is still being made
		if errors.As(err, &early) && s.Clock.Sleep(ctx, cmp.Or(s.Poll, DefaultPoll)) == nil {
			continue
		}
		if err != nil {
			return fmt.Errorf("removing the change set of stack %s: %w (aws cloudformation delete-change-set --change-set-name %s)", plan.Stack, explain(err, "cloudformation:DeleteChangeSet"), plan.set)
		}
		break
	}
	plan.set = ""
	if !plan.Creates {
		return nil
	}
	// Only what was never made: somebody else may have made the stack meanwhile.
	now, err := s.Describe(ctx, plan.stack)
	if err == nil && !now.Made() {
		_, err = s.API.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: &plan.stack})
	}
	if err != nil && !errors.Is(err, ErrNoStack) {
		return fmt.Errorf("removing stack %s, which was only reviewed: %w", plan.Stack, explain(err, "cloudformation:DeleteStack"))
	}
	return nil
}
