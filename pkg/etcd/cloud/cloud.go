// Package cloud reads and makes the volumes of etcd's members in EC2, for a person's commands.
//
// Its rule: it attaches and detaches nothing; that is the members' machines'.
package cloud

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/account"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// EC2 is the volumes and machines of one cluster's etcd. It implements operate.Cloud.
type EC2 struct {
	cluster string
	api     *ec2.Client
}

// New makes no request.
func New(config aws.Config, cluster string) *EC2 {
	return &EC2{cluster: cluster, api: ec2.NewFromConfig(config)}
}

// Volumes implements operate.Cloud. They are sorted by member and id.
func (e *EC2) Volumes(ctx context.Context) ([]operate.Volume, error) {
	found, err := account.EtcdVolumes(ctx, e.api, e.cluster)
	if err != nil {
		return nil, awserr.Explain(err, "ec2:DescribeVolumes")
	}
	out := []operate.Volume{}
	for _, v := range found {
		if v.State == types.VolumeStateDeleting || v.State == types.VolumeStateDeleted {
			continue
		}
		volume := operate.Volume{ID: aws.ToString(v.VolumeId), Member: account.Tag(v.Tags, role.TagEtcdMember), Zone: aws.ToString(v.AvailabilityZone), State: string(v.State)}
		for _, a := range v.Attachments {
			if a.State == types.VolumeAttachmentStateDetached {
				continue
			}
			// A volume that several machines share is held by one that may be writing, if there is one.
			holder := aws.ToString(a.InstanceId)
			state, err := e.state(ctx, holder)
			if err != nil {
				return nil, fmt.Errorf("asking for the state of %s, which has volume %s: %w", holder, volume.ID, awserr.Explain(err, "ec2:DescribeInstances"))
			}
			if !volume.Held() {
				volume.Holder, volume.HolderState = holder, state
			}
		}
		out = append(out, volume)
	}
	slices.SortFunc(out, func(a, b operate.Volume) int { return strings.Compare(a.Member+" "+a.ID, b.Member+" "+b.ID) })
	return out, nil
}

// state returns the state of an instance. EC2 forgets one about an hour after its end.
func (e *EC2) state(ctx context.Context, instance string) (string, error) {
	out, err := e.api.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{instance}})
	if err != nil && awserr.Code(err) != "InvalidInstanceID.NotFound" {
		return "", err
	}
	if err == nil {
		for _, r := range out.Reservations {
			for _, i := range r.Instances {
				return stateOf(i), nil
			}
		}
	}
	return string(types.InstanceStateNameTerminated), nil
}

func stateOf(i types.Instance) string {
	if i.State == nil {
		return "in no state that EC2 tells"
	}
	return string(i.State.Name)
}

// Machines implements operate.Cloud. They are sorted by member and id.
func (e *EC2) Machines(ctx context.Context) ([]operate.Machine, error) {
	found, err := account.Machines(ctx, e.api, e.cluster)
	if err != nil {
		return nil, awserr.Explain(err, "ec2:DescribeInstances")
	}
	out := []operate.Machine{}
	for _, i := range found {
		member, state := account.Tag(i.Tags, role.TagEtcdMember), stateOf(i)
		if member != "" && state != string(types.InstanceStateNameTerminated) {
			m := operate.Machine{ID: aws.ToString(i.InstanceId), Member: member, State: state}
			if i.Placement != nil {
				m.Zone = aws.ToString(i.Placement.AvailabilityZone)
			}
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b operate.Machine) int { return strings.Compare(a.Member+" "+a.ID, b.Member+" "+b.ID) })
	return out, nil
}

// Make implements operate.Cloud. The volume has the tags that the stack gives a member's.
func (e *EC2) Make(ctx context.Context, v operate.NewVolume) (string, error) {
	tag := func(key, value string) types.Tag { return types.Tag{Key: &key, Value: &value} }
	in := &ec2.CreateVolumeInput{
		AvailabilityZone: &v.Zone, VolumeType: types.VolumeTypeGp3, Encrypted: aws.Bool(true), ClientToken: &v.Token,
		Size: aws.Int32(int32(v.Size)), Iops: aws.Int32(int32(v.IOPS)), Throughput: aws.Int32(int32(v.Throughput)),
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeVolume, Tags: []types.Tag{
			tag(role.TagCluster, e.cluster), tag(role.TagEtcdMember, v.Member), tag("Name", e.cluster+"-etcd-"+v.Member),
		}}},
	}
	if v.Key != "" {
		in.KmsKeyId = &v.Key
	}
	out, err := e.api.CreateVolume(ctx, in)
	if err != nil {
		return "", fmt.Errorf("making a volume for etcd's member %s in %s: %w", v.Member, v.Zone, awserr.Explain(err, "ec2:CreateVolume and ec2:CreateTags"))
	}
	return aws.ToString(out.VolumeId), nil
}

// Release implements operate.Cloud.
func (e *EC2) Release(ctx context.Context, volume string) error {
	_, err := e.api.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: []string{volume}, Tags: []types.Tag{{Key: aws.String(role.TagEtcdMember)}}})
	if err != nil {
		return fmt.Errorf("taking the tag %s off volume %s: %w", role.TagEtcdMember, volume, awserr.Explain(err, "ec2:DeleteTags"))
	}
	return nil
}

// Zone returns the availability zone of a subnet.
func (e *EC2) Zone(ctx context.Context, subnet string) (string, error) {
	out, err := e.api.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: []string{subnet}})
	if err != nil {
		return "", fmt.Errorf("reading the availability zone of %s: %w", subnet, awserr.Explain(err, "ec2:DescribeSubnets"))
	}
	for _, s := range out.Subnets {
		return aws.ToString(s.AvailabilityZone), nil
	}
	return "", fmt.Errorf("reading the availability zone of %s: there is no such subnet", subnet)
}
