package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dnssync"
	"github.com/hardtack/packer-plugin-hardtack/pkg/formation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/scaling"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/pkg/stack"
	"github.com/hardtack/packer-plugin-hardtack/pkg/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/zone"
)

// stackFlags say which cluster's stack a command is about.
func stackFlags(more ...cli.Flag) []cli.Flag {
	return append([]cli.Flag{
		clusterFlag(),
		&cli.StringFlag{Name: "stack", Usage: "the stack's `NAME` (default: hardtack-<cluster>)"},
		&cli.StringFlag{Name: "region", Usage: "the `REGION`; left out, AWS_REGION or that of the AWS configuration"},
		&cli.DurationFlag{Name: "poll", Value: formation.DefaultPoll, Usage: "the `TIME` between two looks at what is under way"},
		jsonFlag(),
	}, more...)
}

// parameterFlags are the flags that give the template's parameters.
var parameterFlags = map[string]string{
	stack.ParameterVPC: "vpc", stack.ParameterSubnets: "subnets", stack.ParameterMembers: "etcd-subnets", stack.ParameterBalancer: "balancer-subnets",
	stack.ParameterZone: "zone-id", stack.ParameterClients: "api-cidr", stack.ParameterBoundary: "boundary", stack.ParameterMachines: "machines",
}

// templateFlags are those of commands that deploy a template. What is not given stays as the stack has it.
func templateFlags(more ...cli.Flag) []cli.Flag {
	return stackFlags(append([]cli.Flag{
		&cli.StringFlag{Name: "ca", Usage: "the `FILE` of the cluster's public CA in PEM (default: read it from the cluster's store)"},
		&cli.StringFlag{Name: "vpc", Usage: "the `VPC` that everything is in"},
		&cli.StringFlag{Name: "subnets", Usage: "the machines' `SUBNETS`, with commas"},
		&cli.StringFlag{Name: "etcd-subnets", Usage: "the `SUBNETS` of etcd's members, one for each in their order, with commas"},
		&cli.StringFlag{Name: "balancer-subnets", Usage: "the load balancer's `SUBNETS`, with commas"},
		&cli.StringFlag{Name: "zone-id", Usage: "the private zone's `ID`, where another cluster has made it"},
		&cli.StringFlag{Name: "api-cidr", Usage: "who else may reach the API servers, a `CIDR`"},
		&cli.StringFlag{Name: "boundary", Usage: "the `ARN` of a permissions boundary for the instance roles"},
		&cli.StringFlag{Name: "machines", Usage: "`yes` or no: whether the groups have machines; no until the zone and the function are there"},
		&cli.StringFlag{Name: "template-url", Usage: "the `URL` in S3 of what hardtack stack render printed, where it is too large for a request"},
	}, more...)...)
}

// stackTarget is what a stack command works on.
type stackTarget struct {
	complete *spec.Complete
	cluster  string
	// name is the stack's.
	name   string
	conf   aws.Config
	stacks *formation.Stacks
	clock  formation.Clock
}

func newStackTarget(c *cli.Context) (*stackTarget, error) {
	if err := noArguments(c); err != nil {
		return nil, err
	}
	complete, err := readCluster(c)
	if err != nil {
		return nil, err
	}
	conf, err := awsConfig(c.Context, config.WithRegion(c.String("region"))) // an empty one is none
	if err != nil {
		return nil, err
	}
	t := &stackTarget{complete: complete, cluster: complete.Cluster.Name, name: c.String("stack"), conf: conf, clock: dnssync.System{}}
	if t.name == "" {
		t.name = "hardtack-" + t.cluster
	}
	t.stacks = &formation.Stacks{API: cloudformation.NewFromConfig(conf), Clock: t.clock, Poll: c.Duration("poll"), Log: logger(c), Tell: tellEvent(c)}
	return t, nil
}

// tellEvent prints what is under way, a line for each.
func tellEvent(c *cli.Context) func(formation.Event) {
	return func(e formation.Event) {
		line := fmt.Sprintf("%s %-28s %s %s", e.Time.Local().Format("15:04:05"), e.Status, e.Resource, e.Type)
		if e.Reason != "" && strings.HasSuffix(e.Status, "_FAILED") {
			line += ": " + e.Reason
		}
		fmt.Fprintln(c.App.ErrWriter, line)
	}
}

// given are the template's parameters that the command line names.
func given(c *cli.Context) map[string]string {
	out := map[string]string{}
	for key, flag := range parameterFlags {
		if c.IsSet(flag) {
			out[key] = c.String(flag)
		}
	}
	return out
}

// proposed is a template with its parameters, and what its groups are to be launched from.
type proposed struct {
	formation.Proposal
	ca []byte
	// image is what the channel names now.
	image string
	// now is the stack as it is; nil where there is none.
	now *formation.Stack
}

