package awsfake

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ebs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
)

func codeOf(err error) string {
	var api smithy.APIError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &api):
		return api.ErrorCode()
	}
	return err.Error()
}

// registration is a call of RegisterImage, and the code that it is answered with.
type registration struct {
	name string
	in   *ec2.RegisterImageInput
	want string
}

func TestRegisterImageRules(t *testing.T) {
	s := newShop(t, Options{})
	four := s.publish(t, ebs.StartSnapshotInput{VolumeSize: aws.Int64(4)}, nil)
	pending := s.start(t, &ebs.StartSnapshotInput{VolumeSize: aws.Int64(1)})
	s.register(t, imageOf("taken", four))
	n := 0
	with := func(f func(*ec2.RegisterImageInput)) *ec2.RegisterImageInput {
		n++
		in := imageOf(fmt.Sprint("image-", n), four)
		f(in)
		return in
	}
	disk := func(f func(*types.EbsBlockDevice)) *ec2.RegisterImageInput {
		return with(func(in *ec2.RegisterImageInput) { f(in.BlockDeviceMappings[0].Ebs) })
	}
	named := func(name string) *ec2.RegisterImageInput {
		return with(func(in *ec2.RegisterImageInput) { in.Name = &name })
	}
	variables := func(store string) *ec2.RegisterImageInput {
		return with(func(in *ec2.RegisterImageInput) { in.BootMode, in.UefiData = types.BootModeValuesUefi, &store })
	}
	tests := []registration{
		{"as it should be", with(func(*ec2.RegisterImageInput) {}), "ok"},
		{"every character of a name", named("aZ09()[] ./-'@_"), "ok"},
		{"a name of 2", named("ab"), "InvalidAMIName.Malformed"},
		{"a name of 128", named(strings.Repeat("n", 128)), "ok"},
		{"a name of 129", named(strings.Repeat("n", 129)), "InvalidAMIName.Malformed"},
		{"a name with a colon", named("a:b:c"), "InvalidAMIName.Malformed"},
		{"a name that is taken", named("taken"), "InvalidAMIName.Duplicate"},
		{"a root that is not mapped", with(func(in *ec2.RegisterImageInput) { in.RootDeviceName = aws.String("/dev/sda1") }), "InvalidBlockDeviceMapping"},
		{"no root", with(func(in *ec2.RegisterImageInput) { in.RootDeviceName = nil }), "InvalidBlockDeviceMapping"},
		{"an empty root", disk(func(d *types.EbsBlockDevice) { d.SnapshotId, d.VolumeSize = nil, aws.Int32(1) }), "InvalidBlockDeviceMapping"},
		{"a device twice", with(func(in *ec2.RegisterImageInput) {
			in.BlockDeviceMappings = append(in.BlockDeviceMappings, in.BlockDeviceMappings...)
		}), "InvalidBlockDeviceMapping"},
		{"a device that is none", with(func(in *ec2.RegisterImageInput) { in.BlockDeviceMappings[0].DeviceName = aws.String("root") }), "InvalidParameterValue"},
		{"the default architecture", with(func(in *ec2.RegisterImageInput) { in.Architecture = "" }), "InvalidParameterValue"},
		{"an architecture that is none", with(func(in *ec2.RegisterImageInput) { in.Architecture = "amd64" }), "InvalidParameterValue"},
		{"arm64", with(func(in *ec2.RegisterImageInput) { in.Architecture = types.ArchitectureValuesArm64 }), "ok"},
		{"arm64 with a BIOS", with(func(in *ec2.RegisterImageInput) {
			in.Architecture, in.BootMode = types.ArchitectureValuesArm64, types.BootModeValuesLegacyBios
		}), "InvalidParameterValue"},
		{"the default virtualization", with(func(in *ec2.RegisterImageInput) { in.VirtualizationType = nil }), "InvalidParameterCombination"},
		{"a boot mode that is none", with(func(in *ec2.RegisterImageInput) { in.BootMode = "efi" }), "InvalidParameterValue"},
		{"IMDSv1", with(func(in *ec2.RegisterImageInput) { in.ImdsSupport = "v1.0" }), "InvalidParameterValue"},
		{"tags for the snapshot", with(func(in *ec2.RegisterImageInput) { in.TagSpecifications[0].ResourceType = types.ResourceTypeSnapshot }), "InvalidParameterValue"},
		{"a tag of AWS", with(func(in *ec2.RegisterImageInput) { in.TagSpecifications[0].Tags[0].Key = aws.String("aws:x") }), "InvalidParameterValue"},
		{"a TPM", with(func(in *ec2.RegisterImageInput) {
			in.BootMode, in.TpmSupport = types.BootModeValuesUefi, types.TpmSupportValuesV20
		}), "ok"},
		{"a TPM that is none", with(func(in *ec2.RegisterImageInput) { in.BootMode, in.TpmSupport = types.BootModeValuesUefi, "v1.2" }), "InvalidParameterValue"},
		{"a TPM without UEFI", with(func(in *ec2.RegisterImageInput) {
			in.BootMode, in.TpmSupport = types.BootModeValuesUefiPreferred, types.TpmSupportValuesV20
		}), "InvalidParameterCombination"},
		{"variables", variables("QU1aTlVFRkmqMQldAAAAAHj5a7fZ9wMAAAAAAQ=="), "ok"},
		{"variables without UEFI", with(func(in *ec2.RegisterImageInput) {
			in.BootMode, in.UefiData = types.BootModeValuesUefiPreferred, aws.String("QU1aTlVFRkmqMQldAAAAAHj5a7fZ9wMAAAAAAQ==")
		}), "InvalidParameterCombination"},
		{"variables that are no base64", variables("QU1aTlVFRkk"), "InvalidParameterValue"},
		{"variables of another kind", variables("QUJDREVGR0mqMQldAAAAAHj5a7fZ9wMAAAAAAQ=="), "InvalidParameterValue"},
		{"variables with a wrong checksum", variables("QU1aTlVFRkmrMQldAAAAAHj5a7fZ9wMAAAAAAQ=="), "InvalidParameterValue"},
		{"what is not modelled", with(func(in *ec2.RegisterImageInput) { in.KernelId = aws.String("aki-1") }), "UnknownParameter"},
	}
	for _, tt := range append(tests, diskRegistrations(disk, pending)...) {
		_, err := s.ec2.RegisterImage(t.Context(), tt.in)
		if got := codeOf(err); got != tt.want {
			t.Errorf("%s: %s, want %s (%v)", tt.name, got, tt.want, err)
		}
	}
}

