package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
)

func pkiRotateEncryption() *cli.Command {
	return &cli.Command{
		Name: "encryption", Usage: "take the next of three steps to a new key for Secrets in etcd: add it, encrypt with it, write every Secret again and drop the old one",
		Flags: append(storeFlags(),
			&cli.BoolFlag{Name: "status", Usage: "print the step, and take none"},
			&cli.StringFlag{Name: "kubeconfig", Usage: "an administrator's kubeconfig, a `FILE`, for the last step"},
			&cli.BoolFlag{Name: "taken", Usage: "take the step before its time: every master has taken the last one, which you have seen"},
			jsonFlag()),
		Action: func(c *cli.Context) error {
			s, err := openStore(c)
			if err != nil {
				return err
			}
			if c.Bool("status") {
				state, err := authority.EncryptionRotation(c.Context, s)
				if err != nil {
					return err
				}
				return printRotation(c, state)
			}
			o := authority.RotateOptions{Now: time.Now(), Taken: c.Bool("taken")}
			if file := c.String("kubeconfig"); file != "" {
				o.Rewrite = func(ctx context.Context) error { return rewriteSecrets(ctx, c.App.ErrWriter, file) }
			}
			state, err := authority.RotateEncryption(c.Context, s, o)
			if err != nil {
				return err
			}
			return printRotation(c, state)
		},
	}
}

func rewriteSecrets(ctx context.Context, story io.Writer, file string) error {
	client, err := kube.NewFile(file).Client()
	if err != nil {
		return err
	}
	n, err := client.RewriteSecrets(ctx)
	fmt.Fprintf(story, "%d Secrets written again\n", n)
	return err
}

func printRotation(c *cli.Context, r authority.Rotation) error {
	if c.Bool("json") {
		return printJSON(c.App.Writer, r)
	}
	text := fmt.Sprintf("%s: step %s, keys %s\n", r.Object, r.Step, strings.Join(r.Keys, ", "))
	if r.Since != nil {
		text += fmt.Sprintf("taken at %s; every master has it at %s\n", r.Since.UTC().Format(time.RFC3339), r.NotBefore.UTC().Format(time.RFC3339))
	}
	_, err := fmt.Fprintf(c.App.Writer, "%snext: %s\n", text, r.Next)
	return err
}
