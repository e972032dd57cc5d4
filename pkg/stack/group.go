package stack

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/publish"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// DrainHook is the hook that holds a machine which is to end until it has left DNS.
const DrainHook = "hardtack-drain"

// The hooks' heartbeat timeouts, in seconds. A machine whose launch goes on says so every 20 s (pkg/agent/ready), and
// one that does not come up within a quarter of an hour is replaced. What cannot be drained ends all the same.
const (
	launchTimeout = 900
	drainTimeout  = 300
)

// group adds a group with its launch template and its role.
func (b *builder) group(g spec.Group) error {
	if err := b.instanceRole(g); err != nil {
		return err
	}
	if err := b.launchTemplate(g); err != nil {
		return err
	}
	b.scalingGroup(g)
	return nil
}

// launchTemplate adds what the group's machines are launched from.
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
			"IamInstanceProfile": object{"Arn": attribute("Profile"+id, "Arn")},
			"SecurityGroupIds":   groups,
			// A pod is one hop further than its machine, and so never reaches the machine's credentials.
			"MetadataOptions":     object{"HttpEndpoint": "enabled", "HttpTokens": "required", "HttpPutResponseHopLimit": 1},
			"BlockDeviceMappings": []any{object{"DeviceName": publish.RootDevice, "Ebs": disk}},
			"TagSpecifications":   []any{object{"ResourceType": "volume", "Tags": b.tags(name)}},
			"UserData":            base64.StdEncoding.EncodeToString(userData),
		},
	}}
	return nil
}

// scalingGroup adds the AutoScaling group. It has no update policy: machines are replaced by `hardtack stack refresh`, which
// knows what a quorum is.
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
		"LifecycleHookSpecificationList": hookList(b.hooks()),
		"Tags":                           tagList(b.groupTags(g)),
	}
	if b.balanced(g) {
		properties["TargetGroupARNs"] = []any{ref(targetsID)}
	}
	b.out.Resources["Group"+id] = Resource{Type: "AWS::AutoScaling::AutoScalingGroup", Properties: properties}
}

// subnets are the machines'. A member of etcd has one of its own.
func (b *builder) subnets(g spec.Group) any {
	if g.Member == "" {
		return ref(ParameterSubnets)
	}
	return []any{nth(slices.Index(g.Members, g.Member), ParameterMembers)}
}

// Hook is a lifecycle hook of every group.
type Hook struct {
	Name string `json:"name"`
	// Transition is "autoscaling:EC2_INSTANCE_LAUNCHING" or "…TERMINATING", Result what happens when the time is over.
	Transition string `json:"transition"`
	Result     string `json:"result"`
	// Timeout is the heartbeat timeout in seconds.
	Timeout int `json:"timeout"`
}

func (b *builder) hooks() []Hook {
	const transition = "autoscaling:EC2_INSTANCE_"
	hooks := []Hook{{DrainHook, transition + "TERMINATING", "CONTINUE", drainTimeout}}
	if name := b.cluster.Machine(b.cluster.Groups[0]).LaunchHook; name != "" {
		// What never worked is not let into service: a refresh stops at it, and the group tries another.
		hooks = append(hooks, Hook{name, transition + "LAUNCHING", "ABANDON", launchTimeout})
	}
	return hooks
}

func hookList(hooks []Hook) []any {
	var list []any
	for _, h := range hooks {
		list = append(list, object{"LifecycleHookName": h.Name, "LifecycleTransition": h.Transition, "DefaultResult": h.Result, "HeartbeatTimeout": h.Timeout})
	}
	return list
}

// Tag is a group's.
type Tag struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	// Propagate says that machines get it too.
	Propagate bool `json:"propagate"`
}

// groupTags are those by which records are made. EtcdMembers is the group's alone.
func (b *builder) groupTags(g spec.Group) []Tag {
	tags := []Tag{
		{fleet.TagCluster, b.cluster.Cluster.Name, true},
		{fleet.TagRole, g.Roles.String(), true},
		{"Name", b.cluster.AutoScaling(g), true},
	}
	if g.Roles.Has(role.Etcd) && len(g.Members) > 0 {
		tags = append(tags, Tag{fleet.TagEtcdMembers, strings.Join(g.Members, " "), false})
	}
	if g.Member != "" {
		tags = append(tags, Tag{fleet.TagEtcdMember, g.Member, true})
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

// names are the AutoScaling groups'.
func (b *builder) names() []string {
	var names []string
	for _, g := range b.cluster.Groups {
		names = append(names, b.cluster.AutoScaling(g))
	}
	return names
}

// nameGroups adds the output that the function's stack takes.
func (b *builder) nameGroups() {
	b.out.Outputs[OutputGroups] = Output{Description: "The groups: GroupNames of the function's stack", Value: strings.Join(b.names(), ",")}
}
