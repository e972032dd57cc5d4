package autoscaling

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
)

// deletedAtOnce is how many versions a call deletes (API reference, DeleteLaunchTemplateVersions: "up to 200 launch template versions in a
// single request").
const deletedAtOnce = 200

// Prune deletes the versions of the groups' launch templates that nothing needs any more (rollout.Group.Obsolete), and returns how many.
// CloudFormation and Terraform add one with each change and delete none: EC2 takes 10,000 of a template (EC2 User Guide, "Amazon EC2 launch
// template quotas"), each reading reads them all, and each keeps its image from being removed. After an error it continues when it is
// called again.
func (c *Cluster) Prune(ctx context.Context, s rollout.State) (deleted int, err error) {
	for _, g := range s.Groups {
		versions, err := c.versions(ctx, g.Template)
		if err != nil {
			return deleted, err
		}
		// The group has been read before its versions, and the newest of these may have come since.
		obsolete := slices.DeleteFunc(g.Obsolete(versions.all), func(v rollout.Version) bool { return v.Number > g.Wanted.Number })
		if slices.ContainsFunc(obsolete, func(v rollout.Version) bool { return v.Number == versions.defaultNumber }) {
			if err := c.setDefault(ctx, g.Template, versions.latest().Number); err != nil {
				return deleted, err
			}
		}
		for part := range slices.Chunk(obsolete, deletedAtOnce) {
			n, err := c.deleteVersions(ctx, g.Template, part)
			deleted += n
			if err != nil {
				return deleted, err
			}
		}
	}
	return deleted, nil
}

// setDefault makes a version the template's default, which cannot be deleted: CloudFormation leaves it at the first one, and no group of a
// stack launches from it.
func (c *Cluster) setDefault(ctx context.Context, template string, version int) error {
	_, err := c.Machines.ModifyLaunchTemplate(ctx, &ec2.ModifyLaunchTemplateInput{LaunchTemplateId: &template, DefaultVersion: aws.String(strconv.Itoa(version))})
	if err != nil {
		return fmt.Errorf("making version %d the default of launch template %s: %w", version, template, awserr.Explain(err, "ec2:ModifyLaunchTemplate"))
	}
	return nil
}

func (c *Cluster) deleteVersions(ctx context.Context, template string, versions []rollout.Version) (deleted int, err error) {
	in := &ec2.DeleteLaunchTemplateVersionsInput{LaunchTemplateId: &template}
	for _, v := range versions {
		in.Versions = append(in.Versions, strconv.Itoa(v.Number))
	}
	out, err := c.Machines.DeleteLaunchTemplateVersions(ctx, in)
	if err != nil {
		return 0, fmt.Errorf("deleting %d old versions of launch template %s: %w", len(versions), template, awserr.Explain(err, "ec2:DeleteLaunchTemplateVersions"))
	}
	for _, kept := range out.UnsuccessfullyDeletedLaunchTemplateVersions {
		if e := kept.ResponseError; e != nil && e.Code != "launchTemplateVersionDoesNotExist" {
			err = fmt.Errorf("deleting version %d of launch template %s: %s: %s", aws.ToInt64(kept.VersionNumber), template, e.Code, aws.ToString(e.Message))
		}
	}
	return len(out.SuccessfullyDeletedLaunchTemplateVersions), err
}
