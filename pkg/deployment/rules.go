package deployment

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/service/eventbridge"

	"github.com/hardtack/packer-plugin-hardtack/pkg/doctor"
)

// rulesOf reads the rules that the stack names, or without a stack those that send to the queue.
func (r *Reader) rulesOf(ctx context.Context, s doctor.Known[doctor.Stack], queue doctor.Known[doctor.Queue]) (k doctor.Known[[]doctor.Rule]) {
	var list []doctor.Rule
	for _, id := range []string{doctor.IDScaling, doctor.IDCalls, doctor.IDSweep} {
		if res, ok := s.Value.Resources[id]; ok && res.ID != "" {
			list = append(list, doctor.Rule{LogicalID: id, Name: res.ID})
		}
	}
	if len(s.Value.Resources) == 0 {
		if queue.Err != nil {
			k.Err = unread("the rules", "the queue")
			return k
		}
		if list, k.Err = r.rulesTo(ctx, queue.Value.ARN); k.Err != nil {
			k.Err = explain(k.Err)
			return k
		}
	}
	for _, rule := range list {
		err := explain(r.rule(ctx, &rule))
		if rule.Missing = errors.Is(err, doctor.ErrNotThere); err != nil && !rule.Missing {
			k.Err = err
			return k
		}
		k.Value = append(k.Value, rule)
	}
	return k
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
