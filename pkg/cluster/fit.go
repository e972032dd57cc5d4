package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/account"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awsname"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// UnfitError means that machines of the document could not start from the channel's image, or not on the types that it names. Nothing was
// changed.
type UnfitError struct {
	Channel, Image string
	// Problems name the group and the field each, with the document's value and the image's or EC2's.
	Problems []string
}

func (e *UnfitError) Error() string {
	return fmt.Sprintf("starting machines from image %s of channel %s:\n  %s\nchange the document, or point the channel at another image", e.Image, e.Channel, strings.Join(e.Problems, "\n  "))
}

// typesAtOnce is how many types a call describes (API reference, DescribeInstanceTypes).
const typesAtOnce = 100

// UnknownImageError means that EC2 does not show the image that the channel names: it was deregistered or disabled, or is of another
// region or account, and every launch would fail. Nothing was changed.
type UnknownImageError struct{ Channel, Image, Region string }

func (e *UnknownImageError) Error() string {
	return fmt.Sprintf("starting machines from image %s of channel %s: EC2 shows these credentials no such image in %s", e.Image, e.Channel, e.Region)
}

// Check compares the document with the image that its channel names, and with the region's instance types, as Apply does before it changes
// anything; it reads nothing of a stack. It returns the image's id. The error is a *NoImageError, an *UnknownImageError, an *UnfitError or an
// *ImageVersionError; the last two come together where both are so.
func (c *Cluster) Check(ctx context.Context) (string, error) {
	id, err := c.check(ctx, false)
	if err == nil {
		c.warnUnknown(rollout.State{}, id)
	}
	return id, err
}

// check is Check, for a lab without the comparison with instance types.
func (c *Cluster) check(ctx context.Context, anyMachine bool) (string, error) {
	id, err := c.image(ctx)
	if err == nil && !anyMachine {
		err = c.fits(ctx, id)
	}
	if _, unfit := errors.AsType[*UnfitError](err); err != nil && !unfit {
		return id, err
	}
	return id, errors.Join(err, c.checkVersion(ctx, id))
}

// fits compares the document's groups with the image that its channel names, and with what EC2 says of their instance types. EC2 would
// refuse every launch, or a machine would find no disk to start from, after the stack has changed. The error is an *UnknownImageError or
// an *UnfitError.
func (c *Cluster) fits(ctx context.Context, id string) error {
	if err := c.readVersions(ctx, id); err != nil {
		return err
	}
	image, ok := c.images[id]
	if !ok {
		return &UnknownImageError{Channel: c.Channel(), Image: id, Region: c.Region()}
	}
	client := ec2.NewFromConfig(c.config.AWS)
	kinds, err := c.typesOf(ctx, client)
	if err != nil {
		return err
	}
	e := UnfitError{Channel: c.Channel(), Image: id}
	if root := aws.ToString(image.RootDeviceName); root != ami.RootDevice {
		e.Problems = append(e.Problems, fmt.Sprintf("the image starts from %s, and launch templates set the size of %s", root, ami.RootDevice))
	}
	arch := c.config.Document.Cluster.Arch
	if theirs := types.ArchitectureValues(awsname.Architecture(arch)); image.Architecture != theirs {
		e.Problems = append(e.Problems, fmt.Sprintf("arch: %s, and the image is %s", arch, image.Architecture))
		image.Architecture = theirs // said once, and not of every instance type
	}
	for _, g := range c.config.Document.Groups {
		e.Problems = append(e.Problems, lacking(g, image)...)
		e.Problems = append(e.Problems, unfit(g, image, kinds, c.config.AWS.Region)...)
	}
	if len(e.Problems) == 0 {
		return nil
	}
	return &e
}

