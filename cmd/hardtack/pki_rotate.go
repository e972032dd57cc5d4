package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/examine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
)

// rotator reads the state of one rotation, and takes its next step.
type rotator struct {
	state func(context.Context, store.Store) (authority.Rotation, error)
	step  func(ctx context.Context, cluster string, s store.Store, o authority.RotateOptions) (authority.Rotation, error)
}

// pkiRotate are the commands of hardtack pki rotate, one for each key that can be replaced.
func pkiRotate() []*cli.Command {
	commands := []*cli.Command{pkiRotateEncryption()}
	for _, name := range authority.Replaceable() {
		var more []cli.Flag
		if name == pki.ServiceAccount {
			more = []cli.Flag{&cli.BoolFlag{Name: "unpublished", Usage: "neither publish the keys nor look at what is published, although they were: outside the cluster nobody verifies pods' tokens any more"}}
		}
		commands = append(commands, &cli.Command{
			Name: pki.ShortName(name), Usage: "take the next of three steps to replace " + pki.ShortName(name) + ": trust the new one, sign with it, trust only it",
			Flags: rotateFlags(more...),
			Action: func(c *cli.Context) error {
				return rotate(c, rotator{
					state: func(ctx context.Context, s store.Store) (authority.Rotation, error) {
						return authority.RotationOf(ctx, s, name)
					},
					step: func(ctx context.Context, cluster string, s store.Store, o authority.RotateOptions) (authority.Rotation, error) {
						if name == pki.ServiceAccount && !c.Bool("unpublished") {
							var err error
							if o.Issuer, err = recordedIssuer(c, s); err != nil {
								return authority.Rotation{}, err
							}
						}
						return authority.RotateAuthority(ctx, s, cluster, name, o)
					},
				})
			},
		})
	}
	return commands
}

func rotateFlags(more ...cli.Flag) []cli.Flag {
	return append(append(append(storeFlags(), confirmFlags()...),
		&cli.BoolFlag{Name: "status", Usage: "print the step, and take none"},
		&cli.BoolFlag{Name: "taken", Usage: "take the step before its time: every machine has taken the last one, which you have seen"}),
		more...)
}

func pkiRotateEncryption() *cli.Command {
	return &cli.Command{
		Name: "encryption", Usage: "take the next of three steps to a new key for Secrets in etcd: add it, encrypt with it, write every Secret again and drop the old one",
		Flags: rotateFlags(&cli.StringFlag{Name: "kubeconfig", Usage: "an administrator's kubeconfig, a `FILE`: every API server is asked whether it uses the keys of the last step; the last step needs it"}),
		Action: func(c *cli.Context) error {
			return rotate(c, rotator{
				state: func(ctx context.Context, s store.Store) (authority.Rotation, error) {
					return authority.EncryptionRotation(ctx, s)
				},
				step: func(ctx context.Context, cluster string, s store.Store, o authority.RotateOptions) (authority.Rotation, error) {
					if file := c.String("kubeconfig"); file != "" {
						client, err := kube.NewFile(file).Client()
						if err != nil {
							return authority.Rotation{}, err
						}
						o.Uses = func(ctx context.Context, config []byte) error {
							return examine.UsesEncryption(ctx, client, config, c.App.ErrWriter)
						}
						o.Rewrite = func(ctx context.Context) error { return rewriteSecrets(ctx, c.App.ErrWriter, client) }
					}
					return authority.RotateEncryption(ctx, s, o)
				},
			})
		},
	}
}

func rotate(c *cli.Context, r rotator) error {
	cluster, location, err := chosenStore(c)
	if err != nil {
		return err
	}
	s, err := openLocation(c, location)
	if err != nil {
		return err
	}
	if c.Bool("status") {
		state, err := r.state(c.Context, s)
		if err != nil {
			return err
		}
		return printRotation(c, state)
	}
	return change[authority.Rotation]{
		question: "Take this step for cluster " + cluster + ", in " + s.String() + "?",
		run: func(dry bool) (authority.Rotation, error) {
			if dry {
				return r.state(c.Context, s)
			}
			return r.step(c.Context, cluster, s, authority.RotateOptions{Now: time.Now(), Taken: c.Bool("taken")})
		},
		due:    func(authority.Rotation) bool { return true },
		text:   rotationText,
		answer: func(state authority.Rotation) error { return printRotation(c, state) },
	}.do(c)
}

func rewriteSecrets(ctx context.Context, story io.Writer, client *kube.Client) error {
	n, err := client.RewriteSecrets(ctx)
	fmt.Fprintf(story, "%d Secrets written again\n", n)
	return err
}

func printRotation(c *cli.Context, r authority.Rotation) error {
	if structured(c) {
		return printResult(c, r)
	}
	_, err := io.WriteString(c.App.Writer, rotationText(r))
	return err
}

func rotationText(r authority.Rotation) string {
	text := fmt.Sprintf("%s: step %s, keys %s\n", r.Object, r.Step, strings.Join(r.Keys, ", "))
	if r.Since != nil {
		text += fmt.Sprintf("taken at %s; every machine has it at %s\n", r.Since.UTC().Format(time.RFC3339), r.NotBefore.UTC().Format(time.RFC3339))
	}
	if r.Before != "" {
		text += "before the next step: " + r.Before + "\n"
	}
	return fmt.Sprintf("%snext: %s\n", text, r.Next)
}
