package preflight

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
)

// Plan is what of a cluster decides which calls are made for it.
type Plan struct {
	Partition, Region, Account string
	Stack                      string
	// Groups are the names of the AutoScaling groups, and Types the types of the template's resources.
	Groups, Types []string
	// ZoneID is the private zone's, empty if the stack makes it. Store is the path of the secrets in Parameter Store, empty if they are
	// elsewhere, and Channel the parameter that names the image.
	ZoneID         string
	Store, Channel string
	// Bucket is that of a template which is too large for a request, and Backups the stack's own for etcd's backups; empty for none.
	Bucket, Backups string
	// PodRoles begins the names of the roles of the cloud's add-ons, which are not the stack's; empty if the cluster has no such add-on.
	PodRoles string
	// SecretsKey is the ARN or the alias of the KMS key that encrypts the secrets; empty for AWS's own.
	SecretsKey string
	// VolumeKey is the ARN of the KMS key that encrypts the volumes of etcd's members; empty for the account's own key for EBS.
	VolumeKey string
	// Managed is whether a role has managed policies, Metrics whether a group publishes metrics, and Boundary whether roles have a boundary.
	Managed, Metrics, Boundary bool
}

// Need is a set of calls on one resource, which are made with the caller's permissions: by Hardtack, or by CloudFormation.
type Need struct {
	// Name is that of the check, What says what the calls are for.
	Name, What string
	Actions    []string
	// Wide is what Policy has in place of Actions, with stars in it; empty for Actions.
	Wide []string
	// Resource is an ARN, with a * for what only AWS will know, or "*".
	Resource string
	// Context has the values of condition keys in the calls.
	Context map[string][]string
	// Once is whether the calls are made in an account that never had such a thing, and in no other.
	Once bool
	// Elsewhere is whether the resource has a policy of its own that may allow the calls too, which IAM does not simulate.
	Elsewhere bool
}

// Decision is IAM's simulated decision on an action.
type Decision struct {
	Need
	Action string
	// Decision is "allowed", "implicitDeny" or "explicitDeny".
	Decision string
	// Missing are condition keys that the policies ask for and the simulation has no value for.
	Missing []string
	// Organization is whether the organization's policies refuse, and Boundary whether the caller's permissions boundary does.
	Organization, Boundary bool
}

