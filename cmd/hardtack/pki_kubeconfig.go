package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

func pkiKubeconfigCommand() *cli.Command {
	return &cli.Command{
		Name: "kubeconfig", Usage: "print a kubeconfig: with --user a person's, by a certificate request to the API server; else an administrator's, signed with the authority's key, with full access until it expires",
		Flags: append(storeFlags(),
			&cli.StringFlag{Name: "server", Usage: "the API server's `URL` (default: https://" + role.Masters.Host("<cluster>") + ", and the cluster's api.port where it is another than 443)"},
			&cli.DurationFlag{Name: "life", Value: pki.AdminLife, Usage: "the `DURATION` until it expires"},
			&cli.StringFlag{Name: "out", Usage: "write to `FILE` instead of stdout, atomically, with mode 0600"},
			&cli.StringFlag{Name: "user", Usage: "the person's `NAME`; needs --kubeconfig instead of --cluster and --store"},
			&cli.StringSliceFlag{Name: "group", Usage: "a `GROUP` of the person, which a binding gives rights; may be repeated"},
			&cli.StringFlag{Name: "kubeconfig", Usage: "the kubeconfig, a `FILE`, of whoever asks for the person's certificate"},
			&cli.BoolFlag{Name: "no-approve", Usage: "do not approve the request, which waits for an administrator"},
			timeoutFlag(15*time.Minute),
		), Action: pkiKubeconfig,
	}
}

func pkiKubeconfig(c *cli.Context) error {
	if life := c.Duration("life"); life <= 0 || life > pki.LeafLife {
		return usagef("--life %v: must be more than 0 and at most %v: a certificate cannot be revoked", life, pki.LeafLife)
	}
	output := c.String("out")
	if output != "" {
		// Before anything is signed.
		if info, err := os.Stat(filepath.Dir(output)); err != nil || !info.IsDir() {
			return usagef("--out %s: %w", output, cmp.Or(err, errors.New("its directory is none")))
		}
	}
	get := adminKubeconfig
	if c.IsSet("user") || c.IsSet("group") || c.IsSet("kubeconfig") || c.IsSet("no-approve") {
		get = personKubeconfig
	}
	data, err := get(c)
	if err != nil {
		return err
	}
	if data, err = inForm(c, data); err != nil {
		return err
	}
	if output == "" {
		_, err = c.App.Writer.Write(data)
		return err
	}
	if _, err := file.Replace(output, data, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", output, err)
	}
	return nil
}

// adminKubeconfig signs with the authority's key, which needs no API server.
func adminKubeconfig(c *cli.Context) ([]byte, error) {
	cluster, location, err := chosenStore(c)
	if err != nil {
		return nil, err
	}
	s, err := openLocation(c, location)
	if err != nil {
		return nil, err
	}
	a, err := readAuthority(c.Context, s, pki.KubernetesCA)
	if err != nil {
		return nil, err
	}
	server := "https://" + role.Masters.Host(cluster)
	// A store without these facts is no reason to leave somebody outside.
	switch agreed, err := authority.Agreed(c.Context, s); {
	case err != nil && !errors.Is(err, pki.ErrNotFound):
		return nil, err
	case err == nil && agreed.Cluster != cluster:
		return nil, usagef("%s is the store of cluster %s, not of %s: name the right one with --store, or the other cluster", s, agreed.Cluster, cluster)
	case err == nil && agreed.API.Port != role.DefaultAPIPort:
		server += ":" + strconv.Itoa(agreed.API.Port)
	}
	return pki.AdminKubeconfig(a, cmp.Or(c.String("server"), server), c.Duration("life"), time.Now())
}

// personKubeconfig has the API server's authority sign, and needs no key of it.
func personKubeconfig(c *cli.Context) ([]byte, error) {
	if err := noArguments(c); err != nil {
		return nil, err
	}
	for _, name := range []string{"cluster", "store", "endpoint-url", "server"} {
		if c.IsSet(name) {
			return nil, usagef("--%s: a person's kubeconfig is for the cluster of --kubeconfig; give --user, --group and --kubeconfig without it", name)
		}
	}
	if c.String("kubeconfig") == "" {
		return nil, usagef("--kubeconfig is needed: the request for a person's certificate is made with it")
	}
	person := kube.Person{User: c.String("user"), Groups: c.StringSlice("group"), Life: c.Duration("life")}
	if err := person.Check(); err != nil {
		return nil, usagef("--user, --group, --life: %w", err)
	}
	ctx, cancel := timeoutContext(c)
	defer cancel()
	tell := func(line string) { fmt.Fprintln(c.App.ErrWriter, line) }
	data, expires, err := kube.PersonKubeconfig(ctx, c.String("kubeconfig"), person, kube.PersonOptions{Approve: !c.Bool("no-approve"), Tell: tell})
	if err == nil {
		tell(fmt.Sprintf("%s may log in until %s", person.User, expires.UTC().Format(time.RFC3339)))
	}
	return data, err
}
