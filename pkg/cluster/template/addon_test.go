package template_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
)

// cloudAddons is a document with every add-on that calls AWS.
const cloudAddons = `serviceAccounts: {issuer: "https://demo-tokens.s3.us-west-2.amazonaws.com/a"}
addons: [aws-ebs-csi-driver, aws-cloud-controller-manager, cluster-autoscaler]
groups:
- {name: masters, roles: [masters, etcd]}
- name: minions
  roles: [minions]
  size: 2
  node: {labels: {team: web}, taints: ["dedicated=web:NoSchedule", "spot:NoExecute"]}
  aws: {max: 6}
- {name: fixed, roles: [minions], size: 2}
`

// here replaces what both renderings leave to the place where a stack is.
var here = strings.NewReplacer("${AWS::Partition}", "aws", "${AWS::Region}", region, "${AWS::AccountId}", accountID)

// addonRoles are the policies of the add-ons' roles, by the roles' names, as a Terraform module has them.
func addonRoles(t *testing.T) map[string]awsfake.Policy {
	t.Helper()
	files, err := template.Module(complete(t, "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n"+cloudAddons), []byte(ca))
	assert.NilError(t, err)
	var data struct {
		Pods struct {
			Roles map[string]struct {
				Name       string          `json:"role_name"`
				Statements json.RawMessage `json:"statements"`
			} `json:"roles"`
		} `json:"pods"`
	}
	assert.NilError(t, json.Unmarshal(files[template.ModuleData], &data))
	out := map[string]awsfake.Policy{}
	for _, r := range data.Pods.Roles {
		out[here.Replace(r.Name)], err = awsfake.ParsePolicy([]byte(here.Replace(`{"Version": "2012-10-17", "Statement": ` + string(r.Statements) + `}`)))
		assert.NilError(t, err)
	}
	return out
}

