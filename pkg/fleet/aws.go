package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/sync/errgroup"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dnssync"
	"github.com/hardtack/packer-plugin-hardtack/pkg/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The largest pages that the APIs give (their references: MaxRecords, MaxResults).
const (
	groupPage   = 100
	machinePage = 1000
	volumePage  = 500
)

// MachinesAPI is what of EC2's client is needed.
type MachinesAPI interface {
	ec2.DescribeInstancesAPIClient
	ec2.DescribeVolumesAPIClient
}

// AWS reads AutoScaling groups and their EC2 machines by tags.
type AWS struct {
	// Scaling and Machines are the SDK's clients; how often they try again is theirs.
	Scaling  autoscaling.DescribeAutoScalingGroupsAPIClient
	Machines MachinesAPI
	// Allowed are the names of groups that may have records; empty: every group with the tags. A tag is
	// no authority where others may tag.
	Allowed []string
}

var _ dnssync.Fleet = (*AWS)(nil)

// machine is what EC2 says of an instance.
type machine struct {
	running                   bool
	private, private6, public netip.Addr
	etcdMember                string
}

// Read reads the groups and the machines at the same time, then the volumes where there are etcd machines.
func (f *AWS) Read(ctx context.Context, cluster string) (record.Fleet, error) {
	var groups []astypes.AutoScalingGroup
	var machines map[string]machine
	both, bctx := errgroup.WithContext(ctx)
	both.Go(func() (err error) { groups, err = f.groups(bctx, cluster); return err })
	both.Go(func() (err error) { machines, err = f.machines(bctx, cluster); return err })
	if err := both.Wait(); err != nil {
		return record.Fleet{}, fmt.Errorf("reading the groups of %s: %w", cluster, explain(err))
	}
	out := record.Fleet{Cluster: cluster}
	etcd := false
	for _, g := range groups {
		for _, r := range roles(tagOf(g, TagRole)) {
			out.Groups = append(out.Groups, group(g, r, machines))
			etcd = etcd || r == role.Etcd && len(g.Instances) > 0
		}
	}
	if err := tagged(groups, machines, cluster); err != nil {
		return record.Fleet{}, err
	}
	if etcd {
		holders, err := f.volumes(ctx, cluster)
		if err != nil {
			return record.Fleet{}, fmt.Errorf("reading etcd's volumes of %s: %w", cluster, explain(err))
		}
		assign(out, holders)
	}
	return out, nil
}

func (f *AWS) groups(ctx context.Context, cluster string) ([]astypes.AutoScalingGroup, error) {
	var out []astypes.AutoScalingGroup
	pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(f.Scaling, &autoscaling.DescribeAutoScalingGroupsInput{
		Filters:    []astypes.Filter{{Name: aws.String("tag:" + TagCluster), Values: []string{cluster}}},
		MaxRecords: aws.Int32(groupPage),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, g := range page.AutoScalingGroups {
			if len(f.Allowed) == 0 || slices.Contains(f.Allowed, aws.ToString(g.AutoScalingGroupName)) {
				out = append(out, g)
			}
		}
	}
	return out, nil
}

// machines are the cluster's by instance id, those that have ended included: EC2 describes them for another hour.
func (f *AWS) machines(ctx context.Context, cluster string) (map[string]machine, error) {
	out := map[string]machine{}
	pages := ec2.NewDescribeInstancesPaginator(f.Machines, &ec2.DescribeInstancesInput{
		Filters:    []ec2types.Filter{{Name: aws.String("tag:" + TagCluster), Values: []string{cluster}}},
		MaxResults: aws.Int32(machinePage),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				out[aws.ToString(i.InstanceId)] = machineOf(i)
			}
		}
	}
	return out, nil
}

func machineOf(i ec2types.Instance) machine {
	m := machine{
		running: i.State != nil && i.State.Name == ec2types.InstanceStateNameRunning,
		private: addr(i.PrivateIpAddress), private6: addr(i.Ipv6Address), public: addr(i.PublicIpAddress),
	}
	for _, n := range i.NetworkInterfaces {
		first := n.Attachment != nil && aws.ToInt32(n.Attachment.DeviceIndex) == 0
		if first && !m.private6.IsValid() && len(n.Ipv6Addresses) > 0 {
			m.private6 = addr(n.Ipv6Addresses[0].Ipv6Address)
		}
	}
	for _, t := range i.Tags {
		if aws.ToString(t.Key) == TagEtcdMember {
			m.etcdMember = aws.ToString(t.Value)
		}
	}
	return m
}

