package deployment

import (
	"encoding/json"
	"strings"
)

// prefixLength is the length of a stack's name that is always in the names of its resources: CloudFormation shortens long
// names.
const prefixLength = 24

// Permissions returns the IAM policy, as JSON, for Read and for reading the records. The target restricts it to the
// stack's resources.
func Permissions(t Target) ([]byte, error) {
	type statement struct {
		Sid, Effect string
		Action      []string
		Resource    any
	}
	one := func(sid string, actions string, resource ...string) statement {
		return statement{Sid: sid, Effect: "Allow", Action: strings.Fields(actions), Resource: resource}
	}
	made, function, stack := "*", "*", "*"
	if t.Stack != "" {
		made, stack = t.Stack[:min(len(t.Stack), prefixLength)]+"*", t.Stack+"/*"
		function = made
	}
	if t.Function != "" {
		function = t.Function
	}
	return json.MarshalIndent(struct {
		Version   string
		Statement []statement
	}{"2012-10-17", []statement{
		one("Stack", "cloudformation:DescribeStacks cloudformation:DescribeStackResources", "arn:*:cloudformation:*:*:stack/"+stack),
		one("Function", "lambda:GetFunction lambda:ListTags", "arn:*:lambda:*:*:function:"+function),
		one("Queues", "sqs:GetQueueUrl sqs:GetQueueAttributes", "arn:*:sqs:*:*:"+made),
		one("Rules", "events:DescribeRule events:ListTargetsByRule", "arn:*:events:*:*:rule/"+made),
		one("Role", "iam:SimulatePrincipalPolicy", "arn:*:iam::*:role/"+made),
		one("Log", "logs:FilterLogEvents", "arn:*:logs:*:*:log-group:"+made),
		one("Zone", "route53:ListResourceRecordSets", "arn:*:route53:::hostedzone/*"),
		one("TakeNoResource", "lambda:ListEventSourceMappings events:ListRuleNamesByTarget logs:DescribeLogGroups cloudwatch:DescribeAlarmsForMetric cloudwatch:GetMetricStatistics"+
			" autoscaling:DescribeAutoScalingGroups autoscaling:DescribeLifecycleHooks ec2:DescribeInstances ec2:DescribeVolumes", "*"),
	}}, "", "  ")
}