// TestAddonRoles: what each role may do, and what only looks as if it belonged to the cluster.
func TestAddonRoles(t *testing.T) {
	roles := addonRoles(t)
	const (
		scaler, ebs, cloud = "cluster-autoscaler", "aws-ebs-csi-driver", "aws-cloud-controller-manager"
		group, volume      = "arn:aws:autoscaling:" + region + ":" + accountID + ":autoScalingGroup:1-2-3:autoScalingGroupName/", "arn:aws:ec2:" + region + ":" + accountID + ":volume/vol-1"
		machine, firewall  = "arn:aws:ec2:" + region + ":" + accountID + ":instance/i-1", "arn:aws:ec2:" + region + ":" + accountID + ":security-group/sg-1"
		balancers          = "arn:aws:elasticloadbalancing:" + region + ":" + accountID + ":"
		balancer, targets  = balancers + "loadbalancer/net/a/1", balancers + "targetgroup/a/1"
		linked             = "arn:aws:iam::" + accountID + ":role/aws-service-role/elasticloadbalancing.amazonaws.com/AWSServiceRoleForElasticLoadBalancing"
	)
	type keys = map[string][]string
	ours, theirs := keys{"aws:ResourceTag/KubernetesCluster": {"demo"}}, keys{"aws:ResourceTag/KubernetesCluster": {"other"}}
	owned, lent := keys{"aws:ResourceTag/kubernetes.io/cluster/demo": {"owned"}}, keys{"aws:ResourceTag/kubernetes.io/cluster/demo": {"shared"}}
	made := keys{"aws:RequestTag/kubernetes.io/cluster/demo": {"owned"}}
	for _, tt := range []struct {
		addon, action, arn string
		keys               keys
		want               bool
	}{
		{scaler, "autoscaling:DescribeAutoScalingGroups", "*", nil, true},
		{scaler, "ec2:DescribeInstanceTypes", "*", nil, true},
		{scaler, "autoscaling:SetDesiredCapacity", group + "demo-minions", ours, true},
		{scaler, "autoscaling:TerminateInstanceInAutoScalingGroup", group + "demo-minions", ours, true},
		{scaler, "autoscaling:SetDesiredCapacity", group + "demo-minions", theirs, false},
		{scaler, "autoscaling:SetDesiredCapacity", group + "demo-minions", nil, false},
		{scaler, "autoscaling:SetDesiredCapacity", group + "demo-fixed", ours, false},
		{scaler, "autoscaling:SetDesiredCapacity", group + "demo-masters", ours, false},
		{scaler, "autoscaling:UpdateAutoScalingGroup", group + "demo-minions", ours, false},
		{scaler, "ec2:TerminateInstances", machine, ours, false},

		{ebs, "ec2:CreateVolume", volume, made, true},
		{ebs, "ec2:CreateVolume", volume, nil, false},
		{ebs, "ec2:CreateTags", volume, keys{"ec2:CreateAction": {"CreateVolume"}}, true},
		{ebs, "ec2:CreateTags", volume, nil, false}, // or it could make any volume its own
		{ebs, "ec2:CreateTags", machine, keys{"ec2:CreateAction": {"RunInstances"}}, false},
		{ebs, "ec2:AttachVolume", volume, owned, true},
		{ebs, "ec2:AttachVolume", machine, ours, true},
		{ebs, "ec2:AttachVolume", machine, theirs, false},
		{ebs, "ec2:DeleteVolume", volume, owned, true},
		{ebs, "ec2:DeleteVolume", volume, ours, false}, // a member of etcd's
		{ebs, "ec2:DetachVolume", volume, ours, false},
		{ebs, "ec2:DeleteSnapshot", "arn:aws:ec2:" + region + "::snapshot/snap-1", owned, false},

		{cloud, "ec2:DescribeInstances", "*", nil, true},
		{cloud, "ec2:CreateSecurityGroup", firewall, made, true},
		{cloud, "ec2:CreateSecurityGroup", firewall, nil, false},
		{cloud, "ec2:AuthorizeSecurityGroupIngress", firewall, owned, true},
		{cloud, "ec2:AuthorizeSecurityGroupIngress", firewall, ours, false}, // the masters'
		{cloud, "elasticloadbalancing:CreateLoadBalancer", balancer, made, true},
		{cloud, "elasticloadbalancing:CreateLoadBalancer", balancer, nil, false},
		{cloud, "elasticloadbalancing:DeleteLoadBalancer", balancer, owned, true},
		{cloud, "elasticloadbalancing:DeleteLoadBalancer", balancer, lent, false},
		{cloud, "elasticloadbalancing:DeleteLoadBalancer", balancer, ours, false}, // the API servers'
		{cloud, "elasticloadbalancing:AddTags", balancer, keys{"elasticloadbalancing:CreateAction": {"CreateLoadBalancer"}}, true},
		{cloud, "elasticloadbalancing:AddTags", balancer, made, false}, // or it could make any its own
		{cloud, "elasticloadbalancing:AddTags", balancers + "listener/net/a/1/2", keys{"elasticloadbalancing:CreateAction": {"CreateListener"}}, true},
		{cloud, "elasticloadbalancing:AddTags", targets, keys{"elasticloadbalancing:CreateAction": {"CreateTargetGroup"}}, true},
		{cloud, "elasticloadbalancing:DescribeTargetGroupAttributes", "*", nil, true},
		{cloud, "elasticloadbalancing:ModifyTargetGroupAttributes", targets, owned, true},
		{cloud, "elasticloadbalancing:ModifyTargetGroupAttributes", targets, ours, false}, // the API servers'
		{cloud, "iam:CreateServiceLinkedRole", linked, keys{"iam:AWSServiceName": {"elasticloadbalancing.amazonaws.com"}}, true},
		{cloud, "iam:CreateServiceLinkedRole", linked, keys{"iam:AWSServiceName": {"ecs.amazonaws.com"}}, false},
		{cloud, "ec2:TerminateInstances", machine, ours, false},
	} {
		policy, ok := roles["demo-"+region+"-"+tt.addon]
		assert.Assert(t, ok, "the role of %s is not there: %v", tt.addon, roles)
		assert.Equal(t, awsfake.Decision([]awsfake.Policy{policy}, tt.action, tt.arn, tt.keys) == "allowed", tt.want, "%s: %s on %s with %v", tt.addon, tt.action, tt.arn, tt.keys)
	}
	assert.Equal(t, len(roles), 3)
	for name, policy := range roles {
		// Tags are what decides; those that give them do so only to what they make, as above.
		for _, growth := range policy.Growth() {
			assert.Assert(t, growth == "ec2:CreateTags" && !strings.HasSuffix(name, scaler), "%s could widen its own policy by %q", name, growth)
		}
	}
}

