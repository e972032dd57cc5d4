package spec

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awsname"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/near"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/notice"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// AWS is the settings of a cluster's stack on AWS, beside those of its groups.
type AWS struct {
	// Channel is which image machines on AWS are launched from: the one that /hardtack/<channel>/image-id names in
	// Parameter Store.
	Channel string `yaml:"channel"`
	// LoadBalancer is whether a network load balancer stands before the API servers: none, internal or internet-facing.
	LoadBalancer string `yaml:"loadBalancer"`
	// Key is the ARN of the KMS key that encrypts the machines' disks, which AWSServiceRoleForAutoScaling must be allowed
	// to use; empty is the account's own key for EBS.
	Key string `yaml:"key"`
	// SecretsKey is the KMS key that encrypts the cluster's secrets in Parameter Store: the ARN of a key or its alias
	// (alias/NAME), or stack for one that hardtack pki create makes in a stack of its own; empty is AWS's key, which everyone
	// may use who may read a parameter.
	SecretsKey string `yaml:"secretsKey"`
	// PodRoles are roles that pods take by the tokens of their service accounts. The stack makes them, with an identity provider for
	// serviceAccounts.issuer.
	PodRoles []PodRole `yaml:"podRoles"`
	// Tags are tags of everything that the stack or Terraform makes, beside Hardtack's own; a group's own come on top.
	Tags map[string]string `yaml:"tags"`
	// APIAccess are the ranges of addresses (CIDR), of IPv4 and IPv6, that may reach the API servers from outside the cluster, beside
	// the stack's parameter ApiCidr.
	APIAccess []string `yaml:"apiAccess"`
}

// GroupAWS is the settings of a group's machines on AWS.
type GroupAWS struct {
	// InstanceType is the EC2 instance type of the group's machines, such as m7i.large.
	InstanceType string `yaml:"instanceType" json:"instanceType"`
	// Volume is the size of a machine's disk in GiB.
	Volume int `yaml:"volume" json:"volume"`
	// Max is how many machines the group may be scaled out to, and may have while its minions are refreshed; at least its size.
	Max int `yaml:"max" json:"max"`
	// DrainTimeout is how many minutes a machine that is about to end is held at most until its pods have moved away as their
	// disruption budgets allow; only groups with the role minions have it.
	DrainTimeout int `yaml:"drainTimeout" json:"drainTimeout"`
	// Notices is what is done when EC2 gives notice of a machine; only groups with the role minions have it.
	Notices Notices `yaml:"notices" json:"notices"`
	// IOPS is how many operations a second a machine's disk carries. 3000 is what every gp3 volume has; more has a price.
	IOPS int `yaml:"iops" json:"iops"`
	// Throughput is how many MiB a second a machine's disk carries. 125 is what every gp3 volume has; more has a price.
	Throughput int `yaml:"throughput" json:"throughput"`
	// Types are further instance types, the most wanted first: machines are of one of them where EC2 has none of instanceType, and spot
	// instances are of whichever has room.
	Types []string `yaml:"types" json:"types"`
	// Spot is how many of the group's machines are spot instances; only groups whose only role is minions have any.
	Spot Spot `yaml:"spot" json:"spot"`
	// SecurityGroups are the ids of security groups that the machines have beside those of their roles.
	SecurityGroups []string `yaml:"securityGroups" json:"securityGroups"`
	// Policies are the ARNs of managed policies that the machines' role has beside its own. No policy opens the secrets of another
	// role's machines: the role's own denies reading them.
	Policies []string `yaml:"policies" json:"policies"`
	// Allow is what the machines' role may do beside these policies.
	Allow []PodRoleRule `yaml:"allow" json:"allow"`
	// SessionManager is whether the machines' role may do what AWS's agent needs for sessions, and nothing else of Systems Manager's. The
	// image has no agent: without one that you bake in yourself, nobody answers.
	SessionManager bool `yaml:"sessionManager" json:"sessionManager"`
	// Tags are tags of the group, its machines, their disks and its role, beside those of aws.tags.
	Tags map[string]string `yaml:"tags" json:"tags"`
	// MaxLifetime is after how many days AutoScaling replaces a machine; 0 is never. Only groups whose only role is minions have it.
	MaxLifetime int `yaml:"maxLifetime" json:"maxLifetime"`
	// Metrics is whether AutoScaling publishes the group's metrics in CloudWatch, one a minute.
	Metrics bool `yaml:"metrics" json:"metrics"`
}

