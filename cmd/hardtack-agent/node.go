package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/agent"
	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/node"
	"github.com/hardtack/packer-plugin-hardtack/pkg/imds"
	"github.com/hardtack/packer-plugin-hardtack/pkg/systemd"
)

// nodeFlags is the command line of hardtack-agent node.
type nodeFlags struct {
	root           string
	deadline       time.Duration
	dryRun, asJSON bool
	verbose        bool
}

// nodeCommand is hardtack-agent node.
func nodeCommand(ctx context.Context, args []string, s streams) error {
	var f nodeFlags
	flags := flag.NewFlagSet("node", flag.ContinueOnError)
	flags.StringVar(&f.root, "root", "/", "")
	flags.DurationVar(&f.deadline, "deadline", node.DefaultDeadline, "")
	flags.BoolVar(&f.dryRun, "dry-run", false, "")
	flags.BoolVar(&f.asJSON, "json", false, "")
	flags.BoolVar(&f.verbose, "v", false, "")
	if done, err := parseFlags(flags, args, s); done || err != nil {
		return err
	}
	if f.deadline <= 0 {
		return usageError{fmt.Errorf("--deadline %v: must be longer than nothing", f.deadline)}
	}
	log := logger(s.err, f.verbose)
	plan, err := makeNode(ctx, f, log)
	if err != nil {
		return fail(s, "node", err)
	}
	systemd.Status(plan.Name)
	return showNode(s.out, plan, f.asJSON)
}

// makeNode finds out what the machine is, plans the node, and makes it so.
func makeNode(ctx context.Context, f nodeFlags, log *slog.Logger) (node.Plan, error) {
	c, err := config.Read(f.root)
	if err != nil {
		return node.Plan{}, err
	}
	roles, err := config.Roles(f.root)
	if err != nil {
		return node.Plan{}, err
	}
	source := node.Source{Root: f.root, Roles: roles, Hardware: agent.Hardware(f.root), Deadline: f.deadline, Status: systemd.Status, Log: log}
	if endpoint, has := agent.MetadataService(f.root); has {
		client, err := imds.New(imds.Options{Endpoint: endpoint, Log: log})
		if err != nil {
			return node.Plan{}, err
		}
		defer client.Close()
		source.Metadata = client
	}
	facts, err := node.Gather(ctx, source)
	if err != nil {
		return node.Plan{}, err
	}
	plan, err := node.New(c, facts)
	if err != nil {
		return node.Plan{}, err
	}
	for _, w := range plan.Warnings {
		log.WarnContext(ctx, w)
	}
	if f.dryRun {
		return plan, nil
	}
	return plan, node.Apply(ctx, plan, node.Target{Root: f.root, SetHostname: systemd.SetHostname, Log: log})
}

func showNode(w io.Writer, p node.Plan, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(p)
	}
	if p.MTU == 0 {
		_, err := fmt.Fprintf(w, "%s, no node\n", cmp.Or(p.Name, "without a name"))
		return err
	}
	_, err := fmt.Fprintf(w, "node %s, provider id %q, mtu %d, reserved %d+%d MiB and %dm\n", p.Name, p.ProviderID, p.MTU,
		p.Reserved.KubeMemory, p.Reserved.SystemMemory, p.Reserved.KubeCPU)
	return err
}
