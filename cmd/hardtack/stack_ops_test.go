package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/ebs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/evict"
)

// stackAccount is an account with a VPC, in which the machines of whatever group comes up at once complete their launch
// as hardtack-ready does, and the function sweeps all the time.
type stackAccount struct {
	*awsfake.Account
	url    string
	api    *autoscaling.Client
	stacks *cloudformation.Client

	machines *ec2.Client
	blocks   *ebs.Client

	log    func(error)
	mu     sync.Mutex
	broken string // an image whose machines never come up
	// swept counts the function's sweeps.
	swept int
}

// newStackAccount is one whose stacks take step for each resource.
func newStackAccount(tb testing.TB, step time.Duration) *stackAccount {
	tb.Helper()
	a := &stackAccount{log: func(err error) { tb.Log(err) }, Account: awsfake.New(awsfake.Options{Rates: map[string]float64{"route53": 0, "ssm:PutParameter": 0},
		CloudFormation: awsfake.CloudFormationOptions{Step: step}})}
	server := httptest.NewServer(a.Handler())
	tb.Cleanup(server.Close)
	a.url = server.URL
	for _, id := range []string{"ami-0000000000000000a", "ami-0000000000000000b", "ami-0000000000000000c"} {
		a.Images().Add(awsfake.Image{ID: id, Root: ami.RootDevice, Firmware: awsfake.Firmware{Architecture: "x86_64", ENA: true}})
	}
	for _, zone := range []string{"a", "b", "c"} {
		a.EC2().AddSubnet(awsfake.Subnet{ID: "subnet-0000000000000000" + zone, VPC: "vpc-00000000000000001", Zone: "us-west-2" + zone})
	}
	conf := aws.Config{Region: "us-west-2", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("AKIDREGION", "secret", ""), HTTPClient: awshttp.Client(nil)}
	a.api, a.stacks = autoscaling.NewFromConfig(conf), cloudformation.NewFromConfig(conf)
	a.machines, a.blocks = ec2.NewFromConfig(conf), ebs.NewFromConfig(conf)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			a.live(ctx, conf)
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	tb.Cleanup(func() { cancel(); <-ended })
	return a
}

// live is one step of the machines, of the masters, which find no pods on a machine that ends and are gone first when the
// cluster ends, and of the function. Failures are tried again at the next step.
func (a *stackAccount) live(ctx context.Context, conf aws.Config) {
	a.Tick()
	machines := ec2.NewFromConfig(conf)
	out, err := a.api.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{})
	if err != nil {
		return
	}
	a.mu.Lock()
	broken := a.broken
	a.mu.Unlock()
	hook := &fleet.Evictions{API: a.api, Cluster: "demo"}
	seen, err := hook.Sight(ctx)
	if err != nil {
		return
	}
	for _, g := range out.AutoScalingGroups {
		for _, i := range g.Instances {
			if !seen.Closing && string(i.LifecycleState) == awsfake.StateTerminatingWait {
				_, _ = hook.Release(ctx, evict.Machine{ID: *i.InstanceId, Group: *g.AutoScalingGroupName}) // again at the next step
			}
			if m, _ := a.EC2().Machine(*i.InstanceId); string(i.LifecycleState) == awsfake.StatePendingWait && m.Image != broken {
				_, _ = a.api.CompleteLifecycleAction(ctx, &autoscaling.CompleteLifecycleActionInput{ // again at the next step
					AutoScalingGroupName: g.AutoScalingGroupName, InstanceId: i.InstanceId, LifecycleHookName: aws.String("hardtack-ready"), LifecycleActionResult: aws.String("CONTINUE"),
				})
			}
		}
	}
	records := route53.NewFromConfig(conf)
	id, err := zone.FindZone(ctx, records, zone.Query{Name: "k8s"})
	if err != nil || len(out.AutoScalingGroups) == 0 {
		return
	}
	policy := record.DefaultPolicy()
	policy.TTL = time.Second // a machine is drained when no resolver can have its address cached
	z, err := zone.NewRoute53(records, id, policy)
	if err != nil {
		return
	}
	s, err := reconcile.New(reconcile.Config{Zone: z, Policy: policy, Pace: -1, Propagation: time.Millisecond, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Fleet: &fleet.AWS{Scaling: a.api, Machines: machines}, Hooks: &fleet.Hooks{API: a.api}})
	if err == nil {
		_, err = s.Sync(ctx, "demo")
	}
	if err != nil && ctx.Err() == nil {
		a.log(err)
	}
	if err == nil {
		a.mu.Lock()
		a.swept++
		a.mu.Unlock()
	}
}

