package awsfake

import (
	"slices"
	"strings"
)

// Growth lists the actions by which a principal with this policy could widen what it may do: those that change policies,
// roles, grants or tags, or run code as somebody else. Where there are none, what is out of reach before any call that
// the policy allows is out of reach after it.
func (p Policy) Growth() []string {
	widening := []string{
		"iam:PutRolePolicy", "iam:AttachRolePolicy", "iam:PassRole", "iam:CreatePolicyVersion", "iam:UpdateAssumeRolePolicy", "sts:AssumeRole",
		"kms:PutKeyPolicy", "kms:CreateGrant", "lambda:UpdateFunctionCode", "lambda:UpdateFunctionConfiguration", "lambda:AddPermission",
		"sqs:AddPermission", "sqs:SetQueueAttributes", "ssm:AddTagsToResource", "ssm:PutResourcePolicy", "ssm:SendCommand", "ssm:StartSession",
		"ec2:CreateTags", "ec2:DeleteTags", "ec2:RunInstances", "ec2:ModifyInstanceAttribute", "ec2:AssociateIamInstanceProfile",
		"ec2:CreateLaunchTemplateVersion", "autoscaling:CreateOrUpdateTags", "autoscaling:UpdateAutoScalingGroup", "cloudformation:UpdateStack",
	}
	var found []string
	for _, action := range widening {
		if slices.ContainsFunc(p, func(s Statement) bool { return !s.Deny && likeAny(lower(s.Actions), strings.ToLower(action)) }) {
			found = append(found, action)
		}
	}
	return found
}
