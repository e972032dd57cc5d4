package main

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
)

func stackDoctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "check, before anything is made, what apply would find: credentials, permissions, secrets, image, quotas and network, without changing anything",
		Flags: deployFlags(
			&cli.BoolFlag{Name: "policy", Usage: "only print the IAM policy that the stack commands need for this cluster"},
			timeoutFlag(2*time.Minute),
		),
		Action: onStack(stackDoctor),
	}
}

func stackDoctor(c *cli.Context, k *cluster.Cluster) error {
	deploy, err := deployOptions(c)
	if err != nil {
		return err
	}
	ctx, cancel := timeoutContext(c)
	defer cancel()
	if c.Bool("policy") {
		policy, err := k.Permissions(ctx, deploy)
		if err != nil {
			return err
		}
		return printDocument(c, append(policy, '\n'))
	}
	checks := k.Doctor(ctx, deploy)
	if err := c.Err(); err != nil { // Ctrl-C; a timeout is reported by the checks that it cut short
		return fmt.Errorf("reading the account: %w", err)
	}
	if n := checks.Count(doctor.Warning); n > 0 {
		logger(c).Warn("some checks are warnings, or could not be made", "warnings", n, "of", len(checks))
	}
	return report(c, checks)
}
