package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/monitoring"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

func monitoringCommand() *cli.Command {
	return &cli.Command{
		Name: "monitoring", Usage: "write what a Prometheus needs to watch a cluster: its configuration, rules for alarms, a dashboard for Grafana, and a certificate that may read metrics and nothing else",
		Flags: append(awsFlags(),
			clusterFlag(),
			&cli.StringFlag{Name: "dir", Usage: "write to `DIRECTORY`, which is created; files of the same names are replaced"},
			&cli.StringFlag{Name: "store", Usage: "the store's `LOCATION`: ssm:/path or dir:PATH (default: the document's)"},
			&cli.DurationFlag{Name: "life", Value: pki.LeafLife, Usage: "the `DURATION` until the certificate expires; run the command again before, and Prometheus takes the new one by itself"},
			&cli.BoolFlag{Name: "no-certificate", Usage: "write no certificate, and read no store"},
		), Action: writeMonitoring,
	}
}

func writeMonitoring(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	dir := c.String("dir")
	if dir == "" {
		return usagef("--dir is needed: the files are written there")
	}
	if life := c.Duration("life"); life <= 0 || life > pki.LeafLife {
		return usagef("--life %v: must be more than 0 and at most %v: a certificate cannot be revoked", life, pki.LeafLife)
	}
	complete, err := readCluster(c)
	if err != nil {
		return err
	}
	files, err := monitoring.Files(complete)
	if err != nil {
		return err
	}
	if !c.Bool("no-certificate") {
		credentials, err := monitoringCredentials(c, complete.Cluster.Store)
		if err != nil {
			return err
		}
		maps.Copy(files, credentials)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("writing what Prometheus needs: %w", err)
	}
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		mode := fs.FileMode(0o644)
		if name == monitoring.Key {
			mode = 0o600
		}
		where := filepath.Join(dir, name)
		if _, err := file.Replace(where, files[name], mode); err != nil {
			return fmt.Errorf("writing %s: %w", where, err)
		}
	}
	return printWritten(c, dir, names)
}

// monitoringCredentials signs with the authority's key, as an administrator's kubeconfig is: the API server would sign for no group
// of the cluster's own.
func monitoringCredentials(c *cli.Context, documents string) (map[string][]byte, error) {
	at, err := parseStore(cmp.Or(c.String("store"), documents))
	if err != nil {
		return nil, err
	}
	s, err := openLocation(c, at)
	if err != nil {
		return nil, err
	}
	a, err := readAuthority(c.Context, s, pki.KubernetesCA)
	if err != nil {
		return nil, err
	}
	kubelets, err := readAuthority(c.Context, s, pki.KubeletServingCA)
	if err != nil {
		return nil, err
	}
	return monitoring.Credentials(a, kubelets, c.Duration("life"), time.Now())
}
