package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/autoscaling"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/terraform"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// stackFlags select the stack of a command.
func stackFlags(more ...cli.Flag) []cli.Flag {
	return append(append(awsFlags(),
		clusterFlag(),
		&cli.StringFlag{Name: "stack", Usage: "the stack's `NAME` (default: hardtack-<cluster>)"},
		&cli.DurationFlag{Name: "poll", Value: cloudformation.DefaultPoll, Usage: "the `DURATION` between two polls of a running operation"},
	), more...)
}

// rollFlags are stackFlags of the commands that also work on what Terraform has made.
func rollFlags(more ...cli.Flag) []cli.Flag {
	return stackFlags(append([]cli.Flag{
		&cli.StringFlag{Name: "terraform", Usage: "the cluster was made by Terraform: the `FILE` of its state, or of what terraform output -json prints; - for the standard input"},
	}, more...)...)
}

// maxTerraform is more than the state of the largest clusters has, in bytes.
const maxTerraform = 64 << 20

// readTerraform reads --terraform; nil without it.
func readTerraform(c *cli.Context) (*terraform.Outputs, error) {
	name := c.String("terraform")
	switch {
	case name == "":
		return nil, nil
	case c.IsSet("stack"):
		return nil, usagef("--stack and --terraform contradict each other: give one")
	}
	data, err := readInput(c.Context, name, maxTerraform)
	if err != nil {
		return nil, usagef("--terraform: %w", err)
	}
	out, err := terraform.Parse(data)
	if err != nil {
		return nil, usagef("--terraform %s: %w", name, err)
	}
	return out, nil
}

// parameterFlags maps the template's parameters to flags.
var parameterFlags = map[string]string{
	template.ParameterVPC: "vpc", template.ParameterSubnets: "subnets", template.ParameterMembers: "etcd-subnets", template.ParameterBalancer: "balancer-subnets",
	template.ParameterZone: "zone-id", template.ParameterClients: "api-cidr", template.ParameterBoundary: "boundary", template.ParameterMachines: "machines",
}

// deployFlags are the flags of commands that deploy a template. A parameter without a flag keeps the stack's value.
func deployFlags(more ...cli.Flag) []cli.Flag {
	return stackFlags(append([]cli.Flag{
		&cli.StringFlag{Name: "ca", Usage: "the `FILE` of the cluster's public CA in PEM, to put it into the user data (default: machines read it from the cluster's store)"},
		manifestFlag("the tags of the channel's image"),
		&cli.StringFlag{Name: "vpc", Usage: "the cluster's `VPC`"},
		&cli.StringFlag{Name: "subnets", Usage: "the machines' `SUBNETS`, separated by commas"},
		&cli.StringFlag{Name: "etcd-subnets", Usage: "the `SUBNETS` of the etcd members, one each, in their order, separated by commas"},
		&cli.StringFlag{Name: "balancer-subnets", Usage: "the load balancer's `SUBNETS`, separated by commas"},
		&cli.StringFlag{Name: "zone-id", Usage: "the private zone's `ID`, if another cluster has created it"},
		&cli.StringFlag{Name: "api-cidr", Usage: "a `CIDR` that may also reach the API servers"},
		&cli.StringFlag{Name: "boundary", Usage: "the `ARN` of a permissions boundary for the instance roles"},
		&cli.StringFlag{Name: "machines", Usage: "whether the groups have machines, `yes` or no; no until the zone and the function exist"},
		&cli.StringFlag{Name: "template-bucket", Usage: "a template that is too large for a request goes through this `BUCKET` of S3, in the stack's region; the object stays there, below hardtack/"},
		&cli.StringFlag{Name: "template-url", Usage: "the S3 `URL` of the output of hardtack stack render, which somebody else has put there"},
	}, more...)...)
}

// deployOptions reads deployFlags.
func deployOptions(c *cli.Context) (cluster.Deployment, error) {
	out := cluster.Deployment{Parameters: map[string]string{}, TemplateURL: c.String("template-url"), TemplateBucket: c.String("template-bucket")}
	if out.TemplateURL != "" && out.TemplateBucket != "" {
		return out, usagef("--template-url and --template-bucket contradict each other: give one")
	}
	if m := c.String("machines"); c.IsSet("machines") && m != template.MachinesYes && m != template.MachinesNo {
		return out, usagef("--machines %q: neither %s nor %s", m, template.MachinesYes, template.MachinesNo)
	}
	for key, flag := range parameterFlags {
		if c.IsSet(flag) {
			out.Parameters[key] = c.String(flag)
		}
	}
	var err error
	if out.CA, err = readCA(c.String("ca")); err != nil {
		return out, err
	}
	out.Openings, err = readOpenings(c)
	return out, err
}

// manifestFlag names the description of the image whose units say which ports are open.
func manifestFlag(def string) cli.Flag {
	return &cli.StringFlag{Name: "manifest", Usage: "open the ports that the units of the image with this `IMAGE.JSON` name (default: " + def + ")"}
}

// readOpenings reads --manifest; nil without it.
func readOpenings(c *cli.Context) ([]role.Opening, error) {
	name := c.String("manifest")
	if name == "" {
		return nil, nil
	}
	baked, err := bake.ReadManifest(name)
	if err != nil {
		return nil, usagef("--manifest: %w", err)
	}
	return append([]role.Opening{}, baked.Roles.Ports...), nil
}