// TestAddonActions: AWS's own models have every action of the roles: a misspelled one would allow nothing.
func TestAddonActions(t *testing.T) {
	const list = `import botocore.session, json
s = botocore.session.get_session()
print(json.dumps([p + ":" + o for p, names in {"ec2": ["ec2"], "autoscaling": ["autoscaling"], "elasticloadbalancing": ["elb", "elbv2"], "iam": ["iam"]}.items() for n in names for o in s.get_service_model(n).operation_names]))`
	out, err := exec.CommandContext(t.Context(), "python3", "-c", list).Output()
	if err != nil {
		t.Skipf("botocore is not installed: run scripts/setup --judges: %v", err)
	}
	var known []string
	assert.NilError(t, json.Unmarshal(out, &known))
	seen := 0
	for id, r := range render(t, complete(t, "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n"+cloudAddons)).Resources {
		if !strings.HasPrefix(id, "PodRole") {
			continue
		}
		var policies []struct {
			PolicyDocument struct{ Statement []struct{ Action []string } }
		}
		data, err := json.Marshal(r.Properties["Policies"])
		assert.NilError(t, err)
		assert.NilError(t, json.Unmarshal(data, &policies))
		for _, s := range policies[0].PolicyDocument.Statement {
			for _, action := range s.Action {
				seen++
				assert.Assert(t, slices.Contains(known, action), "%s: AWS has no %s", id, action)
			}
		}
	}
	assert.Assert(t, seen > 40, "%d actions", seen)
}

// TestAddonsInBothRenderings: the template has the module's roles, names, tags and trust.
func TestAddonsInBothRenderings(t *testing.T) {
	c := complete(t, "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n"+cloudAddons)
	resources := render(t, c).Resources
	for _, addon := range c.Cluster.Addons {
		r, ok := resources[template.PodRoleOutput("addon-"+addon)]
		assert.Assert(t, ok, addon)
		text := flat(r.Properties)
		for _, want := range []string{`"RoleName":{"Fn::Sub":"demo-${AWS::Region}-` + addon + `"}`, `a:sub":"system:serviceaccount:kube-system:` + addon + `"`, `a:aud":"sts.amazonaws.com"`} {
			assert.Assert(t, strings.Contains(text, want), "%s: %s in %s", addon, want, text)
		}
	}
	tags := flat(resources["GroupMinions"].Properties["Tags"])
	for key, value := range map[string]string{
		"k8s.io/cluster-autoscaler/enabled": "true", "k8s.io/cluster-autoscaler/demo": "owned", "k8s.io/cluster-autoscaler/node-template/label/team": "web",
		"k8s.io/cluster-autoscaler/node-template/taint/dedicated": "web:NoSchedule", "k8s.io/cluster-autoscaler/node-template/taint/spot": ":NoExecute",
	} {
		assert.Assert(t, strings.Contains(tags, `{"Key":"`+key+`","PropagateAtLaunch":false,"Value":"`+value+`"}`), "%s: %s", key, tags)
	}
	for _, other := range []string{"GroupFixed", "GroupMasters"} {
		assert.Assert(t, !strings.Contains(flat(resources[other].Properties["Tags"]), "cluster-autoscaler"), other)
	}
	const node = `{"Key":"kubernetes.io/cluster/demo","Value":"owned"}`
	assert.Assert(t, strings.Contains(flat(resources["SecurityGroupMinions"].Properties), node))
	assert.Assert(t, !strings.Contains(flat(resources["SecurityGroupMasters"].Properties), node))
	files, err := template.Module(c, []byte(ca))
	assert.NilError(t, err)
	assert.Assert(t, strings.Contains(flat(json.RawMessage(files[template.ModuleData])), `"role_tags":{"minions":{"kubernetes.io/cluster/demo":"owned"}}`))

	// Terraform itself fills in where the stack is.
	needTerraform(t)
	dir, alone := writeModule(t, "addons"), t.TempDir()
	main, err := os.ReadFile(filepath.Join(dir, "main.tf"))
	assert.NilError(t, err)
	locals, _, _ := strings.Cut(string(main), "\ndata ")
	locals = strings.NewReplacer("data.aws_partition.here.partition", `"aws"`, "data.aws_region.here.id", `"`+region+`"`, "data.aws_caller_identity.here.account_id", `"`+accountID+`"`, "  zone_id = ", "  # ").Replace(locals)
	assert.NilError(t, os.WriteFile(filepath.Join(alone, "main.tf"), []byte(locals), 0o600))
	assert.NilError(t, os.WriteFile(filepath.Join(alone, template.ModuleData), files[template.ModuleData], 0o600))
	cmd := exec.CommandContext(t.Context(), "terraform", "console")
	cmd.Dir, cmd.Stdin, cmd.Env = alone, strings.NewReader(`base64encode(local.pod_statements["addon-cluster-autoscaler"])`), append(os.Environ(), "CHECKPOINT_DISABLE=1")
	out, err := cmd.Output()
	assert.NilError(t, err)
	assert.Assert(t, !strings.Contains(string(out), "${"), "%s", out)
	policy := decodeBase64(t, strings.Trim(string(out), "\"\n"))
	assert.Assert(t, strings.Contains(policy, `"arn:aws:autoscaling:`+region+`:`+accountID+`:autoScalingGroup:*:autoScalingGroupName/demo-minions"`), policy)
}
