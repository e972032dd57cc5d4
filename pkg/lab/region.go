package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dnssync"
	"github.com/hardtack/packer-plugin-hardtack/pkg/function"
	"github.com/hardtack/packer-plugin-hardtack/pkg/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/zone"
)

// What the region is, as machines see it. The stand-in for AWS has one region.
const (
	regionName  = "us-west-2"
	zoneName    = regionName + "a"
	machineType = "m7i.large"
	imageID     = "ami-0123456789abcdef0"
	// vpcID sees the private zone.
	vpcID     = "vpc-0123456789abcdef0"
	subnetID  = "subnet-0123456789abcdef0"
	accountID = "123456789012"
)

// subnet is the machines' network: its first address is the gateway's, its second the resolver's, and at its third
// are the AWS APIs.
var subnet = netip.MustParsePrefix("10.1.0.0/24")

// The hooks' figures.
const (
	// drainHook holds a machine until it has left DNS. A machine that cannot be drained ends all the same.
	drainHook = "hardtack-drain"
	drainTime = 5 * time.Minute
	// launchTime is how long a machine may take until it works: the longest heartbeat that AutoScaling takes, since
	// how long a boot takes depends on this computer. What does not come up is seen in its console.
	launchTime = 2 * time.Hour
	transition = "autoscaling:EC2_INSTANCE_"
	// maxSize is more machines than the lab's network has addresses.
	maxSize = 256
	// functionLife is longer than any lab is up: Lambda hands a function new credentials with every new environment,
	// and here there is one for as long as the daemon lives.
	functionLife = 10 * 365 * 24 * time.Hour
)

// region is the lab's AWS account, as its owner has set it up.
type region struct {
	account *awsfake.Account
	plan    Plan
	log     *slog.Logger
	wire    *wire
	// owner may do everything; key is its access key.
	owner aws.Config
	key   aws.Credentials
	// outside is where programs on this computer find the APIs.
	outside *outside
	queue   string

	mu sync.Mutex
	// zone is empty until there is one.
	zone string
}

// newRegion makes the account with everything but groups: zone, queue and function.
func newRegion(ctx context.Context, d *Daemon) (*region, error) {
	r := &region{plan: d.plan, log: d.log}
	r.account = awsfake.New(awsfake.Options{
		EC2: awsfake.EC2Options{Hypervisor: d.host},
		EBS: awsfake.EBSOptions{Directory: d.home.Dir},
		// A group looks at its machines' health often here, so that a lab is no test of patience.
		AutoScaling: awsfake.AutoScalingOptions{HealthCheck: time.Second},
		// A cluster's secrets are made at once: nobody learns anything from waiting for Parameter Store's quota.
		Rates: map[string]float64{"ssm:PutParameter": 0},
	})
	var err error
	if r.wire, err = d.home.newWire(wireSocket, r.account.Handler()); err != nil {
		return nil, err
	}
	r.account.EC2().AddSubnet(awsfake.Subnet{ID: subnetID, VPC: vpcID, Zone: zoneName, CIDR: subnet.String()})
	if r.outside, err = newOutside(ctx, r.account.Handler()); err != nil {
		r.wire.close()
		return nil, err
	}
	if err := r.setUp(ctx); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *region) close() error {
	r.outside.close()
	r.wire.close()
	return r.account.Close()
}

func (r *region) setUp(ctx context.Context) error {
	r.key = credentials(r.account.AddUser("owner", awsfake.Administrator()))
	r.owner = r.wire.principal(regionName, r.key)
	if !r.plan.Empty {
		if err := r.makeZone(ctx); err != nil {
			return err
		}
	}
	return r.makeQueue()
}

// zoneID is the private zone, and empty while there is none.
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

// lookEvery is how often an empty region is asked whether it has its zone by now.
const lookEvery = time.Second

// invoke invokes the function until ctx ends; on AWS its stack is made once the zone is there.
func (r *region) invoke(ctx context.Context, d *Daemon) {
	query := zone.Query{Name: record.DefaultSuffix, VPC: vpcID, Region: regionName}
	for r.zoneID() == "" {
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookEvery):
		}
		if id, err := zone.FindZone(ctx, route53.NewFromConfig(r.owner), query); err == nil {
			r.setZone(id)
		} else if !errors.Is(err, zone.ErrNoZone) && ctx.Err() == nil {
			r.log.Warn("looking for the cluster's zone", "error", err)
		}
	}
	t, err := r.makeFunction(d)
	if err != nil {
		r.log.Error("there is no function that keeps the records", "error", err)
		return
	}
	t.run(ctx)
}

// credentials are the stand-in's as the SDK has them.
func credentials(c awsfake.Credentials) aws.Credentials {
	return aws.Credentials{AccessKeyID: c.AccessKey, SecretAccessKey: c.Secret, SessionToken: c.Token, CanExpire: !c.Expires.IsZero(), Expires: c.Expires, Source: "lab"}
}

