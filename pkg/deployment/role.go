package deployment

import (
	"context"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/doctor"
)

// role asks IAM's simulator what the function's role may do.
func (r *Reader) role(ctx context.Context, f *doctor.Facts) (k doctor.Known[[]doctor.Decision]) {
	if f.Function.Err != nil || f.Settings.Err != nil {
		k.Err = unread("what the role may do", "the function and its environment")
		return k
	}
	place, err := doctor.PlaceOf(f.Function.Value.ARN)
	if err != nil {
		k.Err = err
		return k
	}
	for _, t := range doctor.Trials(f.Settings.Value, place, f.Queue.Value.ARN, f.Function.Value.LogGroup) {
		list, err := r.try(ctx, f.Function.Value.Role, t)
		if err != nil {
			k.Err = explain(err)
			return k
		}
		k.Value = append(k.Value, list...)
	}
	return k
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
			// Where the answer is by resource, that is the one to go by, says IAM's reference.
			if len(e.ResourceSpecificResults) == 1 {
				d.Decision, d.Missing = string(e.ResourceSpecificResults[0].EvalResourceDecision), e.ResourceSpecificResults[0].MissingContextValues
			}
			list = append(list, d)
		}
	}
	return list, nil
}
