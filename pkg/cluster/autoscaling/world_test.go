package autoscaling_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/smithy-go/middleware"
	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
	scaling "github.com/hardtack/packer-plugin-hardtack/pkg/cluster/autoscaling"
	formation "github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The successive images of the tests' channel.
const (
	imageA  = "ami-0000000000000000a"
	imageB  = "ami-0000000000000000b"
	channel = "/hardtack/stable/image-id"
)

// world is an account with a cluster's rendered stack. Its time passes during sleeps: machines come up and complete
// their launch hook as hardtack-ready does, and the function's reconcile runs at every sleep.
type world struct {
	*awsfake.VirtualClock
	t        *testing.T
	account  *awsfake.Account
	scaling  *autoscaling.Client
	machines *ec2.Client
	stacks   *formation.Stacks
	cluster  *scaling.Cluster
	syncer   *reconcile.Syncer
	names    []string // of the groups
	// broken images have machines that never come up; boot is how long other machines take.
	broken string
	boot   time.Duration
	// pods is how long the pods of a machine that ends take to move away, and ending when it was first seen ending.
	pods   time.Duration
	ending map[string]time.Time
	// out makes EC2 launch nothing.
	out bool
	// history and swept are the state and the time of the function's last sweep.
	history int
	swept   time.Time
	// since is when a machine was first seen waiting.
	since map[string]time.Time
	// least is the smallest number of serving machines of the control plane after all served; all is their full number.
	least, all int
	asleep     func()
}

func newWorld(t *testing.T, document string) *world {
	t.Helper()
	w := &world{t: t, VirtualClock: awsfake.NewVirtualClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)), boot: 40 * time.Second, since: map[string]time.Time{}, ending: map[string]time.Time{}}
	w.account = awsfake.New(awsfake.Options{Clock: w.VirtualClock, Rates: map[string]float64{"route53": 0},
		AutoScaling: awsfake.AutoScalingOptions{Step: 2 * time.Second, Refuse: w.refuse}, CloudFormation: awsfake.CloudFormationOptions{Step: time.Second}})
	server := httptest.NewServer(w.account.Handler())
	t.Cleanup(server.Close)
	conf := aws.Config{
		Region: "us-west-2", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", ""),
		RetryMaxAttempts: 1, HTTPClient: awshttp.Client(nil),
	}
	for _, zone := range []string{"a", "b", "c"} {
		w.account.EC2().AddSubnet(awsfake.Subnet{ID: "subnet-0000000000000000" + zone, VPC: "vpc-00000000000000001", Zone: "us-west-2" + zone})
	}
	w.account.EC2().AddSecurityGroup(awsfake.SecurityGroup{ID: "sg-0123456789abcdef0", Name: "more", VPC: "vpc-00000000000000001"})
	for _, name := range []string{"CloudWatchAgentServerPolicy", "AmazonEC2ContainerRegistryReadOnly", "AmazonSSMManagedInstanceCore"} {
		w.account.AddManagedPolicy("arn:aws:iam::aws:policy/"+name, awsfake.Policy{})
	}
	w.publish(imageA)
	w.scaling, w.machines = autoscaling.NewFromConfig(conf), ec2.NewFromConfig(conf)
	w.stacks = &formation.Stacks{API: cloudformation.NewFromConfig(conf), Clock: w, Log: slog.New(slog.DiscardHandler)}
	made := w.deploy(document)
	zoneID := made.Outputs["ZoneId"]
	w.names = strings.Split(made.Outputs["GroupNames"], ",")
	policy := record.DefaultPolicy()
	records, err := zone.NewRoute53(route53.NewFromConfig(conf), zoneID, policy)
	if err != nil {
		t.Fatal(err)
	}
	w.cluster = &scaling.Cluster{
		Name: "demo", Groups: w.scaling, Machines: w.machines, Records: records, Policy: policy, Log: slog.New(slog.DiscardHandler),
		Preferences: scaling.Preferences{MinHealthy: 50, Checkpoints: []int{50, 100}, Delay: 60},
	}
	w.syncer, err = reconcile.New(reconcile.Config{Zone: records, Clock: w.VirtualClock, Policy: policy, Pace: -1,
		Fleet: &fleet.AWS{Scaling: w.scaling, Machines: w.cluster.Machines}, Hooks: &fleet.Hooks{API: w.scaling}})
	if err != nil {
		t.Fatal(err)
	}
	w.settle()
	w.all = w.filled()
	w.least = w.all
	return w
}

// refuse makes EC2 launch nothing while out is set.
func (w *world) refuse(action, _ string) error {
	if action == "launch" && w.out {
		return errors.New("InsufficientInstanceCapacity: there are no such machines now")
	}
	return nil
}

// answers lets a test see what AutoScaling and EC2 answer the cluster from now on, and change it to what awsfake never answers. It takes
// the place of the one before.
func (w *world) answers(change func(out any)) {
	see := []func(*middleware.Stack) error{func(s *middleware.Stack) error {
		return s.Initialize.Add(middleware.InitializeMiddlewareFunc("answers", func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			out, metadata, err := next.HandleInitialize(ctx, in)
			if err == nil {
				change(out.Result)
			}
			return out, metadata, err
		}), middleware.Before)
	}}
	w.cluster.Groups = autoscaling.New(w.scaling.Options(), func(o *autoscaling.Options) { o.APIOptions = append(see, o.APIOptions...) })
	w.cluster.Machines = ec2.New(w.machines.Options(), func(o *ec2.Options) { o.APIOptions = append(see, o.APIOptions...) })
}