// Notices is what is done about each kind of EC2's notices, within the time that the notice leaves: drain moves the pods away
// as their disruption budgets allow, cordon keeps new ones away, ignore does nothing.
type Notices struct {
	// Spot is about a spot instance that EC2 takes back in two minutes.
	Spot string `yaml:"spot" json:"spot"`
	// Scheduled is about an event for which EC2 will stop, retire or reboot the machine; it is begun drainTimeout before.
	Scheduled string `yaml:"scheduled" json:"scheduled"`
	// Rebalance is about a spot instance at a higher risk to be taken back; pods have drainTimeout to move away.
	Rebalance string `yaml:"rebalance" json:"rebalance"`
}

// The values of AWS.LoadBalancer.
const (
	LoadBalancerNone     = "none"
	LoadBalancerInternal = "internal"
	LoadBalancerPublic   = "internet-facing"
)

// SecretsKeyStack is the value of AWS.SecretsKey for a key that Hardtack makes.
const SecretsKeyStack = "stack"

// DefaultChannel is the channel of a document that names none.
const DefaultChannel = "stable"

// defaultVolume holds the image and what containers write, in GiB.
const defaultVolume = 20

// The time for the eviction of a machine's pods: EKS gives the nodes of a managed group as long by default. A hook has at
// most two hours without heartbeats (API reference, PutLifecycleHook), and the controller needs half a minute of it.
const (
	defaultDrainTimeout = 15
	leastDrainTimeout   = 1
	mostDrainTimeout    = 120
)

// leastVolume is what a small image needs, in GiB. That of a cluster's channel may need more: with it `hardtack stack apply` compares.
const leastVolume = 5

var (
	channelForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	// aliasForm is KMS's; aliases below alias/aws/ are AWS's.
	aliasForm        = regexp.MustCompile(`^alias/[a-zA-Z0-9/_-]{1,250}$`)
	instanceTypeForm = regexp.MustCompile(`^[a-z][a-z0-9-]*\.[a-z0-9-]+$`)
)

var loadBalancers = []string{LoadBalancerNone, LoadBalancerInternal, LoadBalancerPublic}

func (f *completer) aws() {
	in, out := f.in.AWS, &f.out.Cluster.AWS
	out.Channel = orDefault(f, "aws.channel", in.Channel, DefaultChannel, byHardtack)
	out.LoadBalancer = orDefault(f, "aws.loadBalancer", in.LoadBalancer, LoadBalancerNone, byHardtack)
	out.Key = orDefault(f, "aws.key", in.Key, "", byHardtack)
	out.SecretsKey = orDefault(f, "aws.secretsKey", in.SecretsKey, "", byHardtack)
	f.podRoles()
	out.Tags = f.allTags("aws.tags", in.Tags)
	if slices.ContainsFunc(f.in.Groups, func(g GroupSpec) bool { return len(g.Members) > 0 }) {
		f.metadataTags("aws.tags", out.Tags)
	}
	out.APIAccess = listOrDefault(f, "aws.apiAccess", in.APIAccess, nil, byHardtack)
}

