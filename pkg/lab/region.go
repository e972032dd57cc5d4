package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
)

// The region as machines see it.
const (
	regionName = awsfake.HomeRegion
	zoneName   = regionName + "a"
	// vpcID is the VPC that can resolve the private zone.
	vpcID     = "vpc-0123456789abcdef0"
	subnetID  = "subnet-0123456789abcdef0"
	accountID = "123456789012"
)

// subnet is the machines' network: its first address is the gateway, its second the resolver, its third the AWS APIs.
var subnet = netip.MustParsePrefix("10.1.0.0/24")

// region is the lab's AWS account.
type region struct {
	account *awsfake.Account
	plan    Plan
	log     *slog.Logger
	wire    *wire
	// owner has all permissions; key is its access key.
	owner aws.Config
	key   aws.Credentials
	// outside serves the APIs to programs on this computer.
	outside *outside
	queue   string

	mu sync.Mutex
	// zone is the private zone's id; empty until it exists.
	zone string
}

// newRegion makes the account with the resources that exist on AWS before a cluster does: a VPC, an owner, and the
// queue of the DNS function. machines runs its instances.
func newRegion(ctx context.Context, h Home, plan Plan, machines awsfake.Hypervisor, log *slog.Logger) (*region, error) {
	r := &region{plan: plan, log: log}
	r.account = newAccount(h, machines)
	r.key = credentials(r.account.AddUser("owner", awsfake.Administrator()))
	var err error
	if r.wire, err = h.newWire(wireSocket, r.account.Handler()); err != nil {
		return nil, err
	}
	r.account.EC2().AddSubnet(awsfake.Subnet{ID: subnetID, VPC: vpcID, Zone: zoneName})
	r.account.EC2().SetVPC(vpcID, awsfake.VPCAttributes{Support: true, Ranges: []string{subnet.String()}})
	if r.outside, err = newOutside(ctx, r.account.Handler()); err != nil {
		r.wire.close()
		return nil, err
	}
	r.owner = r.wire.principal(regionName, r.key)
	if err := r.makeQueue(); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// newAccount makes the region's account, which refuses every call until it has a user.
func newAccount(h Home, machines awsfake.Hypervisor) *awsfake.Account {
	return awsfake.New(awsfake.Options{
		// Other users of this computer reach the APIs by 127.0.0.1, and pods by their machine's network.
		Closed: true,
		// A machine lets go of a volume in a second, unless it hangs.
		EC2: awsfake.EC2Options{Hypervisor: machines, Volumes: awsfake.VolumeOptions{Detach: time.Minute}},
		EBS: awsfake.EBSOptions{Directory: h.Dir},
		// Groups check their machines' health more often than on AWS, so that people wait less.
		AutoScaling: awsfake.AutoScalingOptions{HealthCheck: time.Second},
		// Without Parameter Store's quota a cluster's secrets are made at once.
		Rates: map[string]float64{"ssm:PutParameter": 0},
	})
}

func (r *region) close() error {
	r.outside.close()
	r.wire.close()
	return r.account.Close()
}

// zoneID returns the private zone's id; empty until it exists.
func (r *region) zoneID() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.zone
}

func (r *region) setZone(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.zone = id
}

// credentials converts the fake account's credentials to the SDK's.
func credentials(c awsfake.Credentials) aws.Credentials {
	return aws.Credentials{AccessKeyID: c.AccessKey, SecretAccessKey: c.Secret, SessionToken: c.Token, CanExpire: !c.Expires.IsZero(), Expires: c.Expires, Source: "lab"}
}

// secrets is the cluster's store with the owner's access.
func (r *region) secrets() store.Store {
	return store.NewSSM(r.plan.Store, func(context.Context) (aws.Config, error) { return r.owner, nil })
}

// scale sets a group's desired size, and its minimum and maximum if they are in the way.
func (r *region) scale(ctx context.Context, group string, size int) error {
	now, _ := r.account.AutoScaling().Group(group) // the update reports a group that does not exist
	number := func(n int) *int32 { return aws.Int32(int32(n)) }
	_, err := autoscaling.NewFromConfig(r.owner).UpdateAutoScalingGroup(ctx, &autoscaling.UpdateAutoScalingGroupInput{
		AutoScalingGroupName: &group, MinSize: number(min(now.Min, size)), MaxSize: number(max(now.Max, size)), DesiredCapacity: number(size),
	})
	if err != nil {
		return fmt.Errorf("scaling %s: %w", group, err)
	}
	return nil
}