// publish points the channel at an image.
func (w *world) publish(image string) {
	w.t.Helper()
	if _, err := w.account.SSM().Put(awsfake.Parameter{Name: channel, Value: image}, true); err != nil {
		w.t.Fatal(err)
	}
}

// deploy updates the stack to the named rendered template, with texts changed to others.
func (w *world) deploy(document string, change ...string) *formation.Stack {
	w.t.Helper()
	body, err := os.ReadFile("../template/testdata/" + document + ".template.yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	body = []byte(strings.NewReplacer(change...).Replace(string(body)))
	var plain any
	if err := yaml.Unmarshal(body, &plain); err != nil {
		w.t.Fatal(err)
	}
	if body, err = json.Marshal(plain); err != nil { // as it fits into a request
		w.t.Fatal(err)
	}
	p := formation.Proposal{Stack: "hardtack-demo", Template: string(body), Parameters: map[string]string{
		"VpcId": "vpc-00000000000000001", "SubnetIds": "subnet-0000000000000000a,subnet-0000000000000000b", "Machines": "yes", "ImageId": channel,
	}}
	if strings.Contains(p.Template, `"EtcdSubnetIds":{`) {
		p.Parameters["EtcdSubnetIds"] = "subnet-0000000000000000a,subnet-0000000000000000b,subnet-0000000000000000c"
		p.Parameters["EtcdZones"] = "us-west-2a,us-west-2b,us-west-2c"
	}
	if strings.Contains(p.Template, `"LoadBalancerSubnetIds":{`) { // a cluster whose only member of etcd has no name
		p.Parameters["LoadBalancerSubnetIds"] = p.Parameters["SubnetIds"]
		p.Parameters["EtcdSubnetIds"], p.Parameters["EtcdZones"] = "subnet-0000000000000000a", "us-west-2a"
	}
	plan, err := w.stacks.Propose(w.t.Context(), p)
	if err != nil {
		w.t.Fatal(err)
	}
	now, err := w.stacks.Execute(w.t.Context(), plan)
	if err != nil {
		w.t.Fatal(err)
	}
	return now
}

// settle lets time pass until every machine serves.
func (w *world) settle() {
	w.t.Helper()
	for range 60 {
		if err := w.Sleep(w.t.Context(), 10*time.Second); err != nil {
			w.t.Fatal(err)
		}
	}
}

// Sleep lets the time pass in steps of a few seconds, with the function's sweep and the machines' boots.
func (w *world) Sleep(ctx context.Context, d time.Duration) error {
	for ; d > 0 && ctx.Err() == nil; d -= 10 * time.Second {
		w.Advance(min(d, 10*time.Second))
		w.account.Tick()
		w.live()
	}
	if w.asleep != nil {
		w.asleep()
	}
	return ctx.Err()
}

// live simulates the machines, the masters' answer to the hook that waits for pods, and the function.
func (w *world) live() {
	if w.syncer == nil {
		return
	}
	for _, name := range w.names {
		for _, i := range w.account.AutoScaling().Instances(name) {
			if i.Tokens[role.EvictionHook] != "" && w.moved(i.ID) {
				if err := w.account.AutoScaling().Complete(name, role.EvictionHook, i.ID, awsfake.Continue); err != nil {
					w.t.Fatal(err)
				}
			}
			if i.State != awsfake.StatePendingWait {
				continue
			}
			if _, ok := w.since[i.ID]; !ok {
				w.since[i.ID] = w.Now()
			}
			m, _ := w.account.EC2().Machine(i.ID)
			if w.Now().Sub(w.since[i.ID]) < w.boot || m.Image == w.broken {
				continue
			}
			_, err := w.scaling.CompleteLifecycleAction(w.t.Context(), &autoscaling.CompleteLifecycleActionInput{
				AutoScalingGroupName: &name, InstanceId: &i.ID, LifecycleHookName: aws.String("hardtack-ready"), LifecycleActionResult: aws.String("CONTINUE"),
			})
			if err != nil {
				w.t.Fatal(err)
			}
		}
	}
	// The function runs for events and on its schedule.
	if history := len(w.account.AutoScaling().History()); history != w.history || w.Now().Sub(w.swept) >= time.Minute {
		w.history, w.swept = history, w.Now()
		if _, err := w.syncer.Sync(w.t.Context(), "demo"); err != nil {
			w.t.Fatal(err)
		}
		w.account.Tick()
	}
	if w.all > 0 {
		w.least = min(w.least, w.filled())
	}
}

// moved reports whether the pods of a machine that ends have moved away.
func (w *world) moved(machine string) bool {
	if _, ok := w.ending[machine]; !ok {
		w.ending[machine] = w.Now()
	}
	return w.Now().Sub(w.ending[machine]) >= w.pods
}

// filled counts the machines of the control plane that serve.
func (w *world) filled() int {
	n := 0
	for _, name := range w.names {
		for _, i := range w.account.AutoScaling().Instances(name) {
			if i.State == awsfake.StateInService && !strings.HasSuffix(name, "-minions") {
				n++
			}
		}
	}
	return n
}

// fleet is a summary: a line for each group, with its version, and the images and states of its machines.
func (w *world) fleet() string {
	w.t.Helper()
	s, err := w.cluster.Read(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	var lines []string
	for _, g := range s.Groups {
		line := fmt.Sprintf("%s %d:", g.Key, g.Launches.Number)
		for _, m := range g.Machines {
			line += " " + m.From.Image[len(m.From.Image)-1:]
			if m.State != "InService" || !m.Published {
				line += "(" + m.State + ")"
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}