// propose renders the template and settles its parameters.
func (t *stackTarget) propose(c *cli.Context) (*proposed, error) {
	if m := c.String("machines"); c.IsSet("machines") && m != stack.MachinesYes && m != stack.MachinesNo {
		return nil, usagef("--machines %q: neither %s nor %s", m, stack.MachinesYes, stack.MachinesNo)
	}
	p := &proposed{Proposal: formation.Proposal{Stack: t.name, URL: c.String("template-url")}}
	var err error
	if p.ca, err = t.readCA(c); err != nil {
		return nil, err
	}
	template, err := stack.Render(t.complete, p.ca)
	if err != nil {
		return nil, fmt.Errorf("making the template of %s: %w", t.cluster, err)
	}
	if p.URL == "" {
		body, err := template.YAML()
		if err != nil {
			return nil, err
		}
		if len(body) > stack.MaxInline {
			return nil, fmt.Errorf("the template is %d bytes, and a request takes %d: hardtack stack render -f … --ca … -o %s.yaml && aws s3 cp %s.yaml s3://BUCKET/ "+
				"and give --template-url https://BUCKET.s3.%s.amazonaws.com/%s.yaml", len(body), stack.MaxInline, t.name, t.name, t.conf.Region, t.name)
		}
		p.Template = string(body)
	}
	p.now, err = t.describe(c.Context)
	if err != nil {
		return nil, err
	}
	var have map[string]string
	if p.now.Made() {
		have = p.now.Parameters
	}
	settled, err := template.Settle(given(c), have, parameterFlags)
	if err != nil {
		return nil, err
	}
	p.Parameters, p.Keep = settled.Values, settled.Keep
	p.image, err = t.image(c.Context)
	return p, err
}

// describe is the stack as it is, nil where there is none.
func (t *stackTarget) describe(ctx context.Context) (*formation.Stack, error) {
	now, err := t.stacks.Describe(ctx, t.name)
	if errors.Is(err, formation.ErrNoStack) {
		return nil, nil
	}
	return now, err
}

// readCA is the public CA of the file, or of the cluster's store.
func (t *stackTarget) readCA(c *cli.Context) ([]byte, error) {
	if file := c.String("ca"); file != "" {
		return readCA(file)
	}
	at, err := store.ParseLocation(t.complete.Cluster.Store)
	if err != nil {
		return nil, err
	}
	secrets, err := store.Open(c.Context, at, func(context.Context) (aws.Config, error) { return t.conf, nil })
	if err != nil {
		return nil, err
	}
	ca, err := secrets.Get(c.Context, pki.PublicKubernetes)
	if errors.Is(err, pki.ErrNotFound) {
		return nil, fmt.Errorf("reading the cluster's public CA: %w (hardtack pki create --cluster %s makes it, once)", err, t.cluster)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's public CA: %w (or give it with --ca)", err)
	}
	return ca, nil
}

// image is what the cluster's channel names.
func (t *stackTarget) image(ctx context.Context) (string, error) {
	channel := t.complete.Cluster.AWS.Channel
	name := stack.ImageParameter(channel)
	out, err := ssm.NewFromConfig(t.conf).GetParameter(ctx, &ssm.GetParameterInput{Name: &name})
	var none *ssmtypes.ParameterNotFound
	switch {
	case errors.As(err, &none):
		return "", fmt.Errorf("reading the image of channel %s: there is none (hardtack image publish --channel %s … or hardtack image promote --channel %s IMAGE)", channel, channel, channel)
	case err != nil:
		return "", fmt.Errorf("reading the image of channel %s, parameter %s: %w", channel, name, err)
	}
	return aws.ToString(out.Parameter.Value), nil
}

// fleet reads and moves the cluster's machines. zoneID may be empty: then it is not asked whether DNS names them.
func (t *stackTarget) fleet(c *cli.Context, zoneID string) (*scaling.Cluster, error) {
	out := &scaling.Cluster{
		Name: t.cluster, Groups: autoscaling.NewFromConfig(t.conf), Machines: ec2.NewFromConfig(t.conf),
		Policy: record.DefaultPolicy(), Log: logger(c),
	}
	if zoneID != "" {
		records, err := zone.NewRoute53(route53.NewFromConfig(t.conf), zoneID, out.Policy)
		if err != nil {
			return nil, err
		}
		out.Records = records
	}
	return out, nil
}

// zone is the cluster's, as the dns commands have it.
func (t *stackTarget) zone(id string) (*dnsTarget, error) {
	d := &dnsTarget{cluster: t.cluster, policy: record.DefaultPolicy()}
	if err := d.keepIn(route53.NewFromConfig(t.conf), id); err != nil {
		return nil, err
	}
	d.patient()
	return d, nil
}

// groups are the names of AutoScaling's groups, in the document's order.
func (t *stackTarget) groups() []string {
	var names []string
	for _, g := range t.complete.Groups {
		names = append(names, t.complete.AutoScaling(g))
	}
	return slices.Clip(names)
}

// printed is an answer for people.
type printed interface {
	print(w io.Writer) error
}

// onStack is the action of a command about a stack, whose answer it prints.
func onStack[A printed](do func(t *stackTarget, c *cli.Context) (A, error)) cli.ActionFunc {
	return func(c *cli.Context) error {
		t, err := newStackTarget(c)
		if err != nil {
			return err
		}
		answer, err := do(t, c)
		if err != nil {
			return interruption(c, err)
		}
		if c.Bool("json") {
			return printJSON(c.App.Writer, answer)
		}
		return answer.print(c.App.Writer)
	}
}
