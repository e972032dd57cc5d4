// Package account reads the resources in AWS that carry a cluster's tag: AutoScaling groups, instances, and etcd's volumes; and the
// images that the instances were launched from.
//
// Its rule: it returns all pages or an error, and decides nothing. Callers decide which machines belong in DNS or may be
// replaced.
package account

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The largest page sizes of the APIs (their references: MaxRecords, MaxResults).
const (
	groupPage   = 100
	machinePage = 1000
	volumePage  = 500
)

// Actions are the IAM actions that the functions of this package need.
const Actions = "autoscaling:DescribeAutoScalingGroups, ec2:DescribeInstances and ec2:DescribeVolumes"

// Filters select the EC2 resources with the cluster's tag.
func Filters(cluster string) []ec2types.Filter {
	return []ec2types.Filter{{Name: aws.String("tag:" + role.TagCluster), Values: []string{cluster}}}
}

// Groups returns the cluster's AutoScaling groups.
func Groups(ctx context.Context, api autoscaling.DescribeAutoScalingGroupsAPIClient, cluster string) ([]astypes.AutoScalingGroup, error) {
	var out []astypes.AutoScalingGroup
	pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(api, &autoscaling.DescribeAutoScalingGroupsInput{
		Filters: []astypes.Filter{{Name: aws.String("tag:" + role.TagCluster), Values: []string{cluster}}}, MaxRecords: aws.Int32(groupPage),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading the groups of %s: %w", cluster, err)
		}
		out = append(out, page.AutoScalingGroups...)
	}
	return out, nil
}

// groupNames is how many names a call takes (API reference, AutoScalingGroupNames: "By default, you can only specify up to 50 names").
const groupNames = 50

// GroupsByName returns the AutoScaling groups with these names, whatever their tags are. A name that no group has is left out.
func GroupsByName(ctx context.Context, api autoscaling.DescribeAutoScalingGroupsAPIClient, names []string) ([]astypes.AutoScalingGroup, error) {
	var out []astypes.AutoScalingGroup
	for part := range slices.Chunk(names, groupNames) {
		pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(api, &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: part})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, fmt.Errorf("reading the groups %s: %w", strings.Join(part, ", "), err)
			}
			out = append(out, page.AutoScalingGroups...)
		}
	}
	return out, nil
}

// HooksAPI is the part of AutoScaling's client that HookTime uses.
type HooksAPI interface {
	DescribeLifecycleHooks(ctx context.Context, in *autoscaling.DescribeLifecycleHooksInput, opts ...func(*autoscaling.Options)) (*autoscaling.DescribeLifecycleHooksOutput, error)
}

// HookTime returns for how long a hook of a group waits for its completion; 0 if the group has no such hook. It needs
// autoscaling:DescribeLifecycleHooks.
func HookTime(ctx context.Context, api HooksAPI, group, hook string) (time.Duration, error) {
	out, err := api.DescribeLifecycleHooks(ctx, &autoscaling.DescribeLifecycleHooksInput{AutoScalingGroupName: &group})
	if err != nil {
		return 0, fmt.Errorf("reading the hook %s of group %s: %w", hook, group, err)
	}
	for _, h := range out.LifecycleHooks {
		if aws.ToString(h.LifecycleHookName) == hook {
			return time.Duration(aws.ToInt32(h.HeartbeatTimeout)) * time.Second, nil
		}
	}
	return 0, nil
}

// Machines returns the cluster's EC2 instances, including terminated ones, which EC2 describes for another hour.
func Machines(ctx context.Context, api ec2.DescribeInstancesAPIClient, cluster string) ([]ec2types.Instance, error) {
	var out []ec2types.Instance
	pages := ec2.NewDescribeInstancesPaginator(api, &ec2.DescribeInstancesInput{Filters: Filters(cluster), MaxResults: aws.Int32(machinePage)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading the machines of %s: %w", cluster, err)
		}
		for _, r := range page.Reservations {
			out = append(out, r.Instances...)
		}
	}
	return out, nil
}

