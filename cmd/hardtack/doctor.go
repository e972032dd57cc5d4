package main

import (
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/examine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
)

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "ask a running cluster what waits, and for what: nodes, webhooks and APIs without a pod, metrics, volumes, load balancers",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "kubeconfig", EnvVars: []string{"KUBECONFIG"}, Usage: "an administrator's kubeconfig, a `FILE`: hardtack pki kubeconfig prints one"},
			timeoutFlag(time.Minute),
		},
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			file := c.String("kubeconfig")
			if file == "" {
				return usagef("--kubeconfig is needed: which cluster is asked")
			}
			ctx, cancel := timeoutContext(c)
			defer cancel()
			client, err := kube.NewFile(file).Client()
			if err != nil {
				return err
			}
			return report(c, examine.Run(ctx, client, time.Now()))
		},
	}
}
