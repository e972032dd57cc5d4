package cloud

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/sync/errgroup"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
)

// Inventory reads the images of one image family in the region, or of every family if line is empty. The users are read
// after the images: an image that is created in between is not in the inventory, and so is not removed. Any error is an
// error of the whole, since a part that could not be read might be a use; but for parameters that may not be read, which others of the
// account may have, and which are listed.
func (c *Client) Inventory(ctx context.Context, line string) (ami.Inventory, error) {
	s := ami.Inventory{Shared: map[string][]string{}}
	hardtacks := map[string]string{ami.TagImage: line}
	var err error
	if s.Images, err = c.Find(ctx, hardtacks); err != nil {
		return s, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) { s.Orphans, err = c.Orphans(ctx, hardtacks, s.Images); return err })
	group.Go(func() (err error) { s.Channels, err = c.AllChannels(ctx); return err })
	group.Go(func() (err error) { s.UsedBy, s.Unread, err = c.Users(ctx); return err })
	group.Go(func() error {
		for _, i := range s.Images {
			who, err := c.launchPermissions(ctx, i.ID)
			if err != nil {
				return err
			}
			s.Shared[i.ID] = who
		}
		return nil
	})
	return s, group.Wait()
}

// launchPermissions lists the accounts and organisations that may launch an image.
func (c *Client) launchPermissions(ctx context.Context, image string) ([]string, error) {
	out, err := c.machine.DescribeImageAttribute(ctx, &ec2.DescribeImageAttributeInput{ImageId: &image, Attribute: types.ImageAttributeNameLaunchPermission})
	if hasCode(err, "InvalidAMIID.NotFound", "InvalidAMIID.Unavailable") {
		return nil, nil
	}
	if err != nil {
		return nil, explain("reading who may launch "+image, err)
	}
	var who []string
	for _, p := range out.LaunchPermissions {
		for _, name := range []string{aws.ToString(p.UserId), aws.ToString(p.OrganizationArn), aws.ToString(p.OrganizationalUnitArn), string(p.Group)} {
			if name != "" {
				who = append(who, name)
			}
		}
	}
	return who, nil
}

// imageUses collects the users of each image, and of each parameter that may not be read.
type imageUses struct {
	client     *Client
	by, unread map[string][]string
}

func (u imageUses) add(ctx context.Context, image, format string, args ...any) error {
	of := u.by
	id, err := u.client.resolve(ctx, image)
	if awserr.KindOf(err) == awserr.Denied {
		of, id, err = u.unread, strings.TrimPrefix(image, resolving), nil
	}
	if err != nil || id == "" {
		return err
	}
	if who := fmt.Sprintf(format, args...); !slices.Contains(of[id], who) {
		of[id] = append(of[id], who)
	}
	return nil
}

// Users lists the users of each image in use: any version of any launch template, launch configurations, groups
// that name an image themselves, and instances that have not ended. unread are those of each parameter that may not be read.
func (c *Client) Users(ctx context.Context) (by, unread map[string][]string, err error) {
	u := imageUses{c, map[string][]string{}, map[string][]string{}}
	for _, read := range []func(context.Context) error{u.templates, u.configurations, u.groups, u.instances} {
		if err := read(ctx); err != nil {
			return nil, nil, err
		}
	}
	return u.by, u.unread, nil
}

func (u imageUses) templates(ctx context.Context) error {
	pages := ec2.NewDescribeLaunchTemplatesPaginator(u.client.machine, &ec2.DescribeLaunchTemplatesInput{MaxResults: aws.Int32(200)})
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return explain("listing launch templates", err)
		}
		for _, t := range out.LaunchTemplates {
			if err := u.versions(ctx, t); err != nil {
				return err
			}
		}
	}
	return nil
}

func (u imageUses) versions(ctx context.Context, t types.LaunchTemplate) error {
	pages := ec2.NewDescribeLaunchTemplateVersionsPaginator(u.client.machine, &ec2.DescribeLaunchTemplateVersionsInput{
		LaunchTemplateId: t.LaunchTemplateId, MaxResults: aws.Int32(200),
	})
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if hasCode(err, "InvalidLaunchTemplateId.NotFound") {
			return nil // gone meanwhile
		}
		if err != nil {
			return explain("listing the versions of launch template "+aws.ToString(t.LaunchTemplateName), err)
		}
		for _, v := range out.LaunchTemplateVersions {
			if v.LaunchTemplateData == nil {
				continue
			}
			err := u.add(ctx, aws.ToString(v.LaunchTemplateData.ImageId), "launch template %s, version %d", aws.ToString(t.LaunchTemplateName), aws.ToInt64(v.VersionNumber))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (u imageUses) configurations(ctx context.Context) error {
	pages := autoscaling.NewDescribeLaunchConfigurationsPaginator(u.client.groups, &autoscaling.DescribeLaunchConfigurationsInput{MaxRecords: aws.Int32(100)})
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return explain("listing launch configurations", err)
		}
		for _, l := range out.LaunchConfigurations {
			if err := u.add(ctx, aws.ToString(l.ImageId), "launch configuration %s", aws.ToString(l.LaunchConfigurationName)); err != nil {
				return err
			}
		}
	}
	return nil
}

// groups reads the images that groups name beside their templates.
func (u imageUses) groups(ctx context.Context) error {
	pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(u.client.groups, &autoscaling.DescribeAutoScalingGroupsInput{MaxRecords: aws.Int32(100)})
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return explain("listing groups", err)
		}
		for _, g := range out.AutoScalingGroups {
			for _, o := range overrides(g) {
				if err := u.add(ctx, aws.ToString(o.ImageId), "group %s", aws.ToString(g.AutoScalingGroupName)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func overrides(g astypes.AutoScalingGroup) []astypes.LaunchTemplateOverrides {
	if g.MixedInstancesPolicy == nil || g.MixedInstancesPolicy.LaunchTemplate == nil {
		return nil
	}
	return g.MixedInstancesPolicy.LaunchTemplate.Overrides
}

func (u imageUses) instances(ctx context.Context) error {
	pages := ec2.NewDescribeInstancesPaginator(u.client.machine, &ec2.DescribeInstancesInput{MaxResults: aws.Int32(1000)})
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return explain("listing instances", err)
		}
		for _, r := range out.Reservations {
			for _, i := range r.Instances {
				if i.State != nil && i.State.Name == types.InstanceStateNameTerminated {
					continue
				}
				if err := u.add(ctx, aws.ToString(i.ImageId), "instance %s", aws.ToString(i.InstanceId)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
