package cloud

import (
	"context"
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
)

var _ ami.Region = (*Client)(nil)

// Copy starts a copy into this region.
func (c *Client) Copy(ctx context.Context, p ami.CopyRequest) (string, error) {
	in := &ec2.CopyImageInput{
		ClientToken: &p.Token, SourceRegion: &p.Region, SourceImageId: &p.Image, Name: &p.Name, Description: &p.Description,
		TagSpecifications: []types.TagSpecification{
			{ResourceType: types.ResourceTypeImage, Tags: tagsOf(p.Tags)}, {ResourceType: types.ResourceTypeSnapshot, Tags: tagsOf(p.Tags)},
		},
	}
	if p.Key != ami.NoKey {
		in.Encrypted = aws.Bool(true)
		if p.Key != ami.DefaultKey {
			in.KmsKeyId = &p.Key
		}
	}
	out, err := c.machine.CopyImage(ctx, in)
	if err != nil {
		return "", explain("copying "+p.Image+" to "+c.Region, err)
	}
	return aws.ToString(out.ImageId), nil
}

// Share lets others launch an image. Its snapshot needs no permission for that.
func (c *Client) Share(ctx context.Context, image string, with ami.LaunchPermissions) error {
	var add []types.LaunchPermission
	for _, a := range with.Accounts {
		add = append(add, types.LaunchPermission{UserId: &a})
	}
	for _, o := range with.Organisations {
		if strings.Contains(o, ":ou/") {
			add = append(add, types.LaunchPermission{OrganizationalUnitArn: &o})
		} else {
			add = append(add, types.LaunchPermission{OrganizationArn: &o})
		}
	}
	_, err := c.machine.ModifyImageAttribute(ctx, &ec2.ModifyImageAttributeInput{
		ImageId: &image, LaunchPermission: &types.LaunchPermissionModifications{Add: add},
	})
	return explain("sharing "+image, err)
}

// Discard deregisters an image and deletes the snapshots that carry these tags and that no image uses.
func (c *Client) Discard(ctx context.Context, image string, tags map[string]string) error {
	if err := c.Deregister(ctx, image); err != nil {
		return err
	}
	images, err := c.Find(ctx, tags)
	if err != nil {
		return err
	}
	orphans, err := c.Orphans(ctx, tags, images)
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range orphans {
		errs = append(errs, c.DeleteSnapshot(ctx, o.ID))
	}
	return errors.Join(errs...)
}

// Orphans lists the account's own snapshots with these tags that none of the images has. An empty value stands for any.
func (c *Client) Orphans(ctx context.Context, tags map[string]string, images []ami.Image) ([]ami.Orphan, error) {
	used := map[string]bool{}
	for _, i := range images {
		used[i.Snapshot] = true
	}
	var orphans []ami.Orphan
	pages := ec2.NewDescribeSnapshotsPaginator(c.machine, &ec2.DescribeSnapshotsInput{
		OwnerIds: []string{"self"}, Filters: filters(tags), MaxResults: aws.Int32(1000),
	})
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return nil, explain("looking for snapshots", err)
		}
		for _, s := range out.Snapshots {
			if used[aws.ToString(s.SnapshotId)] {
				continue
			}
			state, _ := stateOf(s)
			o := ami.Orphan{ID: aws.ToString(s.SnapshotId), State: state, Started: aws.ToTime(s.StartTime), Tags: map[string]string{}}
			for _, t := range s.Tags {
				o.Tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
			}
			orphans = append(orphans, o)
		}
	}
	return orphans, nil
}
