package fleet

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// volumes is EC2 with one volume of member a, whose attachment to i-1 is in a state.
type volumes struct {
	MachinesAPI
	state ec2types.VolumeAttachmentState
}

func (v volumes) DescribeVolumes(context.Context, *ec2.DescribeVolumesInput, ...func(*ec2.Options)) (*ec2.DescribeVolumesOutput, error) {
	return &ec2.DescribeVolumesOutput{Volumes: []ec2types.Volume{{
		Tags:        []ec2types.Tag{{Key: aws.String(role.TagEtcdMember), Value: aws.String("a")}},
		Attachments: []ec2types.VolumeAttachment{{InstanceId: aws.String("i-1"), State: v.state}},
	}}}, nil
}

// A volume is somebody's from the moment at which EC2 begins to attach it until it is detached (EC2 API reference, VolumeAttachment).
func TestHoldersByStateOfTheAttachment(t *testing.T) {
	for _, state := range ec2types.VolumeAttachmentState("").Values() {
		got, err := (&AWS{Machines: volumes{state: state}}).holders(t.Context(), "demo")
		if err != nil {
			t.Fatal(err)
		}
		member, held := got["i-1"]
		if want := state != ec2types.VolumeAttachmentStateDetached; held != want || held && member != "a" {
			t.Errorf("%s: held is %t, by member %q", state, held, member)
		}
	}
}

// The owner is read from the first group whose ARN is one.
func TestOwnerOf(t *testing.T) {
	const good = "arn:aws-cn:autoscaling:cn-north-1:123456789012:autoScalingGroup:0:autoScalingGroupName/g"
	for name, tt := range map[string]struct {
		arns []*string
		want string
	}{
		"no group":        {nil, ""},
		"no ARN":          {[]*string{nil, aws.String("g")}, ""},
		"one":             {[]*string{aws.String(good)}, "aws-cn:123456789012:cn-north-1"},
		"one behind none": {[]*string{nil, aws.String("g"), aws.String(good)}, "aws-cn:123456789012:cn-north-1"},
	} {
		var groups []astypes.AutoScalingGroup
		for _, a := range tt.arns {
			groups = append(groups, astypes.AutoScalingGroup{AutoScalingGroupARN: a})
		}
		if got := ownerOf(groups); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
