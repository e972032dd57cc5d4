package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/prepare"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
)

func dnsZoneCommand() *cli.Command {
	return &cli.Command{
		Name:  "zone",
		Usage: "prepare a zone for a cluster before its first machine boots",
		Subcommands: []*cli.Command{
			dnsZoneCreateCommand(),
			dnsZonePrepareCommand(),
		},
	}
}

func dnsZoneCreateCommand() *cli.Command {
	return &cli.Command{
		Name:  "create",
		Usage: "create a private Route 53 zone if the VPC has none of this name, and prepare it",
		Flags: append(awsFlags(),
			clusterFlag(), dnsClusterFlag(), suffixFlag(),
			&cli.StringFlag{Name: "vpc", Usage: "the `VPC` that uses the zone, in the region"},
			dryRunFlag(), timeoutFlag(time.Minute),
		),
		Action: dnsZoneCreate,
	}
}

func dnsZonePrepareCommand() *cli.Command {
	return &cli.Command{
		Name:  "prepare",
		Usage: "lower an existing zone's SOA minimum, and create the cluster's placeholder records",
		Flags: zoneFlags(dryRunFlag(), timeoutFlag(time.Minute)),
		Action: func(c *cli.Context) error {
			ctx, cancel := timeoutContext(c)
			defer cancel()
			t, err := newZoneTarget(c)
			if err != nil {
				return err
			}
			r, err := prepare.Run(ctx, t.zone, prepare.Options{Cluster: t.cluster, Policy: t.policy, DryRun: c.Bool("dry-run")})
			if err != nil {
				return err
			}
			return printZone(c, r)
		},
	}
}

func dnsZoneCreate(c *cli.Context) error {
	ctx, cancel := timeoutContext(c)
	defer cancel()
	if err := noArguments(c); err != nil {
		return err
	}
	cluster, err := chosenCluster(c)
	if err != nil {
		return err
	}
	if c.String("vpc") == "" {
		return usagef("--vpc is needed: who sees the zone (see %s --help)", name(c))
	}
	o := prepare.Options{Cluster: cluster, Policy: record.DefaultPolicy(), DryRun: c.Bool("dry-run")}
	o.Policy.Suffix = c.String("suffix")
	if err := o.Check(); err != nil {
		return err
	}
	conf, err := loadAWS(ctx, c)
	if err != nil {
		return err
	}
	query := zone.Query{Name: o.Policy.Suffix, VPC: c.String("vpc"), Region: conf.Region}
	r, err := prepare.Create(ctx, zone.Hosted{API: route53.NewFromConfig(conf), Query: query, Policy: o.Policy}, o)
	if created := new(prepare.CreatedError); errors.As(err, &created) {
		return fmt.Errorf("%w (zone %s has been created: run the same command again to continue)", err, created.ZoneID)
	}
	if err != nil {
		return err
	}
	return printZone(c, r)
}

func printZone(c *cli.Context, r *prepare.Report) error {
	if structured(c) {
		return printResult(c, r)
	}
	_, err := io.WriteString(c.App.Writer, r.String())
	return err
}