// Needs are the calls of apply, refresh and delete for a cluster, and of this check. What CloudFormation calls for a resource is in the
// schema of its type: "handlers", permissions (CloudFormation User Guide, "Managing resource types"; the registry's DescribeType). What of
// it is left out has its reason in pkg/cluster's test of permissions.
func (p Plan) Needs() []Need {
	var all []Need
	add := func(name, what, resource, actions string) {
		all = append(all, Need{Name: "permissions." + name, What: what, Actions: expand(actions), Resource: resource})
	}
	arn := func(service, rest string) string {
		return "arn:" + p.Partition + ":" + service + ":" + p.Region + ":" + p.Account + ":" + rest
	}
	global := func(service, rest string) string { return "arn:" + p.Partition + ":" + service + "::" + rest }
	has := func(kind string) bool { return slices.Contains(p.Types, kind) }

	add("stack", "making and watching the stack", arn("cloudformation", "stack/"+p.Stack+"/*"),
		"cloudformation: CreateChangeSet DescribeChangeSet ExecuteChangeSet DeleteChangeSet DescribeStacks DescribeStackEvents ListStackResources UpdateTerminationProtection DeleteStack")
	add("look", "reading what there is", "*", "ec2: DescribeImages DescribeInstanceTypes DescribeInstances DescribeLaunchTemplates DescribeLaunchTemplateVersions DescribeRouteTables"+
		" DescribeSecurityGroups DescribeSecurityGroupRules DescribeSnapshots DescribeSubnets DescribeTags DescribeVolumes DescribeVolumeAttribute DescribeVolumesModifications"+
		" DescribeVpcAttribute DescribeVpcEndpoints DescribeVpcs"+
		" autoscaling: DescribeAccountLimits DescribeAutoScalingGroups DescribeAutoScalingInstances DescribeInstanceRefreshes DescribeLifecycleHooks DescribeScalingActivities DescribeTags"+
		" iam: GetAccountSummary route53: GetAccountLimit ListHostedZonesByVPC servicequotas: GetServiceQuota GetAWSDefaultServiceQuota")
	if p.Store != "" {
		add("secrets", "reading and agreeing on the cluster's facts", arn("ssm", "parameter"+p.Store+"/*"), "ssm: GetParameter GetParameters PutParameter")
		add("secrets", "finding the cluster's facts", arn("ssm", "parameter"+p.Store), "ssm: GetParametersByPath")
	}
	if p.Store != "" && p.SecretsKey != "" {
		all = append(all, p.keyNeed(arn))
	}
	add("image", "reading which image the channel names", arn("ssm", "parameter"+p.Channel), "ssm: GetParameter GetParameters")
	groups := "autoscaling: CreateAutoScalingGroup UpdateAutoScalingGroup DeleteAutoScalingGroup CreateOrUpdateTags DeleteTags PutLifecycleHook DeleteLifecycleHook"
	if p.Metrics {
		groups += " EnableMetricsCollection DisableMetricsCollection"
	}
	if has(typeTargets) {
		groups += " AttachLoadBalancerTargetGroups DetachLoadBalancerTargetGroups"
	}
	for _, name := range p.Groups {
		group := arn("autoscaling", "autoScalingGroup:*:autoScalingGroupName/"+name)
		add("groups", "making the groups", group, groups)
		add("refresh", "replacing and ending machines", group, "autoscaling: StartInstanceRefresh CancelInstanceRefresh RollbackInstanceRefresh TerminateInstanceInAutoScalingGroup CompleteLifecycleAction")
	}
	// "To use a launch template, you must have permission to use ... ec2:RunInstances" (Amazon EC2 Auto Scaling User Guide, "Control Amazon
	// EC2 launch template usage"): on every resource that the action requires in the Service Authorization Reference, and CreateTags on
	// those that the template tags. A policy has one statement for resources with the same actions, and so few characters.
	add("templates", "making the launch templates, and launching from them", arn("ec2", "launch-template/*"),
		"ec2: RunInstances CreateLaunchTemplate CreateLaunchTemplateVersion ModifyLaunchTemplate DeleteLaunchTemplate DeleteLaunchTemplateVersions CreateTags DeleteTags")
	const launching = "launching from the launch templates"
	for _, kind := range []string{"instance", "network-interface", "volume"} {
		add("templates", launching, arn("ec2", kind+"/*"), "ec2: RunInstances CreateTags")
	}
	add("templates", launching, arn("ec2", "subnet/*"), "ec2: RunInstances")
	add("templates", launching, "arn:"+p.Partition+":ec2:"+p.Region+"::image/*", "ec2: RunInstances")
	add("securitygroups", "making the security groups, and launching with them", arn("ec2", "security-group/*"),
		"ec2: RunInstances CreateSecurityGroup DeleteSecurityGroup AuthorizeSecurityGroupIngress RevokeSecurityGroupIngress UpdateSecurityGroupRuleDescriptionsIngress CreateTags DeleteTags")
	if has(typeVolume) {
		add("volumes", "making the volumes of etcd's members", arn("ec2", "volume/*"), "ec2: CreateVolume ModifyVolume DeleteVolume CreateTags DeleteTags")
	}
	if has(typeVolume) && p.VolumeKey != "" {
		// "Required permissions for Amazon EBS encryption" (EBS User Guide).
		all = append(all, Need{Name: "permissions.volumes", What: "encrypting the volumes of etcd's members", Resource: p.VolumeKey, Elsewhere: true,
			Actions: expand("kms: CreateGrant Decrypt DescribeKey GenerateDataKeyWithoutPlaintext ReEncryptFrom ReEncryptTo")})
	}
	all = append(all, p.roleNeeds(global, has)...)
	all = append(all, p.zoneNeeds(global)...)
	if has(typeTargets) {
		tags := " AddTags RemoveTags"
		add("balancer", "making the load balancer", arn("elasticloadbalancing", "loadbalancer/net/*"), "elasticloadbalancing: CreateLoadBalancer DeleteLoadBalancer ModifyLoadBalancerAttributes SetSubnets SetSecurityGroups SetIpAddressType CreateListener"+tags)
		add("balancer", "making its targets", arn("elasticloadbalancing", "targetgroup/*"), "elasticloadbalancing: CreateTargetGroup DeleteTargetGroup ModifyTargetGroup ModifyTargetGroupAttributes"+tags)
		add("balancer", "making its listener", arn("elasticloadbalancing", "listener/net/*"), "elasticloadbalancing: DeleteListener ModifyListener"+tags)
		add("balancer", "reading load balancers", "*", "elasticloadbalancing: DescribeCapacityReservation DescribeListeners DescribeListenerAttributes DescribeLoadBalancers DescribeLoadBalancerAttributes DescribeTags DescribeTargetGroups DescribeTargetGroupAttributes DescribeTargetHealth")
	}
	if p.Backups != "" {
		bucket := global("s3", ":"+p.Backups)
		// It is deleted where a change that made it is rolled back.
		add("backups", "making the bucket of etcd's backups", bucket, "s3: CreateBucket DeleteBucket PutBucketPolicy DeleteBucketPolicy PutBucketPublicAccessBlock PutBucketTagging PutBucketVersioning PutEncryptionConfiguration PutLifecycleConfiguration")
		// CloudFormation reads all of a bucket, for its ARN too.
		all = append(all, Need{Name: "permissions.backups", What: "reading the bucket of etcd's backups", Resource: bucket, Wide: expand("s3: GetBucket* Get*Configuration ListBucket"), Actions: expand("s3: ListBucket GetAccelerateConfiguration GetAnalyticsConfiguration GetBucketAcl GetBucketCORS GetBucketLogging GetBucketMetadataTableConfiguration" +
			" GetBucketNotification GetBucketObjectLockConfiguration GetBucketOwnershipControls GetBucketPolicy GetBucketPublicAccessBlock GetBucketTagging GetBucketVersioning GetBucketWebsite" +
			" GetEncryptionConfiguration GetIntelligentTieringConfiguration GetInventoryConfiguration GetLifecycleConfiguration GetMetricsConfiguration GetReplicationConfiguration")})
	}
	if p.Bucket != "" {
		add("bucket", "handing the template over", global("s3", ":"+p.Bucket+"/hardtack/*"), "s3: PutObject GetObject")
	}
	return all
}

