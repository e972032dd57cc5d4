package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	scaling "github.com/hardtack/packer-plugin-hardtack/pkg/cluster/autoscaling"
	formation "github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/terraform"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/prepare"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// Config selects the cluster to operate on, and the callbacks that report progress.
type Config struct {
	// Document is the cluster's document with an aws block. Required.
	Document *spec.Complete
	// AWS has the credentials and the region. Required.
	AWS aws.Config
	// Stack is the name of the stack; empty is StackName of the cluster.
	Stack string
	// Terraform is what Terraform has made of the cluster, in place of a stack; nil if there is a stack.
	Terraform *terraform.Outputs
	// Poll is the time between two polls of an operation; 0 is cloudformation.DefaultPoll.
	Poll time.Duration
	// Log receives long waits and failures that do not end the operation; nil discards them.
	Log *slog.Logger
	// OnEvent is called with each event of the stack, OnStep with each new step of a rollout. Both may be nil.
	OnEvent func(formation.Event)
	OnStep  func(rollout.Step)
}

// Cluster is a cluster on AWS. Its methods are not safe for concurrent use.
type Cluster struct {
	config Config
	name   string
	stack  string
	stacks *formation.Stacks
	clock  clock.Clock
	// kubernetes are the versions of Kubernetes of the images that were looked at, by id; empty is not known. warned are those of which
	// the latter was said.
	kubernetes map[string]string
	warned     map[string]bool
	// images are those that EC2 has shown, by id.
	images map[string]types.Image
}

// New returns a Cluster. It makes no request.
func New(config Config) *Cluster {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	config.Poll = cmp.Or(config.Poll, formation.DefaultPoll)
	c := &Cluster{config: config, name: config.Document.Cluster.Name, clock: clock.System{}, kubernetes: map[string]string{}, warned: map[string]bool{}, images: map[string]types.Image{}}
	c.stack = cmp.Or(config.Stack, StackName(c.name))
	c.stacks = &formation.Stacks{API: cloudformation.NewFromConfig(config.AWS), Clock: c.clock, Poll: config.Poll, Log: config.Log, OnEvent: config.OnEvent}
	return c
}

// StackName is the default name of a cluster's stack.
func StackName(cluster string) string { return "hardtack-" + cluster }

// FunctionStack is the name of the stack with the DNS function of a cluster.
func FunctionStack(cluster string) string { return "hardtack-dns-" + cluster }

// Name is the name of the cluster.
func (c *Cluster) Name() string { return c.name }

// Stack is the name of the cluster's stack.
func (c *Cluster) Stack() string { return c.stack }

// Region is the region of the cluster's stack.
func (c *Cluster) Region() string { return c.config.AWS.Region }

// Channel is the channel from which the cluster's machines have their image.
func (c *Cluster) Channel() string { return c.config.Document.Cluster.AWS.Channel }

// Groups are the names of the cluster's AutoScaling groups, in the document's order.
func (c *Cluster) Groups() []string {
	var names []string
	for _, g := range c.config.Document.Groups {
		names = append(names, c.config.Document.AutoScaling(g))
	}
	return names
}

// describe returns the stack, or nil if it does not exist.
func (c *Cluster) describe(ctx context.Context) (*formation.Stack, error) {
	now, err := c.stacks.Describe(ctx, c.stack)
	if errors.Is(err, formation.ErrNoStack) {
		return nil, nil
	}
	return now, err
}

// image returns the id of the image that the cluster's channel points at.
func (c *Cluster) image(ctx context.Context) (string, error) {
	channel := c.config.Document.Cluster.AWS.Channel
	name := template.ImageParameter(channel)
	out, err := ssm.NewFromConfig(c.config.AWS).GetParameter(ctx, &ssm.GetParameterInput{Name: &name})
	var none *ssmtypes.ParameterNotFound
	switch {
	case errors.As(err, &none):
		return "", &NoImageError{Channel: channel}
	case err != nil:
		return "", fmt.Errorf("reading the image of channel %s, parameter %s: %w", channel, name, awserr.Explain(err, "ssm:GetParameter"))
	}
	return aws.ToString(out.Parameter.Value), nil
}

// machines returns a reader of the cluster's groups and machines that does not check DNS, and asks nothing of etcd's members.
func (c *Cluster) machines() *scaling.Cluster {
	return &scaling.Cluster{
		Name: c.name, Groups: autoscaling.NewFromConfig(c.config.AWS), Machines: ec2.NewFromConfig(c.config.AWS),
		Policy: record.DefaultPolicy(), Log: c.config.Log,
	}
}

// machinesInDNS returns a reader of what was made that also reads what etcd's members report, and checks whether the zone lists the
// machines; without a zone it does not.
func (c *Cluster) machinesInDNS(made *Made) (*scaling.Cluster, error) {
	out := c.machinesOf(made)
	m, err := c.members()
	if m != nil { // no reader is nil, and not a nil of its type
		out.Members = m
	}
	if err != nil || made.Zone == "" {
		return out, err
	}
	out.Records, err = c.zone(made.Zone)
	return out, err
}

// zone opens the hosted zone with this id. Its requests are repeated when Route 53 throttles them.
func (c *Cluster) zone(id string) (prepare.Zone, error) {
	z, err := zone.NewRoute53(route53.NewFromConfig(c.config.AWS), id, record.DefaultPolicy())
	if err != nil {
		return nil, err
	}
	return prepare.Patient(z), nil
}

// Status is the state of a cluster's stack and machines.
type Status struct {
	// Stack is nil, and Terraform is set, if Terraform made the cluster.
	Stack     *formation.Stack   `json:"stack"`
	Terraform *terraform.Outputs `json:"terraform,omitempty"`
	// Image is the channel's image. The image of the stack is among its resolved parameters.
	Image  string          `json:"image"`
	Groups []rollout.Group `json:"groups"`
	// Unread are the groups that could not be read.
	Unread []rollout.Unread `json:"unread,omitempty"`
	// Document is the document's minor version of Kubernetes, as 1.36. Kubernetes are the versions of the images, by their ids, as v1.36.3;
	// empty is not known.
	Document   string            `json:"document_version"`
	Kubernetes map[string]string `json:"kubernetes"`
}

// Status reads what was made and every machine of its groups. The error is cloudformation.ErrNoStack if there is no stack.
func (c *Cluster) Status(ctx context.Context) (*Status, error) {
	made, err := c.Made(ctx)
	if err != nil {
		return nil, err
	}
	out := &Status{Stack: made.Stack, Terraform: c.config.Terraform, Groups: []rollout.Group{}, Document: c.config.Document.Cluster.Version}
	if out.Image, err = c.image(ctx); err != nil {
		return nil, err
	}
	machines, err := c.machinesInDNS(made)
	if err != nil {
		return nil, err
	}
	s, err := machines.Read(ctx)
	if err == nil {
		err = c.addVersions(ctx, s)
	}
	images := []string{out.Image}
	if out.Stack != nil {
		images = append(images, out.Stack.Resolved[template.ParameterImage])
	}
	if err == nil {
		err = c.readVersions(ctx, images...)
	}
	out.Groups, out.Unread, out.Kubernetes = append(out.Groups, s.Groups...), s.Unread, maps.Clone(c.kubernetes)
	return out, err
}
