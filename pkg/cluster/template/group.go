package template

import (
	"encoding/base64"
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
	if err := b.instanceRole(g); err != nil {
		return err
	}
	if err := b.launchTemplate(g); err != nil {
		return err
	}
	b.volume(g)
	b.scalingGroup(g)
	return nil
}

// launchTemplate adds the launch template of the group.
func (b *builder) launchTemplate(g spec.Group) error {
	userData, err := b.cluster.UserData(g.Name, b.ca)
	if err != nil {
		return err
	}
	hash, err := b.cluster.Hash(g.Name, b.ca)
	if err != nil {
		return err
	}
	disk := object{"VolumeSize": g.AWS.Volume, "VolumeType": "gp3", "Encrypted": true, "DeleteOnTermination": true}
	if key := b.cluster.Cluster.AWS.Key; key != "" {
		disk["KmsKeyId"] = key
	}
	var groups []any
	for _, r := range b.securityGroupsOf(g) {
		groups = append(groups, groupID(securityGroup(r)))
	}
	id, name := b.ids[g.Name], b.cluster.AutoScaling(g)
	b.out.Resources["LaunchTemplate"+id] = Resource{Type: "AWS::EC2::LaunchTemplate", Properties: object{
		"LaunchTemplateName": name, "VersionDescription": hash,
		"LaunchTemplateData": object{
			"ImageId": ref(ParameterImage), "InstanceType": g.AWS.InstanceType,
			"IamInstanceProfile":  object{"Arn": attribute("Profile"+id, "Arn")},
			"SecurityGroupIds":    groups,
			"MetadataOptions":     metadataOptions(g),
			"BlockDeviceMappings": []any{object{"DeviceName": ami.RootDevice, "Ebs": disk}},
			"TagSpecifications":   []any{object{"ResourceType": "volume", "Tags": b.tags(name)}},
			"UserData":            base64.StdEncoding.EncodeToString(userData),
		},
	}}
	return nil
}

// metadataOptions are the options of the metadata service of a group's machines. A pod is one hop further away than its
// machine, and so gets no token; one in the host's network is not, and the image's drop-in of kubepods.slice keeps it away. Only a member of etcd reads its tags: with them in the
// metadata EC2 refuses to launch a machine that has a tag with a slash in its key ("View tags for your EC2 instances
// using instance metadata"), and groups that cluster-autoscaler scales have such tags. Other machines ask AutoScaling for
// their group. Their tags are disabled explicitly, since the default of the account may be to show them.
func metadataOptions(g spec.Group) object {
	tags := "disabled"
	if readsTags(g) {
		tags = "enabled"
	}
	return object{"HttpEndpoint": "enabled", "HttpTokens": "required", "HttpPutResponseHopLimit": 1, "InstanceMetadataTags": tags}
}

// readsTags reports whether the group's machines learn from their tags which of several members they are.
func readsTags(g spec.Group) bool { return len(g.Members) > 0 && g.Member != "" }

// scalingGroup adds the AutoScaling group. It has no update policy: `hardtack stack refresh` replaces machines, and takes
// care of the quorum.
func (b *builder) scalingGroup(g spec.Group) {
	id := b.ids[g.Name]
	template := "LaunchTemplate" + id
	properties := object{
		"AutoScalingGroupName":           b.cluster.AutoScaling(g),
		"LaunchTemplate":                 object{"LaunchTemplateId": ref(template), "Version": attribute(template, "LatestVersionNumber")},
		"MinSize":                        choose(hasMachines, strconv.Itoa(g.Size), "0"),
		"MaxSize":                        strconv.Itoa(g.AWS.Max),
		"DesiredCapacity":                choose(hasMachines, ref("AWS::NoValue"), "0"),
		"VPCZoneIdentifier":              b.subnets(g),
		"HealthCheckType":                "EC2",
		"LifecycleHookSpecificationList": hookList(b.hooks(g)),
		"Tags":                           append(tagList(b.groupTags(g)), object{"Key": role.TagInstanceRole, "Value": ref("Role" + id), "PropagateAtLaunch": false}),
	}
	if b.balanced(g) {
		properties["TargetGroupARNs"] = []any{ref(targetsID)}
	}
	b.out.Resources["Group"+id] = Resource{Type: "AWS::AutoScaling::AutoScalingGroup", Properties: properties}
}

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
