package fleet

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/sync/errgroup"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/account"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// MachinesAPI is the part of EC2's client that AWS uses.
type MachinesAPI interface {
	ec2.DescribeInstancesAPIClient
	ec2.DescribeVolumesAPIClient
}

// AWS reads AutoScaling groups and their EC2 instances by tags.
type AWS struct {
	// Scaling and Machines are SDK clients, which retry by their own settings.
	Scaling  autoscaling.DescribeAutoScalingGroupsAPIClient
	Machines MachinesAPI
	// Allowed returns the names of the groups that may have records of a cluster; nil allows every group with the tags. Use
	// it where others may set tags: tags prove nothing.
	Allowed func(cluster string) []string
}

var _ reconcile.Fleet = (*AWS)(nil)

// machine is EC2's description of an instance.
type machine struct {
	running, untagged         bool
	private, private6, public netip.Addr
	etcdMember                string
}

// Read reads groups and instances in parallel, then the volumes if there are etcd machines.
func (f *AWS) Read(ctx context.Context, cluster string) (record.Fleet, error) {
	var groups []astypes.AutoScalingGroup
	var machines map[string]machine
	both, bctx := errgroup.WithContext(ctx)
	both.Go(func() (err error) { groups, err = f.groups(bctx, cluster); return err })
	both.Go(func() (err error) { machines, err = f.machines(bctx, cluster); return err })
	if err := both.Wait(); err != nil {
		return record.Fleet{}, explain(err, account.Actions)
	}
	if err := tagged(groups, machines, cluster); err != nil {
		return record.Fleet{}, err
	}
	if err := f.addUntagged(ctx, groups, machines, cluster); err != nil {
		return record.Fleet{}, explain(err, account.Actions)
	}
	out := record.Fleet{Cluster: cluster, Owner: ownerOf(groups)}
	etcd := false
	for _, g := range groups {
		for _, r := range roles(account.GroupTag(g, role.TagRole)) {
			out.Groups = append(out.Groups, group(g, r, machines))
			etcd = etcd || r == role.Etcd && len(g.Instances) > 0
		}
	}
	if etcd {
		holders, err := f.holders(ctx, cluster)
		if err != nil {
			return record.Fleet{}, explain(err, account.Actions)
		}
		assign(out, holders)
	}
	return out, nil
}

func (f *AWS) groups(ctx context.Context, cluster string) ([]astypes.AutoScalingGroup, error) {
	all, err := account.Groups(ctx, f.Scaling, cluster)
	if err != nil || f.Allowed == nil {
		return all, err
	}
	allowed := f.Allowed(cluster)
	return slices.DeleteFunc(all, func(g astypes.AutoScalingGroup) bool {
		return !slices.Contains(allowed, aws.ToString(g.AutoScalingGroupName))
	}), nil
}

// addUntagged reads the machines that EC2 does not show with the cluster's tag, by their ids: which machines are
// members, the groups say, and the tag may have been added to a group after its machines were launched. One that leaves is
// read too, since its records go by its addresses. A machine in service that EC2 does not know at all makes the reading
// partial.
func (f *AWS) addUntagged(ctx context.Context, groups []astypes.AutoScalingGroup, machines map[string]machine, cluster string) error {
	var ids, serving []string
	for _, g := range groups {
		for _, i := range g.Instances {
			id := aws.ToString(i.InstanceId)
			if _, ok := machines[id]; ok {
				continue
			}
			ids = append(ids, id)
			if i.LifecycleState == astypes.LifecycleStateInService {
				serving = append(serving, id)
			}
		}
	}
	all, err := account.MachinesByID(ctx, f.Machines, ids)
	if err != nil {
		return err
	}
	for _, i := range all {
		m := machineOf(i)
		m.untagged = true
		machines[aws.ToString(i.InstanceId)] = m
	}
	for _, id := range serving {
		if _, ok := machines[id]; !ok {
			return fmt.Errorf("reading the machines of %s: AutoScaling has %s in service, and EC2 does not know it: the reading is partial (read again; if it stays so, terminate that machine in its group)", cluster, id)
		}
	}
	return nil
}

// machines returns the cluster's instances by id.
func (f *AWS) machines(ctx context.Context, cluster string) (map[string]machine, error) {
	all, err := account.Machines(ctx, f.Machines, cluster)
	out := map[string]machine{}
	for _, i := range all {
		out[aws.ToString(i.InstanceId)] = machineOf(i)
	}
	return out, err
}

func machineOf(i ec2types.Instance) machine {
	m := machine{
		running: account.Running(i), etcdMember: account.Tag(i.Tags, role.TagEtcdMember),
		private: addr(i.PrivateIpAddress), private6: addr(i.Ipv6Address), public: addr(i.PublicIpAddress),
	}
	for _, n := range i.NetworkInterfaces {
		first := n.Attachment != nil && aws.ToInt32(n.Attachment.DeviceIndex) == 0
		if first && !m.private6.IsValid() && len(n.Ipv6Addresses) > 0 {
			m.private6 = addr(n.Ipv6Addresses[0].Ipv6Address)
		}
	}
	return m
}