// skewFlag allows what Kubernetes does not support.
func skewFlag() cli.Flag {
	return &cli.BoolFlag{Name: "allow-skew", Usage: "do it although versions of Kubernetes would meet that it does not support together"}
}

// refreshFlags are the flags of commands that replace machines.
func refreshFlags(more ...cli.Flag) []cli.Flag {
	def := autoscaling.DefaultPreferences()
	flags := append(rollFlags(
		&cli.StringSliceFlag{Name: "group", Usage: "only this `GROUP` of the document; may be repeated (default: all)"},
		&cli.StringSliceFlag{Name: "lose-etcd", Usage: "replace the machines of this `GROUP` although the etcd data on them are lost; may be repeated"},
		&cli.IntFlag{Name: "min-healthy", Value: def.MinHealthy, Usage: "the `PERCENT` of a group of minions that stay in service"},
		&cli.IntFlag{Name: "max-healthy", Value: def.MaxHealthy, Usage: "the `PERCENT` of a group of minions that may exist meanwhile, up to aws.max of the document: above 100, machines start before others end; 0 for AutoScaling's own way; without it, never more than 100 above --min-healthy"},
		&cli.StringFlag{Name: "checkpoints", Value: strings.Trim(strings.Join(strings.Fields(fmt.Sprint(def.Checkpoints)), ","), "[]"),
			Usage: "the `PERCENTAGES` of a group of minions after which AutoScaling waits, separated by commas, up to 100; empty for none"},
		&cli.DurationFlag{Name: "checkpoint-delay", Value: time.Duration(def.Delay) * time.Second, Usage: "the `DURATION` that AutoScaling waits at a checkpoint"},
		&cli.StringFlag{Name: "kubeconfig", Usage: "before ending a control plane machine, also check that the API servers are ready, with the kubeconfig in `FILE`"},
		&cli.DurationFlag{Name: "patience", Value: rollout.DefaultPatience, Usage: "give up waiting for a machine after this `DURATION`"},
		skewFlag(),
		&cli.BoolFlag{Name: "cancel-on-interrupt", Usage: "at Ctrl-C also cancel AutoScaling's instance refresh (default: it continues)"},
	), confirmFlags()...)
	return append(flags, more...)
}

// refreshOptions reads refreshFlags.
func refreshOptions(c *cli.Context) (cluster.RefreshOptions, error) {
	out := cluster.RefreshOptions{
		Groups: c.StringSlice("group"), AllowDataLoss: c.StringSlice("lose-etcd"), AllowSkew: c.Bool("allow-skew"), Patience: c.Duration("patience"), CancelOnInterrupt: c.Bool("cancel-on-interrupt"),
		Preferences: autoscaling.Preferences{MinHealthy: c.Int("min-healthy"), MaxHealthy: c.Int("max-healthy"), Delay: int(c.Duration("checkpoint-delay") / time.Second)},
	}
	if !c.IsSet("max-healthy") {
		// AutoScaling wants the two at most 100 apart, and who only said how few may stay has not asked for more machines.
		out.Preferences.MaxHealthy = min(out.Preferences.MaxHealthy, 100+max(out.Preferences.MinHealthy, 0))
	}
	for text := range strings.SplitSeq(c.String("checkpoints"), ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		percent, err := strconv.Atoi(text)
		if err != nil {
			return out, usagef("--checkpoints: %q is not a number", text)
		}
		out.Preferences.Checkpoints = append(out.Preferences.Checkpoints, percent)
	}
	if err := out.Preferences.Check(); err != nil {
		return out, usagef("%w", err)
	}
	if name := c.String("kubeconfig"); name != "" {
		file := kube.NewFile(name)
		if _, err := file.Client(); err != nil {
			return out, usagef("--kubeconfig: %w", err)
		}
		out.Ready = func(ctx context.Context) error {
			api, err := file.Client()
			if err != nil {
				return err
			}
			return api.Ready(ctx)
		}
	}
	return out, nil
}

// versionsOf reads --to.
func versionsOf(c *cli.Context) (map[string]int, error) {
	out := map[string]int{}
	for _, text := range c.StringSlice("to") {
		group, number, ok := strings.Cut(text, "=")
		version, err := strconv.Atoi(number)
		if !ok || err != nil || version < 1 {
			return nil, usagef("--to %q: not of the form GROUP=VERSION", text)
		}
		out[group] = version
	}
	return out, nil
}

// openCluster returns the cluster of stackFlags.
func openCluster(c *cli.Context) (*cluster.Cluster, error) {
	if err := noArguments(c); err != nil {
		return nil, err
	}
	complete, err := readCluster(c)
	if err != nil {
		return nil, err
	}
	conf, err := loadAWS(c.Context, c)
	if err != nil {
		return nil, err
	}
	made, err := readTerraform(c)
	if err != nil {
		return nil, err
	}
	return cluster.New(cluster.Config{
		Document: complete, AWS: conf, Terraform: made, Stack: c.String("stack"), Poll: c.Duration("poll"), Log: logger(c), OnEvent: printEvent(c), OnStep: printStep(c),
	}), nil
}
