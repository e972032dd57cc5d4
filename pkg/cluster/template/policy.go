package template

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// local replaces what pkg/pki/store writes for every region and account: a template can be more specific.
var local = strings.NewReplacer("arn:aws:ssm:*:*:", here("ssm"), "arn:aws:kms:*:*:", here("kms"), "ssm.*.amazonaws.com", "ssm.${AWS::Region}.amazonaws.com")

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
	// Condition has the values of keys by operator.
	Condition map[string]map[string][]string `json:",omitempty"`
}

// policy is the policy of a group's instance role. It allows reading the role's part of the store, completing the launch
// of the group's machines where masters do not, and actions that support no resource. It does not allow changing records:
// only the function does that.
func (b *builder) policy(g spec.Group) ([]Statement, error) {
	statements, err := b.secretsPolicy(g)
	if err != nil {
		return nil, err
	}
	describe := []string{"autoscaling:DescribeAutoScalingInstances"}
	if g.Roles.Has(role.Masters) {
		// A node's certificates are approved by the group of its instance, and by the instance's names and addresses.
		describe = append(describe, "autoscaling:DescribeAutoScalingGroups")
	}
	volume := b.attachPolicy(g)
	if g.Roles.Has(role.Masters) || len(volume) > 0 {
		describe = append(describe, "ec2:DescribeInstances")
	}
	if len(volume) > 0 {
		// Which volume it is, and what has become of the machine that holds it.
		describe = append(describe, "ec2:DescribeVolumes")
	}
	statements = append(append(statements, volume...), b.backupPolicy(g)...)
	if minions := b.minions(); g.Roles.Has(role.Masters) && len(minions) > 0 {
		// Their launches, and the hook that holds them until their pods have moved. IAM knows no hook: this also completes what
		// waits for DNS.
		statements = append(statements, Statement{Sid: "LetMinionsStartAndEnd", Effect: "Allow", Action: hookActions, Resource: minions})
		describe = append(describe, "autoscaling:DescribeLifecycleHooks")
	}
	if g.AWS.SessionManager {
		statements = append(statements, Statement{Sid: "OpenSessions", Effect: "Allow", Action: sessionActions, Resource: []string{"*"}})
	}
	if !b.launchedByMasters(g) {
		statements = append(statements, Statement{Sid: "FinishItsLaunch", Effect: "Allow", Action: hookActions, Resource: []string{b.groupARN(g)}})
	}
	return append(statements, Statement{Sid: "LookAtMachines", Effect: "Allow", Action: describe, Resource: []string{"*"}}), nil
}

// sessionActions are what AWS's agent needs for sessions ("Step 1: Create an IAM role with minimal Session Manager permissions", Systems
// Manager user guide), and they name no resource. AmazonSSMManagedInstanceCore also reads every parameter of the account.
var sessionActions = []string{"ssm:UpdateInstanceInformation", "ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel", "ssmmessages:OpenControlChannel", "ssmmessages:OpenDataChannel"}

// hookActions answer the hooks of a group.
var hookActions = []string{"autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat"}

func (b *builder) groupARN(g spec.Group) string {
	return here("autoscaling") + "autoScalingGroup:*:autoScalingGroupName/" + b.cluster.AutoScaling(g)
}

// launchedByMasters reports whether masters of the stack complete the launches of a group's machines, which then have no right to
// any hook: IAM names no machine, and so one of them could end its siblings' launches, or let them end before their pods have
// moved.
func (b *builder) launchedByMasters(g spec.Group) bool {
	return g.Roles.LaunchedByMasters() && b.has(role.Masters)
}

// minions are the ARNs of the groups whose hooks masters answer.
func (b *builder) minions() (groups []string) {
	for _, g := range b.cluster.Groups {
		if b.evicts(g) {
			groups = append(groups, b.groupARN(g))
		}
	}
	return groups
}