// makeZone makes the private zone with the cluster's placeholders, before any machine can ask for them.
func (r *region) makeZone(ctx context.Context) error {
	api := route53.NewFromConfig(r.owner)
	id, err := zone.CreateZone(ctx, api, zone.Query{Name: record.DefaultSuffix, VPC: vpcID, Region: regionName}, "hardtack-lab")
	if err != nil {
		return err
	}
	policy := record.DefaultPolicy()
	records, err := zone.NewRoute53(api, id, policy)
	if err != nil {
		return err
	}
	r.setZone(id)
	_, err = zone.Prepare(ctx, records, r.plan.Cluster, policy, dnssync.NewGeneration(time.Now(), rand.Uint64()))
	return err
}

// makeQueue makes the queue that events and the schedule fill, as lambda/template.yaml does.
func (r *region) makeQueue() error {
	queues := r.account.SQS()
	dead, err := queues.CreateQueue("hardtack-dns-dead", map[string]string{"MessageRetentionPeriod": "1209600"})
	if err != nil {
		return fmt.Errorf("making the dead-letter queue: %w", err)
	}
	arn := "arn:aws:sqs:" + regionName + ":" + accountID + ":" + dead[strings.LastIndex(dead, "/")+1:]
	redrive, err := json.Marshal(map[string]any{"deadLetterTargetArn": arn, "maxReceiveCount": 5})
	if err != nil {
		return fmt.Errorf("encoding the redrive policy: %w", err)
	}
	r.queue, err = queues.CreateQueue("hardtack-dns", map[string]string{
		"VisibilityTimeout": "192", "MessageRetentionPeriod": "3600", "RedrivePolicy": string(redrive),
	})
	if err != nil {
		return fmt.Errorf("making the queue: %w", err)
	}
	names := r.plan.names()
	r.account.Events().ToQueue(r.queue, func(e awsfake.Event) bool {
		var detail struct{ AutoScalingGroupName string }
		return json.Unmarshal(e.Detail, &detail) == nil && slices.Contains(names, detail.AutoScalingGroupName)
	})
	return nil
}

// makeFunction makes the handler that Lambda runs, with an environment as Lambda gives it.
func (r *region) makeFunction(d *Daemon) (*trigger, error) {
	r.account.AddRole("hardtack-dns", r.functionPolicy())
	issued, err := r.account.Issue("hardtack-dns", "function", functionLife)
	if err != nil {
		return nil, fmt.Errorf("making the function's credentials: %w", err)
	}
	key := credentials(issued)
	env := map[string]string{
		function.EnvClusters: r.plan.Cluster + "=" + strings.Join(r.plan.names(), ","),
		function.EnvZone:     r.zoneID(), function.EnvSuffix: strings.TrimSuffix(record.DefaultSuffix, "."),
		function.EnvQueue: r.queue, function.EnvRegion: regionName, function.EnvEndpoint: endpoint,
		function.EnvKey: key.AccessKeyID, function.EnvSecret: key.SecretAccessKey, function.EnvSession: key.SessionToken,
	}
	settings, err := function.Read(func(name string) string { return env[name] })
	if err != nil {
		return nil, err
	}
	settings.Client = r.wire.client
	handler, err := function.Connect(settings, io.Discard, r.log)
	if err != nil {
		return nil, err
	}
	return &trigger{
		queue: sqs.NewFromConfig(r.wire.principal(regionName, key)), url: r.queue, handler: handler, now: time.Now, called: d.news, log: r.log,
	}, nil
}

// makeGroups makes the groups with their hooks, and then lets them have their machines.
func (r *region) makeGroups(ca []byte) error {
	groups := r.account.AutoScaling()
	for _, g := range r.plan.Groups {
		userData, err := r.plan.UserData(g.Name, ca)
		if err != nil {
			return fmt.Errorf("writing the user data of group %s: %w", g.Name, err)
		}
		policies, err := r.machinePolicies(g)
		if err != nil {
			return err
		}
		r.account.AddRole(r.roleOf(g), policies...)
		err = groups.Create(awsfake.Group{
			Name: g.Scaling, Max: maxSize, Tags: g.tags(r.plan.Cluster), Zones: []string{zoneName}, Image: imageID, Type: machineType,
			Role: r.roleOf(g), UserData: string(userData),
		})
		if err != nil {
			return fmt.Errorf("making group %s: %w", g.Name, err)
		}
		hooks := []awsfake.Hook{{Name: drainHook, Transition: transition + "TERMINATING", Heartbeat: drainTime, Default: awsfake.Continue}}
		if r.plan.LaunchHook != "" {
			hooks = append(hooks, awsfake.Hook{Name: r.plan.LaunchHook, Transition: transition + "LAUNCHING", Heartbeat: launchTime, Default: awsfake.Abandon})
		}
		for _, h := range hooks {
			if err := groups.PutHook(g.Scaling, h); err != nil {
				return fmt.Errorf("making hook %s of group %s: %w", h.Name, g.Name, err)
			}
		}
	}
	for _, g := range r.plan.Groups {
		if err := groups.SetDesired(g.Scaling, g.Size); err != nil {
			return fmt.Errorf("setting the size of group %s: %w", g.Name, err)
		}
	}
	return nil
}

// roleOf is the name of a group's instance role.
func (r *region) roleOf(g Group) string { return g.Scaling }

// secrets is the cluster's store, as its owner reaches it.
func (r *region) secrets() store.Store {
	return store.NewSSM(r.plan.Store, func(context.Context) (aws.Config, error) { return r.owner, nil })
}
