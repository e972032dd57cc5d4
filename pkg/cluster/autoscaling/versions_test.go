package autoscaling_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
)

// read is a group as it is read, by its name in the document. It must have been read.
func (w *world) read(key string) rollout.Group {
	w.t.Helper()
	s, err := w.cluster.Read(w.t.Context())
	assert.NilError(w.t, err)
	for _, g := range s.Groups {
		if g.Key == key {
			return g
		}
	}
	w.t.Fatalf("%s was not read: %+v", key, s.Unread)
	return rollout.Group{}
}

// version makes a version of a launch template.
func (w *world) version(template, description string, data *types.RequestLaunchTemplateData) {
	w.t.Helper()
	_, err := w.cluster.Machines.CreateLaunchTemplateVersion(w.t.Context(), &ec2.CreateLaunchTemplateVersionInput{
		LaunchTemplateId: &template, VersionDescription: &description, LaunchTemplateData: data,
	})
	assert.NilError(w.t, err)
}

// prefer makes a version of a launch template the default.
func (w *world) prefer(template, version string) {
	w.t.Helper()
	_, err := w.cluster.Machines.ModifyLaunchTemplate(w.t.Context(), &ec2.ModifyLaunchTemplateInput{LaunchTemplateId: &template, DefaultVersion: &version})
	assert.NilError(w.t, err)
}

// drop deletes a version of a launch template, after another one was made the default.
func (w *world) drop(template, version, standard string) {
	w.t.Helper()
	w.prefer(template, standard)
	out, err := w.cluster.Machines.DeleteLaunchTemplateVersions(w.t.Context(), &ec2.DeleteLaunchTemplateVersionsInput{LaunchTemplateId: &template, Versions: []string{version}})
	assert.NilError(w.t, err)
	assert.Equal(w.t, len(out.SuccessfullyDeletedLaunchTemplateVersions), 1)
}

// launches points a group at a version of its template, as a person could.
func (w *world) launches(group, template, version string) {
	w.t.Helper()
	_, err := w.scaling.UpdateAutoScalingGroup(w.t.Context(), &sdk.UpdateAutoScalingGroupInput{
		AutoScalingGroupName: &group, LaunchTemplate: &astypes.LaunchTemplateSpecification{LaunchTemplateId: &template, Version: &version},
	})
	assert.NilError(w.t, err)
}

// What decides how a machine is made is told apart, each part by its name, and what does not is ignored. The configuration is that of the
// description where the stack has written it there, and of the user data elsewhere.
func TestVersionsDiffer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "default")
	template := w.read("minions").Template
	for name, tt := range map[string]struct {
		description string // of the other one
		change      func(*types.RequestLaunchTemplateData)
		want        string
	}{
		"nothing":             {"sha256:1", func(*types.RequestLaunchTemplateData) {}, ""},
		"image":               {"sha256:1", func(d *types.RequestLaunchTemplateData) { d.ImageId = aws.String(imageB) }, "image"},
		"type":                {"sha256:1", func(d *types.RequestLaunchTemplateData) { d.InstanceType = "m7i.large" }, "instance type"},
		"configuration":       {"sha256:2", func(*types.RequestLaunchTemplateData) {}, "configuration"},
		"encoding of it":      {"sha256:1", func(d *types.RequestLaunchTemplateData) { d.UserData = userData("b") }, ""},
		"another's user data": {"mine", func(d *types.RequestLaunchTemplateData) { d.UserData = userData("b") }, "configuration"},
		"tags": {"sha256:1", func(d *types.RequestLaunchTemplateData) {
			d.TagSpecifications = []types.LaunchTemplateTagSpecificationRequest{{ResourceType: "instance", Tags: []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}}}}
		}, ""},
		"disk": {"sha256:1", func(d *types.RequestLaunchTemplateData) {
			d.BlockDeviceMappings = []types.LaunchTemplateBlockDeviceMappingRequest{{DeviceName: aws.String("/dev/xvda"), Ebs: &types.LaunchTemplateEbsBlockDeviceRequest{VolumeSize: aws.Int32(99)}}}
		}, "disk, network or profile"},
	} {
		t.Run(name, func(t *testing.T) {
			first := "sha256:1"
			if tt.description == "mine" {
				first = "mine" // two of somebody's own: only their user data tell them apart
			}
			one := types.RequestLaunchTemplateData{ImageId: aws.String(imageA), InstanceType: "t3.medium", UserData: userData("a")}
			other := one
			tt.change(&other)
			w.version(template, first, &one)
			w.version(template, tt.description, &other)
			all, err := w.cluster.Versions(t.Context(), "demo-minions")
			assert.NilError(t, err)
			n := len(all)
			assert.Equal(t, all[n-1].Number, all[n-2].Number+1)
			assert.Equal(t, strings.Join(all[n-2].Differs(all[n-1]), "; "), tt.want)
		})
	}
	all, err := w.cluster.Versions(t.Context(), "demo-minions")
	assert.NilError(t, err)
	assert.Assert(t, strings.HasPrefix(all[0].Config, "sha256:") && all[0].Number == 1 && all[0].Image == imageA && all[0].Type != "", "%+v", all[0])
}

