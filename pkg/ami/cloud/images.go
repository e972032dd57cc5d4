package cloud

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/cenkalti/backoff/v5"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/ami/uefivars"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awsname"
)

var (
	_ ami.Images    = (*Client)(nil)
	_ ami.Snapshots = (*Client)(nil)
)

// Find lists images by tags, the newest first.
func (c *Client) Find(ctx context.Context, tags map[string]string) ([]ami.Image, error) {
	in := &ec2.DescribeImagesInput{Owners: []string{"self"}, Filters: filters(tags), MaxResults: aws.Int32(1000), IncludeDeprecated: aws.Bool(true), IncludeDisabled: aws.Bool(true)}
	var found []ami.Image
	pages := ec2.NewDescribeImagesPaginator(c.machine, in)
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return nil, explain("looking for images", err)
		}
		for _, i := range out.Images {
			found = append(found, imageOf(i))
		}
	}
	slices.SortStableFunc(found, func(a, b ami.Image) int { return b.Created.Compare(a.Created) })
	return found, nil
}

// filters returns EC2 filters for the tags; an empty value matches any.
func filters(tags map[string]string) []types.Filter {
	var out []types.Filter
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		f := types.Filter{Name: aws.String("tag:" + key), Values: []string{tags[key]}}
		if tags[key] == "" {
			f = types.Filter{Name: aws.String("tag-key"), Values: []string{key}}
		}
		out = append(out, f)
	}
	return out
}

func imageOf(i types.Image) ami.Image {
	out := ami.Image{ID: aws.ToString(i.ImageId), Name: aws.ToString(i.Name), Disks: len(i.BlockDeviceMappings), Tags: map[string]string{}}
	for debian := range bootModes {
		if string(i.Architecture) == awsname.Architecture(debian) {
			out.Architecture = debian
		}
	}
	switch i.State {
	case types.ImageStatePending:
		out.State = ami.Pending
	case types.ImageStateAvailable:
		out.State = ami.Available
	case types.ImageStateDisabled:
		out.State = ami.Disabled
	default:
		out.State = ami.Failed
		out.Reason = string(i.State)
	}
	if i.StateReason != nil {
		out.Reason = aws.ToString(i.StateReason.Message)
	}
	for _, d := range i.BlockDeviceMappings {
		if d.Ebs != nil && aws.ToString(d.DeviceName) == aws.ToString(i.RootDeviceName) {
			out.Snapshot, out.Volume = aws.ToString(d.Ebs.SnapshotId), int64(aws.ToInt32(d.Ebs.VolumeSize))
		}
	}
	for _, t := range i.Tags {
		out.Tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	// A time that cannot be read is the oldest; the API's model says string.
	out.Created, _ = time.Parse(time.RFC3339, aws.ToString(i.CreationDate))
	out.Launched, _ = time.Parse(time.RFC3339, aws.ToString(i.LastLaunchedTime))
	return out
}

// bootModes are how images start, by Debian's names of architectures. A disk of amd64 boots by UEFI and by BIOS, which bare metal and
// some types, such as g4ad, have alone; Graviton has UEFI alone (EC2 User Guide, "Instance launch behavior with Amazon EC2 boot modes").
var bootModes = map[string]types.BootModeValues{"amd64": types.BootModeValuesUefiPreferred, "arm64": types.BootModeValuesUefi}

// bootMode is how an image starts: one that no BIOS can start is refused by EC2 on types without UEFI, before it is launched.
func bootMode(r ami.Registration) types.BootModeValues {
	if r.UEFI {
		return types.BootModeValuesUefi
	}
	return bootModes[r.Architecture]
}

// Register makes an image for machines with NVMe and ENA, whose metadata service wants a token (IMDSv2), on gp3; with a certificate,
// for firmware with Secure Boot and a TPM.
func (c *Client) Register(ctx context.Context, r ami.Registration) (string, error) {
	tags := tagsOf(r.Tags)
	in := &ec2.RegisterImageInput{
		Name: &r.Name, Description: &r.Description, Architecture: types.ArchitectureValues(awsname.Architecture(r.Architecture)),
		BootMode: bootMode(r), EnaSupport: aws.Bool(true), ImdsSupport: types.ImdsSupportValuesV20,
		VirtualizationType: aws.String("hvm"), RootDeviceName: aws.String(ami.RootDevice),
		BlockDeviceMappings: []types.BlockDeviceMapping{{DeviceName: aws.String(ami.RootDevice), Ebs: &types.EbsBlockDevice{
			SnapshotId: &r.Snapshot, VolumeSize: aws.Int32(int32(r.Volume)), VolumeType: types.VolumeTypeGp3, DeleteOnTermination: aws.Bool(true),
		}}},
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeImage, Tags: tags}},
	}
	if len(r.SecureBoot) > 0 {
		in.UefiData, in.TpmSupport = aws.String(uefivars.SecureBoot(r.SecureBoot)), types.TpmSupportValuesV20
	}
	out, err := c.machine.RegisterImage(ctx, in)
	if awserr.Code(err) == "InvalidAMIName.Duplicate" {
		return "", fmt.Errorf("registering %s: %w: %w", r.Name, ami.ErrNameTaken, err)
	}
	if err != nil {
		return "", explain("registering "+r.Name, err)
	}
	return aws.ToString(out.ImageId), nil
}

