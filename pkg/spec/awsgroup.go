package spec

import (
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/near"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Spot is how many of a group's machines are spot instances, and how these are chosen.
type Spot struct {
	// Percent is how many percent of the machines beyond onDemandBase are spot instances; 0 is none.
	Percent int `yaml:"percent" json:"percent"`
	// OnDemandBase is how many of the group's machines are on-demand instances before any is a spot instance.
	OnDemandBase int `yaml:"onDemandBase" json:"onDemandBase"`
	// Allocation is how AutoScaling chooses among the types for a spot instance: price-capacity-optimized, capacity-optimized,
	// capacity-optimized-prioritized, which follows the order of types where it can, or lowest-price.
	Allocation string `yaml:"allocation" json:"allocation"`
	// Rebalance is whether AutoScaling launches a replacement as soon as EC2 sees a higher risk that it takes a spot instance back, and
	// ends the instance when that one is in service.
	Rebalance bool `yaml:"rebalance" json:"rebalance"`
}

// Any reports whether there are spot instances.
func (s Spot) Any() bool { return s.Percent > 0 }

// Mixed reports whether the group's machines may differ in their type or in how they are paid for.
func (g GroupAWS) Mixed() bool { return len(g.Types) > 0 || g.Spot.Any() }

// AllTypes are the instance types of the group's machines, the most wanted first.
func (g GroupAWS) AllTypes() []string { return append([]string{g.InstanceType}, g.Types...) }

// defaultAllocation is what AWS recommends ("Allocation strategies for multiple instance types", AutoScaling's user guide).
const defaultAllocation = "price-capacity-optimized"

var allocations = []string{defaultAllocation, "capacity-optimized", "capacity-optimized-prioritized", "lowest-price"}

// The bounds of AutoScaling and EC2: LaunchTemplateOverrides' page for types, "Amazon VPC quotas" for security groups of a network
// interface, "IAM and AWS STS quotas" for policies, "Tag your Amazon EC2 resources" for tags, of which Hardtack's own are a tenth or so,
// and MaxInstanceLifetime's page, which takes a day or more; a year is more than any image should run.
const (
	mostTypes          = 40
	mostSecurityGroups = 16
	mostPolicies       = 20
	mostTags           = 40
	mostLifetime       = 365
	mostTagKey         = 128
	mostTagValue       = 256
)

var (
	securityGroupForm = regexp.MustCompile(`^sg-[0-9a-f]{8,17}$`)
	tagForm           = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$`)
	// metadataTagForm is of the keys that EC2 shows in metadata ("View tags for your EC2 instances using instance metadata").
	metadataTagForm = regexp.MustCompile(`^[a-zA-Z0-9+\-=.,_:@]+$`)
)

// ownTags are the keys that Hardtack gives a meaning.
var ownTags = []string{"Name", role.TagCluster, role.TagRole, role.TagGroup, role.TagEtcdMember, role.TagEtcdMembers, role.TagInstanceRole, role.TagNotices}

// groupMachines completes what the group's machines are.
func (f *completer) groupMachines(field string, in GroupAWS, out *GroupAWS) {
	out.IOPS = orDefault(f, field+".iops", in.IOPS, leastIOPS, byHardtack)
	out.Throughput = orDefault(f, field+".throughput", in.Throughput, leastThroughput, byHardtack)
	out.Types = listOrDefault(f, field+".types", in.Types, nil, byHardtack)
	spot := field + ".spot"
	out.Spot = Spot{
		Percent:      orDefault(f, spot+".percent", in.Spot.Percent, 0, byHardtack),
		OnDemandBase: orDefault(f, spot+".onDemandBase", in.Spot.OnDemandBase, 0, byHardtack),
		Allocation:   orDefault(f, spot+".allocation", in.Spot.Allocation, defaultAllocation, byHardtack),
		Rebalance:    orDefault(f, spot+".rebalance", in.Spot.Rebalance, in.Spot.Any(), Origin{Derived, spot + ".percent"}),
	}
	out.MaxLifetime = orDefault(f, field+".maxLifetime", in.MaxLifetime, 0, byHardtack)
	out.Metrics = orDefault(f, field+".metrics", in.Metrics, false, byHardtack)
	if i := slices.Index(out.Types, out.InstanceType); i >= 0 {
		f.errorf(at(field+".types", i), "%q is instanceType already", out.InstanceType)
	}
	if most := max(leastIOPS, out.Volume*iopsOfGiB); out.IOPS > most {
		f.errorf(field+".iops", "%d are more than a disk of %d GiB carries, %d", out.IOPS, out.Volume, most)
	}
	if out.Throughput*iopsOfThroughput > out.IOPS {
		f.errorf(field+".throughput", "%d MiB a second are more than %d operations a second carry, %d", out.Throughput, out.IOPS, out.IOPS/iopsOfThroughput)
	}
}

// groupRights completes what the group's machines may do, who reaches them, and their tags.
func (f *completer) groupRights(field string, in GroupAWS, out *GroupAWS) {
	out.SecurityGroups = listOrDefault(f, field+".securityGroups", in.SecurityGroups, nil, byHardtack)
	out.Policies = listOrDefault(f, field+".policies", in.Policies, nil, byHardtack)
	out.SessionManager = orDefault(f, field+".sessionManager", in.SessionManager, false, byHardtack)
	out.Tags = f.allTags(field+".tags", in.Tags)
	out.Allow = f.allRules(field+".allow", in.Allow)
}

// metadataTags refuses tags with which EC2 launches no machine that reads its tags from its metadata, as each of several members of etcd
// does.
func (f *completer) metadataTags(field string, tags map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if !metadataTagForm.MatchString(key) || key == "." || key == ".." || key == "_index" {
			f.errorf(join(field, key), "a machine of etcd's members reads its tags from its metadata, and EC2 launches none with this key: letters, digits and + - = . , _ : @ alone")
		}
	}
}

// allRules completes rules of a role's own policy.
func (f *completer) allRules(field string, in []PodRoleRule) []PodRoleRule {
	out := []PodRoleRule{}
	if len(in) == 0 {
		f.out.Origins[field] = byHardtack
	}
	for i, rule := range in {
		at := at(field, i)
		out = append(out, PodRoleRule{listOrDefault(f, at+".actions", rule.Actions, nil, byHardtack), listOrDefault(f, at+".resources", rule.Resources, nil, byHardtack)})
	}
	return out
}

// allTags completes tags: each is the user's.
func (f *completer) allTags(field string, in map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range in {
		out[key] = value
		f.out.Origins[join(field, key)] = Origin{Kind: User}
	}
	if len(out) == 0 {
		f.out.Origins[field] = byHardtack
	}
	return out
}

// groupMachines checks what the group's machines are to be.
func (v checker) groupMachines(field string, g GroupSpec) {
	v.between(field+".iops", g.AWS.IOPS, leastIOPS, mostIOPS, "operations a second")
	v.between(field+".throughput", g.AWS.Throughput, leastThroughput, mostThroughput, "MiB a second")
	if n := len(g.AWS.Types); n >= mostTypes {
		v.errorf(field+".types", "%d with instanceType are more than AutoScaling takes, %d", n+1, mostTypes)
	}
	for i, name := range g.AWS.Types {
		switch {
		case !instanceTypeForm.MatchString(name):
			v.errorf(at(field+".types", i), "%q is not an instance type such as %s", name, defaultTypes[AMD64])
		case slices.Index(g.AWS.Types, name) < i:
			v.errorf(at(field+".types", i), "%q is there already", name)
		}
	}
	v.spot(field+".spot", g)
	v.between(field+".maxLifetime", g.AWS.MaxLifetime, 0, mostLifetime, "days")
	if g.AWS.MaxLifetime > 0 && !onlyMinions(g) {
		v.hint(field+".maxLifetime", "hardtack stack refresh replaces these machines, one at a time", "is only for groups whose only role is %s: AutoScaling ends machines by its own clock, and knows no quorum", role.Minions)
	}
}

func onlyMinions(g GroupSpec) bool { return slices.Equal(g.Roles, []string{string(role.Minions)}) }

// spot checks spot instances. Of a control plane EC2 could take every machine at once: those of one type and zone are taken together,
// nobody looks at the notice of a machine that is no node, and etcd without its quorum does not come back by itself.
func (v checker) spot(field string, g GroupSpec) {
	s := g.AWS.Spot
	v.between(field+".percent", s.Percent, 0, 100, "percent")
	v.between(field+".onDemandBase", s.OnDemandBase, 0, maxGroupSize, "machines")
	if v.source.given[field+".allocation"] && !slices.Contains(allocations, s.Allocation) {
		v.hint(field+".allocation", near.DidYouMean(s.Allocation, allocations), "%q is not one of %s", s.Allocation, strings.Join(allocations, ", "))
	}
	switch {
	case s.Any() && !onlyMinions(g):
		v.hint(field, "give more instance types (types), which are on-demand instances", "is only for groups whose only role is %s: EC2 takes spot instances of one kind back together, and with two machines of three a quorum is gone", role.Minions)
	case !s.Any():
		for name, given := range map[string]bool{"onDemandBase": s.OnDemandBase != 0, "rebalance": s.Rebalance} {
			if given {
				v.errorf(field+"."+name, "is about spot instances, and percent is 0")
			}
		}
	}
}

// groupRights checks what the group's machines may do, who reaches them, and their tags.
func (v checker) groupRights(field string, g GroupSpec) {
	if n := len(g.AWS.SecurityGroups) + len(g.Roles); n > mostSecurityGroups {
		v.errorf(field+".securityGroups", "with those of its roles a machine would have %d, and a network interface takes at most %d", n, mostSecurityGroups)
	}
	for i, id := range g.AWS.SecurityGroups {
		switch {
		case !securityGroupForm.MatchString(id):
			v.errorf(at(field+".securityGroups", i), "%q is not the id of a security group (sg-…)", id)
		case slices.Index(g.AWS.SecurityGroups, id) < i:
			v.errorf(at(field+".securityGroups", i), "%q is there already", id)
		}
	}
	if n := len(g.AWS.Policies); n > mostPolicies {
		v.errorf(field+".policies", "%d are more than a role takes, %d", n, mostPolicies)
	}
	v.managed(field+".policies", g.AWS.Policies)
	v.rules(field+".allow", g.AWS.Allow)
	v.tags(field+".tags", g.AWS.Tags)
}

// tags checks tags as AWS takes them, and that none is one of Hardtack's own.
func (v checker) tags(field string, tags map[string]string) {
	if len(tags) > mostTags {
		v.errorf(field, "%d are more than %d: a group takes 50, and some are Hardtack's", len(tags), mostTags)
	}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		name, value := join(field, key), tags[key]
		switch {
		case key == "" || len([]rune(key)) > mostTagKey || !tagForm.MatchString(key):
			v.errorf(name, "%q is not the key of a tag: letters, digits, spaces and _ . : / = + - @, at most %d", key, mostTagKey)
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			v.errorf(name, "keys that begin with aws: are AWS's own")
		case slices.Contains(ownTags, key):
			v.errorf(name, "is Hardtack's own")
		case len([]rune(value)) > mostTagValue || !tagForm.MatchString(value):
			v.errorf(name, "%q is not the value of a tag: letters, digits, spaces and _ . : / = + - @, at most %d", value, mostTagValue)
		}
	}
}

// apiAccess checks ranges of addresses as security groups take them.
func (v checker) apiAccess(ranges []string) {
	for i, text := range ranges {
		name := at("aws.apiAccess", i)
		prefix, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			v.errorf(name, "%q is not a range of addresses such as 198.51.100.0/24 or 2001:db8::/32", text)
		case prefix != prefix.Masked():
			v.hint(name, "write "+prefix.Masked().String(), "%q has bits beyond its length", text)
		case slices.Index(ranges, text) < i:
			v.errorf(name, "%q is there already", text)
		}
	}
}

// managed checks the ARNs of managed policies.
func (v checker) managed(field string, arns []string) {
	for i, arn := range arns {
		switch {
		case !policyForm.MatchString(arn):
			v.errorf(at(field, i), "%q is not the ARN of a managed policy (arn:aws:iam::<account>:policy/<name>)", arn)
		case slices.Index(arns, arn) < i:
			v.errorf(at(field, i), "%q is there already", arn)
		}
	}
}

// rules checks rules of a role's own policy.
func (v checker) rules(field string, rules []PodRoleRule) {
	for i, rule := range rules {
		at := at(field, i)
		if len(rule.Actions) == 0 || len(rule.Resources) == 0 {
			v.errorf(at, "needs actions and resources")
		}
		for _, action := range rule.Actions {
			if !actionForm.MatchString(action) {
				v.hint(at+".actions", near.DidYouMean(action, []string{"*"}), "%q is not an action such as s3:GetObject", action)
			}
		}
		for _, arn := range rule.Resources {
			if arn != "*" && !arnForm.MatchString(arn) || strings.Contains(arn, "${") {
				v.errorf(at+".resources", "%q is neither an ARN without variables nor *", arn)
			}
		}
	}
}
