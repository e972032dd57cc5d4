package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/account"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awsconfig"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// attachPoint is the name of the attachment in EC2, one of those that it recommends for data volumes. The device has
// another name on the machine.
const attachPoint = "/dev/sdf"

// Options say which machine and which member this is.
type Options struct {
	// Endpoint replaces the AWS endpoints, for tests and the lab; empty means AWS.
	Endpoint string
	// Metadata is the endpoint of the instance metadata service; empty means EC2's.
	Metadata string
	// Cluster and Member are the values of the volumes' tags.
	Cluster, Member string
}

// EC2 is the source of a member's EBS volumes in the machine's availability zone.
type EC2 struct {
	options Options
	// root is / but in tests.
	root     string
	api      *ec2.Client
	identity imds.Identity
	// last is what EC2 last said, at the time asked, and has said since the time since.
	last         []etcd.Volume
	asked, since time.Time
}

// settled is how long a machine that has its volume does not ask again; slowest is the longest pause between two questions of
// one that waits. A machine can wait for days, and an account's calls are counted together.
const (
	settled = 10 * time.Minute
	slowest = 15 * time.Second
)

// NewEC2 makes no request: zone, instance and credentials are looked up at the first call, and again until that
// succeeds, since a machine's metadata service may answer late.
func NewEC2(o Options) *EC2 { return &EC2{options: o, root: "/"} }

// Identity returns which machine this is.
func (e *EC2) Identity(ctx context.Context) (imds.Identity, error) {
	err := e.connect(ctx)
	return e.identity, err
}

func (e *EC2) connect(ctx context.Context) error {
	if e.api != nil {
		return nil
	}
	found, err := awsconfig.Machine{Metadata: e.options.Metadata}.Identity(ctx)
	if err != nil {
		return reason.Errorf(reason.Metadata, "asking the metadata service which instance this is: %w", err)
	}
	c, err := awsconfig.Machine{Endpoint: e.options.Endpoint, Metadata: e.options.Metadata, Region: found.Region}.Load(ctx)
	if err != nil {
		return explain(err, "")
	}
	e.api, e.identity = ec2.NewFromConfig(c), found
	return nil
}

// Find returns the member's volumes in this machine's zone, sorted by id. It asks EC2 less and less often while nothing changes,
// and returns what it said before. It is not safe for concurrent use.
func (e *EC2) Find(ctx context.Context) ([]etcd.Volume, error) {
	if err := e.connect(ctx); err != nil {
		return nil, err
	}
	now := time.Now()
	if known := now.Sub(e.asked); known < e.pause() && (len(e.last) != 1 || e.last[0].Device == "" || e.there(e.last[0])) {
		return slices.Clone(e.last), nil
	}
	found, err := e.find(ctx)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(found, e.last) || e.since.IsZero() {
		e.since = now
	}
	e.last, e.asked = found, now
	return slices.Clone(found), nil
}

// pause is how long the last answer is used.
func (e *EC2) pause() time.Duration {
	if len(e.last) == 1 && e.last[0].Device != "" {
		return settled
	}
	if quiet := e.asked.Sub(e.since); !e.since.IsZero() && quiet > time.Minute {
		return min(quiet/8, slowest)
	}
	return 0
}

// there reports whether a volume's device is what it was.
func (e *EC2) there(v etcd.Volume) bool {
	device, err := bySerial(e.root, v.ID)
	return err == nil && device == v.Device
}

func (e *EC2) find(ctx context.Context) ([]etcd.Volume, error) {
	filter := func(name, value string) types.Filter { return types.Filter{Name: &name, Values: []string{value}} }
	out := []etcd.Volume{}
	pages := ec2.NewDescribeVolumesPaginator(e.api, &ec2.DescribeVolumesInput{Filters: append(account.Filters(e.options.Cluster),
		filter("tag:"+role.TagEtcdMember, e.options.Member), filter("availability-zone", e.identity.AvailabilityZone))})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("looking for the volume of etcd's member %s in %s: %w", e.options.Member, e.identity.AvailabilityZone, explain(err, "DescribeVolumes"))
		}
		for _, v := range page.Volumes {
			if v.State == types.VolumeStateDeleting || v.State == types.VolumeStateDeleted {
				continue
			}
			claim, err := e.claim(ctx, v)
			if err != nil {
				return nil, err
			}
			out = append(out, claim)
		}
	}
	slices.SortFunc(out, byVolume)
	return out, nil
}

// claim converts a volume, asks for the state of the machine that has it, and finds its device on this one.
func (e *EC2) claim(ctx context.Context, v types.Volume) (etcd.Volume, error) {
	out := etcd.Volume{ID: aws.ToString(v.VolumeId), State: string(v.State), Free: v.State == types.VolumeStateAvailable}
	for _, a := range v.Attachments {
		// Where two machines can write to a volume at once, it is held by the other one.
		if holder := aws.ToString(a.InstanceId); a.State != types.VolumeAttachmentStateDetached && (out.Holder == "" || out.Holder == e.identity.InstanceID) {
			out.Holder, out.Free = holder, false
		}
	}
	var err error
	switch out.Holder {
	case "":
	case e.identity.InstanceID:
		out.Device, err = bySerial(e.root, out.ID)
		out.State = string(types.InstanceStateNameRunning)
	default:
		out.State, err = e.state(ctx, out.Holder)
	}
	return out, err
}

// state returns the state of an instance. EC2 forgets one about an hour after its end.
func (e *EC2) state(ctx context.Context, instance string) (string, error) {
	const gone = string(types.InstanceStateNameTerminated)
	out, err := e.api.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{instance}})
	if awserr.Code(err) == "InvalidInstanceID.NotFound" {
		return gone, nil
	}
	if err != nil {
		return "", fmt.Errorf("asking for the state of %s, which has the volume of etcd's member %s: %w", instance, e.options.Member, explain(err, "DescribeInstances"))
	}
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			if i.State != nil {
				return string(i.State.Name), nil
			}
		}
	}
	return gone, nil
}

// Attach attaches the volume to this machine. EC2 goes on attaching it after the answer. A volume that anybody has already is
// not an error: Find says who.
func (e *EC2) Attach(ctx context.Context, id string) error {
	if err := e.connect(ctx); err != nil {
		return err
	}
	_, err := e.api.AttachVolume(ctx, &ec2.AttachVolumeInput{VolumeId: &id, InstanceId: &e.identity.InstanceID, Device: aws.String(attachPoint)})
	e.since = time.Time{}
	if err == nil || awserr.Code(err) == "VolumeInUse" {
		return nil // a description is behind what EC2 does: the next one says who has it
	}
	return fmt.Errorf("attaching %s to this machine, %s, as %s: %w", id, e.identity.InstanceID, attachPoint, explain(err, "AttachVolume"))
}

// explain adds the reason of a failed boot to an error, with the permission to allow.
func explain(err error, action string) error {
	switch {
	case errors.Is(err, awsconfig.ErrMetadata):
		return reason.With(reason.Metadata, err)
	case errors.Is(err, awsconfig.ErrNoRole):
		return reason.With(reason.Permission, err)
	case awserr.KindOf(err) == awserr.Denied:
		return &reason.Error{Reason: reason.Permission, Err: err, Next: "allow ec2:" + action + " for the group's instance role, on volumes and instances with the tag " + role.TagEtcdMember}
	}
	return reason.With(reason.Volume, err)
}

func byVolume(a, b etcd.Volume) int { return strings.Compare(a.ID, b.ID) }
