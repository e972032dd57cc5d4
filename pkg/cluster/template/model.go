package template

import (
	"encoding/base64"
	"maps"
	"slices"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// groupModel is what a group is on AWS. The template and the Terraform module are two renderings of it, and say nothing else of a group;
// its JSON is what the module reads.
type groupModel struct {
	ConfigHash   string `json:"config_hash"`
	InstanceType string `json:"instance_type"`
	Volume       int    `json:"volume"`
	// IOPS and Throughput are 0 where they are what every volume has.
	IOPS           int         `json:"iops"`
	Throughput     int         `json:"throughput"`
	UserData       string      `json:"user_data"`
	SecurityGroups []role.Role `json:"security_groups"`
	// MoreGroups are the ids of the document's own security groups.
	MoreGroups []string `json:"more_security_groups"`
	Size       int      `json:"size"`
	Max        int      `json:"max"`
	// Elastic is whether something else sets the number of machines, from Size to Max.
	Elastic bool `json:"elastic"`
	// Place is the index of the group's subnet among those of etcd's members, -1 for a group without one of its own.
	Place int `json:"place"`
	// ReadsTags is whether the group's machines read their tags from the metadata service.
	ReadsTags bool   `json:"reads_tags"`
	Hooks     []Hook `json:"hooks"`
	Balanced  bool   `json:"balanced"`
	// Mixed has at most one element, for a group whose machines are of several types or partly spot instances.
	Mixed []mixedModel `json:"mixed"`
	// Rebalance is AutoScaling's capacity rebalancing.
	Rebalance bool `json:"rebalance"`
	// Lifetime is the longest life of a machine in seconds, 0 for no such limit.
	Lifetime int `json:"max_lifetime"`
	// Metrics are the group's metrics that AutoScaling publishes.
	Metrics []string `json:"metrics"`
	// Tags are those of the group alone, and OwnTags the document's, of everything that belongs to the group.
	Tags    []Tag             `json:"tags"`
	OwnTags map[string]string `json:"own_tags"`
	// Policies are managed policies of the instance role, Statements its policy "machine", and Allow its policy "own".
	Policies   []string    `json:"policies"`
	Statements []Statement `json:"statements"`
	Allow      []Statement `json:"allow"`
}

// mixedModel is the mixed instances policy of a group.
type mixedModel struct {
	// Types are in the order in which on-demand instances are launched.
	Types []string `json:"types"`
	// OnDemandBase machines, and OnDemandPercent of those beyond, are on-demand instances.
	OnDemandBase    int    `json:"on_demand_base"`
	OnDemandPercent int    `json:"on_demand_percent"`
	Allocation      string `json:"spot_allocation"`
}

// groupMetrics are the metrics of a group whose machines all weigh the same ("Amazon CloudWatch metrics for Amazon EC2 Auto Scaling").
// CloudFormation takes none for all, and Terraform's provider does not.
var groupMetrics = []string{
	"GroupDesiredCapacity", "GroupInServiceInstances", "GroupMaxSize", "GroupMinSize", "GroupPendingInstances", "GroupStandbyInstances",
	"GroupTerminatingInstances", "GroupTotalInstances",
}

const secondsPerDay = 24 * 60 * 60

// model is what a group of the document is on AWS.
func (b *builder) model(g spec.Group) (groupModel, error) {
	userData, err := b.cluster.UserData(g.Name, b.ca)
	if err != nil {
		return groupModel{}, err
	}
	hash, err := b.cluster.Hash(g.Name, b.ca)
	if err != nil {
		return groupModel{}, err
	}
	statements, err := b.policy(g)
	if err != nil {
		return groupModel{}, err
	}
	m := groupModel{
		ConfigHash: hash, InstanceType: g.AWS.InstanceType, Volume: g.AWS.Volume, UserData: base64.StdEncoding.EncodeToString(userData),
		SecurityGroups: b.securityGroupsOf(g), MoreGroups: g.AWS.SecurityGroups, Size: g.Size, Max: g.AWS.Max, Elastic: b.cluster.Elastic(g),
		Place: b.place(g), ReadsTags: readsTags(g), Hooks: b.hooks(g), Balanced: b.balanced(g),
		Mixed: []mixedModel{}, Rebalance: g.AWS.Spot.Rebalance, Lifetime: g.AWS.MaxLifetime * secondsPerDay, Metrics: []string{},
		Tags: b.groupTags(g), OwnTags: b.ownTags(g.AWS.Tags), Policies: g.AWS.Policies, Statements: statements, Allow: ruleStatements(g.AWS.Allow),
	}
	// The document may say what add-ons' tags say: a group has a key once.
	m.Tags = slices.DeleteFunc(m.Tags, func(t Tag) bool { _, said := m.OwnTags[t.Key]; return said })
	if g.AWS.IOPS != spec.VolumeIOPS || g.AWS.Throughput != spec.VolumeThroughput {
		m.IOPS, m.Throughput = g.AWS.IOPS, g.AWS.Throughput
	}
	if s := g.AWS.Spot; g.AWS.Mixed() {
		m.Mixed = []mixedModel{{g.AWS.AllTypes(), s.OnDemandBase, 100 - s.Percent, s.Allocation}}
	}
	if g.AWS.Metrics {
		m.Metrics = groupMetrics
	}
	return m, nil
}

// ownTags are the document's tags for the cluster, with a group's on top.
func (b *builder) ownTags(group map[string]string) map[string]string {
	tags := map[string]string{}
	maps.Copy(tags, b.cluster.Cluster.AWS.Tags)
	maps.Copy(tags, group)
	return tags
}

// named are the tags of a resource: the cluster's own, the name that consoles show, and the document's.
func named(cluster, name string, own map[string]string) []any {
	tags := []any{object{"Key": role.TagCluster, "Value": cluster}}
	if name != "" {
		tags = append(tags, object{"Key": "Name", "Value": name})
	}
	for _, key := range slices.Sorted(maps.Keys(own)) {
		tags = append(tags, object{"Key": key, "Value": own[key]})
	}
	return tags
}
