package main

import (
	"context"
	"errors"
	"flag"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/boot"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/command"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kubelet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/notice/watch"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/systemd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// kubeletKubeconfig is the kubelet's: what it does, it does as the node.
var kubeletKubeconfig = kubeconfigOf(pki.DirKubelet)

// noticesCommand is hardtack-agent notices.
func noticesCommand(ctx context.Context, args []string, s command.Streams) error {
	flags := flag.NewFlagSet("notices", flag.ContinueOnError)
	root := flags.String("root", "/", "")
	kubeconfig := flags.String("kubeconfig", kubeletKubeconfig, "")
	verbose := flags.Bool("v", false, "")
	if done, err := command.ParseFlags(flags, args, s, usage); done || err != nil {
		return err
	}
	log := s.Logger(*verbose)
	hardware := boot.ReadFacts(*root)
	if !hardware.Metadata {
		log.Info("this machine has no metadata service, so that nobody gives notice of its end", "why", hardware.Why)
		systemd.Status("there is no metadata service")
		return nil
	}
	var w *watch.Watcher
	err := unitRun(ctx, s, "notices", command.NoPhase, func(context.Context) error {
		name, err := kubelet.NodeName(*root)
		if err != nil {
			return err
		}
		if name == "" {
			return errors.New("this machine has no name as a node yet")
		}
		metadata, err := imds.New(imds.Options{Endpoint: hardware.Endpoint, Log: log})
		if err != nil {
			return err
		}
		w = &watch.Watcher{Metadata: metadata, Node: &kube.Self{File: kube.NewFile(*kubeconfig), Name: name}, Now: time.Now, Log: log}
		return nil
	})
	if err != nil {
		return err
	}
	systemd.Status("looking for notices of EC2")
	w.Run(ctx)
	return nil
}
