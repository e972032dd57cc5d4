package template

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/notice"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// DrainHook is the name of the hook that delays the end of a machine until its address has left DNS.
const DrainHook = role.DrainHook

// The hooks' heartbeat timeouts, in seconds; that of role.EvictionHook is the document's. A machine that makes progress sends
// heartbeats (pkg/node/ready), and one that is not ready within a quarter of an hour is replaced. A machine that does not leave
// DNS is ended nevertheless.
//
// Where masters complete the launches, nobody can send heartbeats before there is a master: a machine has waitForMaster more for
// that, so that it is given up after the twenty minutes that one has which sends heartbeats until it sees no progress.
const (
	launchTimeout = 900
	waitForMaster = 300
	drainTimeout  = 300
)

// group adds a group with its launch template and its instance role.
func (b *builder) group(g spec.Group) error {
	m, err := b.model(g)
	if err != nil {
		return err
	}
	b.instanceRole(g, m)
	b.launchTemplate(g, m)
	b.volume(g)
	b.scalingGroup(g, m)
	return nil
}

// launchTemplate adds the launch template of the group.
func (b *builder) launchTemplate(g spec.Group, m groupModel) {
	disk := object{"VolumeSize": m.Volume, "VolumeType": "gp3", "Encrypted": true, "DeleteOnTermination": true}
	if m.IOPS > 0 {
		disk["Iops"], disk["Throughput"] = m.IOPS, m.Throughput
	}
	if key := b.cluster.Cluster.AWS.Key; key != "" {
		disk["KmsKeyId"] = key
	}
	var groups []any
	for _, r := range m.SecurityGroups {
		groups = append(groups, groupID(securityGroup(r)))
	}
	for _, id := range m.MoreGroups {
		groups = append(groups, id)
	}
	id, name := b.ids[g.Name], b.cluster.AutoScaling(g)
	tags := named(b.cluster.Cluster.Name, name, m.OwnTags)
	tagged := []any{object{"ResourceType": "volume", "Tags": tags}}
	if len(m.OwnTags) > 0 {
		tagged = append(tagged, object{"ResourceType": "network-interface", "Tags": tags})
	}
	b.out.Resources["LaunchTemplate"+id] = Resource{Type: "AWS::EC2::LaunchTemplate", Properties: object{
		"LaunchTemplateName": name, "VersionDescription": m.ConfigHash,
		"LaunchTemplateData": object{
			"ImageId": ref(ParameterImage), "InstanceType": m.InstanceType,
			"IamInstanceProfile":  object{"Arn": attribute("Profile"+id, "Arn")},
			"SecurityGroupIds":    groups,
			"MetadataOptions":     metadataOptions(m),
			"BlockDeviceMappings": []any{object{"DeviceName": ami.RootDevice, "Ebs": disk}},
			"TagSpecifications":   tagged,
			"UserData":            m.UserData,
		},
	}}
}

// metadataOptions are the options of the metadata service of a group's machines. A pod is one hop further away than its
// machine, and so gets no token; one in the host's network is not, and the image's drop-in of kubepods.slice keeps it away. Only a member of etcd reads its tags: with them in the
// metadata EC2 refuses to launch a machine that has a tag with a slash in its key ("View tags for your EC2 instances
// using instance metadata"), and groups that cluster-autoscaler scales have such tags. Other machines ask AutoScaling for
// their group. Their tags are disabled explicitly, since the default of the account may be to show them.
func metadataOptions(m groupModel) object {
	tags := "disabled"
	if m.ReadsTags {
		tags = "enabled"
	}
	return object{"HttpEndpoint": "enabled", "HttpTokens": "required", "HttpPutResponseHopLimit": 1, "InstanceMetadataTags": tags}
}

// readsTags reports whether the group's machines learn from their tags which of several members they are.
func readsTags(g spec.Group) bool { return len(g.Members) > 0 && g.Member != "" }

// scalingGroup adds the AutoScaling group. It has no update policy: `hardtack stack refresh` replaces machines, and takes
// care of the quorum.
func (b *builder) scalingGroup(g spec.Group, m groupModel) {
	id := b.ids[g.Name]
	template := "LaunchTemplate" + id
	version := object{"LaunchTemplateId": ref(template), "Version": attribute(template, "LatestVersionNumber")}
	properties := object{
		"AutoScalingGroupName":           b.cluster.AutoScaling(g),
		"MinSize":                        choose(hasMachines, strconv.Itoa(m.Size), "0"),
		"MaxSize":                        strconv.Itoa(m.Max),
		"DesiredCapacity":                choose(hasMachines, m.desired(), "0"),
		"VPCZoneIdentifier":              b.subnets(g),
		"HealthCheckType":                "EC2",
		"LifecycleHookSpecificationList": hookList(m.Hooks),
		"Tags":                           append(tagList(m.allTags()), object{"Key": role.TagInstanceRole, "Value": ref("Role" + id), "PropagateAtLaunch": false}),
	}
	if len(m.Mixed) == 0 {
		properties["LaunchTemplate"] = version
	}
	for _, mixed := range m.Mixed {
		properties["MixedInstancesPolicy"] = mixed.policy(version)
	}
	if m.Balanced {
		properties["TargetGroupARNs"] = []any{ref(b.targets())}
	}
	if m.Rebalance {
		properties["CapacityRebalance"] = true
	}
	if m.Lifetime > 0 {
		properties["MaxInstanceLifetime"] = m.Lifetime
	}
	if len(m.Metrics) > 0 {
		properties["MetricsCollection"] = []any{object{"Granularity": "1Minute", "Metrics": m.Metrics}}
	}
	b.out.Resources["Group"+id] = Resource{Type: "AWS::AutoScaling::AutoScalingGroup", Properties: properties}
}

