package awsfake

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// mixed is a policy of these types with the template's version.
func mixed(template, version string, names ...string) *types.MixedInstancesPolicy {
	launch := &types.LaunchTemplate{LaunchTemplateSpecification: &types.LaunchTemplateSpecification{LaunchTemplateId: &template, Version: &version}}
	for _, name := range names {
		launch.Overrides = append(launch.Overrides, types.LaunchTemplateOverrides{InstanceType: &name})
	}
	return &types.MixedInstancesPolicy{LaunchTemplate: launch, InstancesDistribution: &types.InstancesDistribution{
		OnDemandBaseCapacity: aws.Int32(1), OnDemandPercentageAboveBaseCapacity: aws.Int32(50), SpotAllocationStrategy: aws.String("price-capacity-optimized"),
	}}
}

// A group with a mixed instances policy launches by its shares and types, shows the policy in place of a launch template, and keeps it
// through a refresh that names it, skipping machines that match; a refresh that names a launch template alone takes the policy away.
func TestMixedInstances(t *testing.T) {
	t.Parallel()
	b := newBench(t, Options{})
	image := "ami-0000000000000000a"
	template := b.createTemplate(t, "mixed", &ec2types.RequestLaunchTemplateData{ImageId: &image, InstanceType: ec2types.InstanceTypeM7iLarge})
	in := &autoscaling.CreateAutoScalingGroupInput{AutoScalingGroupName: aws.String("mixed"), MinSize: aws.Int32(5), MaxSize: aws.Int32(8), AvailabilityZones: []string{HomeRegion + "a"},
		MixedInstancesPolicy: mixed(template, "1", "m7i.large", "m7a.large", "m6i.large"), CapacityRebalance: aws.Bool(true), MaxInstanceLifetime: aws.Int32(3600)}
	_, err := b.autoscaling.CreateAutoScalingGroup(t.Context(), in)
	wantCode(t, err, "ValidationError", "MaxInstanceLifetime must be 0, or between 86400 and 31536000")
	in.MaxInstanceLifetime = aws.Int32(86400)
	in.LaunchTemplate = in.MixedInstancesPolicy.LaunchTemplate.LaunchTemplateSpecification
	_, err = b.autoscaling.CreateAutoScalingGroup(t.Context(), in)
	wantCode(t, err, "ValidationError", "Valid requests must contain either LaunchTemplate, LaunchConfigurationName, InstanceId or MixedInstancesPolicy parameter.")
	in.LaunchTemplate = nil
	if _, err = b.autoscaling.CreateAutoScalingGroup(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	b.account.Tick()
	describe := func() types.AutoScalingGroup {
		t.Helper()
		out, err := b.autoscaling.DescribeAutoScalingGroups(t.Context(), &autoscaling.DescribeAutoScalingGroupsInput{})
		if err != nil || len(out.AutoScalingGroups) != 1 {
			t.Fatalf("%v, %v", out, err)
		}
		return out.AutoScalingGroups[0]
	}
	g, spots, kinds := describe(), 0, map[string]int{}
	for _, i := range g.Instances {
		m, _ := b.account.EC2().Machine(*i.InstanceId)
		if kinds[m.Type]++; m.Spot {
			spots++
		}
		if *i.InstanceType != m.Type || *i.LaunchTemplate.Version != "1" {
			t.Errorf("%+v is not of %s", i, m.Type)
		}
	}
	if g.LaunchTemplate != nil || len(g.MixedInstancesPolicy.LaunchTemplate.Overrides) != 3 || !*g.CapacityRebalance || *g.MaxInstanceLifetime != 86400 {
		t.Errorf("%+v", g)
	}
	if len(g.Instances) != 5 || spots != 2 || kinds["m7i.large"] < 3 { // one, and half of the four beyond, are on-demand instances
		t.Errorf("%d machines, of which %d are spot instances: %v", len(g.Instances), spots, kinds)
	}

	refresh := func(want *types.DesiredConfiguration) {
		t.Helper()
		_, err := b.autoscaling.StartInstanceRefresh(t.Context(), &autoscaling.StartInstanceRefreshInput{AutoScalingGroupName: aws.String("mixed"),
			DesiredConfiguration: want, Preferences: &types.RefreshPreferences{SkipMatching: aws.Bool(true), InstanceWarmup: aws.Int32(0), MinHealthyPercentage: aws.Int32(0)}})
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			b.account.Tick()
			time.Sleep(time.Millisecond)
		}
	}
	before := len(b.account.AutoScaling().History())
	refresh(&types.DesiredConfiguration{MixedInstancesPolicy: mixed(template, "1", "m7i.large", "m7a.large", "m6i.large")})
	if n := len(b.account.AutoScaling().History()); n != before {
		t.Errorf("machines that match were replaced: %d steps", n-before)
	}
	refresh(&types.DesiredConfiguration{MixedInstancesPolicy: mixed(template, "1", "m7i.large")})
	g = describe()
	for _, i := range g.Instances {
		if *i.InstanceType != "m7i.large" {
			t.Errorf("%s is still %s", *i.InstanceId, *i.InstanceType)
		}
	}
	if g.MixedInstancesPolicy == nil || len(g.MixedInstancesPolicy.LaunchTemplate.Overrides) != 1 {
		t.Errorf("the policy is %+v", g.MixedInstancesPolicy)
	}
	refresh(&types.DesiredConfiguration{LaunchTemplate: &types.LaunchTemplateSpecification{LaunchTemplateId: &template, Version: aws.String("1")}})
	if g = describe(); g.MixedInstancesPolicy != nil || g.LaunchTemplate == nil {
		t.Errorf("the group still has %+v", g.MixedInstancesPolicy)
	}
}
