package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/agent"
	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/node"
	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/ready"
	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/timeline"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lifecycle"
	"github.com/hardtack/packer-plugin-hardtack/pkg/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/probe"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/systemd"
)

// kubeletIdentity has the certificate and the key by which the kubelet, and so the node, is known to the API.
const kubeletIdentity = "/var/lib/kubelet/pki/kubelet-client-current.pem"

// readyFlags is the command line of hardtack-agent ready, and what it reads.
type readyFlags struct {
	root           string
	stall, certain time.Duration
	verbose        bool

	config  machine.Config
	roles   role.Set
	manager *systemd.Manager
	log     *slog.Logger
}

// readyCommand is hardtack-agent ready.
func readyCommand(ctx context.Context, args []string, s streams) error {
	var f readyFlags
	flags := flag.NewFlagSet("ready", flag.ContinueOnError)
	flags.StringVar(&f.root, "root", "/", "")
	flags.DurationVar(&f.stall, "stall", ready.DefaultStall, "")
	flags.DurationVar(&f.certain, "certain", ready.DefaultCertain, "")
	flags.BoolVar(&f.verbose, "v", false, "")
	if done, err := parseFlags(flags, args, s); done || err != nil {
		return err
	}
	if f.stall <= 0 || f.certain <= 0 {
		return usageError{fmt.Errorf("ready: --stall %v, --certain %v: must be longer than nothing", f.stall, f.certain)}
	}
	f.log = logger(s.err, f.verbose)
	if err := f.run(ctx, s); err != nil {
		return fail(s, "ready", err)
	}
	return nil
}

// run waits until the roles work, ends the launch, and says how long it all took.
func (f *readyFlags) run(ctx context.Context, s streams) (err error) {
	if f.roles, err = config.Roles(f.root); err != nil {
		return err
	}
	if len(f.roles) == 0 {
		f.log.InfoContext(ctx, "the machine has no role, so that there is nothing to be ready")
		return nil
	}
	if f.config, err = config.Read(f.root); err != nil {
		return err
	}
	if f.manager, err = systemd.NewManager(ctx); err != nil {
		return err
	}
	defer f.manager.Close()
	launch, err := f.launch(ctx)
	if err != nil {
		return err
	}
	marks, err := f.wait(ctx, s, launch)
	if err != nil {
		return err
	}
	f.log.InfoContext(ctx, "ready", "roles", f.roles.String())
	systemd.Status("ready: " + f.roles.String())
	marks = append(marks, timeline.Mark{Name: markReady, At: int64(systemd.Monotonic() / 1000)})
	if launch == nil {
		return showTimeline(ctx, f.manager, f.root, marks, s.out)
	}
	if err := f.complete(ctx, s, launch); err != nil {
		return err
	}
	marks = append(marks, timeline.Mark{Name: "launched", At: int64(systemd.Monotonic() / 1000)})
	return showTimeline(ctx, f.manager, f.root, marks, s.out)
}

// launch is the launch that the machine's group waits for, nil where it waits for none.
func (f *readyFlags) launch(ctx context.Context) (ready.Launch, error) {
	if f.config.LaunchHook == "" {
		f.log.InfoContext(ctx, "the machine's group has no launch hook")
		return nil, nil
	}
	metadata, has := agent.MetadataService(f.root)
	if !has {
		f.log.InfoContext(ctx, "the machine has no metadata service, so that no group waits for it", "hook", f.config.LaunchHook)
		return nil, nil
	}
	endpoint, err := readEndpoint(os.Getenv("CREDENTIALS_DIRECTORY"))
	if err != nil {
		return nil, err
	}
	return lifecycle.New(lifecycle.Options{Endpoint: endpoint, Metadata: metadata, Group: f.config.Group, Hook: f.config.LaunchHook}), nil
}

// wait checks until every role works.
func (f *readyFlags) wait(ctx context.Context, s streams, launch ready.Launch) ([]timeline.Mark, error) {
	anybody := &probe.Client{CA: filepath.Join(f.root, clusterCA)}
	identity := filepath.Join(f.root, kubeletIdentity)
	m := ready.Machine{Config: f.config, Roles: f.roles, Asker: anybody,
		AsNode: &probe.Client{CA: anybody.CA, Certificate: identity, Key: identity},
		Node:   func() (string, error) { return nodeName(f.root) }}
	o := ready.Options{Checks: m.Checks(), Manager: f.manager, Units: m.Units(), Stall: f.stall, Certain: f.certain, Clock: systemd.Monotonic,
		Status: systemd.Status, Log: f.log, Report: func(failure reason.Failure) { _ = failure.Write(s.out) }} // a console that is gone is no reason to stop
	if launch != nil {
		heart := &ready.Heart{Launch: launch, Clock: systemd.Monotonic, Log: f.log}
		o.Alive = heart.Beat
	}
	return ready.Run(ctx, o)
}

// complete ends the launch. What keeps it from that is told once each time it is another thing.
func (f *readyFlags) complete(ctx context.Context, s streams, launch ready.Launch) error {
	var last reason.Failure
	said, err := ready.Complete(ctx, launch, func(err error) {
		if failure := reason.Explain("hardtack-ready.service", err); failure != last {
			last = failure
			systemd.Status(reason.Status(err))
			_ = failure.Write(s.out) // as above
		}
	})
	if err != nil {
		return err
	}
	f.log.InfoContext(ctx, said, "group", f.config.Group, "hook", f.config.LaunchHook)
	systemd.Status("ready: " + f.roles.String() + "; " + said)
	return nil
}

// nodeName reads the name that hardtack-node has decided on.
func nodeName(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, node.EnvFile))
	if err != nil {
		return "", err
	}
	return node.Variable(string(text), "NODE_NAME"), nil
}

// readyUnits lists the units of roles.
func readyUnits(roles role.Set) []string { return ready.Machine{Roles: roles}.Units() }