// filterValues is how many values a filter of EC2 takes (EC2 User Guide, "List and filter your resources").
const filterValues = 200

// MachinesByID returns the instances with these ids, whatever their tags are. An id that EC2 does not know is left out.
func MachinesByID(ctx context.Context, api ec2.DescribeInstancesAPIClient, ids []string) ([]ec2types.Instance, error) {
	var out []ec2types.Instance
	for part := range slices.Chunk(ids, filterValues) {
		pages := ec2.NewDescribeInstancesPaginator(api, &ec2.DescribeInstancesInput{
			Filters: []ec2types.Filter{{Name: aws.String("instance-id"), Values: part}}, MaxResults: aws.Int32(machinePage),
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, fmt.Errorf("reading %d machines by their ids: %w", len(part), err)
			}
			for _, r := range page.Reservations {
				out = append(out, r.Instances...)
			}
		}
	}
	return out, nil
}

// imagePage is the largest page of DescribeImages (its reference: MaxResults).
const imagePage = 1000

// Images returns the images with these ids, of this account or of another that lets this one launch them. One that EC2 does not show
// is left out: it was deregistered or disabled, or is not for this account. The tags of another account's image are not shown. It needs
// ec2:DescribeImages.
func Images(ctx context.Context, api ec2.DescribeImagesAPIClient, ids []string) ([]ec2types.Image, error) {
	var out []ec2types.Image
	for part := range slices.Chunk(ids, filterValues) {
		pages := ec2.NewDescribeImagesPaginator(api, &ec2.DescribeImagesInput{
			// By a filter, since one unknown id in ImageIds fails the whole call.
			Filters: []ec2types.Filter{{Name: aws.String("image-id"), Values: part}}, MaxResults: aws.Int32(imagePage), IncludeDeprecated: aws.Bool(true),
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, fmt.Errorf("reading %d images by their ids: %w", len(part), err)
			}
			out = append(out, page.Images...)
		}
	}
	return out, nil
}

// EtcdVolumes returns the cluster's volumes with the tag of an etcd member.
func EtcdVolumes(ctx context.Context, api ec2.DescribeVolumesAPIClient, cluster string) ([]ec2types.Volume, error) {
	var out []ec2types.Volume
	pages := ec2.NewDescribeVolumesPaginator(api, &ec2.DescribeVolumesInput{
		Filters: append(Filters(cluster), ec2types.Filter{Name: aws.String("tag-key"), Values: []string{role.TagEtcdMember}}), MaxResults: aws.Int32(volumePage),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading etcd's volumes of %s: %w", cluster, err)
		}
		out = append(out, page.Volumes...)
	}
	return out, nil
}

// Healthy reports whether AutoScaling considers a group's machine healthy.
func Healthy(i astypes.Instance) bool {
	return strings.EqualFold(aws.ToString(i.HealthStatus), "Healthy")
}

// Running reports whether an instance's state in EC2 is running.
func Running(i ec2types.Instance) bool {
	return i.State != nil && i.State.Name == ec2types.InstanceStateNameRunning
}

// GroupTag returns the value of a group's tag, or "".
func GroupTag(g astypes.AutoScalingGroup, key string) string {
	for _, t := range g.Tags {
		if aws.ToString(t.Key) == key {
			return aws.ToString(t.Value)
		}
	}
	return ""
}

// Tag returns the value of an instance's or a volume's tag, or "".
func Tag(tags []ec2types.Tag, key string) string {
	for _, t := range tags {
		if aws.ToString(t.Key) == key {
			return aws.ToString(t.Value)
		}
	}
	return ""
}

// EtcdMembers returns the names of all members of the cluster's etcd, from a group's tag.
func EtcdMembers(g astypes.AutoScalingGroup) []string {
	return strings.FieldsFunc(GroupTag(g, role.TagEtcdMembers), func(c rune) bool { return strings.ContainsRune(" ,;", c) })
}