// publish registers an image of a version of Kubernetes, as hardtack image publish tags it; one of "unknown" has no such tag.
func (a *stackAccount) publish(ctx context.Context, kubernetes string) (id string, err error) {
	snapshot, err := a.blocks.StartSnapshot(ctx, &ebs.StartSnapshotInput{VolumeSize: aws.Int64(1)})
	if err != nil {
		return "", err
	}
	if _, err := a.blocks.CompleteSnapshot(ctx, &ebs.CompleteSnapshotInput{SnapshotId: snapshot.SnapshotId, ChangedBlocksCount: aws.Int32(0)}); err != nil {
		return "", err
	}
	tags := []types.Tag{{Key: aws.String(ami.TagImage), Value: aws.String("hardtack")}}
	if kubernetes != "unknown" {
		tags = append(tags, types.Tag{Key: aws.String(ami.TagKubernetes), Value: &kubernetes})
	}
	image, err := a.machines.RegisterImage(ctx, &ec2.RegisterImageInput{
		Name: aws.String("hardtack-" + kubernetes), Architecture: types.ArchitectureValuesX8664, VirtualizationType: aws.String("hvm"), RootDeviceName: aws.String(ami.RootDevice),
		EnaSupport: aws.Bool(true), ImdsSupport: types.ImdsSupportValuesV20,
		BlockDeviceMappings: []types.BlockDeviceMapping{{DeviceName: aws.String(ami.RootDevice), Ebs: &types.EbsBlockDevice{SnapshotId: snapshot.SnapshotId}}},
		TagSpecifications:   []types.TagSpecification{{ResourceType: types.ResourceTypeImage, Tags: tags}},
	})
	if err != nil {
		return "", err
	}
	return *image.ImageId, nil
}

// outputs writes what a stack has made in the form of Terraform's module.
func (a *stackAccount) outputs(stack, file string) error {
	out, err := a.stacks.DescribeStacks(context.Background(), &cloudformation.DescribeStacksInput{StackName: &stack})
	if err != nil {
		return err
	}
	made := map[string]any{"version": 1, "cluster": "demo", "region": "us-west-2", "owns_zone": true, "machines": true, "roles": map[string]string{}, "load_balancer": nil}
	for _, o := range out.Stacks[0].Outputs {
		switch *o.OutputKey {
		case "ZoneId":
			made["zone_id"] = *o.OutputValue
		case "GroupNames":
			made["groups"] = strings.Split(*o.OutputValue, ",")
		}
	}
	data, err := json.Marshal(map[string]any{"hardtack": map[string]any{"sensitive": false, "value": made}})
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}

// settled reports whether every group has its machines, all of them in service, and nothing else.
func (a *stackAccount) settled(ctx context.Context) bool {
	out, err := a.api.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{})
	if err != nil {
		return false
	}
	for _, g := range out.AutoScalingGroups {
		if len(g.Instances) != int(*g.DesiredCapacity) {
			return false
		}
		for _, i := range g.Instances {
			if string(i.LifecycleState) != awsfake.StateInService {
				return false
			}
		}
	}
	return true
}

