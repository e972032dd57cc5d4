package template

import (
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// The tags of a group by which cluster-autoscaler finds it, and by which it knows a group that has no machine yet ("Auto-Discovery
// Setup" of its README for AWS).
const (
	tagScaled      = "k8s.io/cluster-autoscaler/enabled"
	tagScaledBy    = "k8s.io/cluster-autoscaler/"
	tagScaledLabel = "k8s.io/cluster-autoscaler/node-template/label/"
	tagScaledTaint = "k8s.io/cluster-autoscaler/node-template/taint/"
)

// ownedTag is the tag by which the EBS driver and the cloud's controllers know what is theirs; its value is "owned". The stack's own
// volumes have role.TagCluster alone, so that no driver deletes a member of etcd.
func ownedTag(cluster string) string { return "kubernetes.io/cluster/" + cluster }

const owned = "owned"

// podRole is a role for pods as both renderings have it. Name is empty for one that nobody needs to know before it exists.
type podRole struct {
	id, name string
	spec.PodRole
	statements []Statement
}

// rolesOfPods are the roles of the document, and those of its add-ons.
func (b *builder) rolesOfPods() (roles []podRole) {
	c := b.cluster.Cluster
	for _, r := range c.AWS.PodRoles {
		roles = append(roles, podRole{id: r.Name, PodRole: r, statements: podStatements(r)})
	}
	for _, addon := range machine.CloudAddons() {
		if !slices.Contains(c.Addons, addon) {
			continue
		}
		// The pods and the roles of add-ons have their add-on's name; kube-system is where the manifests put them.
		r := spec.PodRole{Name: addon, Namespace: "kube-system", ServiceAccount: addon, Policies: []string{}}
		roles = append(roles, podRole{id: spec.AddonRole(addon), name: machine.PodRolePrefix(c.Name, "${AWS::Region}") + addon, PodRole: r, statements: b.addonStatements(addon)})
	}
	return roles
}

// addonStatements are what an add-on's pods may do: of what its project documents, what it calls as Hardtack starts it.
func (b *builder) addonStatements(addon string) []Statement {
	switch addon {
	case machine.ClusterAutoscaler:
		return b.autoscalerStatements()
	case machine.EBSDriver:
		return b.ebsStatements()
	}
	return b.cloudStatements()
}

func equal(key, value string) map[string]map[string][]string {
	return map[string]map[string][]string{"StringEquals": {key: {value}}}
}

// autoscalerStatements: groups and their templates are described; only those that have the cluster's tag, and that it scales, change.
func (b *builder) autoscalerStatements() []Statement {
	var scaled []string
	for _, g := range b.cluster.Groups {
		if b.cluster.Scales(g) {
			scaled = append(scaled, b.groupARN(g))
		}
	}
	return []Statement{
		{Sid: "LookAtGroups", Effect: "Allow", Resource: []string{"*"}, Action: []string{
			"autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeScalingActivities",
			"ec2:DescribeInstanceTypes", "ec2:DescribeLaunchTemplateVersions",
		}},
		{Sid: "ScaleGroups", Effect: "Allow", Resource: scaled, Condition: equal("aws:ResourceTag/"+role.TagCluster, b.cluster.Cluster.Name),
			Action: []string{"autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"}},
	}
}

// ebsStatements: the driver makes volumes with the cluster's tag, and touches no other. It attaches them to the cluster's machines.
func (b *builder) ebsStatements() []Statement {
	name := b.cluster.Cluster.Name
	volumes, tag := []string{here("ec2") + "volume/*"}, ownedTag(name)
	return []Statement{
		{Sid: "LookAtVolumes", Effect: "Allow", Resource: []string{"*"}, Action: []string{
			"ec2:DescribeAvailabilityZones", "ec2:DescribeInstances", "ec2:DescribeInstanceTypes", "ec2:DescribeTags",
			"ec2:DescribeVolumes", "ec2:DescribeVolumesModifications", "ec2:DescribeVolumeStatus",
		}},
		{Sid: "MakeVolumes", Effect: "Allow", Action: []string{"ec2:CreateVolume"}, Resource: volumes, Condition: equal("aws:RequestTag/"+tag, owned)},
		{Sid: "TagNewVolumes", Effect: "Allow", Action: []string{"ec2:CreateTags"}, Resource: volumes, Condition: equal("ec2:CreateAction", "CreateVolume")},
		{Sid: "ChangeItsVolumes", Effect: "Allow", Resource: volumes, Condition: equal("aws:ResourceTag/"+tag, owned),
			Action: []string{"ec2:AttachVolume", "ec2:DetachVolume", "ec2:ModifyVolume", "ec2:DeleteVolume"}},
		{Sid: "AttachToMachines", Effect: "Allow", Action: []string{"ec2:AttachVolume", "ec2:DetachVolume"},
			Resource: []string{here("ec2") + "instance/*"}, Condition: equal("aws:ResourceTag/"+role.TagCluster, name)},
	}
}

// cloudStatements: nodes' instances are described; load balancers and their security groups are made with the cluster's tag, and no
// other is touched. The rules of the machines' own group change too: it has the tag where this add-on runs.
func (b *builder) cloudStatements() []Statement {
	tag := ownedTag(b.cluster.Cluster.Name)
	balancers := []string{here("elasticloadbalancing") + "*"}
	groups := []string{here("ec2") + "security-group/*"}
	const balancing = "elasticloadbalancing.amazonaws.com"
	return []Statement{
		{Sid: "LookAtNodes", Effect: "Allow", Resource: []string{"*"}, Action: []string{
			"ec2:DescribeAvailabilityZones", "ec2:DescribeInstances", "ec2:DescribeInstanceTopology", "ec2:DescribeRouteTables",
			"ec2:DescribeSecurityGroups", "ec2:DescribeSubnets", "ec2:DescribeVpcs",
			"elasticloadbalancing:DescribeListeners", "elasticloadbalancing:DescribeLoadBalancerAttributes", "elasticloadbalancing:DescribeLoadBalancerPolicies",
			"elasticloadbalancing:DescribeLoadBalancers", "elasticloadbalancing:DescribeTargetGroupAttributes", "elasticloadbalancing:DescribeTargetGroups",
			"elasticloadbalancing:DescribeTargetHealth",
		}},
		{Sid: "MakeGroups", Effect: "Allow", Action: []string{"ec2:CreateSecurityGroup"}, Resource: groups, Condition: equal("aws:RequestTag/"+tag, owned)},
		{Sid: "MakeGroupsInVPC", Effect: "Allow", Action: []string{"ec2:CreateSecurityGroup"}, Resource: []string{here("ec2") + "vpc/*"}},
		{Sid: "TagNewGroups", Effect: "Allow", Action: []string{"ec2:CreateTags"}, Resource: groups, Condition: equal("ec2:CreateAction", "CreateSecurityGroup")},
		{Sid: "ChangeItsGroups", Effect: "Allow", Resource: groups, Condition: equal("aws:ResourceTag/"+tag, owned),
			Action: []string{"ec2:AuthorizeSecurityGroupIngress", "ec2:DeleteSecurityGroup", "ec2:RevokeSecurityGroupIngress"}},
		{Sid: "MakeBalancers", Effect: "Allow", Resource: balancers, Condition: equal("aws:RequestTag/"+tag, owned),
			Action: []string{"elasticloadbalancing:CreateLoadBalancer", "elasticloadbalancing:CreateTargetGroup"}},
		{Sid: "TagNewBalancers", Effect: "Allow", Action: []string{"elasticloadbalancing:AddTags"}, Resource: balancers, Condition: map[string]map[string][]string{
			"StringEquals": {"elasticloadbalancing:CreateAction": {"CreateListener", "CreateLoadBalancer", "CreateTargetGroup"}}}},
		{Sid: "ChangeItsBalancers", Effect: "Allow", Resource: balancers, Condition: equal("aws:ResourceTag/"+tag, owned), Action: []string{
			"elasticloadbalancing:AddTags", "elasticloadbalancing:ApplySecurityGroupsToLoadBalancer", "elasticloadbalancing:AttachLoadBalancerToSubnets",
			"elasticloadbalancing:ConfigureHealthCheck", "elasticloadbalancing:CreateListener", "elasticloadbalancing:CreateLoadBalancerListeners",
			"elasticloadbalancing:CreateLoadBalancerPolicy", "elasticloadbalancing:DeleteListener", "elasticloadbalancing:DeleteLoadBalancer",
			"elasticloadbalancing:DeleteLoadBalancerListeners", "elasticloadbalancing:DeleteTargetGroup", "elasticloadbalancing:DeregisterInstancesFromLoadBalancer",
			"elasticloadbalancing:DeregisterTargets", "elasticloadbalancing:DetachLoadBalancerFromSubnets", "elasticloadbalancing:ModifyListener",
			"elasticloadbalancing:ModifyLoadBalancerAttributes", "elasticloadbalancing:ModifyTargetGroup", "elasticloadbalancing:ModifyTargetGroupAttributes",
			"elasticloadbalancing:RegisterInstancesWithLoadBalancer",
			"elasticloadbalancing:RegisterTargets", "elasticloadbalancing:SetLoadBalancerPoliciesForBackendServer", "elasticloadbalancing:SetLoadBalancerPoliciesOfListener",
			"elasticloadbalancing:SetSecurityGroups",
		}},
		// The first balancer of an account is made with its creator's permission for this role.
		{Sid: "MakeBalancersRole", Effect: "Allow", Action: []string{"iam:CreateServiceLinkedRole"}, Condition: equal("iam:AWSServiceName", balancing),
			Resource: []string{"arn:${AWS::Partition}:iam::${AWS::AccountId}:role/aws-service-role/" + balancing + "/AWSServiceRoleForElasticLoadBalancing"}},
	}
}

// scalingTags are the tags by which cluster-autoscaler finds the group and knows the nodes that its machines become; none on machines.
func (b *builder) scalingTags(g spec.Group) (tags []Tag) {
	if !b.cluster.Scales(g) {
		return nil
	}
	tags = []Tag{{tagScaled, "true", false}, {tagScaledBy + b.cluster.Cluster.Name, owned, false}}
	for _, key := range sorted(g.Node.Labels) {
		tags = append(tags, Tag{tagScaledLabel + key, g.Node.Labels[key], false})
	}
	for _, taint := range g.Node.Taints {
		// "key=value:Effect", and the value with its = may be missing; the document's own check has read it.
		i := strings.LastIndex(taint, ":")
		key, value, _ := strings.Cut(taint[:i], "=")
		tags = append(tags, Tag{tagScaledTaint + key, value + taint[i:], false})
	}
	return tags
}

// ownsNodes reports whether the cloud's controllers change the rules of the minions' security group.
func (b *builder) ownsNodes(r role.Role) bool {
	return r == role.Minions && slices.Contains(b.cluster.Cluster.Addons, machine.CloudController)
}
