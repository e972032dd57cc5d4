package fleet

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/account"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Instances reads a cluster's instances for the node controller.
type Instances struct {
	// Machines and Groups are the clients of EC2 and AutoScaling, which retry by their own settings.
	Machines ec2.DescribeInstancesAPIClient
	Groups   autoscaling.DescribeAutoScalingGroupsAPIClient
	Cluster  string
}

var _ controller.Instances = (*Instances)(nil)

// Instances returns the cluster's instances that have one of the names. Those that are named by their ids are read by them;
// for a name that none of these has, all instances of the cluster are read: a filter by name would miss terminated ones, which
// have no name.
func (f *Instances) Instances(ctx context.Context, names []string) ([]controller.Instance, error) {
	out, err := f.named(ctx, names)
	if err != nil {
		return nil, awserr.Explain(err, "ec2:DescribeInstances for the masters' role")
	}
	if len(out) == 0 {
		return nil, nil
	}
	groups, err := account.Groups(ctx, f.Groups, f.Cluster)
	if err != nil {
		return nil, awserr.Explain(err, "autoscaling:DescribeAutoScalingGroups for the masters' role")
	}
	inGroups(out, groups)
	return out, nil
}

// named reads the instances that have one of the names.
func (f *Instances) named(ctx context.Context, names []string) ([]controller.Instance, error) {
	var ids []string
	for _, name := range names {
		if strings.HasPrefix(name, "i-") && !strings.Contains(name, ".") {
			ids = append(ids, name)
		}
	}
	slices.Sort(ids)
	found, err := account.MachinesByID(ctx, f.Machines, slices.Compact(ids))
	if err != nil {
		return nil, err
	}
	var out []controller.Instance
	for _, i := range found {
		// An id is what a node says of itself: another cluster's machine is none of ours.
		if account.Tag(i.Tags, role.TagCluster) == f.Cluster {
			out = append(out, instanceOf(i))
		}
	}
	known := func(name string) bool {
		return slices.Contains(ids, name) || slices.ContainsFunc(out, func(one controller.Instance) bool { return one.Is(name) })
	}
	if !slices.ContainsFunc(names, func(name string) bool { return !known(name) }) {
		return out, nil
	}
	all, err := account.Machines(ctx, f.Machines, f.Cluster)
	if err != nil {
		return nil, err
	}
	out = nil
	for _, i := range all {
		if one := instanceOf(i); slices.ContainsFunc(names, one.Is) {
			out = append(out, one)
		}
	}
	return out, nil
}

// inGroups adds what the instances' groups say. The group lists its members itself, and its tags are its owner's: an
// instance's own tags are not believed here.
func inGroups(instances []controller.Instance, groups []astypes.AutoScalingGroup) {
	byID := map[string]*controller.Instance{}
	for i := range instances {
		byID[instances[i].ID] = &instances[i]
	}
	for _, g := range groups {
		of := role.NewSet(roles(account.GroupTag(g, role.TagRole))...)
		for _, member := range g.Instances {
			if one := byID[aws.ToString(member.InstanceId)]; one != nil {
				one.Group, one.Roles, one.Role = aws.ToString(g.AutoScalingGroupName), of, account.GroupTag(g, role.TagInstanceRole)
				one.State = string(member.LifecycleState)
			}
		}
	}
}

func instanceOf(i ec2types.Instance) controller.Instance {
	out := controller.Instance{ID: aws.ToString(i.InstanceId), Name: firstWord(aws.ToString(i.PrivateDnsName)), PublicName: aws.ToString(i.PublicDnsName)}
	if i.State != nil {
		out.Running = i.State.Name == ec2types.InstanceStateNamePending || i.State.Name == ec2types.InstanceStateNameRunning
		out.Gone = i.State.Name == ec2types.InstanceStateNameShuttingDown || i.State.Name == ec2types.InstanceStateNameTerminated
	}
	add := func(text *string) {
		if a := addr(text); a.IsValid() && !slices.Contains(out.Addresses, a) {
			out.Addresses = append(out.Addresses, a)
		}
	}
	add(i.PrivateIpAddress)
	add(i.Ipv6Address)
	for _, n := range i.NetworkInterfaces {
		for _, a := range n.PrivateIpAddresses {
			add(a.PrivateIpAddress)
		}
		for _, a := range n.Ipv6Addresses {
			add(a.Ipv6Address)
		}
	}
	if out.Name == "" && len(out.Addresses) > 0 {
		out.Name = ipName(out.Addresses[0])
	}
	// The public ones come last: no name is made of them.
	add(i.PublicIpAddress)
	for _, n := range i.NetworkInterfaces {
		add(publicOf(n.Association))
		for _, a := range n.PrivateIpAddresses {
			add(publicOf(a.Association))
		}
	}
	return out
}

// publicOf returns the public address of a card, or of one of its addresses; nil if it has none.
func publicOf(a *ec2types.InstanceNetworkInterfaceAssociation) *string {
	if a == nil {
		return nil
	}
	return a.PublicIp
}

// firstWord returns the name that the machine takes: with DHCP options of several domains EC2 gives all of them, separated
// by blanks.
func firstWord(name string) string {
	name, _, _ = strings.Cut(strings.ToLower(strings.TrimSpace(name)), " ")
	return name
}

// ipName returns the beginning of an instance's private DNS name: "ip-10-1-0-12". EC2's API leaves the name out if the
// subnet names instances by resource id.
func ipName(a netip.Addr) string { return "ip-" + strings.ReplaceAll(a.String(), ".", "-") }
