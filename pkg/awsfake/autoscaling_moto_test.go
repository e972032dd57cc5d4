package awsfake

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake/moto"
)

// motoBench has moto, a stand-in that we did not write, where ours is otherwise.
func motoBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{}
	b.dial(moto.Start(t))
	_, err := b.autoscaling.CreateLaunchConfiguration(t.Context(), &autoscaling.CreateLaunchConfigurationInput{
		LaunchConfigurationName: aws.String("hardtack"), ImageId: aws.String("ami-12c6146b"), InstanceType: aws.String("t3.medium"),
	})
	if err != nil {
		t.Fatalf("creating moto's launch configuration: %v", err)
	}
	return b
}

// TestGroupsAgainstMoto compares the answers of both stand-ins to the same calls, as far as moto is right: groups and
// their filters, pages, DescribeInstances. It leaves out hooks and errors of groups, which moto does not model (it
// answers an unknown group with 500).
func TestGroupsAgainstMoto(t *testing.T) {
	theirs := motoBench(t)
	ours := newBench(t, Options{})
	if diff := cmp.Diff(theirs.story(t), ours.story(t)); diff != "" {
		t.Errorf("moto (-) and awsfake (+) differ:\n%s", diff)
	}
}

// story makes groups and returns the answers of describe calls, without the values that each stand-in may choose.
func (b *bench) story(t *testing.T) []string {
	t.Helper()
	for n := range 7 {
		_, err := b.autoscaling.CreateAutoScalingGroup(t.Context(), &autoscaling.CreateAutoScalingGroupInput{
			AutoScalingGroupName: aws.String(fmt.Sprintf("g%d", n)), MinSize: aws.Int32(0), MaxSize: aws.Int32(9), DesiredCapacity: aws.Int32(int32(n % 4)),
			AvailabilityZones: []string{"us-west-2a"}, LaunchConfigurationName: aws.String("hardtack"),
			Tags: []types.Tag{
				{Key: aws.String("KubernetesCluster"), Value: aws.String([]string{"demo", "other"}[n%2]), PropagateAtLaunch: aws.Bool(true)},
				{Key: aws.String("Role"), Value: aws.String([]string{"masters", "minions", "etcd"}[n%3]), PropagateAtLaunch: aws.Bool(true)},
				{Key: aws.String("Quiet"), Value: aws.String("yes"), PropagateAtLaunch: aws.Bool(false)},
			},
		})
		if err != nil {
			t.Fatalf("creating a group: %v", err)
		}
	}
	_, err := b.autoscaling.SetDesiredCapacity(t.Context(), &autoscaling.SetDesiredCapacityInput{AutoScalingGroupName: aws.String("g1"), DesiredCapacity: aws.Int32(4)})
	said := []string{"set: " + outcome(err)}
	for _, filters := range [][]types.Filter{
		nil,
		{{Name: aws.String("tag:KubernetesCluster"), Values: []string{"demo"}}},
		{{Name: aws.String("tag:KubernetesCluster"), Values: []string{"demo"}}, {Name: aws.String("tag:Role"), Values: []string{"masters", "etcd"}}},
		{{Name: aws.String("tag-key"), Values: []string{"Quiet"}}},
		{{Name: aws.String("tag-value"), Values: []string{"minions"}}},
		{{Name: aws.String("tag:Role"), Values: []string{"m*"}}},
	} {
		said = append(said, b.groupPages(t, filters)...)
	}
	return append(said, b.machines(t)...)
}

func outcome(err error) string {
	var api smithy.APIError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &api):
		return api.ErrorCode()
	}
	return err.Error()
}

func (b *bench) groupPages(t *testing.T, filters []types.Filter) []string {
	t.Helper()
	p := autoscaling.NewDescribeAutoScalingGroupsPaginator(b.autoscaling, &autoscaling.DescribeAutoScalingGroupsInput{Filters: filters, MaxRecords: aws.Int32(2)})
	said := []string{fmt.Sprintf("groups where %d filters", len(filters))}
	for p.HasMorePages() {
		out, err := p.NextPage(t.Context())
		if err != nil {
			t.Fatalf("describing groups: %v", err)
		}
		said = append(said, fmt.Sprintf("a page of %d", len(out.AutoScalingGroups)))
		for _, g := range out.AutoScalingGroups {
			line := fmt.Sprintf("%s %d-%d wants %d:", *g.AutoScalingGroupName, *g.MinSize, *g.MaxSize, *g.DesiredCapacity)
			for _, i := range g.Instances {
				line += fmt.Sprint(" ", i.LifecycleState, " ", *i.HealthStatus, " ", *i.AvailabilityZone)
			}
			said = append(said, line)
		}
	}
	return said
}

func (b *bench) machines(t *testing.T) []string {
	t.Helper()
	var said []string
	for _, filters := range [][]ec2types.Filter{
		nil,
		{where("tag:KubernetesCluster", "demo")},
		{where("tag:KubernetesCluster", "demo"), where("tag:Role", "masters", "etcd"), where("instance-state-name", "running")},
		{where("tag:Role", "m*")},
		{where("tag-key", "Quiet")},
		{where("instance-id", "i-00000000000000000")},
		{where("instance-state-name", "stopped")},
	} {
		out, err := b.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{Filters: filters})
		if err != nil {
			t.Fatalf("describing instances: %v", err)
		}
		var list []string
		for _, r := range out.Reservations {
			for _, i := range r.Instances {
				tags := []string{}
				for _, tag := range i.Tags {
					tags = append(tags, *tag.Key+"="+*tag.Value)
				}
				slices.Sort(tags)
				list = append(list, fmt.Sprintf("%s %d %v %s", i.State.Name, *i.State.Code, i.PrivateIpAddress != nil, strings.Join(tags, " ")))
			}
		}
		slices.Sort(list)
		said = append(append(said, fmt.Sprintf("machines where %d filters", len(filters))), list...)
	}
	_, err := b.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{"i-00000000000000000"}})
	return append(said, "one missing id: "+outcome(err))
}
