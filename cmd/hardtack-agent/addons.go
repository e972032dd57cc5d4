package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/addons"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/boot"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/command"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// containerdConfig names the pause image.
const containerdConfig = "/etc/containerd/config.toml"

// adminKubeconfig is of the user pki.UserAddons, minted at boot and readable by root only.
var adminKubeconfig = kubeconfigOf(pki.DirAdmin)

// kubeconfigOf is the kubeconfig of a bundle.
func kubeconfigOf(dir string) string { return pki.Bundle{Dir: dir}.Path("kubeconfig") }

// addonsCommand is hardtack-agent addons.
func addonsCommand(ctx context.Context, args []string, s command.Streams) error {
	flags := flag.NewFlagSet("addons", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", adminKubeconfig, "")
	root := flags.String("root", "/", "")
	dir := flags.String("dir", addons.Dir, "")
	extra := flags.String("extra", addons.Extra, "")
	verbose := flags.Bool("v", false, "")
	if done, err := command.ParseFlags(flags, args, s, usage); done || err != nil {
		return err
	}
	var chosen []string
	var values map[string]string
	err := unitRun(ctx, s, "addons", command.NoPhase, func(ctx context.Context) (err error) {
		chosen, values, err = addonValues(ctx, *root)
		return err
	})
	if err != nil {
		return err
	}
	objects, err := addons.Load(values, chosen, os.DirFS(*dir), os.DirFS(*extra))
	if err != nil {
		return fmt.Errorf("reading the addons of %s and %s: %w", *dir, *extra, err)
	}
	off, err := addons.Off(os.DirFS(*dir), chosen)
	if err != nil {
		return fmt.Errorf("reading the addons of %s: %w", *dir, err)
	}
	log, cluster := s.Logger(*verbose), kube.NewFile(*kubeconfig)
	superuser := func(ctx context.Context) (addons.Cluster, error) { return superuserOf(ctx, *root) }
	if err := addons.Grant(ctx, cluster, superuser, objects, log); err != nil {
		return fmt.Errorf("giving the add-ons their rights: %w", err)
	}
	if err := addons.Apply(ctx, cluster, objects, log); err != nil {
		return err
	}
	if err := addons.Remove(ctx, cluster, off, log); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.Out, "%d objects are as the image has them\n", len(objects))
	return err
}

// superuserOf returns a client of the machine's own API server as a superuser.
func superuserOf(ctx context.Context, root string) (*kube.Client, error) {
	effective, err := command.ReadConfig(root)
	if err != nil {
		return nil, err
	}
	store, err := openStore(ctx, root, effective, 0)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := certs.Superuser(ctx, store, effective.APIServer(role.NewSet(role.Masters)), time.Now())
	if err != nil {
		return nil, err
	}
	return kube.NewOf(kubeconfig)
}

// addonValues reads which optional manifests are to be applied, and the values that manifests may refer to.
func addonValues(ctx context.Context, root string) (chosen []string, values map[string]string, err error) {
	effective, err := command.ReadConfig(root)
	if err != nil {
		return nil, nil, err
	}
	text, err := os.ReadFile(filepath.Join(root, containerdConfig))
	if err != nil {
		return nil, nil, fmt.Errorf("looking for the pause image: %w", err)
	}
	image, err := addons.PauseImage(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", containerdConfig, err)
	}
	if values, err = addons.Values(effective.Config, image); err != nil {
		return nil, nil, err
	}
	if slices.Contains(effective.Addons, pki.MetricsServer) {
		certificates, err := addons.Certificates(os.DirFS(filepath.Join(root, pki.Bundle{Dir: pki.DirAddons}.Path(""))))
		if err != nil {
			return nil, nil, fmt.Errorf("reading the certificates of %s: %w; next: mint them: hardtack-agent certs", pki.MetricsServer, err)
		}
		maps.Copy(values, certificates)
	}
	if machine.NeedsCloud(effective.Addons) {
		cloud, err := cloudValues(ctx, root, effective.Config)
		if err != nil {
			return nil, nil, fmt.Errorf("asking where the cluster is, for the add-ons %s: %w", strings.Join(effective.Addons, ", "), err)
		}
		maps.Copy(values, cloud)
	}
	return effective.Addons, values, nil
}

// cloudValues are the values of the manifests that call AWS, from the machine's metadata service.
func cloudValues(ctx context.Context, root string, c machine.Config) (map[string]string, error) {
	client, err := imds.New(imds.Options{Endpoint: boot.ReadFacts(root).Endpoint})
	if err != nil {
		return nil, err
	}
	return addons.Cloud(ctx, client, c.Cluster, slices.Contains(c.Addons, machine.CloudController))
}
