package awsfake

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ebs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// imageOf is the registration of an image as it should be.
func imageOf(name, snapshot string) *ec2.RegisterImageInput {
	return &ec2.RegisterImageInput{
		Name: &name, Description: aws.String("a machine"), Architecture: types.ArchitectureValuesX8664, BootMode: types.BootModeValuesUefi,
		ImdsSupport: types.ImdsSupportValuesV20, EnaSupport: aws.Bool(true), VirtualizationType: aws.String("hvm"), RootDeviceName: aws.String("/dev/xvda"),
		BlockDeviceMappings: []types.BlockDeviceMapping{{DeviceName: aws.String("/dev/xvda"), Ebs: &types.EbsBlockDevice{
			SnapshotId: &snapshot, VolumeType: types.VolumeTypeGp3, DeleteOnTermination: aws.Bool(true),
		}}},
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeImage, Tags: []types.Tag{{Key: aws.String("Name"), Value: &name}}}},
	}
}

func (s *shop) register(t *testing.T, in *ec2.RegisterImageInput) string {
	t.Helper()
	out, err := s.ec2.RegisterImage(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return *out.ImageId
}

func TestImageLife(t *testing.T) {
	s := newShop(t, Options{})
	snapshot := s.publish(t, ebs.StartSnapshotInput{}, map[int][]byte{0: blockOf("boot")})
	id := s.register(t, imageOf("hardtack-1", snapshot))
	out, err := s.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{Owners: []string{"self"}, Filters: []types.Filter{{Name: aws.String("tag:Name"), Values: []string{"hardtack-*"}}}})
	if err != nil || len(out.Images) != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	// A filter passes over an id that there is not; a list of ids is refused for it.
	both := []string{id, "ami-0123456789abcdef0"}
	if out, err := s.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{Filters: []types.Filter{{Name: aws.String("image-id"), Values: both}}}); err != nil || len(out.Images) != 1 {
		t.Errorf("by a filter: %+v, %v", out, err)
	}
	_, err = s.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{ImageIds: both})
	wantCode(t, err, "InvalidAMIID.NotFound", "The image id '["+both[1]+"]' does not exist")
	i := out.Images[0]
	disk := i.BlockDeviceMappings[0]
	if *i.ImageId != id || i.State != types.ImageStateAvailable || *i.Name != "hardtack-1" || i.BootMode != types.BootModeValuesUefi || i.ImdsSupport != types.ImdsSupportValuesV20 ||
		!*i.EnaSupport || *i.RootDeviceName != "/dev/xvda" || i.Architecture != types.ArchitectureValuesX8664 || *i.OwnerId != owner {
		t.Errorf("the image is %+v", i)
	}
	if *disk.Ebs.SnapshotId != snapshot || *disk.Ebs.VolumeSize != 1 || disk.Ebs.VolumeType != types.VolumeTypeGp3 || *disk.Ebs.Encrypted || !*disk.Ebs.DeleteOnTermination {
		t.Errorf("its disk is %+v", disk.Ebs)
	}
	_, err = s.ec2.DeleteSnapshot(t.Context(), &ec2.DeleteSnapshotInput{SnapshotId: &snapshot})
	wantCode(t, err, "InvalidSnapshot.InUse", "The snapshot "+snapshot+" is currently in use by "+id)
	if _, err := s.ec2.DeregisterImage(t.Context(), &ec2.DeregisterImageInput{ImageId: &id}); err != nil {
		t.Fatal(err)
	}
	snapshots, err := s.ec2.DescribeSnapshots(t.Context(), &ec2.DescribeSnapshotsInput{OwnerIds: []string{"self"}})
	if err != nil || len(snapshots.Snapshots) != 1 || snapshots.Snapshots[0].State != types.SnapshotStateCompleted || *snapshots.Snapshots[0].FullSnapshotSizeInBytes != BlockSize {
		t.Errorf("after the image is gone: %+v, %v", snapshots.Snapshots, err)
	}
	if _, err := s.ec2.DeleteSnapshot(t.Context(), &ec2.DeleteSnapshotInput{SnapshotId: &snapshot}); err != nil {
		t.Fatal(err)
	}
	_, err = s.ec2.DescribeSnapshots(t.Context(), &ec2.DescribeSnapshotsInput{SnapshotIds: []string{snapshot}})
	wantCode(t, err, "InvalidSnapshot.NotFound", "The snapshot '"+snapshot+"' does not exist.")
	_, err = s.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{ImageIds: []string{id}})
	wantCode(t, err, "InvalidAMIID.NotFound", "The image id '["+id+"]' does not exist")
	_, err = s.ec2.DeregisterImage(t.Context(), &ec2.DeregisterImageInput{ImageId: &id})
	wantCode(t, err, "InvalidAMIID.Unavailable", "")
}

