package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/boot"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/command"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kubelet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/systemd"
)

// nodeFlags is the command line of hardtack-agent node.
type nodeFlags struct {
	root           string
	deadline       time.Duration
	dryRun, asJSON bool
	verbose        bool
}

// nodeCommand is hardtack-agent node.
func nodeCommand(ctx context.Context, args []string, s command.Streams) error {
	var f nodeFlags
	flags := flag.NewFlagSet("node", flag.ContinueOnError)
	flags.StringVar(&f.root, "root", "/", "")
	flags.DurationVar(&f.deadline, "deadline", kubelet.DefaultDeadline, "")
	flags.BoolVar(&f.dryRun, "dry-run", false, "")
	flags.BoolVar(&f.asJSON, "json", false, "")
	flags.BoolVar(&f.verbose, "v", false, "")
	if done, err := command.ParseFlags(flags, args, s, usage); done || err != nil {
		return err
	}
	if f.deadline <= 0 {
		return command.UsageError{Err: fmt.Errorf("--deadline %v: must be longer than nothing", f.deadline)}
	}
	log := s.Logger(f.verbose)
	var plan kubelet.Plan
	err := unitRun(ctx, s, "node", command.NoPhase, func(ctx context.Context) (err error) {
		plan, err = makeNode(ctx, f, log)
		return err
	})
	if err != nil {
		return err
	}
	systemd.Status(plan.Name)
	return showNode(s.Out, plan, f.asJSON)
}

// makeNode collects the facts of the machine, plans the node, and writes its files.
func makeNode(ctx context.Context, f nodeFlags, log *slog.Logger) (kubelet.Plan, error) {
	effective, err := command.ReadConfig(f.root)
	if err != nil {
		return kubelet.Plan{}, err
	}
	logConfig(ctx, log, effective)
	hardware := boot.ReadFacts(f.root)
	source := kubelet.Source{Root: f.root, Roles: effective.Roles, Hardware: hardware.Hardware, Deadline: f.deadline, Status: systemd.Status, Log: log}
	if hardware.Metadata {
		client, err := imds.New(imds.Options{Endpoint: hardware.Endpoint, Log: log})
		if err != nil {
			return kubelet.Plan{}, err
		}
		source.Metadata = client
	}
	facts, err := kubelet.Gather(ctx, source)
	if err != nil {
		return kubelet.Plan{}, err
	}
	plan, err := kubelet.New(effective.Config, facts)
	if err != nil {
		return kubelet.Plan{}, err
	}
	for _, w := range plan.Warnings {
		log.WarnContext(ctx, w)
	}
	if f.dryRun {
		return plan, nil
	}
	return plan, kubelet.Apply(ctx, plan, kubelet.Target{Root: f.root, SetHostname: systemd.SetHostname, Log: log})
}

func showNode(w io.Writer, p kubelet.Plan, asJSON bool) error {
	if asJSON {
		return printJSON(w, p)
	}
	if p.MTU == 0 {
		_, err := fmt.Fprintf(w, "%s, no node\n", cmp.Or(p.Name, "without a name"))
		return err
	}
	_, err := fmt.Fprintf(w, "node %s, provider id %q, mtu %d, reserved %d+%d MiB and %dm\n", p.Name, p.ProviderID, p.MTU,
		p.Reserved.KubeMemory, p.Reserved.SystemMemory, p.Reserved.KubeCPU)
	return err
}