// keyNeed is that of reading secrets: what etcd's members report decides which machine may be replaced. Parameter Store calls KMS in the
// caller's name. IAM knows a key by its ARN, or by the aliases that it has.
func (p Plan) keyNeed(arn func(service, rest string) string) Need {
	n := Need{Name: "permissions.secrets", What: "decrypting what etcd's members report", Actions: expand("kms: Decrypt"), Resource: p.SecretsKey, Elsewhere: true,
		Context: map[string][]string{"kms:EncryptionContext:PARAMETER_ARN": {arn("ssm", "parameter"+p.Store+"/*")}}}
	if strings.HasPrefix(p.SecretsKey, "alias/") {
		n.Resource, n.Context[keyAliases] = arn("kms", "key/*"), []string{p.SecretsKey}
	}
	return n
}

// keyAliases is the condition key of a KMS key's aliases.
const keyAliases = "kms:ResourceAliases"

// Several reports whether a condition key has several values in a call.
func Several(key string) bool { return key == keyAliases }

// operator is how a policy compares a condition key: only the key of a parameter's name has a * in it.
func operator(key string) string {
	switch {
	case Several(key):
		return "ForAnyValue:StringEquals"
	case strings.HasSuffix(key, ":PARAMETER_ARN"):
		return "StringLike"
	}
	return "StringEquals"
}

// The types of resources of which a template has none, or some.
const (
	typeTargets  = "AWS::ElasticLoadBalancingV2::TargetGroup"
	typeVolume   = "AWS::EC2::Volume"
	typeProvider = "AWS::IAM::OIDCProvider"
)