// desired is how many machines the group is to have once there are any. Of an elastic group that is not the stack's to say.
func (m groupModel) desired() any {
	if m.Elastic {
		return ref("AWS::NoValue")
	}
	return strconv.Itoa(m.Size)
}

// policy is the mixed instances policy in the template.
func (m mixedModel) policy(version object) object {
	var types []any
	for _, name := range m.Types {
		types = append(types, object{"InstanceType": name})
	}
	return object{
		"InstancesDistribution": object{
			"OnDemandAllocationStrategy": onDemandAllocation, "OnDemandBaseCapacity": m.OnDemandBase,
			"OnDemandPercentageAboveBaseCapacity": m.OnDemandPercent, "SpotAllocationStrategy": m.Allocation,
		},
		"LaunchTemplate": object{"LaunchTemplateSpecification": version, "Overrides": types},
	}
}

// onDemandAllocation takes the types in the document's order.
const onDemandAllocation = "prioritized"

// subnets are the subnets of the group's machines. Each member of etcd with a name or a volume has its own.
func (b *builder) subnets(g spec.Group) any {
	if place := b.place(g); place >= 0 {
		return []any{nth(place, ParameterMembers)}
	}
	return ref(ParameterSubnets)
}

// Hook is a lifecycle hook of a group.
type Hook struct {
	Name string `json:"name"`
	// Transition is "autoscaling:EC2_INSTANCE_LAUNCHING" or "…TERMINATING", Result the action after the timeout.
	Transition string `json:"transition"`
	Result     string `json:"result"`
	// Timeout is the heartbeat timeout in seconds.
	Timeout int `json:"timeout"`
}

// hooks are the hooks of a group. The DNS function answers DrainHook, the masters role.EvictionHook, and the machine its launch
// hook, unless masters do (launchedByMasters).
func (b *builder) hooks(g spec.Group) []Hook {
	const transition = "autoscaling:EC2_INSTANCE_"
	hooks := []Hook{{DrainHook, transition + "TERMINATING", "CONTINUE", drainTimeout}}
	if b.evicts(g) {
		// Pods end with their machine if nobody moves them: no master works, or a budget does not allow it.
		hooks = append(hooks, Hook{role.EvictionHook, transition + "TERMINATING", "CONTINUE", int(g.Drain() / time.Second)})
	}
	if name := b.cluster.LaunchHook(); name != "" {
		// A machine that never worked must not come into service: a refresh stops at it, and the group launches another.
		timeout := b.launchTimeout
		if timeout == launchTimeout && b.launchedByMasters(g) {
			timeout += waitForMaster
		}
		hooks = append(hooks, Hook{name, transition + "LAUNCHING", "ABANDON", timeout})
	}
	return hooks
}

// evicts reports whether masters of the stack move pods away from the group's machines before these end.
func (b *builder) evicts(g spec.Group) bool { return g.Roles.Has(role.Minions) && b.has(role.Masters) }

func hookList(hooks []Hook) []any {
	var list []any
	for _, h := range hooks {
		list = append(list, object{"LifecycleHookName": h.Name, "LifecycleTransition": h.Transition, "DefaultResult": h.Result, "HeartbeatTimeout": h.Timeout})
	}
	return list
}

// Tag is a tag of a group.
type Tag struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	// Propagate reports whether the group's machines get the tag too.
	Propagate bool `json:"propagate"`
}

// groupTags are the tags from which the records are made, and by which the masters know what is done about notices. Only the
// group has EtcdMembers and Notices. The tag with the name of the IAM
// role, which CloudFormation or Terraform makes, is added beside them.
func (b *builder) groupTags(g spec.Group) []Tag {
	tags := []Tag{
		{role.TagCluster, b.cluster.Cluster.Name, true},
		{role.TagRole, g.Roles.String(), true},
		{"Name", b.cluster.AutoScaling(g), true},
	}
	if g.Roles.Has(role.Etcd) && len(g.Members) > 0 {
		tags = append(tags, Tag{role.TagEtcdMembers, strings.Join(g.Members, " "), false})
	}
	if n := g.Notices(); b.evicts(g) && n != notice.DefaultPolicy() {
		tags = append(tags, Tag{role.TagNotices, n.String(), false})
	}
	if b.place(g) >= 0 {
		tags = append(tags, Tag{role.TagEtcdMember, g.Member, true})
	}
	return append(tags, b.scalingTags(g)...)
}

// allTags are the group's tags with the document's, which its machines get.
func (m groupModel) allTags() []Tag {
	tags := slices.Clone(m.Tags)
	for _, key := range slices.Sorted(maps.Keys(m.OwnTags)) {
		tags = append(tags, Tag{key, m.OwnTags[key], true})
	}
	return tags
}

func tagList(tags []Tag) []any {
	var list []any
	for _, t := range tags {
		list = append(list, object{"Key": t.Key, "Value": t.Value, "PropagateAtLaunch": t.Propagate})
	}
	return list
}

// names are the names of the AutoScaling groups.
func (b *builder) names() []string {
	var names []string
	for _, g := range b.cluster.Groups {
		names = append(names, b.cluster.AutoScaling(g))
	}
	return names
}

// nameGroups adds the output that is an input of the function's stack.
func (b *builder) nameGroups() {
	b.out.Outputs[OutputGroups] = Output{Description: "The groups: GroupNames of the function's stack", Value: strings.Join(b.names(), ",")}
}
