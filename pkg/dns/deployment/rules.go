package deployment

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/service/eventbridge"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/shipped"
)

// rulesOf reads the stack's rules, or if there is no stack those that send to the queue.
func (r *Reader) rulesOf(ctx context.Context, s doctor.Known[doctor.Stack], queue doctor.Known[doctor.Queue]) (list []doctor.Rule, err error) {
	for _, id := range []string{shipped.IDScaling, shipped.IDCalls, shipped.IDInstances, shipped.IDSweep} {
		if res, ok := s.Value.Resources[id]; ok && res.ID != "" {
			list = append(list, doctor.Rule{LogicalID: id, Name: res.ID})
		}
	}
	if len(s.Value.Resources) == 0 {
		if queue.Err != nil {
			return nil, unread("the rules", "the queue")
		}
		if list, err = r.rulesTo(ctx, queue.Value.ARN); err != nil {
			return nil, err
		}
	}
	for i := range list {
		err := Explain(r.rule(ctx, &list[i]))
		if list[i].Missing = errors.Is(err, doctor.ErrNotThere); err != nil && !list[i].Missing {
			return nil, err
		}
	}
	return list, nil
}

// rulesTo lists the rules that send to a target.
func (r *Reader) rulesTo(ctx context.Context, arn string) (list []doctor.Rule, err error) {
	in := eventbridge.ListRuleNamesByTargetInput{TargetArn: &arn}
	for {
		out, err := r.rules.ListRuleNamesByTarget(ctx, &in)
		if err != nil {
			return nil, err
		}
		for _, name := range out.RuleNames {
			list = append(list, doctor.Rule{Name: name})
		}
		if in.NextToken = out.NextToken; in.NextToken == nil {
			return list, nil
		}
	}
}

// rule fills in a rule and its targets.
func (r *Reader) rule(ctx context.Context, rule *doctor.Rule) error {
	out, err := r.rules.DescribeRule(ctx, &eventbridge.DescribeRuleInput{Name: &rule.Name})
	if err != nil {
		return err
	}
	rule.ARN, rule.State, rule.Pattern, rule.Schedule = text(out.Arn), string(out.State), text(out.EventPattern), text(out.ScheduleExpression)
	in := eventbridge.ListTargetsByRuleInput{Rule: &rule.Name}
	for {
		out, err := r.rules.ListTargetsByRule(ctx, &in)
		if err != nil {
			return err
		}
		for _, t := range out.Targets {
			rule.Targets = append(rule.Targets, doctor.Target{ARN: text(t.Arn), Transformed: t.Input != nil || t.InputPath != nil || t.InputTransformer != nil})
		}
		if in.NextToken = out.NextToken; in.NextToken == nil {
			return nil
		}
	}
}