// roleNeeds are those of the instance roles and of the roles of pods. CloudFormation names them by the stack, but for those of add-ons.
func (p Plan) roleNeeds(global func(service, rest string) string, has func(string) bool) []Need {
	role := "iam: CreateRole DeleteRole GetRole UpdateRole UpdateRoleDescription UpdateAssumeRolePolicy PutRolePolicy DeleteRolePolicy GetRolePolicy ListRolePolicies ListAttachedRolePolicies TagRole UntagRole"
	if p.Managed {
		role += " AttachRolePolicy DetachRolePolicy"
	}
	if p.Boundary {
		role += " PutRolePermissionsBoundary DeleteRolePermissionsBoundary"
	}
	roles := global("iam", p.Account+":role/"+p.Stack+"-*")
	all := []Need{
		{Name: "permissions.roles", What: "making the instance roles", Actions: expand(role), Resource: roles},
		{Name: "permissions.roles", What: "making the instance profiles", Resource: global("iam", p.Account+":instance-profile/"+p.Stack+"-*"),
			Actions: expand("iam: CreateInstanceProfile DeleteInstanceProfile GetInstanceProfile AddRoleToInstanceProfile RemoveRoleFromInstanceProfile")},
	}
	// In China a profile gets its role by the one name, and a machine its profile by the other (karpenter-provider-aws #6843).
	services := []string{"ec2.amazonaws.com"}
	if p.Partition == "aws-cn" {
		services = append(services, "ec2.amazonaws.com.cn")
	}
	for _, service := range services {
		all = append(all, Need{Name: "permissions.roles", What: "handing the instance roles to machines", Actions: expand("iam: PassRole"), Resource: roles,
			Context: map[string][]string{"iam:PassedToService": {service}}})
	}
	if p.PodRoles != "" {
		all = append(all, Need{Name: "permissions.roles", What: "making the roles of add-ons", Actions: expand(role), Resource: global("iam", p.Account+":role/"+p.PodRoles+"*")})
	}
	linked := map[string]string{"autoscaling.amazonaws.com": "AWSServiceRoleForAutoScaling"}
	if has(typeTargets) {
		linked["elasticloadbalancing.amazonaws.com"] = "AWSServiceRoleForElasticLoadBalancing"
	}
	for _, service := range []string{"autoscaling.amazonaws.com", "elasticloadbalancing.amazonaws.com"} {
		if name := linked[service]; name != "" {
			all = append(all, Need{Name: "permissions.linked", What: "making " + name, Actions: expand("iam: CreateServiceLinkedRole"), Once: true,
				Resource: global("iam", p.Account+":role/aws-service-role/"+service+"/"+name), Context: map[string][]string{"iam:AWSServiceName": {service}}})
		}
	}
	if has(typeProvider) {
		all = append(all, Need{Name: "permissions.issuer", What: "making the identity provider of pods", Resource: global("iam", p.Account+":oidc-provider/*"),
			Actions: expand("iam: CreateOpenIDConnectProvider DeleteOpenIDConnectProvider GetOpenIDConnectProvider ListOpenIDConnectProviderTags UpdateOpenIDConnectProviderThumbprint AddClientIDToOpenIDConnectProvider RemoveClientIDFromOpenIDConnectProvider TagOpenIDConnectProvider UntagOpenIDConnectProvider")})
	}
	return all
}

func (p Plan) zoneNeeds(global func(service, rest string) string) []Need {
	zone := global("route53", ":hostedzone/*")
	if p.ZoneID != "" {
		zone = global("route53", ":hostedzone/"+p.ZoneID)
	}
	one := func(what, resource, actions string) Need {
		return Need{Name: "permissions.zone", What: what, Actions: expand("route53: " + actions), Resource: resource}
	}
	all := []Need{
		one("keeping the records", zone, "GetHostedZone ListResourceRecordSets ChangeResourceRecordSets"),
		one("waiting for changes of records", global("route53", ":change/*"), "GetChange"),
	}
	if p.ZoneID == "" {
		all = append(all, one("making the private zone", "*", "CreateHostedZone"),
			// The tags are those of the stack.
			one("changing and deleting the private zone", zone, "AssociateVPCWithHostedZone ChangeTagsForResource DeleteHostedZone ListQueryLoggingConfigs ListTagsForResource UpdateHostedZoneComment"))
	}
	return all
}

// expand lists the actions of a text: a service with a colon, and names.
func expand(text string) (actions []string) {
	service := ""
	for word := range strings.FieldsSeq(text) {
		if strings.HasSuffix(word, ":") {
			service = word
			continue
		}
		actions = append(actions, service+word)
	}
	return actions
}

// statement is a statement of Policy. It has no name (Sid): IAM counts each character.
type statement struct {
	Effect           string
	Action, Resource []string
	Condition        map[string]map[string][]string `json:",omitempty"`
}

