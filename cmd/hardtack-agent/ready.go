package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/boot"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/command"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kubelet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/lifecycle"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/probe"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/ready"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/systemd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// kubeletIdentity is the file with the kubelet's client certificate and key, by which the API knows the node.
const kubeletIdentity = "/var/lib/kubelet/pki/kubelet-client-current.pem"

// readyFlags is the command line of hardtack-agent ready, and its inputs.
type readyFlags struct {
	root           string
	stall, certain time.Duration
	verbose        bool

	effective config.Effective
	roles     role.Set
	manager   *systemd.Manager
	log       *slog.Logger
}

// readyCommand is hardtack-agent ready.
func readyCommand(ctx context.Context, args []string, s command.Streams) error {
	var f readyFlags
	flags := flag.NewFlagSet("ready", flag.ContinueOnError)
	flags.StringVar(&f.root, "root", "/", "")
	flags.DurationVar(&f.stall, "stall", ready.DefaultStall, "")
	flags.DurationVar(&f.certain, "certain", ready.DefaultCertain, "")
	flags.BoolVar(&f.verbose, "v", false, "")
	if done, err := command.ParseFlags(flags, args, s, usage); done || err != nil {
		return err
	}
	if f.stall <= 0 || f.certain <= 0 {
		return command.UsageError{Err: fmt.Errorf("ready: --stall %v, --certain %v: must be longer than nothing", f.stall, f.certain)}
	}
	f.log = s.Logger(f.verbose)
	if err := f.run(ctx, s); err != nil {
		return s.Fail("hardtack-agent ready", err)
	}
	return nil
}

// run waits until the roles work, completes the launch, and writes the boot's timeline.
func (f *readyFlags) run(ctx context.Context, s command.Streams) (err error) {
	if f.roles, err = config.Roles(f.root); err != nil {
		return err
	}
	if len(f.roles) == 0 {
		f.log.InfoContext(ctx, "the machine has no role, so that there is nothing to be ready")
		return nil
	}
	if err := f.awaitConfig(ctx, s); err != nil {
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
	marks = append(marks, timeline.Mark{Name: timeline.MarkReady, At: int64(systemd.Monotonic() / 1000)})
	if launch == nil {
		return showTimeline(ctx, f.manager, f.root, marks, s.Out)
	}
	if err := f.complete(ctx, s, launch); err != nil {
		return err
	}
	marks = append(marks, timeline.Mark{Name: "launched", At: int64(systemd.Monotonic() / 1000)})
	return showTimeline(ctx, f.manager, f.root, marks, s.Out)
}

// The shortest and longest wait between two reads of the configuration, which only a person can change.
const (
	configPollMin = 2 * time.Second
	configPollMax = 30 * time.Second
)

// awaitConfig reads the machine's configuration. As a unit it waits while the configuration has an error that only a
// person can solve: a failed start would end the unit, and this way its status shows the error.
func (f *readyFlags) awaitConfig(ctx context.Context, s command.Streams) (err error) {
	for pause := configPollMin; ; pause = min(2*pause, configPollMax) {
		if f.effective, err = command.ReadConfig(f.root); err == nil {
			s.Works(command.NoPhase, command.ReaderUnit)
			return nil
		}
		if reason.Of(err) != reason.Config || !systemd.Listens() {
			return err
		}
		if _, err := s.Report("hardtack-agent ready", err); err != nil {
			return err
		}
		systemd.Status(reason.Status(err))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// launch returns the launch for which the machine's group waits; nil if none does.
func (f *readyFlags) launch(ctx context.Context) (ready.Launch, error) {
	if f.effective.LaunchHook == "" {
		f.log.InfoContext(ctx, "the machine's group has no launch hook")
		return nil, nil
	}
	hardware := boot.ReadFacts(f.root)
	if !hardware.Metadata {
		f.log.InfoContext(ctx, "the machine has no metadata service, so that no group waits for it", "hook", f.effective.LaunchHook)
		return nil, nil
	}
	endpoint, err := systemd.Credential(awsEndpoint)
	if err != nil {
		return nil, err
	}
	own := lifecycle.New(lifecycle.Options{Endpoint: endpoint, Metadata: hardware.Endpoint, Group: f.effective.Group, Hook: f.effective.LaunchHook,
		Tag: func(ctx context.Context) (string, error) {
			name, _, err := instanceTag(ctx, f.root, role.TagGroup)
			return name, err
		}})
	if f.roles.LaunchedByMasters() {
		return &ready.ByMasters{Own: own, Node: f.self, Clock: systemd.Monotonic}, nil
	}
	return own, nil
}

// self is this machine's node. The kubeconfig need not be there yet.
func (f *readyFlags) self() (ready.Self, error) {
	name, err := kubelet.NodeName(f.root)
	if err != nil {
		return nil, err
	}
	if name == "" {
		return nil, errors.New("this machine has no name as a node yet")
	}
	return &kube.Self{File: kube.NewFile(filepath.Join(f.root, kubeletKubeconfig)), Name: name}, nil
}

// wait waits until every role works.
func (f *readyFlags) wait(ctx context.Context, s command.Streams, launch ready.Launch) ([]timeline.Mark, error) {
	anonymous := &probe.Client{CA: filepath.Join(f.root, f.effective.CA())}
	identity := filepath.Join(f.root, kubeletIdentity)
	hash, err := rootHash()
	if err != nil {
		return nil, err
	}
	m := ready.Machine{Config: f.effective.Config, Roles: f.roles, RootHash: hash, Asker: anonymous,
		AsNode: &probe.Client{CA: anonymous.CA, Certificate: identity, Key: identity},
		Node:   func() (string, error) { return kubelet.NodeName(f.root) }}
	o := ready.Options{Checks: m.Checks(), Manager: f.manager, Units: m.Units(), Stall: f.stall, Certain: f.certain, Clock: systemd.Monotonic,
		Status: systemd.Status, Log: f.log,
		// Failing to write to the console does not end the wait.
		Report: func(failure reason.Failure) { _ = failure.Write(s.Out) },
		Works:  func(c ready.Check) { s.Progress(timeline.Phase(c.Name), c.Unit) }}
	if launch != nil {
		heart := &ready.Heart{Launch: launch, Clock: systemd.Monotonic, Log: f.log}
		o.Alive = heart.Beat
	}
	return ready.Run(ctx, o)
}

// complete completes the launch. It reports each failure once, until another one follows.
func (f *readyFlags) complete(ctx context.Context, s command.Streams, launch ready.Launch) error {
	var last reason.Failure
	result, err := ready.Complete(ctx, launch, func(err error) {
		if failure := reason.Explain("hardtack-ready.service", err); failure != last {
			last = failure
			systemd.Status(reason.Status(err))
			_ = failure.Write(s.Out) // as above
		}
	})
	if err != nil {
		return err
	}
	f.log.InfoContext(ctx, result, "group", f.effective.Group, "hook", f.effective.LaunchHook)
	systemd.Status("ready: " + f.roles.String() + "; " + result)
	return nil
}

// readyUnits lists the units of roles.
func readyUnits(roles role.Set) []string { return ready.Machine{Roles: roles}.Units() }
