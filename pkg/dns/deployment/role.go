package deployment

import (
	"context"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
)

// role simulates the trials of the function's role.
func (r *Reader) role(ctx context.Context, f *doctor.Facts) (list []doctor.Decision, err error) {
	if f.Function.Err != nil || f.Settings.Err != nil {
		return nil, unread("what the role may do", "the function and its environment")
	}
	place, err := doctor.PlaceOf(f.Function.Value.ARN)
	if err != nil {
		return nil, err
	}
	expected, err := doctor.Expect(r.template, *f)
	if err != nil {
		return nil, err
	}
	for _, t := range doctor.Trials(f.Settings.Value, place, f.Queue.Value.ARN, f.Function.Value.LogGroup, expected) {
		decisions, err := r.try(ctx, f.Function.Value.Role, t)
		if err != nil {
			return nil, err
		}
		list = append(list, decisions...)
	}
	return list, nil
}

// try simulates one trial.
func (r *Reader) try(ctx context.Context, role string, t doctor.Trial) (list []doctor.Decision, err error) {
	in := iam.SimulatePrincipalPolicyInput{PolicySourceArn: &role, ActionNames: t.Actions, ResourceArns: []string{t.Resource}}
	for _, key := range slices.Sorted(maps.Keys(t.Context)) {
		entry := types.ContextEntry{ContextKeyName: aws.String(key), ContextKeyType: types.ContextKeyTypeEnumString, ContextKeyValues: t.Context[key]}
		if doctor.Multivalued(key) {
			entry.ContextKeyType = types.ContextKeyTypeEnumStringList
		}
		in.ContextEntries = append(in.ContextEntries, entry)
	}
	pages := iam.NewSimulatePrincipalPolicyPaginator(r.iam, &in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, e := range page.EvaluationResults {
			d := doctor.Decision{Trial: t, Action: text(e.EvalActionName), Decision: string(e.EvalDecision), Missing: e.MissingContextValues}
			// IAM's reference: a result by resource takes precedence.
			if len(e.ResourceSpecificResults) == 1 {
				d.Decision, d.Missing = string(e.ResourceSpecificResults[0].EvalResourceDecision), e.ResourceSpecificResults[0].MissingContextValues
			}
			list = append(list, d)
		}
	}
	return list, nil
}