func (f *completer) groupAWS(field string, in GroupAWS, g GroupSpec, all []GroupSpec) GroupAWS {
	beyond, why := f.fitting(g, all, Origin{Derived, field[:strings.LastIndex(field, ".")] + ".size"})
	out := GroupAWS{
		InstanceType: orDefault(f, field+".instanceType", in.InstanceType, defaultTypes[f.out.Cluster.Arch], Origin{Derived, "arch"}),
		Volume:       orDefault(f, field+".volume", in.Volume, defaultVolume, byHardtack),
		Max:          orDefault(f, field+".max", in.Max, *g.Size+beyond, why),
	}
	drain := 0
	if slices.Contains(g.Roles, string(role.Minions)) {
		drain = defaultDrainTimeout
	}
	out.DrainTimeout = orDefault(f, field+".drainTimeout", in.DrainTimeout, drain, Origin{Derived, field[:strings.LastIndex(field, ".")] + ".roles"})
	out.Notices = f.notices(field, in.Notices, drain > 0)
	f.groupMachines(field, in, &out)
	f.sameArch(field, out)
	f.groupRights(field, in, &out)
	if len(g.Members) > 0 {
		f.metadataTags(field+".tags", out.Tags)
	}
	if out.Max < *g.Size {
		f.errorf(field+".max", "%d is less than the group's size, %d", out.Max, *g.Size)
	}
	return out
}

// surge is how many machines a group may have beyond its size while it is refreshed: a tenth of it, rounded up, if it has minions
// alone. Other machines have seats, and are replaced one at a time.
func surge(g GroupSpec) int {
	if !slices.Equal(g.Roles, []string{string(role.Minions)}) {
		return 0
	}
	return min((*g.Size+9)/10, max(0, maxGroupSize-*g.Size))
}

// fitting is the surge of a group, or less of it where the pods' range has no shares for the surge of all groups: a document that says
// how many machines there are is not refused for those that a refresh would add. why is where a whole surge comes from.
func (f *completer) fitting(g GroupSpec, all []GroupSpec, why Origin) (int, Origin) {
	own, free := surge(g), f.shares()
	if own == 0 || free == 0 {
		return own, why
	}
	asked := 0
	for _, other := range all {
		if !other.set().Has(role.Minions) {
			continue
		}
		size := 1
		if other.Size != nil {
			size = *other.Size
		} else if n := len(other.Members); n > 0 {
			size = n
		}
		free -= max(size, other.AWS.Max)
		if other.AWS.Max == 0 {
			other.Size = &size
			asked += surge(other)
		}
	}
	if asked <= free || free <= 0 {
		return own, why
	}
	return max(1, own*free/asked), Origin{Derived, "network.podCIDR"}
}

func (f *completer) notices(field string, in Notices, nodes bool) Notices {
	var def notice.Policy
	origin := Origin{Derived, field[:strings.LastIndex(field, ".")] + ".roles"}
	if nodes {
		def, origin = notice.DefaultPolicy(), byHardtack
	}
	field += ".notices"
	return Notices{
		Spot:      orDefault(f, field+".spot", in.Spot, string(def.Spot), origin),
		Scheduled: orDefault(f, field+".scheduled", in.Scheduled, string(def.Scheduled), origin),
		Rebalance: orDefault(f, field+".rebalance", in.Rebalance, string(def.Rebalance), origin),
	}
}

func (v checker) aws(a AWS) {
	if v.source.given["aws.channel"] && !channelForm.MatchString(a.Channel) {
		v.errorf("aws.channel", "%q is not a channel: small letters, digits and -, at most 63", a.Channel)
	}
	if v.source.given["aws.loadBalancer"] && !slices.Contains(loadBalancers, a.LoadBalancer) {
		v.hint("aws.loadBalancer", near.DidYouMean(a.LoadBalancer, loadBalancers), "%q is not one of %s", a.LoadBalancer, strings.Join(loadBalancers, ", "))
	}
	v.tags("aws.tags", a.Tags)
	v.apiAccess(a.APIAccess)
	if a.Key != "" && !awsname.IsKey(a.Key) {
		v.errorf("aws.key", "%q is not the ARN of a KMS key (arn:aws:kms:<region>:<account>:key/<id>)", a.Key)
	}
	if key := a.SecretsKey; key != "" && key != SecretsKeyStack && !awsname.IsKey(key) && (!aliasForm.MatchString(key) || strings.HasPrefix(key, "alias/aws/")) {
		v.errorf("aws.secretsKey", "%q is not %s, an alias (alias/NAME, not AWS's own) or the ARN of a KMS key (arn:aws:kms:<region>:<account>:key/<id>)", key, SecretsKeyStack)
	}
}

