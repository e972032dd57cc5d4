package cloudformation

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

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
)

// Proposal is the wanted content of a stack.
type Proposal struct {
	Stack string
	// Template is the template's body, URL its address in S3. If both are empty, the stack keeps its template.
	Template, URL string
	// Parameters are new values; Keep are the parameters that keep the stack's value.
	Parameters map[string]string
	Keep       []string
	// Tags are the stack's, which CloudFormation gives to the resources that take any. None leaves those that it has.
	Tags map[string]string
}

// Plan is a change set and its effect.
type Plan struct {
	Stack string `json:"stack"`
	// Creates reports whether the stack does not exist yet.
	Creates bool     `json:"creates"`
	Changes []Change `json:"changes"`
	// set is the id of the change set, stack that of the stack. Both are empty if nothing would change.
	set, stack string
}

// Empty reports whether nothing would change.
func (p *Plan) Empty() bool { return p.set == "" }

// cleanUpTime is how long cleaning up after an interrupted caller may take.
const cleanUpTime = time.Minute

// Propose makes a change set and describes it. The caller executes or discards it. If nothing would change, the plan
// is empty. An empty plan and an error leave no change set behind.
func (s *Stacks) Propose(ctx context.Context, p Proposal) (*Plan, error) {
	now, err := s.Describe(ctx, p.Stack)
	if err != nil && !errors.Is(err, ErrNoStack) {
		return nil, err
	}
	if now, err = s.waitUpdatable(ctx, now); err != nil {
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

// waitUpdatable waits for an operation that is under way. It fails if the stack then cannot be updated.
func (s *Stacks) waitUpdatable(ctx context.Context, now *Stack) (*Stack, error) {
	if now.Busy() {
		s.Log.Info("waiting for an operation that is under way", "stack", now.Name, "status", now.Status)
		last, err := s.newestEvent(ctx, now.ID)
		if err != nil {
			return nil, err
		}
		if now, err = s.follow(ctx, now.ID, last); err != nil {
			return nil, err
		}
	}
	if !now.Made() {
		return now, nil
	}
	switch {
	case now.Updatable():
		return now, nil
	case now.Status == Deleted:
		return nil, nil
	}
	return nil, &StateError{Stack: now.Name, Status: now.Status}
}

func (s *Stacks) createSet(ctx context.Context, p Proposal, plan *Plan) error {
	in := &cloudformation.CreateChangeSetInput{
		StackName: &p.Stack, ChangeSetName: aws.String("hardtack-" + strconv.FormatInt(s.Clock.Now().UnixNano(), 36)),
		Capabilities: []types.Capability{types.CapabilityCapabilityIam, types.CapabilityCapabilityNamedIam},
	}
	if plan.Creates {
		in.ChangeSetType = types.ChangeSetTypeCreate // without it, UPDATE
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
	for _, key := range slices.Sorted(maps.Keys(p.Tags)) {
		in.Tags = append(in.Tags, types.Tag{Key: &key, Value: aws.String(p.Tags[key])})
	}
	out, err := s.API.CreateChangeSet(ctx, in)
	if err != nil {
		return fmt.Errorf("making a change set of stack %s: %w", p.Stack, awserr.Explain(err, "cloudformation:CreateChangeSet"))
	}
	plan.set, plan.stack = aws.ToString(out.Id), aws.ToString(out.StackId)
	return nil
}

// unchanged are the beginnings of CloudFormation's reasons for a change set that failed because nothing changes.
var unchanged = []string{"The submitted information didn't contain changes", "No updates are to be performed"}

// describeSet waits until the change set is made and reads it. It discards a change set that changes nothing.
func (s *Stacks) describeSet(ctx context.Context, plan *Plan) error {
	in := &cloudformation.DescribeChangeSetInput{ChangeSetName: &plan.set, StackName: &plan.stack}
	for {
		out, err := s.API.DescribeChangeSet(ctx, in)
		if err != nil {
			return fmt.Errorf("reading the change set of stack %s: %w", plan.Stack, awserr.Explain(err, "cloudformation:DescribeChangeSet"))
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

// Discard deletes the change set, and the stack if it was only made for it. It also works after ctx has ended.
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
			return fmt.Errorf("removing the change set %s of stack %s, which changes nothing until it is executed: %w", plan.set, plan.Stack, awserr.Explain(err, "cloudformation:DeleteChangeSet"))
		}
		break
	}
	plan.set = ""
	if !plan.Creates {
		return nil
	}
	// Only a stack without resources: another client may have created it meanwhile.
	now, err := s.Describe(ctx, plan.stack)
	if err == nil && !now.Made() {
		_, err = s.API.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: &plan.stack})
	}
	if err != nil && !errors.Is(err, ErrNoStack) {
		return fmt.Errorf("removing stack %s, which was only reviewed: %w", plan.Stack, awserr.Explain(err, "cloudformation:DeleteStack"))
	}
	return nil
}
