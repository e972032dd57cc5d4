package stack

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/pkg/store"
)

// anywhere is how pkg/store writes what holds in every region and account; a template can say which.
const anywhere = "arn:aws:ssm:*:*:"

// here begins the ARNs of a service in the stack's own region and account.
func here(service string) string {
	return "arn:${AWS::Partition}:" + service + ":${AWS::Region}:${AWS::AccountId}:"
}

// statement is one of an IAM policy, with intrinsic functions.
func statement(sid string, actions, resources []any) object {
	return object{"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resources}
}

// policy is what the instance role of a group may do: read its part of the store, finish the launch of its own
// group's machines, and ask for what has no resource to name. Nobody writes records: that is the function's.
func (b *builder) policy(g spec.Group) (object, error) {
	statements, err := b.secretsPolicy(g)
	if err != nil {
		return nil, err
	}
	group := sub(here("autoscaling") + "autoScalingGroup:*:autoScalingGroupName/" + b.cluster.AutoScaling(g))
	statements = append(statements, statement("FinishItsLaunch",
		[]any{"autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat"}, []any{group}))
	describe := []any{"autoscaling:DescribeAutoScalingInstances"}
	if g.Roles.Has(role.Masters) {
		// A node's serving certificate is approved by the names and addresses of its instance.
		describe = append(describe, "ec2:DescribeInstances")
	}
	statements = append(statements, statement("LookAtMachines", describe, []any{"*"}))
	return object{"Version": "2012-10-17", "Statement": statements}, nil
}

// secretsPolicy is pkg/store's policy, which stands in for the region, the account and the partition that it leaves open.
func (b *builder) secretsPolicy(g spec.Group) ([]any, error) {
	document, err := store.Policy(b.secrets, pki.AccessOfAll(g.Roles))
	if err != nil {
		return nil, err
	}
	var p struct {
		Statement []struct{ Action, Resource []string }
	}
	if err := json.Unmarshal(document, &p); err != nil {
		return nil, fmt.Errorf("reading the store's policy: %w", err)
	}
	var statements []any
	for _, s := range p.Statement {
		sid := "ReadSecrets"
		actions, resources := []any{}, []any{}
		for _, a := range s.Action {
			actions = append(actions, a)
			if a == "ssm:PutParameter" {
				sid = "RenewTheToken"
			}
		}
		for _, r := range s.Resource {
			rest, ok := strings.CutPrefix(r, anywhere)
			if !ok {
				return nil, fmt.Errorf("the store's policy names %s, which is not in Parameter Store", r)
			}
			resources = append(resources, sub(here("ssm")+rest))
		}
		statements = append(statements, statement(sid, actions, resources))
	}
	return statements, nil
}

// instanceRole adds a group's role and profile.
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
		"Policies":            []any{object{"PolicyName": "machine", "PolicyDocument": policy}},
		"PermissionsBoundary": optional(hasBoundary, ParameterBoundary),
		"Tags":                b.tags(b.cluster.AutoScaling(g)),
	}}
	b.out.Resources["Profile"+id] = Resource{Type: "AWS::IAM::InstanceProfile", Properties: object{"Roles": []any{ref("Role" + id)}}}
	return nil
}