func (v checker) groupAWS(field string, g GroupSpec) {
	if v.source.given[field+".instanceType"] && !instanceTypeForm.MatchString(g.AWS.InstanceType) {
		v.errorf(field+".instanceType", "%q is not an instance type such as %s", g.AWS.InstanceType, defaultTypes[AMD64])
	}
	if v.source.given[field+".volume"] && (g.AWS.Volume < leastVolume || g.AWS.Volume > 1<<14) {
		v.errorf(field+".volume", "%d GiB is not between %d GiB and 16 TiB", g.AWS.Volume, leastVolume)
	}
	if v.source.given[field+".max"] && (g.AWS.Max < 0 || g.AWS.Max > maxGroupSize) {
		v.errorf(field+".max", "%d is not between 0 and %d", g.AWS.Max, maxGroupSize)
	}
	if v.source.given[field+".max"] && len(g.Members) > 0 && g.AWS.Max != len(g.Members) {
		v.errorf(field+".max", "is not for members of etcd: each is a group of one machine")
	}
	nodes := slices.Contains(g.Roles, string(role.Minions))
	v.notices(field+".notices", g.AWS.Notices, nodes)
	v.groupMachines(field, g)
	v.groupRights(field, g)
	switch {
	case nodes:
		v.between(field+".drainTimeout", g.AWS.DrainTimeout, leastDrainTimeout, mostDrainTimeout, "minutes")
	case g.AWS.DrainTimeout != 0:
		v.errorf(field+".drainTimeout", "is only for groups with the role %s: no other machine is a node", role.Minions)
	}
}

func (v checker) notices(field string, n Notices, nodes bool) {
	for _, one := range []struct{ name, value string }{{"spot", n.Spot}, {"scheduled", n.Scheduled}, {"rebalance", n.Rebalance}} {
		name := field + "." + one.name
		switch {
		case !v.source.given[name], !nodes && one.value == "":
		case !nodes:
			v.errorf(name, "is only for groups with the role %s: no other machine is a node", role.Minions)
		case !slices.Contains(notice.Actions, one.value):
			v.hint(name, near.DidYouMean(one.value, notice.Actions), "%q is not one of %s", one.value, strings.Join(notice.Actions, ", "))
		}
	}
}

// Notices is what is done about the notices of the group's machines; the zero value for machines that are no nodes.
func (g Group) Notices() notice.Policy {
	n := g.AWS.Notices
	return notice.Policy{Spot: notice.Action(n.Spot), Scheduled: notice.Action(n.Scheduled), Rebalance: notice.Action(n.Rebalance)}
}

// Drain returns how long a machine of the group is held for its pods; 0 for a machine that is no node.
func (g Group) Drain() time.Duration { return time.Duration(g.AWS.DrainTimeout) * time.Minute }

// SecretsKey returns the ARN or the alias of the KMS key that encrypts the cluster's secrets in Parameter Store; empty is
// AWS's own.
func (c *Complete) SecretsKey() string {
	if key := c.Cluster.AWS.SecretsKey; key != SecretsKeyStack {
		return key
	}
	return "alias/hardtack-" + c.Cluster.Name
}

// AutoScaling is the name of the AutoScaling group. These names are unique in an account and region, so
// that it begins with the cluster's name.
func (c *Complete) AutoScaling(g Group) string { return c.Cluster.Name + "-" + g.Name }