// settle waits until every machine is in service, and the function has then run twice.
func (a *stackAccount) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	sweeps := func() int {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.swept
	}
	began, rested := 0, false
	for !rested || sweeps() < began+2 {
		if !rested && a.settled(ctx) {
			began, rested = sweeps(), true
		}
		select {
		case <-ctx.Done():
			return errors.New("the groups never come to rest")
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// TestStackOperations runs the operator's commands, each script on its own account.
func TestStackOperations(t *testing.T) {
	accounts := map[string]*stackAccount{}
	var mu sync.Mutex
	accountOf := func(ts *testscript.TestScript) *stackAccount {
		mu.Lock()
		defer mu.Unlock()
		return accounts[ts.Getenv("WORK")]
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/stackops", RequireExplicitExec: true, RequireUniqueNames: true, UpdateScripts: *updateScripts,
		Setup: func(env *testscript.Env) error {
			a := newStackAccount(env.T().(testing.TB), 0)
			mu.Lock()
			accounts[env.WorkDir] = a
			mu.Unlock()
			for k, v := range map[string]string{"AWS_ENDPOINT_URL": a.url, "AWS_REGION": "us-west-2", "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "HOME": env.WorkDir} {
				env.Setenv(k, v)
			}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"json": func(ts *testscript.TestScript, neg bool, args []string) {
				if got := json.Valid([]byte(ts.ReadFile(args[0]))); got == neg {
					ts.Fatalf("%s is JSON: %v", args[0], got)
				}
			},
			// channel IMAGE points the channel at the image; broken IMAGE keeps its machines from starting.
			"channel": func(ts *testscript.TestScript, _ bool, args []string) {
				_, err := accountOf(ts).SSM().Put(awsfake.Parameter{Name: "/hardtack/stable/image-id", Value: args[0]}, true)
				ts.Check(err)
			},
			"broken": func(ts *testscript.TestScript, _ bool, args []string) {
				a := accountOf(ts)
				a.mu.Lock()
				defer a.mu.Unlock()
				a.broken = args[0]
			},
			// image VARIABLE VERSION publishes an image of a version of Kubernetes, or of unknown, and sets the variable to its id.
			"image": func(ts *testscript.TestScript, _ bool, args []string) {
				id, err := accountOf(ts).publish(context.Background(), args[1])
				ts.Check(err)
				ts.Setenv(args[0], id)
			},
			// desired GROUP SIZE sets the size of a group, as cluster-autoscaler does.
			"desired": func(ts *testscript.TestScript, _ bool, args []string) {
				size, err := strconv.Atoi(args[1])
				ts.Check(err)
				_, err = accountOf(ts).api.SetDesiredCapacity(context.Background(), &autoscaling.SetDesiredCapacityInput{AutoScalingGroupName: &args[0], DesiredCapacity: aws.Int32(int32(size))})
				ts.Check(err)
			},
			// group NAME makes a foreign group of this name, nogroup NAME removes it.
			"group": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(accountOf(ts).AutoScaling().Create(awsfake.Group{Name: args[0], Zones: []string{"us-west-2a"}}))
			},
			// tagged NAME makes a foreign group with the cluster's tag, as kops's own has.
			"tagged": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(accountOf(ts).AutoScaling().Create(awsfake.Group{Name: args[0], Zones: []string{"us-west-2a"}, Tags: map[string]string{"KubernetesCluster": "demo", "Role": "minions"}}))
			},
			// tag GROUP KEY VALUE changes a tag of a group; without a value it removes it.
			"tag": func(ts *testscript.TestScript, _ bool, args []string) {
				var value *string
				if len(args) > 2 {
					value = &args[2]
				}
				ts.Check(accountOf(ts).AutoScaling().SetTag(args[0], args[1], value))
			},
			// outputs STACK FILE writes what the stack has made as terraform output -json prints it.
			"outputs": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(accountOf(ts).outputs(args[0], ts.MkAbs(args[1])))
			},
			"nogroup": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(accountOf(ts).AutoScaling().Delete(args[0]))
			},
			// upload URL FILE makes an object in S3.
			"upload": func(ts *testscript.TestScript, _ bool, args []string) {
				accountOf(ts).CloudFormation().AddObject(args[0], ts.ReadFile(args[1]))
			},
			// bucket NAME makes a bucket, objects NAME COUNT fails unless it has so many objects.
			"bucket": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(accountOf(ts).S3().Create(awsfake.Bucket{Name: args[0]}))
			},
			"objects": func(ts *testscript.TestScript, _ bool, args []string) {
				if got := strconv.Itoa(len(accountOf(ts).S3().Objects(args[0]))); got != args[1] {
					ts.Fatalf("%s has %s objects", args[0], got)
				}
			},
			// settled waits until every machine is in service and the function has seen it.
			"settled": func(ts *testscript.TestScript, _ bool, _ []string) {
				ts.Check(accountOf(ts).settle(context.Background()))
			},
			// stacks NAME=STATUS... fails unless exactly these stacks exist.
			"stacks": func(ts *testscript.TestScript, _ bool, args []string) {
				out, err := accountOf(ts).stacks.DescribeStacks(context.Background(), &cloudformation.DescribeStacksInput{})
				ts.Check(err)
				var got []string
				for _, s := range out.Stacks {
					got = append(got, *s.StackName+"="+string(s.StackStatus))
				}
				if !slices.Equal(got, args) {
					ts.Fatalf("the stacks are %v, want %v", got, args)
				}
			},
		},
	})
}
