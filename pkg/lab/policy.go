package lab

import (
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
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
		{Actions: []string{"route53:GetHostedZone", "route53:ListResourceRecordSets"}, Resources: []string{route53 + r.zone}},
		{Actions: []string{"route53:ChangeResourceRecordSets"}, Resources: []string{route53 + r.zone}, Conditions: []awsfake.Condition{
			{Operator: "ForAllValues:StringLike", Key: keys + "NormalizedRecordNames", Patterns: []string{"*." + r.plan.Cluster + ".k8s"}},
			{Operator: "ForAllValues:StringEquals", Key: keys + "RecordTypes", Patterns: []string{"A", "AAAA", "SRV", "TXT"}},
			{Operator: "ForAllValues:StringEquals", Key: keys + "Actions", Patterns: []string{"CREATE", "DELETE"}},
		}},
		{Actions: []string{"autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeLifecycleHooks", "ec2:DescribeInstances", "ec2:DescribeVolumes"}, Resources: []string{"*"}},
		{Actions: []string{"autoscaling:CompleteLifecycleAction"}, Resources: groups},
		{Actions: []string{"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:SendMessage"}, Resources: []string{queue}},
	}
}

// machinePolicy is the instance role's of a group: the store's objects that its roles need, and the word that the
// machine works. Masters also look at the instances, whose certificate requests they approve.
func (r *region) machinePolicy(g Group) awsfake.Policy {
	access := pki.AccessOfAll(g.Roles)
	p := awsfake.Policy{
		{Actions: []string{"autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat"}, Resources: []string{"arn:aws:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/" + g.Name}},
		{Actions: []string{"ssm:GetParameter", "ssm:GetParameters"}, Resources: r.parameters(access.Read)},
	}
	if len(access.Write) > 0 {
		p = append(p, awsfake.Statement{Actions: []string{"ssm:PutParameter"}, Resources: r.parameters(access.Write)})
	}
	if g.Roles.Has(role.Masters) {
		p = append(p, awsfake.Statement{Actions: []string{"ec2:DescribeInstances", "autoscaling:DescribeAutoScalingInstances"}, Resources: []string{"*"}})
	}
	return p
}

// parameters are the ARNs of objects of the store; one that ends in "/" stands for all below it.
func (r *region) parameters(objects []string) []string {
	arns := make([]string, 0, len(objects))
	for _, object := range objects {
		if strings.HasSuffix(object, "/") {
			object += "*"
		}
		arns = append(arns, "arn:aws:ssm:"+regionName+":"+accountID+":parameter"+r.plan.Store+"/"+object)
	}
	return arns
}