// diskRegistrations are those that differ by their disk.
func diskRegistrations(disk func(func(*types.EbsBlockDevice)) *ec2.RegisterImageInput, pending string) []registration {
	return []registration{
		{"no snapshot of that name", disk(func(d *types.EbsBlockDevice) { d.SnapshotId = aws.String(absent) }), "InvalidSnapshot.NotFound"},
		{"no snapshot", disk(func(d *types.EbsBlockDevice) { d.SnapshotId = aws.String("snap-x") }), "InvalidParameterValue"},
		{"a pending snapshot", disk(func(d *types.EbsBlockDevice) { d.SnapshotId = &pending }), "IncorrectState"},
		{"a larger disk", disk(func(d *types.EbsBlockDevice) { d.VolumeSize = aws.Int32(5) }), "ok"},
		{"a smaller disk", disk(func(d *types.EbsBlockDevice) { d.VolumeSize = aws.Int32(3) }), "InvalidBlockDeviceMapping"},
		{"encrypted, with a snapshot", disk(func(d *types.EbsBlockDevice) { d.Encrypted = aws.Bool(true) }), "InvalidParameter"},
		{"a key", disk(func(d *types.EbsBlockDevice) { d.KmsKeyId = aws.String("alias/x") }), "InvalidParameter"},
		{"a type that is none", disk(func(d *types.EbsBlockDevice) { d.VolumeType = "gp9" }), "InvalidParameterValue"},
	}
}

func TestImagesAreEventuallyConsistent(t *testing.T) {
	s := newShop(t, Options{EC2: EC2Options{Lag: 2 * time.Second}, EBS: EBSOptions{Register: 5 * time.Second}})
	snapshot := s.publish(t, ebs.StartSnapshotInput{}, nil)
	id := s.register(t, imageOf("late", snapshot))
	state := func() string {
		out, err := s.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{ImageIds: []string{id}})
		if err != nil {
			return codeOf(err)
		}
		return string(out.Images[0].State)
	}
	var seen []string
	for range 9 {
		if now := state(); len(seen) == 0 || seen[len(seen)-1] != now {
			seen = append(seen, now)
		}
		s.pass(time.Second)
	}
	if want := []string{"InvalidAMIID.NotFound", "pending", "available"}; !slices.Equal(seen, want) {
		t.Errorf("a new image is %q", seen)
	}
	if _, err := s.ec2.DeregisterImage(t.Context(), &ec2.DeregisterImageInput{ImageId: &id}); err != nil {
		t.Fatal(err)
	}
	if now := state(); now != "available" {
		t.Errorf("just after it was deregistered it is %s", now)
	}
	s.pass(2 * time.Second)
	if now := state(); now != "InvalidAMIID.NotFound" {
		t.Errorf("later it is %s", now)
	}
}

