package awsfake

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/google/go-cmp/cmp"
)

// imageA and imageB are not registered: an account without images accepts any image ID.
const (
	imageA = "ami-0000000000000000a"
	imageB = "ami-0000000000000000b"
)

func encoded(text string) *string { return aws.String(base64.StdEncoding.EncodeToString([]byte(text))) }

// launchRequest is a version of the shape that the stack renders.
func launchRequest(image, userData string) *types.RequestLaunchTemplateData {
	return &types.RequestLaunchTemplateData{
		ImageId: &image, InstanceType: types.InstanceTypeT3Medium, UserData: encoded(userData),
		MetadataOptions: &types.LaunchTemplateInstanceMetadataOptionsRequest{
			HttpTokens: types.LaunchTemplateHttpTokensStateRequired, HttpPutResponseHopLimit: aws.Int32(1), HttpEndpoint: types.LaunchTemplateInstanceMetadataEndpointStateEnabled,
		},
		BlockDeviceMappings: []types.LaunchTemplateBlockDeviceMappingRequest{{
			DeviceName: aws.String("/dev/xvda"),
			Ebs:        &types.LaunchTemplateEbsBlockDeviceRequest{VolumeSize: aws.Int32(8), VolumeType: types.VolumeTypeGp3, Encrypted: aws.Bool(true), DeleteOnTermination: aws.Bool(true)},
		}},
		TagSpecifications: []types.LaunchTemplateTagSpecificationRequest{
			{ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{{Key: aws.String("Role"), Value: aws.String("template")}, {Key: aws.String("Only"), Value: aws.String("here")}}},
			{ResourceType: types.ResourceTypeVolume, Tags: []types.Tag{{Key: aws.String("Role"), Value: aws.String("disk")}}},
		},
	}
}

func (b *bench) createTemplate(t *testing.T, name string, data *types.RequestLaunchTemplateData) string {
	t.Helper()
	out, err := b.ec2.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{LaunchTemplateName: &name, LaunchTemplateData: data})
	if err != nil {
		t.Fatalf("creating launch template %s: %v", name, err)
	}
	return *out.LaunchTemplate.LaunchTemplateId
}

func (b *bench) addVersion(t *testing.T, id string, data *types.RequestLaunchTemplateData) {
	t.Helper()
	if _, err := b.ec2.CreateLaunchTemplateVersion(t.Context(), &ec2.CreateLaunchTemplateVersionInput{LaunchTemplateId: &id, LaunchTemplateData: data}); err != nil {
		t.Fatalf("creating a version of %s: %v", id, err)
	}
}

func (b *bench) templateStory(t *testing.T) (said []string) {
	t.Helper()
	ctx := t.Context()
	id := b.createTemplate(t, "demo-minions", launchRequest(imageA, "one"))
	b.addVersion(t, id, launchRequest(imageB, "two"))
	_, err := b.ec2.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("demo-minions"), LaunchTemplateData: launchRequest(imageA, "one")})
	said = append(said, "again: "+outcome(err))
	list, err := b.ec2.DescribeLaunchTemplates(ctx, &ec2.DescribeLaunchTemplatesInput{})
	if err != nil {
		t.Fatal(err)
	}
	for _, lt := range list.LaunchTemplates {
		said = append(said, fmt.Sprintf("%s default %d latest %d", *lt.LaunchTemplateName, *lt.DefaultVersionNumber, *lt.LatestVersionNumber))
	}
	for _, version := range []string{"1", "2", "$Latest", "$Default"} {
		out, err := b.ec2.DescribeLaunchTemplateVersions(ctx, &ec2.DescribeLaunchTemplateVersionsInput{LaunchTemplateId: &id, Versions: []string{version}})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range out.LaunchTemplateVersions {
			d := v.LaunchTemplateData
			said = append(said, fmt.Sprintf("%s is %d, default %v: %s %s %s disk %s %d tags %d", version, *v.VersionNumber, *v.DefaultVersion, *d.ImageId, d.InstanceType, *d.UserData,
				*d.BlockDeviceMappings[0].DeviceName, *d.BlockDeviceMappings[0].Ebs.VolumeSize, len(d.TagSpecifications)))
		}
	}
	_, err = b.ec2.DescribeLaunchTemplateVersions(ctx, &ec2.DescribeLaunchTemplateVersionsInput{LaunchTemplateId: aws.String("lt-0123456789abcdef0")})
	return append(said, "none: "+outcome(err))
}