// typesOf are the instance types of the document's groups that EC2 has in the region, by their names.
func (c *Cluster) typesOf(ctx context.Context, client *ec2.Client) (map[string]types.InstanceTypeInfo, error) {
	var names []types.InstanceType
	for _, g := range c.config.Document.Groups {
		for _, name := range g.AWS.AllTypes() {
			names = append(names, types.InstanceType(name))
		}
	}
	slices.Sort(names)
	found := map[string]types.InstanceTypeInfo{}
	// Of a call that names one type which the region has not, EC2 says only that; a filter leaves it out.
	for part := range slices.Chunk(slices.Compact(names), typesAtOnce) {
		filter := types.Filter{Name: aws.String("instance-type")}
		for _, name := range part {
			filter.Values = append(filter.Values, string(name))
		}
		pages := ec2.NewDescribeInstanceTypesPaginator(client, &ec2.DescribeInstanceTypesInput{Filters: []types.Filter{filter}})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, fmt.Errorf("reading what the instance types %s are: %w", strings.Join(filter.Values, ", "), awserr.Explain(err, "ec2:DescribeInstanceTypes"))
			}
			for _, i := range page.InstanceTypes {
				found[string(i.InstanceType)] = i
			}
		}
	}
	return found, nil
}

// lacking says which of a group's roles no unit of an image has: its machines would run nothing for them. An image that was
// published without its image.json does not say which it has.
func lacking(g spec.Group, image types.Image) (problems []string) {
	text := account.Tag(image.Tags, ami.TagRoles)
	has, err := role.ParseSet(text)
	if text == "" || err != nil {
		return nil
	}
	for _, r := range g.Roles {
		if !has.Has(r) {
			problems = append(problems, fmt.Sprintf("group %s: roles: no unit of the image is of the role %s; it has %s", g.Name, r, role.Join(has, ", ")))
		}
	}
	return problems
}

// unfit says why machines of a group would not start from an image.
func unfit(g spec.Group, image types.Image, kinds map[string]types.InstanceTypeInfo, region string) (problems []string) {
	add := func(field, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("group %s: aws.%s: ", g.Name, field)+fmt.Sprintf(format, args...))
	}
	for _, d := range image.BlockDeviceMappings {
		if d.Ebs != nil && aws.ToString(d.DeviceName) == aws.ToString(image.RootDeviceName) && g.AWS.Volume < int(aws.ToInt32(d.Ebs.VolumeSize)) {
			add("volume", "%d GiB, and the image's disk has %d GiB: EC2 makes no disk that is smaller than its snapshot", g.AWS.Volume, aws.ToInt32(d.Ebs.VolumeSize))
		}
	}
	for i, name := range g.AWS.AllTypes() {
		field := "instanceType"
		if i > 0 {
			field = "types"
		}
		kind, ok := kinds[name]
		if !ok {
			add(field, "%s: EC2 has no such type in %s", name, region)
			continue
		}
		for _, why := range typeUnfit(kind, image) {
			add(field, "%s %s", name, why)
		}
	}
	return problems
}

// typeUnfit says why a machine of a type would not start from an image.
func typeUnfit(kind types.InstanceTypeInfo, image types.Image) (why []string) {
	if p := kind.ProcessorInfo; p != nil && !slices.Contains(p.SupportedArchitectures, types.ArchitectureType(image.Architecture)) {
		return []string{fmt.Sprintf("is %s, and the image is %s", joined(p.SupportedArchitectures, " or "), image.Architecture)}
	}
	// An image without a mode has each type's own, and one that prefers UEFI starts by what there is.
	mode := types.BootModeType(image.BootMode)
	if (mode == types.BootModeTypeUefi || mode == types.BootModeTypeLegacyBios) && !slices.Contains(kind.SupportedBootModes, mode) {
		why = append(why, fmt.Sprintf("boots by %s, and the image by %s", joined(kind.SupportedBootModes, " or "), mode))
	}
	if image.TpmSupport != "" && kind.NitroTpmSupport == types.NitroTpmSupportUnsupported {
		why = append(why, fmt.Sprintf("has no TPM, and the image is registered with one (%s), as a signed disk is", image.TpmSupport))
	}
	// i3's "supported" is of its own disks: its volumes are block devices of Xen.
	if e := kind.EbsInfo; e != nil && e.NvmeSupport != types.EbsNvmeSupportRequired {
		why = append(why, fmt.Sprintf("has volumes that are no NVMe devices (EC2 says %s), and the image starts from NVMe alone", e.NvmeSupport))
	}
	if n := kind.NetworkInfo; n != nil && n.EnaSupport == types.EnaSupportRequired && !aws.ToBool(image.EnaSupport) {
		why = append(why, "has a network interface of ENA, and the image is registered without it")
	}
	return why
}

func joined[T ~string](list []T, by string) string {
	var out []string
	for _, one := range list {
		out = append(out, string(one))
	}
	return strings.Join(out, by)
}
