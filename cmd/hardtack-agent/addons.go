package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/addons"
	"github.com/hardtack/packer-plugin-hardtack/pkg/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/machine"
)

// adminKubeconfig is the masters' own, minted at boot and root's alone; containerdConfig names the pause image.
const (
	adminKubeconfig  = "/run/hardtack/pki/admin/kubeconfig"
	containerdConfig = "/etc/containerd/config.toml"
)

// addonsCommand is hardtack-agent addons.
func addonsCommand(ctx context.Context, args []string, s streams) error {
	flags := flag.NewFlagSet("addons", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", adminKubeconfig, "")
	config := flags.String("machine", machine.Path, "")
	dir := flags.String("dir", addons.Dir, "")
	extra := flags.String("extra", addons.Extra, "")
	verbose := flags.Bool("v", false, "")
	if done, err := parseFlags(flags, args, s); done || err != nil {
		return err
	}
	values, err := addonValues(*config)
	if err != nil {
		return err
	}
	objects, err := addons.Load(values, os.DirFS(*dir), os.DirFS(*extra))
	if err != nil {
		return fmt.Errorf("reading the addons of %s and %s: %w", *dir, *extra, err)
	}
	log := logger(s.err, *verbose)
	if err := addons.Apply(ctx, cluster{kube.NewFile(*kubeconfig)}, objects, log); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.out, "%d objects are as the image has them\n", len(objects))
	return err
}

// addonValues reads what manifests may name.
func addonValues(file string) (map[string]string, error) {
	config, err := readMachine(file)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(containerdConfig)
	if err != nil {
		return nil, fmt.Errorf("looking for the pause image: %w", err)
	}
	image, err := addons.PauseImage(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", containerdConfig, err)
	}
	return addons.Values(config, image)
}

// readMachine reads what the machine was told about its cluster.
func readMachine(file string) (machine.Config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return machine.Config{}, fmt.Errorf("reading what this machine is told: %w (user data that hardtack userdata writes has it)", err)
	}
	config, problems := machine.Parse(file, data)
	return config, problems.Err()
}