func TestLaunchTemplateRefusals(t *testing.T) {
	b := newBench(t, Options{})
	ctx := t.Context()
	for _, tt := range []struct {
		name    string
		change  func(*types.RequestLaunchTemplateData)
		code    string
		message string
	}{
		{"17 KB of user data", func(d *types.RequestLaunchTemplateData) { d.UserData = encoded(strings.Repeat("x", 16<<10+1)) },
			"InvalidUserData.Malformed", "User data is limited to 16384 bytes"},
		{"user data as it is", func(d *types.RequestLaunchTemplateData) { d.UserData = aws.String("#cloud-config") },
			"InvalidUserData.Malformed", "Invalid BASE64 encoding of user data."},
		{"no hop limit of 65", func(d *types.RequestLaunchTemplateData) { d.MetadataOptions.HttpPutResponseHopLimit = aws.Int32(65) },
			"InvalidParameterValue", "Value '65' for HttpPutResponseHopLimit is not valid. Specify a value from 1 to 64."},
		{"tokens of another kind", func(d *types.RequestLaunchTemplateData) { d.MetadataOptions.HttpTokens = "v2" }, "InvalidParameterValue", ""},
		{"no image id", func(d *types.RequestLaunchTemplateData) { d.ImageId = aws.String("debian") }, "InvalidAMIID.Malformed", ""},
		{"a tag of a template", func(d *types.RequestLaunchTemplateData) {
			d.TagSpecifications[0].ResourceType = types.ResourceTypeLaunchTemplate
		},
			"InvalidParameterValue", "'launch-template' is not a valid taggable resource type for this operation."},
		{"a tag of AWS", func(d *types.RequestLaunchTemplateData) { d.TagSpecifications[0].Tags[0].Key = aws.String("aws:x") }, "InvalidParameterValue", ""},
		{"a key for a plain disk", func(d *types.RequestLaunchTemplateData) {
			d.BlockDeviceMappings[0].Ebs.KmsKeyId, d.BlockDeviceMappings[0].Ebs.Encrypted = aws.String("alias/demo"), nil
		}, "InvalidParameterDependency", "The parameter KmsKeyId requires the parameter Encrypted to be set."},
		{"what is not modelled", func(d *types.RequestLaunchTemplateData) { d.KernelId = aws.String("aki-1") },
			"UnknownParameter", "The parameter LaunchTemplateData.KernelId is not recognized"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data := launchRequest(imageA, "x")
			tt.change(data)
			_, err := b.ec2.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("demo"), LaunchTemplateData: data})
			wantCode(t, err, tt.code, tt.message)
		})
	}
	_, err := b.ec2.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("de mo"), LaunchTemplateData: launchRequest(imageA, "")})
	wantCode(t, err, "InvalidLaunchTemplateName.MalformedException", "")
	_, err = b.ec2.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("demo"), LaunchTemplateData: &types.RequestLaunchTemplateData{}})
	wantCode(t, err, "MissingParameter", "")
	_, err = b.ec2.DescribeLaunchTemplateVersions(ctx, &ec2.DescribeLaunchTemplateVersionsInput{})
	wantCode(t, err, "MissingParameter", "")
	if n := len(b.account.EC2().LaunchTemplates()); n != 0 {
		t.Errorf("%d templates were made by calls that were refused", n)
	}
}

// templateGroup makes a group that launches from a template's version.
func (b *bench) templateGroup(t *testing.T, name, id, version string, desired int32) {
	t.Helper()
	_, err := b.autoscaling.CreateAutoScalingGroup(t.Context(), &autoscaling.CreateAutoScalingGroupInput{
		AutoScalingGroupName: &name, MinSize: aws.Int32(0), MaxSize: aws.Int32(10), DesiredCapacity: &desired, AvailabilityZones: []string{"us-west-2a"},
		LaunchTemplate: &astypes.LaunchTemplateSpecification{LaunchTemplateId: &id, Version: &version},
		Tags:           []astypes.Tag{{Key: aws.String("Role"), Value: aws.String("group"), PropagateAtLaunch: aws.Bool(true)}},
	})
	if err != nil {
		t.Fatalf("creating group %s: %v", name, err)
	}
}

