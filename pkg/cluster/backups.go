package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/backup"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
)

// bucketType is the type of the stack's bucket in CloudFormation; a stack has one at most.
const bucketType = "AWS::S3::Bucket"

// madeBucket finds the bucket of etcd's backups that a stack of this cluster has made, whatever the document names now. Its name
// is empty if there is none. facts say what is in it. The error matches backup.ErrForbidden if that may not be read.
func (c *Cluster) madeBucket(ctx context.Context) (name, facts string, err error) {
	who, err := sts.NewFromConfig(c.config.AWS).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return "", "", fmt.Errorf("asking for the number of the account: %w", awserr.Explain(err, "sts:GetCallerIdentity"))
	}
	at := machine.StackBackups(c.name).In(aws.ToString(who.Account), c.config.AWS.Region)
	place, err := backup.Open(at.String(), backup.Options{
		Cluster: c.name, Load: func(context.Context) (aws.Config, error) { return c.config.AWS, nil }, HTTP: c.config.AWS.HTTPClient,
	})
	if err != nil {
		return "", "", err
	}
	newest, err := place.Newest(ctx, 0)
	switch {
	case errors.Is(err, backup.ErrNoBucket):
		return "", "", nil
	case err != nil:
		return at.Bucket, "", err
	case newest == nil:
		return at.Bucket, "it has no backup of the cluster", nil
	}
	return at.Bucket, fmt.Sprintf("the newest backup is of %s, revision %d", newest.Taken.UTC().Format("2006-01-02 15:04"), newest.Revision), nil
}

func (c *Cluster) leftBackups(ctx context.Context) ([]Left, error) {
	name, facts, err := c.madeBucket(ctx)
	if errors.Is(err, backup.ErrForbidden) {
		facts, err = "these credentials may not see whether it is there, and what is in it", nil
	}
	if name == "" || err != nil {
		return nil, err
	}
	return []Left{{Kind: LeftBackups, Name: name, Count: 1, Facts: facts}}, nil
}

// keepsBucket refuses to make a bucket of backups that an earlier stack has left: S3 would, after all else was made. The error is
// a *BucketError.
func (c *Cluster) keepsBucket(ctx context.Context, changes []cloudformation.Change) error {
	if !slices.ContainsFunc(changes, func(change cloudformation.Change) bool {
		return change.Type == bucketType && change.Action == cloudformation.Add
	}) {
		return nil
	}
	name, facts, err := c.madeBucket(ctx)
	if errors.Is(err, backup.ErrForbidden) {
		return nil // whether there is one only CloudFormation will know
	}
	if name == "" || err != nil {
		return err
	}
	return &BucketError{Cluster: c.name, Bucket: name, Facts: facts}
}
