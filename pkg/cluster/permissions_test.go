package cluster_test

import (
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/judges"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// everything is a document of whose template every kind of resource is a part.
const everything = `serviceAccounts: {issuer: "https://demo-tokens.s3.us-west-2.amazonaws.com"}
groups:
- {name: masters, roles: [masters, etcd], aws: {metrics: true, policies: ["arn:aws:iam::aws:policy/CloudWatchAgentServerPolicy"]}}
- {name: minions, roles: [minions], aws: {max: 9}}
aws:
  loadBalancer: internal
  key: arn:aws:kms:us-west-2:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab
  podRoles:
  - {name: uploader, allow: [{actions: ["s3:GetObject"], resources: ["arn:aws:s3:::demo-data/*"]}]}
`

// handled is what CloudFormation calls for a type of resource.
type handled struct {
	// needed are the actions that the policy of stack doctor has to allow. Of one with a star, some.
	needed string
	// left are actions that our resources do not make CloudFormation call, by the reason.
	left map[string]string
}

const (
	noProperty = "the template has no such property"
	noFleet    = "of managed fleets, which no group is in"
)

// handlers are the actions of the handlers create, read, update and delete in the schema of each type of CloudFormation's registry, as
// published in August 2026, divided into what a stack of ours needs and what not. TestHandlersAreTheSchemas compares them with the schemas.
var handlers = map[string]handled{
	"AWS::AutoScaling::AutoScalingGroup": {"autoscaling:CreateAutoScalingGroup autoscaling:UpdateAutoScalingGroup autoscaling:DeleteAutoScalingGroup autoscaling:CreateOrUpdateTags autoscaling:DeleteTags" +
		" autoscaling:Describe* autoscaling:EnableMetricsCollection autoscaling:DisableMetricsCollection autoscaling:AttachLoadBalancerTargetGroups autoscaling:DetachLoadBalancerTargetGroups" +
		" autoscaling:PutLifecycleHook autoscaling:DeleteLifecycleHook autoscaling:StartInstanceRefresh autoscaling:CancelInstanceRefresh ec2:Describe* ec2:RunInstances" +
		" elasticloadbalancing:Describe* iam:CreateServiceLinkedRole iam:PassRole ssm:Get*", map[string]string{
		noProperty: "autoscaling:AttachLoadBalancers autoscaling:DetachLoadBalancers autoscaling:AttachTrafficSources autoscaling:DetachTrafficSources" +
			" autoscaling:PutNotificationConfiguration autoscaling:DeleteNotificationConfiguration",
		"of instance requirements in place of types": "ec2:Get*",
		"of policies that scale by an alarm":         "cloudwatch:PutMetricAlarm",
		"of target groups of VPC Lattice":            "vpc-lattice:RegisterTargets vpc-lattice:DeregisterTargets vpc-lattice:GetTargetGroup vpc-lattice:ListTargets",
		noFleet: "managed-fleets:CreateAutoScalingGroup managed-fleets:DeleteAutoScalingGroup managed-fleets:DeregisterAutoScalingGroup managed-fleets:Get*" +
			" managed-fleets:RegisterAutoScalingGroup managed-fleets:UpdateAutoScalingGroup",
	}},
	"AWS::EC2::LaunchTemplate": {"ec2:CreateLaunchTemplate ec2:CreateLaunchTemplateVersion ec2:DeleteLaunchTemplate ec2:DescribeLaunchTemplates ec2:CreateTags ec2:DeleteTags", nil},
	"AWS::EC2::SecurityGroup": {"ec2:CreateSecurityGroup ec2:DeleteSecurityGroup ec2:DescribeSecurityGroups ec2:DescribeInstances ec2:AuthorizeSecurityGroupIngress ec2:RevokeSecurityGroupIngress" +
		" ec2:UpdateSecurityGroupRuleDescriptionsIngress ec2:CreateTags ec2:DeleteTags", map[string]string{
		"the group keeps the rule for everything outward that EC2 gives it": "ec2:AuthorizeSecurityGroupEgress ec2:RevokeSecurityGroupEgress ec2:UpdateSecurityGroupRuleDescriptionsEgress",
	}},
	"AWS::EC2::SecurityGroupIngress": {"ec2:AuthorizeSecurityGroupIngress ec2:RevokeSecurityGroupIngress ec2:UpdateSecurityGroupRuleDescriptionsIngress ec2:DescribeSecurityGroupRules ec2:DescribeSecurityGroups", nil},
	"AWS::EC2::Volume": {"ec2:CreateVolume ec2:ModifyVolume ec2:DeleteVolume ec2:DescribeVolumes ec2:DescribeVolumeAttribute ec2:DescribeVolumesModifications ec2:DescribeTags ec2:DescribeSnapshots ec2:CreateTags ec2:DeleteTags" +
		" kms:CreateGrant kms:GenerateDataKeyWithoutPlaintext kms:ReEncryptFrom kms:ReEncryptTo", map[string]string{
		noProperty: "ec2:CopyVolumes ec2:ModifyVolumeAttribute",
		"a volume that is let go is kept itself, without a snapshot": "ec2:CreateSnapshot",
	}},
	"AWS::ElasticLoadBalancingV2::LoadBalancer": {"elasticloadbalancing:CreateLoadBalancer elasticloadbalancing:DeleteLoadBalancer elasticloadbalancing:DescribeLoadBalancers elasticloadbalancing:DescribeLoadBalancerAttributes" +
		" elasticloadbalancing:ModifyLoadBalancerAttributes elasticloadbalancing:SetSubnets elasticloadbalancing:SetSecurityGroups elasticloadbalancing:SetIpAddressType elasticloadbalancing:AddTags" +
		" elasticloadbalancing:RemoveTags elasticloadbalancing:DescribeTags elasticloadbalancing:DescribeCapacityReservation", map[string]string{
		noProperty: "ec2:DescribeIpamPools elasticloadbalancing:ModifyIpPools elasticloadbalancing:ModifyCapacityReservation",
	}},
	"AWS::ElasticLoadBalancingV2::Listener": {"elasticloadbalancing:CreateListener elasticloadbalancing:ModifyListener elasticloadbalancing:DeleteListener elasticloadbalancing:DescribeListeners" +
		" elasticloadbalancing:DescribeListenerAttributes elasticloadbalancing:AddTags elasticloadbalancing:RemoveTags elasticloadbalancing:DescribeTags", map[string]string{
		noProperty: "elasticloadbalancing:ModifyListenerAttributes cognito-idp:DescribeUserPoolClient",
	}},
	"AWS::ElasticLoadBalancingV2::TargetGroup": {"elasticloadbalancing:CreateTargetGroup elasticloadbalancing:ModifyTargetGroup elasticloadbalancing:ModifyTargetGroupAttributes elasticloadbalancing:DeleteTargetGroup" +
		" elasticloadbalancing:DescribeTargetGroups elasticloadbalancing:DescribeTargetGroupAttributes elasticloadbalancing:DescribeTargetHealth elasticloadbalancing:AddTags elasticloadbalancing:RemoveTags elasticloadbalancing:DescribeTags", map[string]string{
		"the group of the masters registers its machines, by AutoScaling's own role": "elasticloadbalancing:RegisterTargets elasticloadbalancing:DeregisterTargets",
	}},
	"AWS::IAM::InstanceProfile": {"iam:CreateInstanceProfile iam:DeleteInstanceProfile iam:GetInstanceProfile iam:AddRoleToInstanceProfile iam:RemoveRoleFromInstanceProfile iam:PassRole", nil},
	"AWS::IAM::OIDCProvider": {"iam:CreateOpenIDConnectProvider iam:DeleteOpenIDConnectProvider iam:GetOpenIDConnectProvider iam:AddClientIDToOpenIDConnectProvider iam:RemoveClientIDFromOpenIDConnectProvider" +
		" iam:UpdateOpenIDConnectProviderThumbprint iam:TagOpenIDConnectProvider iam:UntagOpenIDConnectProvider iam:ListOpenIDConnectProviderTags", nil},
	"AWS::IAM::Role": {"iam:CreateRole iam:DeleteRole iam:GetRole iam:UpdateRole iam:UpdateRoleDescription iam:UpdateAssumeRolePolicy iam:PutRolePolicy iam:DeleteRolePolicy iam:GetRolePolicy iam:ListRolePolicies" +
		" iam:AttachRolePolicy iam:DetachRolePolicy iam:ListAttachedRolePolicies iam:PutRolePermissionsBoundary iam:DeleteRolePermissionsBoundary iam:TagRole iam:UntagRole", nil},
	"AWS::Route53::HostedZone": {"route53:CreateHostedZone route53:DeleteHostedZone route53:GetHostedZone route53:GetChange route53:UpdateHostedZoneComment route53:AssociateVPCWithHostedZone route53:ChangeTagsForResource" +
		" route53:ListTagsForResource route53:ListQueryLoggingConfigs ec2:DescribeVpcs", map[string]string{
		noProperty: "route53:CreateQueryLoggingConfig route53:DeleteQueryLoggingConfig route53:UpdateHostedZoneFeatures",
		"a cluster stays in its VPC: all security groups would be replaced with it": "route53:DisassociateVPCFromHostedZone",
	}},
	// The schema has no handlers. It calls what makes a record set, and reads it.
	"AWS::Route53::RecordSet": {},
	// No bucket hands a role to replication; the instance profiles need that action.
	"AWS::S3::Bucket": {"iam:PassRole s3:CreateBucket s3:DeleteBucket s3:PutBucketPublicAccessBlock s3:PutBucketTagging s3:PutBucketVersioning s3:PutEncryptionConfiguration s3:PutLifecycleConfiguration s3:ListBucket" +
		" s3:GetAccelerateConfiguration s3:GetAnalyticsConfiguration s3:GetBucketAcl s3:GetBucketCORS s3:GetBucketLogging s3:GetBucketMetadataTableConfiguration s3:GetBucketNotification s3:GetBucketObjectLockConfiguration" +
		" s3:GetBucketOwnershipControls s3:GetBucketPublicAccessBlock s3:GetBucketTagging s3:GetBucketVersioning s3:GetBucketWebsite s3:GetEncryptionConfiguration s3:GetIntelligentTieringConfiguration" +
		" s3:GetInventoryConfiguration s3:GetLifecycleConfiguration s3:GetMetricsConfiguration s3:GetReplicationConfiguration", map[string]string{
		noProperty: "s3:PutAccelerateConfiguration s3:PutAnalyticsConfiguration s3:PutBucketAcl s3:PutBucketCORS s3:PutBucketLogging s3:PutBucketNotification s3:PutBucketObjectLockConfiguration s3:PutBucketOwnershipControls" +
			" s3:PutBucketReplication s3:PutBucketWebsite s3:PutIntelligentTieringConfiguration s3:PutInventoryConfiguration s3:PutMetricsConfiguration s3:PutObjectAcl s3:PutObjectLockConfiguration s3:PutReplicationConfiguration" +
			" s3:CreateBucketMetadataTableConfiguration s3:DeleteBucketMetadataTableConfiguration s3:DeleteBucketAnalyticsConfiguration s3:DeleteBucketCors s3:DeleteBucketMetricsConfiguration s3:DeleteBucketReplication" +
			" s3:DeleteBucketWebsite s3:DeleteObject",
		"of a table of the bucket's metadata":            "s3tables:CreateNamespace s3tables:CreateTable s3tables:GetTable s3tables:GetTableMetadataLocation s3tables:PutTablePolicy s3tables:UpdateTableMetadataLocation",
		"every template has a key and rules of its life": "s3:DeleteBucketEncryption s3:DeleteBucketLifecycle",
	}},
	"AWS::S3::BucketPolicy": {"s3:PutBucketPolicy s3:GetBucketPolicy s3:DeleteBucketPolicy", nil},
}

// managed and inline are the most characters of a managed policy, and of those in a role itself ("IAM and AWS STS quotas", IAM User Guide).
// White space does not count.
const managed, inline = 6144, 10240

// allowedBy are the actions of the policy that stack doctor prints for a document, in lower case. It is no longer than most characters.
func allowedBy(t *testing.T, document string, deploy cluster.Deployment, most int) map[string]bool {
	t.Helper()
	_, _, conf, _ := newCluster(t)
	text, err := cluster.New(cluster.Config{Document: complete(t, document), AWS: conf}).Permissions(t.Context(), deploy)
	assert.NilError(t, err)
	size := len(strings.Join(strings.Fields(string(text)), ""))
	assert.Assert(t, size <= most, "%d characters, of at most %d", size, most)
	var policy struct{ Statement []struct{ Action []string } }
	assert.NilError(t, json.Unmarshal(text, &policy))
	actions := map[string]bool{}
	for _, s := range policy.Statement {
		for _, action := range s.Action {
			actions[strings.ToLower(action)] = true
		}
	}
	return actions
}

// covers reports whether an action is among others, which may have stars in them; of one that ends in a star, whether any is. To IAM it is
// the same in small letters.
func covers(actions map[string]bool, action string) bool {
	begin, some := strings.CutSuffix(strings.ToLower(action), "*")
	return slices.ContainsFunc(slices.Collect(maps.Keys(actions)), func(have string) bool {
		matches, _ := path.Match(have, begin) // our own patterns are well formed
		return matches || some && strings.HasPrefix(have, begin)
	})
}

// The policy allows all that CloudFormation calls for the resources of a template, and nothing that it never calls for one of them.
func TestPermissionsOfResources(t *testing.T) {
	tmpl, err := template.Render(complete(t, everything), nil)
	assert.NilError(t, err)
	types := map[string]bool{}
	for _, r := range tmpl.Resources {
		types[r.Type] = true
	}
	assert.DeepEqual(t, slices.Sorted(maps.Keys(handlers)), slices.Sorted(maps.Keys(types)))
	actions := allowedBy(t, everything, cluster.Deployment{Parameters: map[string]string{template.ParameterBoundary: "arn:aws:iam::123456789012:policy/boundary"}}, inline)
	for kind, h := range handlers {
		for _, action := range strings.Fields(h.needed) {
			assert.Check(t, covers(actions, action), "%s needs %s", kind, action)
		}
		for why, left := range h.left {
			for _, action := range strings.Fields(left) {
				assert.Check(t, !covers(actions, action), "%s: %s is allowed, although it is left out: %s", kind, action, why)
			}
		}
	}
	// A document with less needs less.
	less := allowedBy(t, "", cluster.Deployment{}, managed)
	for _, action := range []string{"elasticloadbalancing:CreateLoadBalancer", "iam:CreateOpenIDConnectProvider", "iam:AttachRolePolicy", "iam:PutRolePermissionsBoundary", "kms:CreateGrant"} {
		assert.Check(t, covers(actions, action) && !covers(less, action), action)
	}
}

// decider says what IAM decides by the policy that stack doctor prints for a document.
func decider(t *testing.T, doc *spec.Complete, deploy cluster.Deployment) func(action, arn string) string {
	t.Helper()
	_, _, conf, _ := newCluster(t)
	text, err := cluster.New(cluster.Config{Document: doc, AWS: conf}).Permissions(t.Context(), deploy)
	assert.NilError(t, err)
	policy, err := awsfake.ParsePolicy(text)
	assert.NilError(t, err)
	return func(action, arn string) string { return awsfake.Decision([]awsfake.Policy{policy}, action, arn, nil) }
}

// Delete lets minions end that are held for their pods, in the cluster's groups alone.
func TestPermissionsOfDelete(t *testing.T) {
	decide := decider(t, complete(t), cluster.Deployment{})
	for group, want := range map[string]string{"demo-minions": "allowed", "other-minions": "implicitDeny"} {
		assert.Equal(t, decide("autoscaling:CompleteLifecycleAction", "arn:aws:autoscaling:us-west-2:123456789012:autoScalingGroup:1234abcd:autoScalingGroupName/"+group), want, group)
	}
}

// AWS asks who makes or changes a group with a launch template for RunInstances on all that its machines come with.
func TestPermissionsOfLaunches(t *testing.T) {
	decide := decider(t, complete(t), cluster.Deployment{})
	const ec2 = "arn:aws:ec2:us-west-2:123456789012:"
	for _, arn := range []string{ec2 + "instance/*", ec2 + "network-interface/*", ec2 + "volume/*", ec2 + "subnet/subnet-1", ec2 + "security-group/sg-1", ec2 + "launch-template/lt-1", "arn:aws:ec2:us-west-2::image/ami-1"} {
		assert.Check(t, decide("ec2:RunInstances", arn) == "allowed", "RunInstances on %s", arn)
	}
	// The template tags these.
	for _, kind := range []string{"instance", "network-interface", "volume"} {
		assert.Check(t, decide("ec2:CreateTags", ec2+kind+"/*") == "allowed", "CreateTags on %s", kind)
	}
}

// A role with a name of its own is not below the stack's: the policy has it too. It has no role that only begins like the cluster.
func TestPermissionsOfNamedRoles(t *testing.T) {
	doc := complete(t, everything, "addons: ["+strings.Join(machine.CloudAddons(), ", ")+"]\n")
	decide := decider(t, doc, cluster.Deployment{Parameters: map[string]string{template.ParameterBoundary: "arn:aws:iam::123456789012:policy/boundary"}})
	const roles = "arn:aws:iam::123456789012:role/"
	tmpl, err := template.Render(doc, nil)
	assert.NilError(t, err)
	named := 0
	for id, r := range tmpl.Resources {
		name := "hardtack-demo-" + id + "-1ABC"
		if own, ok := r.Properties["RoleName"].(map[string]any); ok {
			name = strings.ReplaceAll(own["Fn::Sub"].(string), "${AWS::Region}", "us-west-2")
			named++
		}
		for _, action := range strings.Fields(handlers[r.Type].needed) {
			if r.Type == "AWS::IAM::Role" {
				assert.Check(t, decide(action, roles+name) == "allowed", "%s on %s", action, name)
			}
		}
	}
	assert.Equal(t, named, len(machine.CloudAddons()))
	assert.Equal(t, decide("iam:PutRolePolicy", roles+"demo-admin"), "implicitDeny")
}

// schemaFiles are the schemas of CloudFormation's registry on this computer, by type.
func schemaFiles(t *testing.T) map[string]string {
	t.Helper()
	dir := os.Getenv("HARDTACK_CLOUDFORMATION_SCHEMAS")
	names, err := filepath.Glob(filepath.Join(cmp.Or(dir, judges.Path("cloudformation")), "*.json"))
	assert.NilError(t, err)
	assert.Assert(t, dir == "" || len(names) > 0, "HARDTACK_CLOUDFORMATION_SCHEMAS is %s, where no schemas are", dir)
	files := map[string]string{}
	for _, name := range names {
		kind := strings.ToLower(strings.TrimSuffix(filepath.Base(name), ".json"))
		files[strings.NewReplacer("-", "::", "_", "::").Replace(kind)] = name
	}
	return files
}

// The table of handlers has just what the schemas have.
func TestHandlersAreTheSchemas(t *testing.T) {
	files := schemaFiles(t)
	if len(files) == 0 {
		t.Skip("the schemas of CloudFormation's registry are not on this computer (scripts/setup --judges)")
	}
	for kind, h := range handlers {
		text, err := os.ReadFile(files[strings.ToLower(kind)])
		assert.NilError(t, err, kind)
		var schema struct {
			TypeName string
			Handlers map[string]struct{ Permissions []string }
		}
		assert.NilError(t, json.Unmarshal(text, &schema), kind)
		assert.Equal(t, schema.TypeName, kind)
		want := []string{}
		for _, name := range []string{"create", "read", "update", "delete"} {
			for _, action := range schema.Handlers[name].Permissions {
				want = append(want, strings.ToLower(action))
			}
		}
		have := strings.Fields(strings.ToLower(h.needed))
		for _, left := range h.left {
			have = append(have, strings.Fields(strings.ToLower(left))...)
		}
		slices.Sort(want)
		slices.Sort(have)
		assert.DeepEqual(t, have, slices.Compact(want))
	}
}