func tagsOf(tags map[string]string) []types.Tag {
	var out []types.Tag
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, types.Tag{Key: &key, Value: aws.String(tags[key])})
	}
	return out
}

// Deregister removes an image.
func (c *Client) Deregister(ctx context.Context, image string) error {
	_, err := c.machine.DeregisterImage(ctx, &ec2.DeregisterImageInput{ImageId: &image})
	if hasCode(err, "InvalidAMIID.NotFound", "InvalidAMIID.Unavailable") {
		return nil
	}
	return explain("deregistering "+image, err)
}

func hasCode(err error, codes ...string) bool { return slices.Contains(codes, awserr.Code(err)) }

// Image returns an image; its state is Missing if it does not exist.
func (c *Client) Image(ctx context.Context, id string) (ami.Image, error) {
	out, err := c.machine.DescribeImages(ctx, &ec2.DescribeImagesInput{ImageIds: []string{id}, IncludeDisabled: aws.Bool(true)})
	if hasCode(err, "InvalidAMIID.NotFound", "InvalidAMIID.Unavailable") || err == nil && len(out.Images) == 0 {
		return ami.Image{ID: id, State: ami.Missing}, nil
	}
	if err != nil {
		return ami.Image{}, explain("looking at image "+id, err)
	}
	return imageOf(out.Images[0]), nil
}

// WaitImage returns when the image can be launched.
func (c *Client) WaitImage(ctx context.Context, image string) error {
	return c.wait(ctx, "image "+image, func() (ami.State, string, error) {
		i, err := c.Image(ctx, image)
		return i.State, i.Reason, err
	})
}

// SnapshotState returns the state of a snapshot.
func (c *Client) SnapshotState(ctx context.Context, snapshot string) (ami.State, error) {
	state, _, err := c.snapshot(ctx, snapshot)
	return state, err
}

func (c *Client) snapshot(ctx context.Context, id string) (ami.State, string, error) {
	out, err := c.machine.DescribeSnapshots(ctx, &ec2.DescribeSnapshotsInput{SnapshotIds: []string{id}})
	if hasCode(err, "InvalidSnapshot.NotFound") || err == nil && len(out.Snapshots) == 0 {
		return ami.Missing, "", nil
	}
	if err != nil {
		return "", "", explain("looking at snapshot "+id, err)
	}
	state, reason := stateOf(out.Snapshots[0])
	return state, reason, nil
}

func stateOf(s types.Snapshot) (ami.State, string) {
	switch s.State {
	case types.SnapshotStateCompleted:
		return ami.Available, ""
	case types.SnapshotStatePending:
		return ami.Pending, ""
	}
	return ami.Failed, string(s.State) + " " + aws.ToString(s.StateMessage)
}

// WaitSnapshot returns when the snapshot is complete.
func (c *Client) WaitSnapshot(ctx context.Context, snapshot string) error {
	return c.wait(ctx, "snapshot "+snapshot, func() (ami.State, string, error) { return c.snapshot(ctx, snapshot) })
}

// errNotReady makes wait poll again.
var errNotReady = errors.New("it is not ready")

// wait looks until a thing is ready or cannot become so. One that is missing may only not be visible yet.
func (c *Client) wait(ctx context.Context, what string, look func() (ami.State, string, error)) error {
	pace := backoff.NewExponentialBackOff()
	pace.InitialInterval, pace.MaxInterval = c.options.Poll, 10*c.options.Poll
	missing := 0
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		state, reason, err := look()
		switch {
		case err != nil:
			return struct{}{}, backoff.Permanent(err)
		case state == ami.Available:
			return struct{}{}, nil
		case state == ami.Failed:
			return struct{}{}, backoff.Permanent(fmt.Errorf("it failed: %s", reason))
		case state == ami.Disabled:
			return struct{}{}, backoff.Permanent(errors.New("it is disabled"))
		case state == ami.Missing:
			if missing++; missing > c.options.Attempts {
				return struct{}{}, backoff.Permanent(errors.New("there is none"))
			}
		}
		return struct{}{}, errNotReady
	}, backoff.WithBackOff(pace), backoff.WithMaxElapsedTime(c.options.Patience))
	if errors.Is(err, errNotReady) && ctx.Err() == nil {
		return fmt.Errorf("waiting for %s: still not ready after %v", what, c.options.Patience)
	}
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}

// DeleteSnapshot removes a snapshot.
func (c *Client) DeleteSnapshot(ctx context.Context, snapshot string) error {
	_, err := c.machine.DeleteSnapshot(ctx, &ec2.DeleteSnapshotInput{SnapshotId: &snapshot})
	if hasCode(err, "InvalidSnapshot.NotFound") {
		return nil
	}
	return explain("deleting snapshot "+snapshot, err)
}