func TestGroupLaunchesFromTemplate(t *testing.T) {
	b := newBench(t, Options{})
	ctx := t.Context()
	data := launchRequest("resolve:ssm:/hardtack/stable/image-id", "#cloud-config")
	data.IamInstanceProfile = &types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: aws.String("demo-minions")}
	b.account.identities.profiles["demo-minions"] = "minions"
	_, err := b.ssm.PutParameter(ctx, &ssm.PutParameterInput{Name: aws.String("/hardtack/stable/image-id"), Value: aws.String(imageA), Type: ssmtypes.ParameterTypeString})
	if err != nil {
		t.Fatal(err)
	}
	id := b.createTemplate(t, "demo", data)
	b.templateGroup(t, "m", id, "$Latest", 1)
	b.pass(0)
	g := b.describe(t, "m")
	if *g.LaunchTemplate.Version != "$Latest" || *g.Instances[0].LaunchTemplate.Version != "1" || *g.Instances[0].LaunchTemplate.LaunchTemplateId != id {
		t.Errorf("the group launches from %+v, its instance from %+v", *g.LaunchTemplate, *g.Instances[0].LaunchTemplate)
	}
	m, _ := b.account.EC2().Machine(*g.Instances[0].InstanceId)
	if m.Image != imageA || m.Role != "minions" || m.UserData != "#cloud-config" || m.Type != "t3.medium" {
		t.Errorf("the machine is %+v", m)
	}
	want := map[string]string{"Role": "group", "Only": "here", "aws:autoscaling:groupName": "m", "aws:ec2launchtemplate:id": id, "aws:ec2launchtemplate:version": "1"}
	if diff := cmp.Diff(want, m.Tags); diff != "" {
		t.Errorf("its tags (-want +got):\n%s", diff)
	}
	shown, err := b.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: []types.Filter{where("image-id", imageA)}})
	if err != nil || shown.Reservations[0].Instances[0].MetadataOptions.HttpTokens != types.HttpTokensStateRequired {
		t.Errorf("describing the machines with the image: %+v, %v", shown, err)
	}
	// A new version and a new image are for new machines; a default version is not the latest.
	newer := *data
	newer.UserData = encoded("two")
	b.addVersion(t, id, &newer)
	if _, err := b.account.SSM().Put(Parameter{Name: "/hardtack/stable/image-id", Value: imageB}, true); err != nil {
		t.Fatal(err)
	}
	b.templateGroup(t, "d", id, "$Default", 1)
	if err := b.account.AutoScaling().SetDesired("m", 2); err != nil {
		t.Fatal(err)
	}
	b.pass(0)
	for group, text := range map[string]string{"m": "two", "d": "#cloud-config"} {
		list := b.account.AutoScaling().Instances(group)
		if m, _ := b.account.EC2().Machine(list[len(list)-1].ID); m.Image != imageB || m.UserData != text {
			t.Errorf("the last machine of %s is %+v", group, m)
		}
	}
}

func TestGroupsRefuseTemplates(t *testing.T) {
	b := newBench(t, Options{})
	b.account.EC2().AddSubnet(Subnet{ID: "subnet-1", VPC: "vpc-1", Zone: "us-west-2a"})
	bare := b.createTemplate(t, "bare", &types.RequestLaunchTemplateData{InstanceType: types.InstanceTypeT3Medium})
	strange := launchRequest(imageA, "")
	strange.SecurityGroupIds = []string{"sg-0123456789abcdef0"}
	for _, tt := range []struct {
		name, template, version, subnet, message string
	}{
		{"none at all", "lt-0123456789abcdef0", "1", "subnet-1", "You must use a valid fully-formed launch template. The specified launch template, with template ID lt-0123456789abcdef0, does not exist."},
		{"no such version", bare, "2", "subnet-1", "You must use a valid fully-formed launch template. Could not find the specified version 2 for the launch template with ID " + bare + "."},
		{"no image", bare, "1", "subnet-1", "You must use a valid fully-formed launch template. The request must contain the parameter ImageId"},
		{"a group that is not there", b.createTemplate(t, "strange", strange), "1", "subnet-1", "You must use a valid fully-formed launch template. The security group 'sg-0123456789abcdef0' does not exist"},
		{"a subnet that is not there", b.createTemplate(t, "good", launchRequest(imageA, "")), "1", "subnet-2", "The subnet ID 'subnet-2' does not exist"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := b.autoscaling.CreateAutoScalingGroup(t.Context(), &autoscaling.CreateAutoScalingGroupInput{
				AutoScalingGroupName: aws.String("m"), MinSize: aws.Int32(0), MaxSize: aws.Int32(1), VPCZoneIdentifier: &tt.subnet,
				LaunchTemplate: &astypes.LaunchTemplateSpecification{LaunchTemplateId: &tt.template, Version: &tt.version},
			})
			wantCode(t, err, "ValidationError", tt.message)
		})
	}
	_, err := b.autoscaling.CreateAutoScalingGroup(t.Context(), &autoscaling.CreateAutoScalingGroupInput{AutoScalingGroupName: aws.String("m"), MinSize: aws.Int32(0), MaxSize: aws.Int32(1)})
	wantCode(t, err, "ValidationError", "Valid requests must contain either LaunchTemplate, LaunchConfigurationName, InstanceId or MixedInstancesPolicy parameter.")
}

