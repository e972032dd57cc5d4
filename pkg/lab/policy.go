package lab

import (
	"fmt"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/store"
)

// functionPolicy is the function's, as lambda/template.yaml has it.
func (r *region) functionPolicy() awsfake.Policy {
	const route53, keys = "arn:aws:route53:::hostedzone/", "route53:ChangeResourceRecordSets"
	groups := make([]string, 0, len(r.plan.Groups))
	for _, name := range r.plan.names() {
		groups = append(groups, "arn:aws:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/"+name)
	}
	queue := "arn:aws:sqs:" + regionName + ":" + accountID + ":" + r.queue[strings.LastIndex(r.queue, "/")+1:]
	return awsfake.Policy{
		{Actions: []string{"route53:GetHostedZone", "route53:ListResourceRecordSets"}, Resources: []string{route53 + r.zoneID()}},
		{Actions: []string{"route53:ChangeResourceRecordSets"}, Resources: []string{route53 + r.zoneID()}, Conditions: []awsfake.Condition{
			{Operator: "ForAllValues:StringLike", Key: keys + "NormalizedRecordNames", Patterns: []string{"*." + r.plan.Cluster + ".k8s"}},
			{Operator: "ForAllValues:StringEquals", Key: keys + "RecordTypes", Patterns: []string{"A", "AAAA", "SRV", "TXT"}},
			{Operator: "ForAllValues:StringEquals", Key: keys + "Actions", Patterns: []string{"CREATE", "DELETE"}},
		}},
		{Actions: []string{"autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeLifecycleHooks", "ec2:DescribeInstances", "ec2:DescribeVolumes"}, Resources: []string{"*"}},
		{Actions: []string{"autoscaling:CompleteLifecycleAction"}, Resources: groups},
		{Actions: []string{"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:SendMessage"}, Resources: []string{queue}},
	}
}

// machinePolicies are the instance role's of a group: the store's objects that its roles need, as pkg/store writes them
// for AWS, and the word that the machine works. Masters also look at the instances whose certificates they approve.
func (r *region) machinePolicies(g Group) ([]awsfake.Policy, error) {
	document, err := store.Policy(store.Location{Kind: store.KindSSM, Root: r.plan.Store}, pki.AccessOfAll(g.Roles))
	if err != nil {
		return nil, err
	}
	secrets, err := awsfake.ParsePolicy(document)
	if err != nil {
		return nil, fmt.Errorf("reading the policy of group %s: %w", g.Name, err)
	}
	own := awsfake.Policy{
		{
			Actions:   []string{"autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat"},
			Resources: []string{"arn:aws:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/" + g.Scaling},
		},
		// A machine that is ready before its group waits for it has to see when it does.
		{Actions: []string{"autoscaling:DescribeAutoScalingInstances"}, Resources: []string{"*"}},
	}
	if g.Roles.Has(role.Masters) {
		own = append(own, awsfake.Statement{Actions: []string{"ec2:DescribeInstances"}, Resources: []string{"*"}})
	}
	return []awsfake.Policy{secrets, own}, nil
}
