package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"golang.org/x/sync/errgroup"

	"github.com/hardtack/packer-plugin-hardtack/pkg/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/formation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/store"
)

// left is what a deleted cluster leaves behind, and the command that removes it.
type left struct {
	What    string `json:"what"`
	Command string `json:"command"`
}

// leftovers looks for what is the cluster's and no stack's. The image is its channel's, and other clusters'.
func (t *stackTarget) leftovers(ctx context.Context) ([]left, error) {
	found := make([][]left, 4)
	all, ctx := errgroup.WithContext(ctx)
	for i, look := range []func(context.Context) ([]left, error){t.leftFunction, t.leftSecrets, t.leftVolumes, t.leftSnapshots} {
		all.Go(func() (err error) {
			found[i], err = look(ctx)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, fmt.Errorf("looking for what the cluster leaves behind: %w", err)
	}
	out := []left{}
	for _, f := range found {
		out = append(out, f...)
	}
	return out, nil
}

// leftFunction is the stack of the function, by the name that the README gives it.
func (t *stackTarget) leftFunction(ctx context.Context) ([]left, error) {
	name := "hardtack-dns-" + t.cluster
	_, err := t.stacks.Describe(ctx, name)
	if errors.Is(err, formation.ErrNoStack) {
		return nil, nil
	}
	return []left{{"the function's stack " + name, "sam delete --stack-name " + name}}, err
}

// leftSecrets are the authorities and keys in Parameter Store: without them no backup of the cluster can be read.
func (t *stackTarget) leftSecrets(ctx context.Context) ([]left, error) {
	at, err := store.ParseLocation(t.complete.Cluster.Store)
	if err != nil || at.Kind != store.KindSSM {
		return nil, err
	}
	n := 0
	pages := ssm.NewGetParametersByPathPaginator(ssm.NewFromConfig(t.conf), &ssm.GetParametersByPathInput{Path: &at.Root, Recursive: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading the names below %s: %w", at.Root, err)
		}
		n += len(page.Parameters)
	}
	if n == 0 {
		return nil, nil
	}
	return []left{{fmt.Sprintf("%d parameters below %s: the authorities, and the key of the Secrets in etcd's snapshots", n, at.Root),
		fmt.Sprintf("aws ssm get-parameters-by-path --path %s --recursive --query 'Parameters[].Name' --output text | tr '\\t' '\\n' | xargs -n 10 aws ssm delete-parameters --names", at.Root)}}, nil
}

// ours filters by the cluster's tag.
func (t *stackTarget) ours() []ec2types.Filter {
	return []ec2types.Filter{{Name: aws.String("tag:" + fleet.TagCluster), Values: []string{t.cluster}}}
}

func (t *stackTarget) leftVolumes(ctx context.Context) ([]left, error) {
	var out []left
	pages := ec2.NewDescribeVolumesPaginator(ec2.NewFromConfig(t.conf), &ec2.DescribeVolumesInput{Filters: t.ours()})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading volumes: %w", err)
		}
		for _, v := range page.Volumes {
			if len(v.Attachments) == 0 {
				out = append(out, left{"volume " + aws.ToString(v.VolumeId), "aws ec2 delete-volume --volume-id " + aws.ToString(v.VolumeId)})
			}
		}
	}
	return out, nil
}

func (t *stackTarget) leftSnapshots(ctx context.Context) ([]left, error) {
	var out []left
	pages := ec2.NewDescribeSnapshotsPaginator(ec2.NewFromConfig(t.conf), &ec2.DescribeSnapshotsInput{Filters: t.ours(), OwnerIds: []string{"self"}})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading snapshots: %w", err)
		}
		for _, s := range page.Snapshots {
			id := aws.ToString(s.SnapshotId)
			out = append(out, left{"snapshot " + id, "aws ec2 delete-snapshot --snapshot-id " + id})
		}
	}
	return out, nil
}

// machines are the ids of all machines in the cluster's groups, by their tag.
func (t *stackTarget) machines(ctx context.Context) ([]string, error) {
	out := []string{}
	pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(autoscaling.NewFromConfig(t.conf), &autoscaling.DescribeAutoScalingGroupsInput{
		Filters: []astypes.Filter{{Name: aws.String("tag:" + fleet.TagCluster), Values: []string{t.cluster}}},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading the groups of %s: %w", t.cluster, err)
		}
		for _, g := range page.AutoScalingGroups {
			for _, i := range g.Instances {
				out = append(out, aws.ToString(i.InstanceId))
			}
		}
	}
	slices.Sort(out)
	return out, nil
}