// A disabled image is shown to who asks for such, launches and copies nothing, is nobody else's, and keeps its name and its snapshot.
func TestDisabledImage(t *testing.T) {
	s := newShop(t, Options{})
	snapshot := s.publish(t, ebs.StartSnapshotInput{}, map[int][]byte{0: blockOf("boot")})
	id := s.register(t, imageOf("hardtack-1", snapshot))
	account := &types.LaunchPermissionModifications{Add: []types.LaunchPermission{{UserId: aws.String("111122223333")}}}
	share := func() error {
		_, err := s.ec2.ModifyImageAttribute(t.Context(), &ec2.ModifyImageAttributeInput{ImageId: &id, LaunchPermission: account})
		return err
	}
	enable := func() error {
		_, err := s.ec2.EnableImage(t.Context(), &ec2.EnableImageInput{ImageId: &id})
		return err
	}
	launch := func() (err error) {
		s.account.locked(func() { err = s.account.EC2().canLaunch(id) })
		return err
	}
	noErr(t, share())
	wantCode(t, enable(), "IncorrectState", "")
	_, err := s.ec2.DisableImage(t.Context(), &ec2.DisableImageInput{ImageId: &id})
	noErr(t, err)
	_, err = s.ec2.DisableImage(t.Context(), &ec2.DisableImageInput{ImageId: &id})
	wantCode(t, err, "IncorrectState", "")
	for _, in := range []*ec2.DescribeImagesInput{{}, {ImageIds: []string{id}}} {
		for _, include := range []bool{false, true} {
			in.IncludeDisabled = &include
			out, err := s.ec2.DescribeImages(t.Context(), in)
			noErr(t, err)
			if include && (len(out.Images) != 1 || out.Images[0].State != types.ImageStateDisabled) || !include && len(out.Images) != 0 {
				t.Errorf("%v: %+v", include, out.Images)
			}
		}
	}
	if err := launch(); err == nil || !strings.HasPrefix(err.Error(), "InvalidAMIID.Unavailable") {
		t.Errorf("launching it: %v", err)
	}
	wantCode(t, share(), "IncorrectState", "")
	_, err = s.ec2.CopyImage(t.Context(), &ec2.CopyImageInput{Name: aws.String("copy"), SourceImageId: &id, SourceRegion: aws.String(HomeRegion)})
	wantCode(t, err, "InvalidAMIID.Unavailable", "")
	_, err = s.ec2.RegisterImage(t.Context(), imageOf("hardtack-1", snapshot))
	wantCode(t, err, "InvalidAMIName.Duplicate", "")
	_, err = s.ec2.DeleteSnapshot(t.Context(), &ec2.DeleteSnapshotInput{SnapshotId: &snapshot})
	wantCode(t, err, "InvalidSnapshot.InUse", "")
	noErr(t, enable())
	if i, _ := s.account.Images().Image(id); i.State != ImageAvailable || len(i.Shared) > 0 {
		t.Errorf("enabled again: %+v", i)
	}
	noErr(t, launch())
	_, err = s.ec2.DisableImage(t.Context(), &ec2.DisableImageInput{ImageId: &id})
	noErr(t, err)
	_, err = s.ec2.DeregisterImage(t.Context(), &ec2.DeregisterImageInput{ImageId: &id})
	noErr(t, err)
}
