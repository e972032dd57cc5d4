package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/addons"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
)

// adminKubeconfig is minted at boot and readable by root only; containerdConfig names the pause image.
const (
	adminKubeconfig  = "/run/hardtack/pki/admin/kubeconfig"
	containerdConfig = "/etc/containerd/config.toml"
)

// addonsCommand is hardtack-agent addons.
func addonsCommand(ctx context.Context, args []string, s streams) error {
	flags := flag.NewFlagSet("addons", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", adminKubeconfig, "")
	root := flags.String("root", "/", "")
	dir := flags.String("dir", addons.Dir, "")
	extra := flags.String("extra", addons.Extra, "")
	verbose := flags.Bool("v", false, "")
	if done, err := parseFlags(flags, args, s); done || err != nil {
		return err
	}
	var values map[string]string
	err := unitRun(ctx, s, "addons", noPhase, func(context.Context) (err error) {
		values, err = addonValues(*root)
		return err
	})
	if err != nil {
		return err
	}
	objects, err := addons.Load(values, os.DirFS(*dir), os.DirFS(*extra))
	if err != nil {
		return fmt.Errorf("reading the addons of %s and %s: %w", *dir, *extra, err)
	}
	log := logger(s.err, *verbose)
	if err := addons.Apply(ctx, kube.NewFile(*kubeconfig), objects, log); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.out, "%d objects are as the image has them\n", len(objects))
	return err
}

// addonValues reads the values that manifests may refer to.
func addonValues(root string) (map[string]string, error) {
	effective, err := readConfig(root)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(root, containerdConfig))
	if err != nil {
		return nil, fmt.Errorf("looking for the pause image: %w", err)
	}
	image, err := addons.PauseImage(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", containerdConfig, err)
	}
	return addons.Values(effective.Config, image)
}