func TestShareImage(t *testing.T) {
	s := newShop(t, Options{})
	plain := s.register(t, imageOf("plain", s.publish(t, ebs.StartSnapshotInput{}, nil)))
	secret := s.register(t, imageOf("secret", s.publish(t, ebs.StartSnapshotInput{Encrypted: aws.Bool(true)}, nil)))
	organisation, unit := "arn:aws:organizations::111122223333:organization/o-abcdefghij", "arn:aws:organizations::111122223333:ou/o-abcdefghij/ou-abcd-12345678"
	add := func(p ...types.LaunchPermission) *ec2.ModifyImageAttributeInput {
		return &ec2.ModifyImageAttributeInput{ImageId: &plain, LaunchPermission: &types.LaunchPermissionModifications{Add: p}}
	}
	account := func(id string) types.LaunchPermission { return types.LaunchPermission{UserId: &id} }
	tests := []struct {
		name string
		in   *ec2.ModifyImageAttributeInput
		want string
	}{
		{"with an account", add(account("222233334444")), "ok"},
		{"again", add(account("222233334444")), "ok"},
		{"with an organisation and a unit", add(types.LaunchPermission{OrganizationArn: &organisation}, types.LaunchPermission{OrganizationalUnitArn: &unit}), "ok"},
		{"with an account that is none", add(account("2222")), "InvalidAMIAttributeItemValue"},
		{"with an organisation that is none", add(types.LaunchPermission{OrganizationArn: aws.String("o-abcdefghij")}), "InvalidAMIAttributeItemValue"},
		{"with everybody", add(types.LaunchPermission{Group: types.PermissionGroupAll}), "OperationNotPermitted"},
		{"an image with the account's own key", &ec2.ModifyImageAttributeInput{ImageId: &secret, LaunchPermission: add(account("222233334444")).LaunchPermission}, "InvalidParameter"},
		{"no image", &ec2.ModifyImageAttributeInput{ImageId: aws.String("ami-0123456789abcdef0"), LaunchPermission: add(account("222233334444")).LaunchPermission}, "InvalidAMIID.NotFound"},
	}
	for _, tt := range tests {
		_, err := s.ec2.ModifyImageAttribute(t.Context(), tt.in)
		if got := codeOf(err); got != tt.want {
			t.Errorf("%s: %s, want %s (%v)", tt.name, got, tt.want, err)
		}
	}
	out, err := s.ec2.DescribeImageAttribute(t.Context(), &ec2.DescribeImageAttributeInput{ImageId: &plain, Attribute: types.ImageAttributeNameLaunchPermission})
	if err != nil {
		t.Fatal(err)
	}
	var with []string
	for _, p := range out.LaunchPermissions {
		with = append(with, aws.ToString(p.UserId)+aws.ToString(p.OrganizationArn)+aws.ToString(p.OrganizationalUnitArn))
	}
	if want := []string{"222233334444", organisation, unit}; !slices.Equal(with, want) {
		t.Errorf("it is shared with %q", with)
	}
}

func TestTagsOfImages(t *testing.T) {
	s := newShop(t, Options{})
	snapshot := s.publish(t, ebs.StartSnapshotInput{}, nil)
	image := s.register(t, imageOf("tagged", snapshot))
	tag := func(key, value string) types.Tag { return types.Tag{Key: &key, Value: &value} }
	_, err := s.ec2.DeleteTags(t.Context(), &ec2.DeleteTagsInput{Resources: []string{image, absent}, Tags: []types.Tag{{Key: aws.String("Name")}}})
	wantCode(t, err, "InvalidSnapshot.NotFound", "")
	find := func() int {
		out, err := s.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{Filters: []types.Filter{{Name: aws.String("tag:Name"), Values: []string{"tagged"}}}})
		if err != nil {
			t.Fatal(err)
		}
		return len(out.Images)
	}
	for _, step := range []struct {
		tag  types.Tag
		want int
	}{{tag("Name", "other"), 1}, {types.Tag{Key: aws.String("Name")}, 0}} {
		if _, err := s.ec2.DeleteTags(t.Context(), &ec2.DeleteTagsInput{Resources: []string{image}, Tags: []types.Tag{step.tag}}); err != nil {
			t.Fatal(err)
		}
		if n := find(); n != step.want {
			t.Errorf("%d images have the tag, want %d", n, step.want)
		}
	}
	_, err = s.ec2.DescribeSnapshots(t.Context(), &ec2.DescribeSnapshotsInput{SnapshotIds: []string{snapshot}, MaxResults: aws.Int32(5)})
	wantCode(t, err, "InvalidParameterCombination", "The parameter snapshotSet cannot be used with the parameter maxResults")
	_, err = s.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{Filters: []types.Filter{{Name: aws.String("color"), Values: []string{"red"}}}})
	wantCode(t, err, "InvalidParameterValue", "The filter 'color' is invalid")
}