// TestGroupNeedsRunInstances: who has a group launch from a template must be allowed to run instances on all that these come with, and to
// tag what the template tags. Another change of the group needs none of it.
func TestGroupNeedsRunInstances(t *testing.T) {
	b := newBench(t, Options{})
	b.account.EC2().AddSubnet(Subnet{ID: "subnet-1", VPC: "vpc-1", Zone: "us-west-2a"})
	b.account.EC2().AddSubnet(Subnet{ID: "subnet-2", VPC: "vpc-1", Zone: "us-west-2b"})
	data := launchRequest(imageA, "")
	data.TagSpecifications = append(data.TagSpecifications, types.LaunchTemplateTagSpecificationRequest{ResourceType: types.ResourceTypeNetworkInterface, Tags: []types.Tag{{Key: aws.String("Role"), Value: aws.String("a")}}})
	id := b.createTemplate(t, "demo", data)
	b.templateGroup(t, "m", id, "1", 0)
	const ours = "arn:aws:ec2:us-west-2:" + owner + ":"
	run := Policy{{Actions: []string{"autoscaling:*"}, Resources: []string{"*"}}}
	for _, arn := range []string{ours + "instance/*", ours + "network-interface/*", ours + "volume/*", ours + "security-group/*", ours + "subnet/subnet-1", ours + "subnet/subnet-2", ours + "launch-template/" + id, "arn:aws:ec2:us-west-2::image/" + imageA} {
		run = append(run, Statement{Actions: []string{"ec2:RunInstances"}, Resources: []string{arn}})
	}
	for _, kind := range []string{"instance", "network-interface", "volume"} {
		run = append(run, Statement{Actions: []string{"ec2:CreateTags"}, Resources: []string{ours + kind + "/*"}, Conditions: []Condition{{Operator: "StringEquals", Key: "ec2:CreateAction", Patterns: []string{"RunInstances"}}}})
	}
	specification := astypes.LaunchTemplateSpecification{LaunchTemplateId: &id, Version: aws.String("1")}
	plain := &autoscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: aws.String("m"), LaunchTemplate: &specification, VPCZoneIdentifier: aws.String("subnet-1, subnet-2"), AvailabilityZones: []string{"us-west-2a", "us-west-2b"}}
	mixed := *plain
	mixed.LaunchTemplate, mixed.MixedInstancesPolicy = nil, &astypes.MixedInstancesPolicy{LaunchTemplate: &astypes.LaunchTemplate{LaunchTemplateSpecification: &specification}}
	for _, in := range []*autoscaling.UpdateAutoScalingGroupInput{plain, &mixed} {
		for i := 1; i < len(run); i++ {
			b.account.SetPolicy("AKIDEXAMPLE", slices.Delete(slices.Clone(run), i, i+1))
			if _, err := b.autoscaling.UpdateAutoScalingGroup(t.Context(), in); err == nil {
				t.Errorf("without %v of %v it is allowed", run[i].Actions, run[i].Resources)
			} else {
				wantCode(t, err, "AccessDenied", "You are not authorized to use launch template: "+id)
			}
		}
		b.account.SetPolicy("AKIDEXAMPLE", run)
		if _, err := b.autoscaling.UpdateAutoScalingGroup(t.Context(), in); err != nil {
			t.Error(err)
		}
	}
	b.account.SetPolicy("AKIDEXAMPLE", run[:1])
	if _, err := b.autoscaling.UpdateAutoScalingGroup(t.Context(), &autoscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: aws.String("m"), MaxSize: aws.Int32(3)}); err != nil {
		t.Error(err)
	}
}

// TestTagsInMetadata launches machines whose metadata are to show their tags: one with a key that has a slash is refused, as
// every group that cluster-autoscaler scales has found out.
func TestTagsInMetadata(t *testing.T) {
	account := New(Options{})
	for key, ok := range map[string]bool{"Role": true, "aws:autoscaling:groupName": true, "k8s.io/cluster-autoscaler/enabled": false, "a b": false, "_index": false} {
		for _, show := range []string{"", "disabled", "enabled"} {
			_, err := account.EC2().Run(Machine{Zone: "us-west-2a", Type: "t3.medium", Tags: map[string]string{key: "x"}, Launch: &LaunchData{Metadata: &MetadataOptions{Tags: show}}})
			if want := ok || show != "enabled"; (err == nil) != want {
				t.Errorf("tag %q, shown %q: %v", key, show, err)
			}
		}
	}
}

// LaunchTemplates lists the account's launch templates, in the order of their creation.
func (e *EC2) LaunchTemplates() (list []LaunchTemplate) {
	e.account.locked(func() {
		for _, t := range e.templates {
			copied := *t
			copied.Versions, copied.Tags = slices.Clone(t.Versions), maps.Clone(t.Tags)
			list = append(list, copied)
		}
	})
	return list
}