// secretsPolicy is pkg/pki/store's policy restricted to the stack's region, account and partition.
func (b *builder) secretsPolicy(g spec.Group) ([]Statement, error) {
	document, err := store.Policy(b.secrets, pki.AccessOfAll(g.Roles).OfMember(g.Member), b.cluster.SecretsKey())
	if err != nil {
		return nil, err
	}
	var p struct{ Statement []Statement }
	if err := json.Unmarshal([]byte(local.Replace(string(document))), &p); err != nil {
		return nil, fmt.Errorf("reading the store's policy: %w", err)
	}
	return p.Statement, nil
}

// policyDocument is the policy with CloudFormation's functions.
func policyDocument(statements []Statement) object {
	var list []any
	for _, s := range statements {
		one := object{"Sid": s.Sid, "Effect": s.Effect, "Action": localised(s.Action), "Resource": localised(s.Resource)}
		if len(s.Condition) > 0 {
			conditions := object{}
			for operator, keys := range s.Condition {
				values := object{}
				for key, list := range keys {
					values[key] = localised(list)
				}
				conditions[operator] = values
			}
			one["Condition"] = conditions
		}
		list = append(list, one)
	}
	return object{"Version": "2012-10-17", "Statement": list}
}

// localised are texts of which CloudFormation replaces ${AWS::Region} and its like.
func localised(texts []string) (list []any) {
	for _, text := range texts {
		if strings.Contains(text, "${") {
			list = append(list, sub(text))
			continue
		}
		list = append(list, text)
	}
	return list
}

// machinePolicy is the name of the policy with what a machine itself calls.
const machinePolicy = "machine"

// MachineCalls are the actions that machines of the stack call, sorted: those that their roles allow them, and the masters' question who has
// signed a machine's proof, which takes no permission.
func (t *Template) MachineCalls() []string {
	calls := map[string]bool{}
	for _, r := range t.Resources {
		policies, _ := r.Properties["Policies"].([]any)
		for _, p := range policies {
			if p, ok := p.(object); ok && r.Type == "AWS::IAM::Role" && p["PolicyName"] == machinePolicy {
				collect(calls, p["PolicyDocument"].(object)["Statement"].([]any))
			}
		}
	}
	if _, masters := t.Resources[securityGroup(role.Masters)]; masters {
		calls["sts:GetCallerIdentity"] = true
	}
	return slices.Sorted(maps.Keys(calls))
}

// collect adds the actions that statements of policyDocument allow.
func collect(calls map[string]bool, statements []any) {
	for _, s := range statements {
		if s := s.(object); s["Effect"] == "Allow" {
			for _, action := range s["Action"].([]any) {
				calls[action.(string)] = true
			}
		}
	}
}

// instanceRole adds the instance role and the instance profile of a group.
func (b *builder) instanceRole(g spec.Group, m groupModel) {
	id := b.ids[g.Name]
	policies := []any{object{"PolicyName": machinePolicy, "PolicyDocument": policyDocument(m.Statements)}}
	if len(m.Allow) > 0 {
		policies = append(policies, object{"PolicyName": "own", "PolicyDocument": policyDocument(m.Allow)})
	}
	properties := object{
		"Description": fmt.Sprintf("what a machine of the group %s may do", b.cluster.AutoScaling(g)),
		"AssumeRolePolicyDocument": object{"Version": "2012-10-17", "Statement": []any{object{
			"Effect": "Allow", "Principal": object{"Service": sub("ec2.${AWS::URLSuffix}")}, "Action": "sts:AssumeRole",
		}}},
		"Policies":            policies,
		"PermissionsBoundary": optional(hasBoundary, ParameterBoundary),
		"Tags":                named(b.cluster.Cluster.Name, b.cluster.AutoScaling(g), m.OwnTags),
	}
	if len(m.Policies) > 0 {
		properties["ManagedPolicyArns"] = m.Policies
	}
	b.out.Resources["Role"+id] = Resource{Type: "AWS::IAM::Role", Properties: properties}
	b.out.Resources["Profile"+id] = Resource{Type: "AWS::IAM::InstanceProfile", Properties: object{"Roles": []any{ref("Role" + id)}}}
}
