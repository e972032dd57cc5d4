package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"golang.org/x/sync/errgroup"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/account"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// LeftKind is the kind of a resource that remains after a cluster was deleted.
type LeftKind string

// The kinds of remaining resources.
const (
	// LeftFunction is the stack of the function that keeps the cluster's records.
	LeftFunction LeftKind = "function"
	// LeftSecrets are the authorities and keys in Parameter Store. Without them no backup of the cluster can be read.
	LeftSecrets LeftKind = "secrets"
	// LeftKey is the stack of the key that encrypts them.
	LeftKey LeftKind = "key"
	// LeftMember is the volume of an etcd member, attached or not: its data are the cluster.
	LeftMember LeftKind = "member"
	// LeftBackups is the bucket of etcd's backups that the stack has made.
	LeftBackups LeftKind = "backups"
	// LeftVolume is another volume that is not attached, LeftSnapshot a snapshot of a volume.
	LeftVolume   LeftKind = "volume"
	LeftSnapshot LeftKind = "snapshot"
)

// Left is a resource that remains after a cluster was deleted.
type Left struct {
	Kind LeftKind `json:"kind"`
	// Name is the name of a stack or a bucket, a path in Parameter Store, or an id. Count is the number of parameters below the path.
	Name  string `json:"name"`
	Count int    `json:"count"`
	// Member is the etcd member of a volume. Facts are its size, zone and age, and of a bucket what is in it. Both are empty for
	// everything else.
	Member string `json:"member,omitempty"`
	Facts  string `json:"facts,omitempty"`
}

// Left finds the resources of the cluster that belong to no stack. It omits the image: that belongs to its channel, and
// other clusters may use it.
func (c *Cluster) Left(ctx context.Context) ([]Left, error) {
	finders := []func(context.Context) ([]Left, error){c.leftFunction, c.leftSecrets, c.leftKey, c.leftVolumes, c.leftBackups, c.leftSnapshots}
	found := make([][]Left, len(finders))
	all, ctx := errgroup.WithContext(ctx)
	for i, find := range finders {
		all.Go(func() (err error) {
			found[i], err = find(ctx)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, fmt.Errorf("finding the resources that the cluster leaves behind: %w", err)
	}
	return append([]Left{}, slices.Concat(found...)...), nil
}

func (c *Cluster) leftFunction(ctx context.Context) ([]Left, error) {
	return c.leftStack(ctx, LeftFunction, FunctionStack(c.name))
}

func (c *Cluster) leftKey(ctx context.Context) ([]Left, error) {
	return c.leftStack(ctx, LeftKey, KeyStack(c.name))
}

func (c *Cluster) leftStack(ctx context.Context, kind LeftKind, name string) ([]Left, error) {
	_, err := c.stacks.Describe(ctx, name)
	if errors.Is(err, cloudformation.ErrNoStack) {
		return nil, nil
	}
	return []Left{{Kind: kind, Name: name, Count: 1}}, err
}

func (c *Cluster) leftSecrets(ctx context.Context) ([]Left, error) {
	at, err := store.ParseLocation(c.config.Document.Cluster.Store)
	if err != nil || at.Kind != store.KindSSM {
		return nil, err
	}
	n := 0
	pages := ssm.NewGetParametersByPathPaginator(ssm.NewFromConfig(c.config.AWS), &ssm.GetParametersByPathInput{Path: &at.Root, Recursive: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading the names below %s: %w", at.Root, awserr.Explain(err, "ssm:GetParametersByPath"))
		}
		n += len(page.Parameters)
	}
	if n == 0 {
		return nil, nil
	}
	return []Left{{Kind: LeftSecrets, Name: at.Root, Count: n}}, nil
}

func (c *Cluster) leftVolumes(ctx context.Context) ([]Left, error) {
	var out []Left
	pages := ec2.NewDescribeVolumesPaginator(ec2.NewFromConfig(c.config.AWS), &ec2.DescribeVolumesInput{Filters: account.Filters(c.name)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading volumes: %w", awserr.Explain(err, "ec2:DescribeVolumes"))
		}
		for _, v := range page.Volumes {
			id := aws.ToString(v.VolumeId)
			switch member := account.Tag(v.Tags, role.TagEtcdMember); {
			case member != "":
				out = append(out, Left{Kind: LeftMember, Name: id, Count: 1, Member: member, Facts: volumeFacts(v, c.clock.Now())})
			case len(v.Attachments) == 0:
				out = append(out, Left{Kind: LeftVolume, Name: id, Count: 1})
			}
		}
	}
	return out, nil
}

func (c *Cluster) leftSnapshots(ctx context.Context) ([]Left, error) {
	var out []Left
	pages := ec2.NewDescribeSnapshotsPaginator(ec2.NewFromConfig(c.config.AWS), &ec2.DescribeSnapshotsInput{Filters: account.Filters(c.name), OwnerIds: []string{"self"}})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading snapshots: %w", awserr.Explain(err, "ec2:DescribeSnapshots"))
		}
		for _, s := range page.Snapshots {
			out = append(out, Left{Kind: LeftSnapshot, Name: aws.ToString(s.SnapshotId), Count: 1})
		}
	}
	return out, nil
}
