package autoscaling

import (
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
)

// A group's launch template is its own, or that of its mixed instances policy. The policy's other settings stay as they are: a call that
// has a part of them alone would leave the rest to AWS.

// mixed is the launch template of a policy, with the types that it allows; nil if there is none.
func mixed(m *types.MixedInstancesPolicy) *types.LaunchTemplate {
	if m == nil {
		return nil
	}
	return m.LaunchTemplate
}

// launchTemplate returns the group's launch template; nil if it has none.
func launchTemplate(g types.AutoScalingGroup) *types.LaunchTemplateSpecification {
	if m := mixed(g.MixedInstancesPolicy); m != nil {
		return m.LaunchTemplateSpecification
	}
	return g.LaunchTemplate
}

// instanceTypes are the types that a group's machines may have in place of the launch template's; none if there are no others.
func instanceTypes(g types.AutoScalingGroup) (names []string) {
	if m := mixed(g.MixedInstancesPolicy); m != nil {
		for _, o := range m.Overrides {
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
	m := mixed(g.MixedInstancesPolicy)
	if m == nil {
		return to, nil
	}
	policy, launch := *g.MixedInstancesPolicy, *m
	launch.LaunchTemplateSpecification = to
	policy.LaunchTemplate = &launch
	return nil, &policy
}

// refreshedTo is the version that a refresh is to lead to, as text; empty if it names none.
func refreshedTo(d *types.DesiredConfiguration) string {
	if d == nil {
		return ""
	}
	to := launchTemplate(types.AutoScalingGroup{LaunchTemplate: d.LaunchTemplate, MixedInstancesPolicy: d.MixedInstancesPolicy})
	if to == nil {
		return ""
	}
	return aws.ToString(to.Version)
}