// Policy is the IAM policy, as JSON, that allows every need, and asking IAM for what the caller may do.
func Policy(needs []Need) ([]byte, error) {
	var statements []statement
	of := map[string]int{}
	for _, n := range append(slices.Clone(needs), Need{Actions: expand("iam: SimulatePrincipalPolicy GetRole"), Resource: "*"}) {
		if len(n.Wide) > 0 {
			n.Actions = n.Wide
		}
		key := fmt.Sprint(n.Actions, n.Context)
		i, there := of[key]
		if !there {
			i, of[key] = len(statements), len(statements)
			s := statement{Effect: "Allow", Action: n.Actions}
			if len(n.Context) > 0 {
				s.Condition = map[string]map[string][]string{}
			}
			for key, values := range n.Context {
				by := operator(key)
				if s.Condition[by] == nil {
					s.Condition[by] = map[string][]string{}
				}
				s.Condition[by][key] = values
			}
			statements = append(statements, s)
		}
		statements[i].Resource = append(statements[i].Resource, n.Resource)
	}
	return json.MarshalIndent(struct {
		Version   string
		Statement []statement
	}{"2012-10-17", statements}, "", "  ")
}

// permissions compares the decisions with the needs: one check a name, or one for each resource with a refusal.
func (l *list) permissions(who Caller, k doctor.Known[[]Decision]) {
	const name = "permissions"
	switch {
	case who.Principal == "" && strings.HasSuffix(who.ARN, ":root"):
		l.ok(name, "%s is the account's root, which may do everything that the organization does not forbid", who.ARN)
		return
	case who.Principal == "":
		l.add(name, doctor.Warning, "compare the policies of these credentials with "+l.policy, "not known: IAM simulates the policies of users and roles, and %s is neither", who.ARN)
		return
	case l.unread(name, k.Err):
		return
	}
	var order []string
	of := map[string][]Decision{}
	for _, d := range k.Value {
		if of[d.Name] == nil {
			order = append(order, d.Name)
		}
		of[d.Name] = append(of[d.Name], d)
	}
	for _, one := range order {
		l.permission(one, of[one])
	}
}

// permission is the check of one name, of decisions in their order.
func (l *list) permission(name string, decisions []Decision) {
	type refusal struct {
		need    Need
		actions []string
		why     string
	}
	var refusals []refusal
	allowed := []string{}
	for _, d := range decisions {
		if d.Decision == "allowed" {
			if !slices.Contains(allowed, d.What) {
				allowed = append(allowed, d.What)
			}
			continue
		}
		i := slices.IndexFunc(refusals, func(r refusal) bool { return r.need.Resource == d.Resource && r.why == d.why() })
		if i < 0 {
			i, refusals = len(refusals), append(refusals, refusal{need: d.Need, why: d.why()})
		}
		refusals[i].actions = append(refusals[i].actions, d.Action)
	}
	if len(refusals) == 0 {
		l.ok(name, "allowed: %s", strings.Join(allowed, "; "))
	}
	for _, r := range refusals {
		const denied = "have it taken away, or use other credentials"
		state, next := doctor.Error, "allow it: "+l.policy+" prints a policy with all that is needed"
		if strings.HasPrefix(r.why, "a") { // a denial, which no further policy outweighs
			next = denied
		}
		switch {
		case r.need.Once:
			state, r.why = doctor.Warning, r.why+"; it is needed where the account has none yet"
		case r.need.Elsewhere && next != denied:
			state, r.why = doctor.Warning, r.why+"; the resource's own policy may, which is not known here"
		case strings.HasPrefix(r.why, "it depends"):
			state = doctor.Warning
		}
		l.add(name, state, next, "%s: %s on %s: %s", r.need.What, names(r.actions), r.need.Resource, r.why)
	}
}

// why is the reason of a refusal.
func (d Decision) why() string {
	switch {
	case d.Organization:
		return "an organization's policy does not allow it"
	case d.Decision == "explicitDeny":
		return "an explicit denial"
	case d.Boundary:
		return "a permissions boundary does not allow it"
	case len(d.Missing) > 0:
		return "it depends on " + strings.Join(d.Missing, ", ")
	}
	return "no policy allows it"
}