// addr is the zero Addr for none; EC2 gives no text that is no address.
func addr(s *string) netip.Addr {
	a, _ := netip.ParseAddr(aws.ToString(s))
	return a
}

// volumes are the etcd members by the instance that their volume is attached to.
func (f *AWS) volumes(ctx context.Context, cluster string) (map[string]string, error) {
	out := map[string]string{}
	pages := ec2.NewDescribeVolumesPaginator(f.Machines, &ec2.DescribeVolumesInput{
		Filters: []ec2types.Filter{
			{Name: aws.String("tag:" + TagCluster), Values: []string{cluster}},
			{Name: aws.String("tag-key"), Values: []string{TagEtcdMember}},
		},
		MaxResults: aws.Int32(volumePage),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, v := range page.Volumes {
			for _, a := range v.Attachments {
				if a.State != ec2types.VolumeAttachmentStateAttached {
					continue
				}
				for _, t := range v.Tags {
					if aws.ToString(t.Key) == TagEtcdMember {
						out[aws.ToString(a.InstanceId)] = aws.ToString(t.Value)
					}
				}
			}
		}
	}
	return out, nil
}

// assign gives etcd's machines the member of their volume, which goes before a tag of the machine's own.
func assign(f record.Fleet, holders map[string]string) {
	for _, g := range f.Groups {
		if g.Role != role.Etcd {
			continue
		}
		for i, m := range g.Members {
			if name, ok := holders[m.InstanceID]; ok {
				g.Members[i].EtcdMember = name
			}
		}
	}
}

// roles are those of a tag's value. What is no role stays as it is written, for record's finding.
func roles(tag string) []role.Role {
	var out []role.Role
	for name := range strings.SplitSeq(tag, "+") {
		out = append(out, role.Role(strings.TrimSpace(name)))
	}
	return out
}

func tagOf(g astypes.AutoScalingGroup, key string) string {
	for _, t := range g.Tags {
		if aws.ToString(t.Key) == key {
			return aws.ToString(t.Value)
		}
	}
	return ""
}

func group(g astypes.AutoScalingGroup, r role.Role, machines map[string]machine) record.Group {
	out := record.Group{
		Name: aws.ToString(g.AutoScalingGroupName), Cluster: tagOf(g, TagCluster), Role: r,
		Desired: int(aws.ToInt32(g.DesiredCapacity)),
	}
	if r == role.Etcd {
		out.EtcdMembers = words(tagOf(g, TagEtcdMembers))
	}
	for _, i := range g.Instances {
		m := machines[aws.ToString(i.InstanceId)] // one that EC2 does not describe is not running
		member := record.Member{
			InstanceID: aws.ToString(i.InstanceId), Lifecycle: record.Lifecycle(i.LifecycleState),
			Healthy: strings.EqualFold(aws.ToString(i.HealthStatus), "Healthy"), Running: m.running,
			Private: m.private, Private6: m.private6, Public: m.public,
		}
		if r == role.Etcd {
			member.EtcdMember = m.etcdMember
		}
		out.Members = append(out.Members, member)
	}
	return out
}

func words(text string) []string {
	return strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' || c == ';' })
}

// tagged refuses a reading in which groups have machines in service and EC2 shows not one of them: then
// the tag does not reach the machines, and every record would be emptied.
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
		cluster, TagCluster, cluster, example)
}

// explain adds what to do to what AWS answers.
func explain(err error) error {
	var api interface {
		error
		ErrorCode() string
	}
	if !errors.As(err, &api) {
		return err
	}
	switch api.ErrorCode() {
	case "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequestsException":
		return fmt.Errorf("%w: %w", err, dnssync.ErrThrottled)
	case "AccessDenied", "AccessDeniedException", "UnauthorizedOperation":
		return fmt.Errorf("%w (allow autoscaling:DescribeAutoScalingGroups, ec2:DescribeInstances and ec2:DescribeVolumes for this role)", err)
	case "ExpiredToken", "InvalidClientTokenId", "AuthFailure", "UnrecognizedClientException":
		return fmt.Errorf("%w (AWS does not take these credentials: sign in again, and check the clock)", err)
	}
	return err
}
