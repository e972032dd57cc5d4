package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awsconfig"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/boot"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/command"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/evict"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/identity"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kubelet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/systemd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// controllerKubeconfig is minted at boot. Its user has what the addon 11-controller.yaml gives it, and no more.
var controllerKubeconfig = kubeconfigOf(pki.DirController)

// controllerCommand is hardtack-agent controller.
func controllerCommand(ctx context.Context, args []string, s command.Streams) error {
	flags := flag.NewFlagSet("controller", flag.ContinueOnError)
	root := flags.String("root", "/", "")
	kubeconfig := flags.String("kubeconfig", controllerKubeconfig, "")
	verbose := flags.Bool("v", false, "")
	if done, err := command.ParseFlags(flags, args, s, usage); done || err != nil {
		return err
	}
	var c *controller.Controller
	var evictor *evict.Evictor
	restarts := certsFlags{root: *root, verbose: *verbose}
	err := unitRun(ctx, s, "controller", command.NoPhase, func(ctx context.Context) (err error) {
		if restarts.effective, err = command.ReadConfig(*root); err != nil {
			return err
		}
		if restarts.store, err = openStore(ctx, *root, restarts.effective, 0); err != nil {
			return err
		}
		c, evictor, err = newController(*kubeconfig, restarts)
		return err
	})
	if err != nil {
		return err
	}
	watchdog, err := systemd.NewWatchdog()
	if err != nil {
		return err
	}
	c.Log, c.Turn = s.Logger(*verbose), watchdog.Loop("nodes and certificates")
	go restarts.watchEpochs(ctx, s, c.Log)
	metrics := newExporter(restarts, kube.NewFile(*kubeconfig), c.Log)
	metrics.Turn = watchdog.Loop("metrics")
	go metrics.Run(ctx)
	go serveMetrics(ctx, metrics)
	if evictor != nil {
		evictor.Log, evictor.Turn = c.Log, watchdog.Loop("evictions")
		go evictor.Run(ctx)
	}
	go watchdog.Run(ctx, c.Log)
	systemd.Status("looking for the first time")
	return c.Run(ctx, func() {
		c.Log.Info("the nodes are in order, and machines can join")
		systemd.Status("the nodes are in order")
		systemd.Ready()
	})
}

// newController makes the controller from the machine's configuration, its store and its cloud. The evictor is nil without
// a cloud: then nobody knows that a machine is about to end.
func newController(kubeconfig string, f certsFlags) (*controller.Controller, *evict.Evictor, error) {
	effective, secrets, root := f.effective, f.store, f.root
	endpoint, err := systemd.Credential(awsEndpoint)
	if err != nil {
		return nil, nil, err
	}
	hardware := boot.ReadFacts(root)
	api := kube.NewFile(kubeconfig)
	reserved, err := reservedOf(effective.Config)
	if err != nil {
		return nil, nil, err
	}
	c := &controller.Controller{Nodes: api, Requests: api, Objects: api, Tokens: api, NoFirstCome: effective.NoFirstCome, Secrets: secrets, Reserved: reserved, Self: selfBelow(root), Now: time.Now}
	var evictor *evict.Evictor
	if hardware.Metadata {
		here := awsconfig.Machine{Endpoint: endpoint, Metadata: hardware.Endpoint}
		c.Instances = &cloud{cluster: effective.Cluster, load: here.Load}
		holder, err := os.Hostname()
		if err != nil {
			return nil, nil, fmt.Errorf("asking for this machine's name, by which it evicts: %w", err)
		}
		evictor = &evict.Evictor{Cluster: &kube.Evictor{File: api, Holder: holder}, Machines: &evictions{cluster: effective.Cluster, load: here.Load}, Now: time.Now}
		if slices.Contains(effective.Addons, machine.CloudController) {
			evictor.Linger = evict.Linger
		}
		if hook := effective.LaunchHook; hook != "" && hook != machine.NoHook {
			c.Launches = &launches{hook: hook, load: here.Load}
		}
		c.Identities = &identity.Verifier{Load: here.Load, Cluster: effective.Cluster, Now: time.Now}
	}
	return c, evictor, nil
}

