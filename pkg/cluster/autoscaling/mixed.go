package autoscaling

import (
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
)

// A group's launch template is its own, or that of its mixed instances policy. The policy's other settings stay as they are: a call that
// has a part of them alone would leave the rest to AWS.

// launchTemplate returns the group's launch template; nil if it has none.
func launchTemplate(g types.AutoScalingGroup) *types.LaunchTemplateSpecification {
	if m := g.MixedInstancesPolicy; m != nil && m.LaunchTemplate != nil {
		return m.LaunchTemplate.LaunchTemplateSpecification
	}
	return g.LaunchTemplate
}

// instanceTypes are the types that a group's machines may have in place of the launch template's; none if there are no others.
func instanceTypes(g types.AutoScalingGroup) (names []string) {
	if m := g.MixedInstancesPolicy; m != nil && m.LaunchTemplate != nil {
		for _, o := range m.LaunchTemplate.Overrides {
			if o.InstanceType != nil {
				names = append(names, *o.InstanceType)
			}
		}
	}
	return names
}

// withVersion is what a group launches, with another version of its template: one of the two is nil. A group with a policy that were given
// a launch template alone would lose the policy.
func withVersion(g types.AutoScalingGroup, version int) (*types.LaunchTemplateSpecification, *types.MixedInstancesPolicy) {
	to := &types.LaunchTemplateSpecification{LaunchTemplateId: launchTemplate(g).LaunchTemplateId, Version: aws.String(strconv.Itoa(version))}
	if g.MixedInstancesPolicy == nil {
		return to, nil
	}
	policy, launch := *g.MixedInstancesPolicy, *g.MixedInstancesPolicy.LaunchTemplate
	launch.LaunchTemplateSpecification = to
	policy.LaunchTemplate = &launch
	return nil, &policy
}

// refreshedTo is the version that a refresh is to lead to, as text; empty if it names none.
func refreshedTo(d *types.DesiredConfiguration) string {
	switch {
	case d == nil:
	case d.LaunchTemplate != nil:
		return aws.ToString(d.LaunchTemplate.Version)
	case d.MixedInstancesPolicy != nil && d.MixedInstancesPolicy.LaunchTemplate != nil && d.MixedInstancesPolicy.LaunchTemplate.LaunchTemplateSpecification != nil:
		return aws.ToString(d.MixedInstancesPolicy.LaunchTemplate.LaunchTemplateSpecification.Version)
	}
	return ""
}
