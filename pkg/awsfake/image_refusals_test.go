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
	s.account.Images().AddForeign("999999999999", "foreign")
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
	tests := []registration{
		{"as it should be", with(func(*ec2.RegisterImageInput) {}), "ok"},
		{"every character of a name", named("aZ09()[] ./-'@_"), "ok"},
		{"a name of 2", named("ab"), "InvalidAMIName.Malformed"},
		{"a name of 128", named(strings.Repeat("n", 128)), "ok"},
		{"a name of 129", named(strings.Repeat("n", 129)), "InvalidAMIName.Malformed"},
		{"a name with a colon", named("a:b:c"), "InvalidAMIName.Malformed"},
		{"a name that is taken", named("taken"), "InvalidAMIName.Duplicate"},
		{"the name of another account's image", named("foreign"), "ok"},
		{"a root that is not mapped", with(func(in *ec2.RegisterImageInput) { in.RootDeviceName = aws.String("/dev/sda1") }), "InvalidBlockDeviceMapping"},
		{"no root", with(func(in *ec2.RegisterImageInput) { in.RootDeviceName = nil }), "InvalidBlockDeviceMapping"},
		{"an empty root", disk(func(d *types.EbsBlockDevice) { d.SnapshotId, d.VolumeSize = nil, aws.Int32(1) }), "InvalidBlockDeviceMapping"},
		{"a device twice", with(func(in *ec2.RegisterImageInput) {
			in.BlockDeviceMappings = append(in.BlockDeviceMappings, in.BlockDeviceMappings...)
		}), "InvalidBlockDeviceMapping"},
		{"a device that is none", with(func(in *ec2.RegisterImageInput) { in.BlockDeviceMappings[0].DeviceName = aws.String("root") }), "InvalidParameterValue"},
		{"the default architecture", with(func(in *ec2.RegisterImageInput) { in.Architecture = "" }), "InvalidParameterCombination"},
		{"an architecture that is none", with(func(in *ec2.RegisterImageInput) { in.Architecture = "amd64" }), "InvalidParameterValue"},
		{"arm64", with(func(in *ec2.RegisterImageInput) { in.Architecture = types.ArchitectureValuesArm64 }), "ok"},
		{"arm64 with a BIOS", with(func(in *ec2.RegisterImageInput) {
			in.Architecture, in.BootMode = types.ArchitectureValuesArm64, types.BootModeValuesLegacyBios
		}), "InvalidParameterCombination"},
		{"the default virtualization", with(func(in *ec2.RegisterImageInput) { in.VirtualizationType = nil }), "InvalidParameterCombination"},
		{"a boot mode that is none", with(func(in *ec2.RegisterImageInput) { in.BootMode = "efi" }), "InvalidParameterValue"},
		{"IMDSv1", with(func(in *ec2.RegisterImageInput) { in.ImdsSupport = "v1.0" }), "InvalidParameterValue"},
		{"a TPM", with(func(in *ec2.RegisterImageInput) { in.TpmSupport = types.TpmSupportValuesV20 }), "ok"},
		{"a TPM without UEFI", with(func(in *ec2.RegisterImageInput) { in.TpmSupport, in.BootMode = types.TpmSupportValuesV20, "" }), "InvalidParameterCombination"},
		{"tags for the snapshot", with(func(in *ec2.RegisterImageInput) { in.TagSpecifications[0].ResourceType = types.ResourceTypeSnapshot }), "InvalidParameterValue"},
		{"a tag of AWS", with(func(in *ec2.RegisterImageInput) { in.TagSpecifications[0].Tags[0].Key = aws.String("aws:x") }), "InvalidParameterValue"},
		{"only tried", with(func(in *ec2.RegisterImageInput) { in.DryRun = aws.Bool(true) }), "DryRunOperation"},
		{"what is not modelled", with(func(in *ec2.RegisterImageInput) { in.UefiData = aws.String("AA==") }), "UnknownParameter"},
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
		{"encrypted, with a snapshot", disk(func(d *types.EbsBlockDevice) { d.Encrypted = aws.Bool(true) }), "InvalidParameterCombination"},
		{"a key", disk(func(d *types.EbsBlockDevice) { d.KmsKeyId = aws.String("alias/x") }), "InvalidParameter"},
		{"gp3 with 3000 IOPS and 125 MiB/s", disk(func(d *types.EbsBlockDevice) { d.Iops, d.Throughput = aws.Int32(3000), aws.Int32(125) }), "ok"},
		{"gp3 with fewer", disk(func(d *types.EbsBlockDevice) { d.Iops = aws.Int32(2999) }), "InvalidParameterValue"},
		{"gp3 with too much throughput", disk(func(d *types.EbsBlockDevice) { d.Throughput = aws.Int32(2001) }), "InvalidParameterValue"},
		{"gp2 with IOPS", disk(func(d *types.EbsBlockDevice) { d.VolumeType, d.Iops = types.VolumeTypeGp2, aws.Int32(3000) }), "InvalidParameterCombination"},
		{"gp2 with throughput", disk(func(d *types.EbsBlockDevice) { d.VolumeType, d.Throughput = types.VolumeTypeGp2, aws.Int32(125) }), "InvalidParameterCombination"},
		{"io2 without IOPS", disk(func(d *types.EbsBlockDevice) { d.VolumeType = types.VolumeTypeIo2 }), "MissingParameter"},
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

func TestDeregisterWithSnapshots(t *testing.T) {
	s := newShop(t, Options{})
	shared := s.publish(t, ebs.StartSnapshotInput{}, nil)
	alone := s.publish(t, ebs.StartSnapshotInput{}, map[int][]byte{0: blockOf("x")})
	in := imageOf("both", shared)
	in.BlockDeviceMappings = append(in.BlockDeviceMappings, types.BlockDeviceMapping{DeviceName: aws.String("/dev/xvdb"), Ebs: &types.EbsBlockDevice{SnapshotId: &alone}})
	both := s.register(t, in)
	s.register(t, imageOf("other", shared))
	out, err := s.ec2.DeregisterImage(t.Context(), &ec2.DeregisterImageInput{ImageId: &both, DeleteAssociatedSnapshots: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	var results []string
	for _, r := range out.DeleteSnapshotResults {
		results = append(results, *r.SnapshotId+" "+string(r.ReturnCode))
	}
	if want := []string{shared + " skipped", alone + " success"}; !slices.Equal(results, want) {
		t.Errorf("%q, want %q", results, want)
	}
	if n, _ := s.account.Kept(); n != 0 || len(s.account.Images().Snapshots()) != 1 {
		t.Errorf("%d blocks are kept, there are the snapshots %+v", n, s.account.Images().Snapshots())
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
		{"nothing", &ec2.ModifyImageAttributeInput{ImageId: &plain}, "InvalidParameterCombination"},
		{"two attributes", &ec2.ModifyImageAttributeInput{ImageId: &plain, Description: &types.AttributeValue{Value: aws.String("x")}, ImdsSupport: &types.AttributeValue{Value: aws.String("v2.0")}}, "InvalidParameterCombination"},
		{"a description", &ec2.ModifyImageAttributeInput{ImageId: &plain, Description: &types.AttributeValue{Value: aws.String("new")}}, "ok"},
		{"without IMDSv2", &ec2.ModifyImageAttributeInput{ImageId: &plain, ImdsSupport: &types.AttributeValue{Value: aws.String("v1.0")}}, "InvalidParameterValue"},
		{"by the attribute", &ec2.ModifyImageAttributeInput{ImageId: &plain, Attribute: aws.String("launchPermission"), OperationType: types.OperationTypeAdd, UserIds: []string{"333344445555"}}, "ok"},
		{"an image with the account's own key", &ec2.ModifyImageAttributeInput{ImageId: &secret, LaunchPermission: add(account("222233334444")).LaunchPermission}, "InvalidParameter"},
		{"no image", &ec2.ModifyImageAttributeInput{ImageId: aws.String("ami-0123456789abcdef0"), LaunchPermission: add(account("222233334444")).LaunchPermission}, "InvalidAMIID.NotFound"},
		{"and taking it back", &ec2.ModifyImageAttributeInput{ImageId: &plain, LaunchPermission: &types.LaunchPermissionModifications{Remove: []types.LaunchPermission{account("333344445555"), account("444455556666")}}}, "ok"},
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
	executable, err := s.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{ExecutableUsers: []string{"222233334444"}})
	if err != nil || len(executable.Images) != 1 || *executable.Images[0].Description != "new" {
		t.Errorf("the account can launch %+v, %v", executable.Images, err)
	}
	if _, err := s.ec2.ResetImageAttribute(t.Context(), &ec2.ResetImageAttributeInput{ImageId: &plain, Attribute: types.ResetImageAttributeNameLaunchPermission}); err != nil {
		t.Fatal(err)
	}
	if i, _ := s.account.Images().Image(plain); len(i.Shared) != 0 {
		t.Errorf("after the reset: %+v", i.Shared)
	}
}

func TestShareSnapshot(t *testing.T) {
	s := newShop(t, Options{})
	id := s.publish(t, ebs.StartSnapshotInput{}, nil)
	modify := func(add, remove []types.CreateVolumePermission) error {
		_, err := s.ec2.ModifySnapshotAttribute(t.Context(), &ec2.ModifySnapshotAttributeInput{
			SnapshotId: &id, Attribute: types.SnapshotAttributeNameCreateVolumePermission, CreateVolumePermission: &types.CreateVolumePermissionModifications{Add: add, Remove: remove}})
		return err
	}
	one, two := types.CreateVolumePermission{UserId: aws.String("222233334444")}, types.CreateVolumePermission{UserId: aws.String("333344445555")}
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"two":        {modify([]types.CreateVolumePermission{one, two}, nil), "ok"},
		"in and out": {modify([]types.CreateVolumePermission{one}, []types.CreateVolumePermission{two}), "InvalidParameterCombination"},
		"everybody":  {modify([]types.CreateVolumePermission{{Group: types.PermissionGroupAll}}, nil), "OperationNotPermitted"},
		"nobody":     {modify([]types.CreateVolumePermission{{UserId: aws.String("2")}}, nil), "InvalidParameterValue"},
	} {
		if got := codeOf(tt.err); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	if err := modify(nil, []types.CreateVolumePermission{one}); err != nil {
		t.Fatal(err)
	}
	out, err := s.ec2.DescribeSnapshotAttribute(t.Context(), &ec2.DescribeSnapshotAttributeInput{SnapshotId: &id, Attribute: types.SnapshotAttributeNameCreateVolumePermission})
	if err != nil || len(out.CreateVolumePermissions) != 1 || *out.CreateVolumePermissions[0].UserId != "333344445555" {
		t.Errorf("%+v, %v", out, err)
	}
}

// TestForeignImages: whoever looks for an image by its name alone finds those of others too.
func TestForeignImages(t *testing.T) {
	s := newShop(t, Options{})
	mine := s.register(t, imageOf("hardtack", s.publish(t, ebs.StartSnapshotInput{}, nil)))
	theirs := s.account.Images().AddForeign("999999999999", "hardtack")
	find := func(owners ...string) (ids []string) {
		out, err := s.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{Owners: owners, Filters: []types.Filter{{Name: aws.String("name"), Values: []string{"hardtack"}}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range out.Images {
			ids = append(ids, *i.ImageId)
		}
		return ids
	}
	if got := find(); !slices.Equal(got, []string{mine, theirs.ID}) {
		t.Errorf("without an owner: %q", got)
	}
	if got := find("self"); !slices.Equal(got, []string{mine}) {
		t.Errorf("of its own: %q", got)
	}
	_, err := s.ec2.DeregisterImage(t.Context(), &ec2.DeregisterImageInput{ImageId: &theirs.ID})
	wantCode(t, err, "AuthFailure", "")
}

func TestTagsOfImages(t *testing.T) {
	s := newShop(t, Options{})
	snapshot := s.publish(t, ebs.StartSnapshotInput{}, nil)
	image := s.register(t, imageOf("tagged", snapshot))
	machine, err := s.account.EC2().Run(Machine{Image: image, Zone: "us-west-2a"})
	if err != nil {
		t.Fatal(err)
	}
	tag := func(key, value string) []types.Tag { return []types.Tag{{Key: &key, Value: &value}} }
	_, err = s.ec2.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{image, absent, machine.ID}, Tags: tag("a", "1")})
	wantCode(t, err, "InvalidSnapshot.NotFound", "")
	if i, _ := s.account.Images().Image(image); i.Tags["a"] != "" {
		t.Errorf("a refused call tagged %+v", i.Tags)
	}
	_, err = s.ec2.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{image, snapshot, machine.ID}, Tags: append(tag("a", "1"), tag("b", "2")...)})
	if err != nil {
		t.Fatal(err)
	}
	if m, _ := s.account.EC2().Machine(machine.ID); m.Tags["a"] != "1" {
		t.Errorf("the machine has the tags %v", m.Tags)
	}
	if _, err := s.ec2.DeleteTags(t.Context(), &ec2.DeleteTagsInput{Resources: []string{image}, Tags: append(tag("a", "other"), types.Tag{Key: aws.String("b")})}); err != nil {
		t.Fatal(err)
	}
	if i, _ := s.account.Images().Image(image); fmt.Sprint(i.Tags) != "map[Name:tagged a:1]" {
		t.Errorf("the image has the tags %v", i.Tags)
	}
	out, err := s.ec2.DescribeSnapshots(t.Context(), &ec2.DescribeSnapshotsInput{Filters: []types.Filter{{Name: aws.String("tag:b"), Values: []string{"2"}}}})
	if err != nil || len(out.Snapshots) != 1 || len(out.Snapshots[0].Tags) != 2 {
		t.Errorf("by its tag: %+v, %v", out, err)
	}
	_, err = s.ec2.DescribeSnapshots(t.Context(), &ec2.DescribeSnapshotsInput{SnapshotIds: []string{snapshot}, MaxResults: aws.Int32(5)})
	wantCode(t, err, "InvalidParameterCombination", "The parameter snapshotSet cannot be used with the parameter maxResults")
	_, err = s.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{Filters: []types.Filter{{Name: aws.String("color"), Values: []string{"red"}}}})
	wantCode(t, err, "InvalidParameterValue", "The filter 'color' is invalid")
}