// A version without data, of which EC2 shows the number and the description alone, is no reason to fail.
func TestVersionWithoutData(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "default")
	w.answers(func(out any) {
		if out, ok := out.(*ec2.DescribeLaunchTemplateVersionsOutput); ok {
			out.LaunchTemplateVersions[0].LaunchTemplateData = nil
			out.LaunchTemplateVersions[0].VersionDescription = aws.String("odd")
		}
	})
	assert.Equal(t, w.read("minions").Wanted, rollout.Version{Number: 1, Config: "odd"})
}

func userData(text string) *string {
	return aws.String(base64.StdEncoding.EncodeToString([]byte(text)))
}

// A group may launch the template's default or its latest version by their names. A deleted version is known by its number: a machine of it
// differs from every other, and a refresh that led to it has not led to the group's own.
func TestNamedVersions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "default")
	w.publish(imageB)
	w.deploy("default")
	w.publish(imageA)
	w.deploy("default")
	template := w.read("minions").Template
	for text, number := range map[string]int{"$Default": 1, "2": 2, "$Latest": 3} {
		w.launches("demo-minions", template, text)
		if g := w.read("minions"); g.Launches.Number != number || g.Wanted.Number != 3 {
			t.Errorf("%s: launches %+v, wants %+v", text, g.Launches, g.Wanted)
		}
	}
	w.prefer(template, "2")
	w.launches("demo-minions", template, "$Default")
	assert.Equal(t, w.read("minions").Launches.Number, 2)
	w.launches("demo-minions", template, "3")
	w.drop(template, "1", "3")
	g := w.read("minions")
	assert.Equal(t, g.Machines[0].From, rollout.Version{Number: 1})
	assert.Equal(t, len(g.Stale()), 2)

	_, err := w.cluster.Start(t.Context(), rollout.Step{Group: "demo-minions", To: 2})
	assert.NilError(t, err)
	assert.Equal(t, w.read("minions").Refresh.To, 2)
	w.drop(template, "2", "3")
	assert.Equal(t, w.read("minions").Refresh.To, 2)
}

// The versions of a group that cannot be read are an error, and no answer without any.
func TestVersionsFail(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "default")
	w.create("demo-old", "minions")
	for _, group := range []string{"demo-none", "demo-old"} {
		_, err := w.cluster.Versions(t.Context(), group)
		assert.ErrorContains(t, err, "reading group "+group)
	}
	for _, action := range []string{"DescribeAutoScalingGroups", "DescribeLaunchTemplateVersions"} {
		w.faults(action, 1, denied)
		_, err := w.cluster.Versions(t.Context(), "demo-minions")
		assert.ErrorContains(t, err, action+")")
	}
}

// denied is the refusal of a call by IAM.
var denied = awsfake.Fault{Refuse: &awsfake.Error{Status: 403, Code: "AccessDenied", Message: "You are not authorized to perform this operation."}}
