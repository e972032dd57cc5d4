package template

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// anywhere begins the ARNs that pkg/pki/store writes, for every region and account; a template can be more specific.
const anywhere = "arn:aws:ssm:*:*:"

// here is the beginning of the ARNs of a service in the stack's region and account.
func here(service string) string {
	return "arn:${AWS::Partition}:" + service + ":${AWS::Region}:${AWS::AccountId}:"
}

// Statement is a statement of an instance role's policy. Resources contain ${AWS::Partition}, ${AWS::Region} and
// ${AWS::AccountId}, or are "*".
type Statement struct {
	Sid      string
	Effect   string
	Action   []string
	Resource []string
}

// policy is the policy of a group's instance role. It allows reading the role's part of the store, completing the launch
// of the group's machines, and actions that support no resource. It does not allow changing records: only the
// function does that.
func (b *builder) policy(g spec.Group) ([]Statement, error) {
	statements, err := b.secretsPolicy(g)
	if err != nil {
		return nil, err
	}
	describe := []string{"autoscaling:DescribeAutoScalingInstances"}
	if g.Roles.Has(role.Masters) {
		// A node's certificates are approved by the group of its instance, and by the instance's names and addresses.
		describe = append(describe, "autoscaling:DescribeAutoScalingGroups", "ec2:DescribeInstances")
	}
	group := here("autoscaling") + "autoScalingGroup:*:autoScalingGroupName/" + b.cluster.AutoScaling(g)
	return append(statements,
		Statement{"FinishItsLaunch", "Allow", []string{"autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat"}, []string{group}},
		Statement{"LookAtMachines", "Allow", describe, []string{"*"}}), nil
}

// secretsPolicy is pkg/pki/store's policy restricted to the stack's region, account and partition.
func (b *builder) secretsPolicy(g spec.Group) ([]Statement, error) {
	document, err := store.Policy(b.secrets, pki.AccessOfAll(g.Roles))
	if err != nil {
		return nil, err
	}
	var p struct{ Statement []Statement }
	if err := json.Unmarshal(document, &p); err != nil {
		return nil, fmt.Errorf("reading the store's policy: %w", err)
	}
	for _, s := range p.Statement {
		for j, arn := range s.Resource {
			rest, ok := strings.CutPrefix(arn, anywhere)
			if !ok {
				return nil, fmt.Errorf("the store's policy names %s, which is not in Parameter Store", arn)
			}
			s.Resource[j] = here("ssm") + rest
		}
	}
	return p.Statement, nil
}

// policyDocument is the policy with CloudFormation's functions.
func policyDocument(statements []Statement) object {
	var list []any
	for _, s := range statements {
		var actions, resources []any
		for _, a := range s.Action {
			actions = append(actions, a)
		}
		for _, arn := range s.Resource {
			if strings.Contains(arn, "${") {
				resources = append(resources, sub(arn))
				continue
			}
			resources = append(resources, arn)
		}
		list = append(list, object{"Sid": s.Sid, "Effect": s.Effect, "Action": actions, "Resource": resources})
	}
	return object{"Version": "2012-10-17", "Statement": list}
}

// instanceRole adds the instance role and the instance profile of a group.
func (b *builder) instanceRole(g spec.Group) error {
	policy, err := b.policy(g)
	if err != nil {
		return err
	}
	id := b.ids[g.Name]
	b.out.Resources["Role"+id] = Resource{Type: "AWS::IAM::Role", Properties: object{
		"Description": fmt.Sprintf("what a machine of the group %s may do", b.cluster.AutoScaling(g)),
		"AssumeRolePolicyDocument": object{"Version": "2012-10-17", "Statement": []any{object{
			"Effect": "Allow", "Principal": object{"Service": sub("ec2.${AWS::URLSuffix}")}, "Action": "sts:AssumeRole",
		}}},
		"Policies":            []any{object{"PolicyName": "machine", "PolicyDocument": policyDocument(policy)}},
		"PermissionsBoundary": optional(hasBoundary, ParameterBoundary),
		"Tags":                b.tags(b.cluster.AutoScaling(g)),
	}}
	b.out.Resources["Profile"+id] = Resource{Type: "AWS::IAM::InstanceProfile", Properties: object{"Roles": []any{ref("Role" + id)}}}
	return nil
}