// reservedOf returns what belongs to the cluster itself, and to no node.
func reservedOf(c machine.Config) (controller.Reserved, error) {
	services, err := netip.ParsePrefix(c.Network.ServiceCIDR)
	if err != nil {
		return controller.Reserved{}, reason.Errorf(reason.Config, "network.serviceCIDR: %w", err)
	}
	return controller.Reserved{Cluster: c.Cluster, DNSDomain: c.Network.DNSDomain, Services: services.Masked(), API: c.API.Names}, nil
}

// selfBelow returns this machine, each time anew: addresses change.
func selfBelow(root string) func() (controller.Self, error) {
	return func() (controller.Self, error) {
		name, err := kubelet.NodeName(root)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a master that is no minion has no such file, or it is not there yet
			return controller.Self{}, err
		}
		host, err := certs.ThisHost()
		return controller.Self{Node: name, Addresses: host.Addresses}, err
	}
}

// cloud is EC2 and AutoScaling. It connects at the first call, since the metadata service may start later.
type cloud struct {
	cluster string
	load    func(context.Context) (aws.Config, error)
	found   *fleet.Instances
}

// evictions is AutoScaling. It connects as cloud does.
type evictions struct {
	cluster string
	load    func(context.Context) (aws.Config, error)
	groups  *fleet.Evictions
}

func (e *evictions) connect(ctx context.Context) (*fleet.Evictions, error) {
	if e.groups == nil {
		conf, err := e.load(ctx)
		if err != nil {
			return nil, fmt.Errorf("looking for AutoScaling: %w", err)
		}
		e.groups = &fleet.Evictions{API: autoscaling.NewFromConfig(conf), Cluster: e.cluster}
	}
	return e.groups, nil
}

func (e *evictions) Sight(ctx context.Context) (evict.Sight, error) {
	groups, err := e.connect(ctx)
	if err != nil {
		return evict.Sight{}, err
	}
	return groups.Sight(ctx)
}

func (e *evictions) Hold(ctx context.Context, m evict.Machine) (time.Duration, error) {
	return e.groups.Hold(ctx, m) // after Sight
}

func (e *evictions) Drain(ctx context.Context, group string) (time.Duration, error) {
	return e.groups.Drain(ctx, group)
}

func (e *evictions) Release(ctx context.Context, m evict.Machine) (bool, error) {
	return e.groups.Release(ctx, m)
}

func (c *cloud) Instances(ctx context.Context, names []string) ([]controller.Instance, error) {
	if c.found == nil {
		conf, err := c.load(ctx)
		if err != nil {
			return nil, fmt.Errorf("looking for EC2: %w", err)
		}
		c.found = &fleet.Instances{Machines: ec2.NewFromConfig(conf), Groups: autoscaling.NewFromConfig(conf), Cluster: c.cluster}
	}
	return c.found.Instances(ctx, names)
}

// launches is AutoScaling. It connects as cloud does, and several machines' launches are answered at once.
type launches struct {
	hook string
	load func(context.Context) (aws.Config, error)

	mu     sync.Mutex
	groups *fleet.Launches
}

func (l *launches) connect(ctx context.Context) (*fleet.Launches, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.groups == nil {
		conf, err := l.load(ctx)
		if err != nil {
			return nil, fmt.Errorf("looking for AutoScaling: %w", err)
		}
		l.groups = &fleet.Launches{API: autoscaling.NewFromConfig(conf), Hook: l.hook}
	}
	return l.groups, nil
}

func (l *launches) Complete(ctx context.Context, group, instance string) (bool, error) {
	groups, err := l.connect(ctx)
	if err != nil {
		return false, err
	}
	return groups.Complete(ctx, group, instance)
}

func (l *launches) Heartbeat(ctx context.Context, group, instance string) (bool, error) {
	groups, err := l.connect(ctx)
	if err != nil {
		return false, err
	}
	return groups.Heartbeat(ctx, group, instance)
}
