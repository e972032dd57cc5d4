package main

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/agent"
	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/control"
	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsconfig"
	"github.com/hardtack/packer-plugin-hardtack/pkg/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/systemd"
)

// controllerCommand is hardtack-agent controller.
func controllerCommand(ctx context.Context, args []string, s streams) error {
	flags := flag.NewFlagSet("controller", flag.ContinueOnError)
	root := flags.String("root", "/", "")
	kubeconfig := flags.String("kubeconfig", adminKubeconfig, "")
	verbose := flags.Bool("v", false, "")
	if done, err := parseFlags(flags, args, s); done || err != nil {
		return err
	}
	c, err := newController(ctx, *root, *kubeconfig)
	if err != nil {
		return fail(s, "controller", err)
	}
	c.Log = logger(s.err, *verbose)
	systemd.Status("looking for the first time")
	return c.Run(ctx, func() {
		c.Log.Info("the nodes are in order, and machines can join")
		systemd.Status("the nodes are in order")
		systemd.Ready()
	})
}

// newController reads what the machine is told, and finds the store and the cloud.
func newController(ctx context.Context, root, kubeconfig string) (*control.Controller, error) {
	told, err := config.Read(root)
	if err != nil {
		return nil, err
	}
	location, err := store.ParseLocation(told.Store)
	if err != nil {
		return nil, reason.Errorf(reason.Config, "%s: %w", machine.Path, err)
	}
	endpoint, err := readEndpoint(os.Getenv("CREDENTIALS_DIRECTORY"))
	if err != nil {
		return nil, err
	}
	metadata, has := agent.MetadataService(root)
	secrets, err := store.Open(ctx, location, awsconfig.Machine{Endpoint: endpoint, Metadata: metadata}.Load)
	if err != nil {
		return nil, reason.With(reason.Store, err)
	}
	api := cluster{kube.NewFile(kubeconfig)}
	c := &control.Controller{Nodes: api, Requests: api, Objects: api, Secrets: secrets, Now: time.Now}
	if has {
		c.Instances = &cloud{cluster: told.Cluster, endpoint: endpoint, metadata: metadata}
	}
	return c, nil
}

// cluster is the API server as the masters' own user, who has another certificate every few hours.
type cluster struct{ kubeconfig *kube.File }

func (a cluster) Apply(ctx context.Context, object map[string]any) error {
	c, err := a.kubeconfig.Client()
	if err != nil {
		return err
	}
	return c.Apply(ctx, object)
}

func (a cluster) Nodes(ctx context.Context) ([]control.Node, error) {
	c, err := a.kubeconfig.Client()
	if err != nil {
		return nil, err
	}
	return c.Nodes(ctx)
}

func (a cluster) Label(ctx context.Context, node string, labels map[string]string) error {
	c, err := a.kubeconfig.Client()
	if err != nil {
		return err
	}
	return c.Label(ctx, node, labels)
}

func (a cluster) Remove(ctx context.Context, node control.Node) error {
	c, err := a.kubeconfig.Client()
	if err != nil {
		return err
	}
	return c.Remove(ctx, node)
}

func (a cluster) Masters(ctx context.Context) ([]netip.Addr, error) {
	c, err := a.kubeconfig.Client()
	if err != nil {
		return nil, err
	}
	return c.Masters(ctx)
}

func (a cluster) Requests(ctx context.Context) ([]control.Request, error) {
	c, err := a.kubeconfig.Client()
	if err != nil {
		return nil, err
	}
	return c.Requests(ctx)
}

func (a cluster) Approve(ctx context.Context, request, why string) error {
	c, err := a.kubeconfig.Client()
	if err != nil {
		return err
	}
	return c.Approve(ctx, request, why)
}

// cloud is EC2, which is looked for when it is asked the first time: the metadata service may come later.
type cloud struct {
	cluster, endpoint, metadata string
	found                       *fleet.Instances
}

func (c *cloud) Instances(ctx context.Context, names []string) ([]control.Instance, error) {
	if c.found == nil {
		conf, err := awsconfig.Machine{Endpoint: c.endpoint, Metadata: c.metadata}.Load(ctx)
		if err != nil {
			return nil, fmt.Errorf("looking for EC2: %w", err)
		}
		c.found = &fleet.Instances{Machines: ec2.NewFromConfig(conf), Cluster: c.cluster}
	}
	return c.found.Instances(ctx, names)
}