// addr parses an address of EC2; none is the zero Addr.
func addr(s *string) netip.Addr {
	a, _ := netip.ParseAddr(aws.ToString(s))
	return a
}

// holders returns the etcd member of each instance that has a member's volume, also one that is being attached or detached.
func (f *AWS) holders(ctx context.Context, cluster string) (map[string]string, error) {
	all, err := account.EtcdVolumes(ctx, f.Machines, cluster)
	out := map[string]string{}
	for _, v := range all {
		for _, a := range v.Attachments {
			if a.State != ec2types.VolumeAttachmentStateDetached {
				out[aws.ToString(a.InstanceId)] = account.Tag(v.Tags, role.TagEtcdMember)
			}
		}
	}
	return out, err
}

// assign sets the members of etcd machines. A member is whose volume a machine has, and while anybody has that volume, a
// machine that merely carries the tag is not the member: a new one waits while the old one leaves. A volume that nobody has
// says nothing: the stack makes it before the machine that is the member, with its data on its own disk, is replaced.
func assign(f record.Fleet, holders map[string]string) {
	held := slices.Collect(maps.Values(holders))
	for _, g := range f.Groups {
		if g.Role != role.Etcd {
			continue
		}
		for i, m := range g.Members {
			if name, ok := holders[m.InstanceID]; ok {
				g.Members[i].EtcdMember = name
			} else if slices.Contains(held, m.EtcdMember) {
				g.Members[i].EtcdMember = ""
			}
		}
	}
}

// ownerOf returns the account and region that keep the groups, from a group's ARN: "aws:123456789012:eu-central-1". Two
// that have a cluster of the same name do not take each other's records.
func ownerOf(groups []astypes.AutoScalingGroup) string {
	for _, g := range groups {
		if a, err := arn.Parse(aws.ToString(g.AutoScalingGroupARN)); err == nil {
			return a.Partition + ":" + a.AccountID + ":" + a.Region
		}
	}
	return ""
}

// roles parses the roles in a tag. An unknown role is kept, so that pkg/dns/record reports it.
func roles(tag string) []role.Role {
	var out []role.Role
	for name := range strings.SplitSeq(tag, "+") {
		out = append(out, role.Role(strings.TrimSpace(name)))
	}
	return out
}

func group(g astypes.AutoScalingGroup, r role.Role, machines map[string]machine) record.Group {
	out := record.Group{
		Name: aws.ToString(g.AutoScalingGroupName), Cluster: account.GroupTag(g, role.TagCluster), Role: r,
		Desired: int(aws.ToInt32(g.DesiredCapacity)),
	}
	if r == role.Etcd {
		out.EtcdMembers = account.EtcdMembers(g)
	}
	for _, i := range g.Instances {
		m := machines[aws.ToString(i.InstanceId)] // an instance that EC2 does not list is not running
		member := record.Member{
			InstanceID: aws.ToString(i.InstanceId), Lifecycle: record.Lifecycle(i.LifecycleState),
			Healthy: account.Healthy(i), Running: m.running, Untagged: m.untagged,
			Private: m.private, Private6: m.private6, Public: m.public,
		}
		if r == role.Etcd {
			member.EtcdMember = m.etcdMember
		}
		out.Members = append(out.Members, member)
	}
	return out
}

// tagged returns an error if groups have machines in service but EC2 lists none of them: then the instances lack the
// tag, and every record would become empty.
func tagged(groups []astypes.AutoScalingGroup, machines map[string]machine, cluster string) error {
	example := ""
	for _, g := range groups {
		for _, i := range g.Instances {
			if _, ok := machines[aws.ToString(i.InstanceId)]; ok {
				return nil
			}
			if i.LifecycleState == astypes.LifecycleStateInService {
				example = fmt.Sprintf("%s of group %s", aws.ToString(i.InstanceId), aws.ToString(g.AutoScalingGroupName))
			}
		}
	}
	if example == "" {
		return nil
	}
	return fmt.Errorf("reading the machines of %s: EC2 shows none with the tag %s=%s, not even %s (set PropagateAtLaunch on the groups' tag, and tag the machines that run)",
		cluster, role.TagCluster, cluster, example)
}

// explain adds the next step to an error of AWS; needed are the permissions of the call.
func explain(err error, needed string) error {
	if awserr.KindOf(err) == awserr.Throttled {
		return fmt.Errorf("%w: %w", err, reconcile.ErrThrottled)
	}
	return awserr.Explain(err, needed+" for this role")
}
