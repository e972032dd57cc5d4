package awsfake

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
)

// TestVolumesAgainstMoto compares both stand-ins as far as moto is right. It leaves out what moto 5.2.1 does not model:
// states and time, zones of machines, a volume that is attached twice, device names, sizes and IOPS, client tokens,
// malformed IDs, the pause between modifications.
func TestVolumesAgainstMoto(t *testing.T) {
	theirs, ours := motoBench(t), newBench(t, Options{})
	if diff := cmp.Diff(theirs.volumeStory(t), ours.volumeStory(t)); diff != "" {
		t.Errorf("moto (-) and awsfake (+) differ:\n%s", diff)
	}
}

// volumeStory makes, moves and deletes volumes, and returns the answers without the IDs.
func (b *bench) volumeStory(t *testing.T) (said []string) {
	t.Helper()
	ctx := t.Context()
	ran, err := b.ec2.RunInstances(ctx, &ec2.RunInstancesInput{
		ImageId: aws.String("ami-12c6146b"), MinCount: aws.Int32(1), MaxCount: aws.Int32(1), Placement: &types.Placement{AvailabilityZone: aws.String(homeZone)},
	})
	if err != nil {
		t.Fatal(err)
	}
	machine := *ran.Instances[0].InstanceId
	made, err := b.ec2.CreateVolume(ctx, &ec2.CreateVolumeInput{
		AvailabilityZone: aws.String(homeZone), Size: aws.Int32(20), VolumeType: types.VolumeTypeGp3, Encrypted: aws.Bool(true),
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeVolume, Tags: tagList("EtcdMember", "a")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	id, none := *made.VolumeId, "vol-0123456789abcdef0"
	names := strings.NewReplacer(id, "VOLUME", machine, "MACHINE", none, "NONE")
	say := func(parts ...any) { said = append(said, names.Replace(fmt.Sprint(parts...))) }
	seen := func(filters ...types.Filter) {
		out, err := b.ec2.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{Filters: append(filters, where("tag:EtcdMember", "a"))})
		say(told(err))
		if err != nil {
			return
		}
		for _, v := range out.Volumes {
			say(*v.VolumeId, *v.AvailabilityZone, v.State, *v.Size, v.VolumeType, *v.Iops, *v.Encrypted, strings.HasPrefix(*v.KmsKeyId, "arn:aws:kms:"), *v.Tags[0].Key, *v.Tags[0].Value)
			for _, a := range v.Attachments {
				say(*a.VolumeId, *a.InstanceId, *a.Device, a.State)
			}
		}
	}
	seen()
	attached, err := b.ec2.AttachVolume(ctx, &ec2.AttachVolumeInput{VolumeId: &id, InstanceId: &machine, Device: aws.String("/dev/sdf")})
	if err != nil {
		t.Fatal(err)
	}
	say(*attached.VolumeId, *attached.InstanceId, *attached.Device, attached.State)
	seen(where("status", "in-use"), where("attachment.instance-id", machine), where("attachment.status", "attached"), where("attachment.device", "/dev/sdf"))
	seen(where("status", "available"))
	_, err = b.ec2.AttachVolume(ctx, &ec2.AttachVolumeInput{VolumeId: &none, InstanceId: &machine, Device: aws.String("/dev/sdg")})
	say(told(err))
	_, err = b.ec2.AttachVolume(ctx, &ec2.AttachVolumeInput{VolumeId: &id, InstanceId: aws.String("i-0123456789abcdef0"), Device: aws.String("/dev/sdg")})
	say(told(err))
	_, err = b.ec2.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &id})
	say(told(err))
	_, err = b.ec2.DetachVolume(ctx, &ec2.DetachVolumeInput{VolumeId: &id, InstanceId: &machine, Device: aws.String("/dev/sdz")})
	say(codeOf(err)) // the same code; moto's text has no quotes
	detached, err := b.ec2.DetachVolume(ctx, &ec2.DetachVolumeInput{VolumeId: &id, InstanceId: &machine})
	if err != nil {
		t.Fatal(err)
	}
	say(*detached.VolumeId, *detached.InstanceId, *detached.Device, detached.State)
	if b.account != nil {
		b.account.EC2().Detached(id, machine) // in moto nothing is ever mounted
	}
	seen(where("encrypted", "true"), where("size", "20"))
	modified, err := b.ec2.ModifyVolume(ctx, &ec2.ModifyVolumeInput{VolumeId: &id, Size: aws.Int32(30)})
	if err != nil {
		t.Fatal(err)
	}
	say(*modified.VolumeModification.VolumeId, *modified.VolumeModification.OriginalSize, *modified.VolumeModification.TargetSize)
	seen(where("size", "30"))
	for range 2 {
		_, err = b.ec2.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &id})
		say(told(err))
	}
	for _, in := range []*ec2.CreateVolumeInput{
		{AvailabilityZone: aws.String(homeZone)},
		{AvailabilityZone: aws.String(homeZone), Size: aws.Int32(1), KmsKeyId: aws.String("alias/demo")},
		{AvailabilityZone: aws.String(homeZone), Size: aws.Int32(1), DryRun: aws.Bool(true)},
	} {
		_, err := b.ec2.CreateVolume(ctx, in)
		say(codeOf(err))
	}
	return said
}
