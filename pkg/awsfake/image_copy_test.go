package awsfake

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ebs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

const awayRegion = "eu-central-1"

func anyone() Credentials { return Credentials{AccessKey: "AKIDEXAMPLE", Secret: "secret"} }

func TestCopyImage(t *testing.T) {
	s := newShop(t, Options{Regions: []string{awayRegion}, EBS: EBSOptions{Copy: time.Minute}})
	away := s.in(awayRegion, anyone())
	blocks := map[int][]byte{0: blockOf("boot"), 2000: blockOf("end")}
	snapshot := s.publish(t, ebs.StartSnapshotInput{Description: aws.String("disk")}, blocks)
	image := s.register(t, imageOf("hardtack", snapshot))
	in := ec2.CopyImageInput{
		Name: aws.String("hardtack"), SourceImageId: &image, SourceRegion: aws.String(HomeRegion), ClientToken: aws.String("once"),
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeImage, Tags: []types.Tag{{Key: aws.String("Name"), Value: aws.String("hardtack")}}}, {ResourceType: types.ResourceTypeSnapshot, Tags: []types.Tag{{Key: aws.String("of"), Value: aws.String("a copy")}}}},
	}
	id := away.copyTwice(t, in)
	state := func() (types.ImageState, types.SnapshotState, string) {
		images, err := away.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{ImageIds: []string{id}})
		if err != nil {
			t.Fatal(err)
		}
		snapshots, err := away.ec2.DescribeSnapshots(t.Context(), &ec2.DescribeSnapshotsInput{})
		if err != nil || len(snapshots.Snapshots) != 1 {
			t.Fatalf("%+v, %v", snapshots, err)
		}
		return images.Images[0].State, snapshots.Snapshots[0].State, *images.Images[0].BlockDeviceMappings[0].Ebs.SnapshotId
	}
	if is, disk, _ := state(); is != types.ImageStatePending || disk != types.SnapshotStatePending {
		t.Errorf("just started, it is %s and %s", is, disk)
	}
	s.pass(time.Minute)
	is, disk, copied := state()
	if is != types.ImageStateAvailable || disk != types.SnapshotStateCompleted {
		t.Errorf("a minute later it is %s and %s", is, disk)
	}
	got := away.read(t, copied)
	if !slices.Equal(sortedKeys(got), []int{0, 2000}) || !bytes.Equal(got[2000], blocks[2000]) {
		t.Errorf("the copy has the blocks %v", sortedKeys(got))
	}
	i, _ := s.account.ImagesIn(awayRegion).Image(id)
	if i.Source != (Origin{image, HomeRegion}) || i.Tags["Name"] != "hardtack" || i.Firmware.BootMode != "uefi" {
		t.Errorf("the copy is %+v", i)
	}
	if snap, _ := s.account.ImagesIn(awayRegion).Snapshot(copied); !strings.HasPrefix(snap.Description, "Copied for DestinationAmi "+id) || snap.Tags["of"] != "a copy" {
		t.Errorf("its snapshot is %+v", snap)
	}
	if _, err := s.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{ImageIds: []string{id}}); codeOf(err) != "InvalidAMIID.NotFound" {
		t.Errorf("at home the copy is: %v", err)
	}
	_, err := s.ebs.ListSnapshotBlocks(t.Context(), &ebs.ListSnapshotBlocksInput{SnapshotId: &copied})
	wantSaid(t, "reading the copy at home", err, "ResourceNotFoundException SNAPSHOT_NOT_FOUND")
}

// copyTwice makes a call with a client token twice, which makes one copy, and another one with the same token.
func (s *shop) copyTwice(t *testing.T, in ec2.CopyImageInput) string {
	t.Helper()
	copies := map[string]bool{}
	for range 2 {
		out, err := s.ec2.CopyImage(t.Context(), &in)
		if err != nil {
			t.Fatal(err)
		}
		copies[*out.ImageId] = true
	}
	if len(copies) != 1 {
		t.Errorf("one token made %v", copies)
	}
	in.Description = aws.String("another call")
	_, err := s.ec2.CopyImage(t.Context(), &in)
	wantCode(t, err, "IdempotentParameterMismatch", "")
	return sortedKeys(copies)[0]
}

func TestCopyRefusals(t *testing.T) {
	s := newShop(t, Options{Regions: []string{awayRegion}})
	away := s.in(awayRegion, anyone())
	s.account.SSMIn(awayRegion).AddKey("alias/there")
	image := s.register(t, imageOf("hardtack", s.publish(t, ebs.StartSnapshotInput{}, nil)))
	secret := s.register(t, imageOf("secret", s.publish(t, ebs.StartSnapshotInput{Encrypted: aws.Bool(true)}, nil)))
	gone := s.register(t, imageOf("gone", s.publish(t, ebs.StartSnapshotInput{}, nil)))
	if _, err := s.ec2.DeregisterImage(t.Context(), &ec2.DeregisterImageInput{ImageId: &gone}); err != nil {
		t.Fatal(err)
	}
	from := func(name, image string, f func(*ec2.CopyImageInput)) *ec2.CopyImageInput {
		in := &ec2.CopyImageInput{Name: &name, SourceImageId: &image, SourceRegion: aws.String(HomeRegion)}
		f(in)
		return in
	}
	tests := []struct {
		name string
		in   *ec2.CopyImageInput
		want string
	}{
		{"plain", from("plain", image, func(*ec2.CopyImageInput) {}), "ok"},
		{"the name again", from("plain", image, func(*ec2.CopyImageInput) {}), "InvalidAMIName.Duplicate"},
		{"no such image", from("nr1", "ami-0123456789abcdef0", func(*ec2.CopyImageInput) {}), "InvalidAMIID.NotFound"},
		{"one that is gone", from("nr2", gone, func(*ec2.CopyImageInput) {}), "InvalidAMIID.Unavailable"},
		{"no such region", from("nr3", image, func(in *ec2.CopyImageInput) { in.SourceRegion = aws.String("mars-1") }), "InvalidParameterValue"},
		{"encrypted", from("nr4", image, func(in *ec2.CopyImageInput) { in.Encrypted, in.KmsKeyId = aws.Bool(true), aws.String("alias/there") }), "ok"},
		{"a key alone", from("nr5", image, func(in *ec2.CopyImageInput) { in.KmsKeyId = aws.String("alias/there") }), "InvalidParameterCombination"},
		{"no longer encrypted", from("nr6", secret, func(in *ec2.CopyImageInput) { in.Encrypted = aws.Bool(false) }), "InvalidParameterCombination"},
		{"encrypted as before", from("nr7", secret, func(*ec2.CopyImageInput) {}), "ok"},
		{"with a key that is not there", from("nr8", image, func(in *ec2.CopyImageInput) { in.Encrypted, in.KmsKeyId = aws.Bool(true), aws.String("alias/here") }), "ok"},
	}
	for _, tt := range tests {
		_, err := away.ec2.CopyImage(t.Context(), tt.in)
		if got := codeOf(err); got != tt.want {
			t.Errorf("%s: %s, want %s (%v)", tt.name, got, tt.want, err)
		}
	}
	out, err := away.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{Owners: []string{"self"}})
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, i := range out.Images {
		line := *i.Name + " " + string(i.State)
		if *i.BlockDeviceMappings[0].Ebs.Encrypted {
			line += " encrypted"
		}
		said = append(said, line)
	}
	if want := []string{"plain available", "nr4 available encrypted", "nr7 available encrypted", "nr8 failed encrypted"}; !slices.Equal(said, want) {
		t.Errorf("%q, want %q", said, want)
	}
}
