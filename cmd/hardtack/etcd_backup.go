package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/backup"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

func etcdBackupCommand() *cli.Command {
	return &cli.Command{
		Name:        "backup",
		Usage:       "take a backup now, beside those that are taken by themselves",
		Description: "The machine of the leader does it. A backup is kept once it was restored for a trial.",
		Flags:       etcdFlags(backupsFlag(), waitFlag()),
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			return orderEtcd(c, func(k *operate.Cluster, document *spec.Complete) (*operate.Asked, error) {
				if err := openBackups(c, k, document); err != nil {
					return nil, err
				}
				return k.Backup(c.Context)
			})
		},
		Subcommands: []*cli.Command{etcdBackupListCommand()},
	}
}

func etcdBackupListCommand() *cli.Command {
	return &cli.Command{
		Name:        "list",
		Usage:       "list the backups that can be restored, the newest first",
		Description: "Each was restored for a trial when it was taken. The secrets in it are encrypted with a key of the cluster's store: keep that too.",
		Flags:       etcdFlags(backupsFlag()),
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			k, complete, err := openEtcd(c)
			if err != nil {
				return err
			}
			if err := openBackups(c, k, complete); err != nil {
				return err
			}
			list, err := k.ListBackups(c.Context)
			if err != nil {
				return err
			}
			if structured(c) {
				return printResult(c, list)
			}
			return printBackups(c.App.Writer, list, time.Now())
		},
	}
}

func printBackups(out io.Writer, list []operate.Listed, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tEPOCH\tAGE\tREVISION\tKEYS\tSIZE\tVERIFIED\tRESTORABLE")
	for _, b := range list {
		restorable := "yes"
		if b.Foreign != "" {
			restorable = "no: " + b.Foreign
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%d\t%s\t%s ago\t%s\n", b.Name, b.Epoch, ago(b.Taken, now), b.Revision, b.Keys, mebibytes(b.Size), ago(b.Verified, now), restorable)
	}
	return w.Flush()
}

func ago(t, now time.Time) time.Duration { return now.Sub(t).Round(time.Second) }

func backupsFlag() cli.Flag {
	return &cli.StringFlag{Name: "backups", Usage: "the `LOCATION` of the backups: s3://bucket/prefix or dir:/path (default: the document's)"}
}

// openBackups gives a cluster the place of its backups, if the flags or the document name one.
func openBackups(c *cli.Context, k *operate.Cluster, complete *spec.Complete) error {
	at := cmp.Or(c.String("backups"), complete.Backups())
	if at == "" {
		return nil
	}
	load := func(ctx context.Context) (aws.Config, error) { return loadAWS(ctx, c) }
	p, err := backup.Open(at, backup.Options{Cluster: k.Name, Load: load, Account: func(ctx context.Context) (string, error) {
		conf, err := load(ctx)
		if err != nil {
			return "", err
		}
		me, err := sts.NewFromConfig(conf).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
		if err != nil {
			return "", err
		}
		return aws.ToString(me.Account), nil
	}})
	if err != nil {
		return usagef("%w", err)
	}
	k.Backups = backups{p}
	return nil
}

// backups is a place as the operator's commands read it.
type backups struct{ backup.Place }

func (b backups) List(ctx context.Context) ([]operate.Object, error) {
	found, err := b.Place.List(ctx)
	list := []operate.Object{}
	for _, o := range found {
		list = append(list, operate.Object(o))
	}
	return list, err
}
