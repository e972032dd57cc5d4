package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/check"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/prepare"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
)

func dnsCommand() *cli.Command {
	return &cli.Command{
		Name:  "dns",
		Usage: "manage a cluster's DNS records and their zone",
		Subcommands: []*cli.Command{
			dnsSyncCommand(),
			dnsPlanCommand(),
			dnsAdoptCommand(),
			dnsLookupCommand(),
			dnsDoctorCommand(),
			dnsZoneCommand(),
		},
	}
}

// dnsFlags select the cluster, zone and fleet of a command.
func dnsFlags(more ...cli.Flag) []cli.Flag {
	return append(zoneFlags(
		&cli.StringFlag{Name: "fleet", Usage: "the source of the cluster's members: a `FILE` (YAML or JSON), aws, or 'exec:PROGRAM ARGUMENTS' that prints such a file"},
		&cli.StringFlag{Name: "owner", Usage: "the `NAME` of the fleet whose records these are; those of another owner are not changed (default: the account and region, or host and file)"},
		&cli.StringSliceFlag{Name: "groups", Usage: "with --fleet aws: read these AutoScaling `GROUPS` and no others that have the cluster's tag"},
	), more...)
}

// zoneFlags select the cluster and zone of a command.
func zoneFlags(more ...cli.Flag) []cli.Flag {
	return append(append(awsFlags(),
		clusterFlag(), dnsClusterFlag(), suffixFlag(),
		&cli.BoolFlag{Name: "api-internal", Usage: "also keep api.internal.<cluster>: the private addresses of the healthy masters"},
		&cli.BoolFlag{Name: "api-public", Usage: "keep api.<cluster>, the public addresses of the healthy masters, and no other name: for a public zone"},
		&cli.StringFlag{Name: "zone-server", Usage: "keep the records on the zone's primary server, `HOST[:PORT]`, by RFC 2136 updates"},
		&cli.StringFlag{Name: "tsig-key", Usage: "the `FILE` with the TSIG key that may update and transfer the zone, as written by tsig-keygen"},
		&cli.IntFlag{Name: "max-records", Usage: "the server's limit of `N` records in a set (BIND: max-records-per-type)", Value: 100},
		&cli.BoolFlag{Name: "route53", Usage: "keep the records in Route 53"},
		&cli.StringFlag{Name: "zone-id", Usage: "with --route53: the hosted zone's `ID` (default: the zone is found by its name)"},
		&cli.StringFlag{Name: "vpc", Usage: "with --route53: the `VPC` of the private zone, if several zones have the name"},
	), more...)
}

func dnsClusterFlag() cli.Flag {
	return &cli.StringFlag{Name: "cluster", Usage: "the cluster's `NAME`, where no document is given"}
}

func suffixFlag() cli.Flag {
	return &cli.StringFlag{Name: "suffix", Value: record.DefaultSuffix, Usage: "the `ZONE` that contains the cluster's domain"}
}

// dnsTarget is the cluster, zone and fleet of a dns command.
type dnsTarget struct {
	cluster string
	policy  record.Policy
	zone    check.Zone
	fleet   reconcile.Fleet
	hooks   reconcile.Hooks
	// pace is that of the reconcile: zero is the default, negative none, for the user's own name server, which has no
	// quota.
	pace time.Duration
}

// newDNSTarget makes the target of the flags, with its fleet. It changes nothing.
func newDNSTarget(c *cli.Context) (*dnsTarget, error) {
	t, err := newZoneTarget(c)
	if err != nil {
		return nil, err
	}
	return t, t.useFleet(c)
}

// newZoneTarget makes a target without a fleet.
func newZoneTarget(c *cli.Context) (*dnsTarget, error) {
	if err := noArguments(c); err != nil {
		return nil, err
	}
	t := &dnsTarget{policy: record.DefaultPolicy()}
	t.policy.Suffix = c.String("suffix")
	if t.policy.Outputs.APIInternal = c.Bool("api-internal"); c.Bool("api-public") {
		if c.Bool("api-internal") {
			return nil, usagef("--api-internal is for the private zone, and --api-public for a public one: run the command once for each")
		}
		t.policy.Outputs = record.Outputs{APIPublic: true}
	}
	var err error
	if t.cluster, err = chosenCluster(c); err != nil {
		return nil, err
	}
	if err := (prepare.Options{Cluster: t.cluster, Policy: t.policy}).Check(); err != nil {
		return nil, err
	}
	switch {
	case c.Bool("route53") == c.IsSet("zone-server"):
		return nil, usagef("one of --zone-server and --route53 is needed (see %s --help)", name(c))
	case c.Bool("route53"):
		err = t.useRoute53(c)
	default:
		err = t.useServer(c)
	}
	return t, err
}

func (t *dnsTarget) useServer(c *cli.Context) error {
	conf := zone.RFC2136Config{Server: c.String("zone-server"), Policy: t.policy, SetValues: c.Int("max-records")}
	if file := c.String("tsig-key"); file != "" {
		key, err := zone.ReadKey(file)
		if err != nil {
			return err
		}
		conf.Key = key
		if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o004 != 0 {
			logger(c).Warn("everybody on this machine can read the key, and so change the zone", "file", file, "next", "chmod 640 "+file)
		}
	}
	z, err := zone.NewRFC2136(conf)
	if err != nil {
		return err
	}
	t.zone, t.pace = z, -1
	return nil
}

func (t *dnsTarget) useRoute53(c *cli.Context) error {
	if c.IsSet("tsig-key") {
		return usagef("--tsig-key goes with --zone-server: Route 53 takes AWS credentials")
	}
	conf, err := loadAWS(c.Context, c)
	if err != nil {
		return err
	}
	api, id := route53.NewFromConfig(conf), c.String("zone-id")
	if id == "" {
		if id, err = zone.FindZone(c.Context, api, zone.Query{Name: t.policy.Suffix, VPC: c.String("vpc"), Public: c.Bool("api-public")}); err != nil {
			return zoneHint(err)
		}
	}
	t.zone, err = zone.NewRoute53(api, id, t.policy)
	return err
}

// zoneHint adds to an error the command that creates a missing zone.
func zoneHint(err error) error {
	if errors.Is(err, zone.ErrNoZone) {
		return fmt.Errorf("%w (create it: hardtack dns zone create; or name another)", err)
	}
	return err
}

func (t *dnsTarget) useFleet(c *cli.Context) error {
	what := c.String("fleet")
	program, isProgram := strings.CutPrefix(what, "exec:")
	switch {
	case what == "":
		return usagef("--fleet is needed: a file, aws, or exec:PROGRAM (see %s --help)", name(c))
	case what == "aws":
		conf, err := loadAWS(c.Context, c)
		if err != nil {
			return err
		}
		groups := autoscaling.NewFromConfig(conf)
		members := &fleet.AWS{Scaling: groups, Machines: ec2.NewFromConfig(conf)}
		if only := c.StringSlice("groups"); len(only) > 0 {
			members.Allowed = func(string) []string { return only }
		}
		t.fleet = members
		if hook := c.String("hook"); hook != "" {
			t.hooks = &fleet.Hooks{API: groups, Name: hook}
		}
	case isProgram:
		words := strings.Fields(program)
		if len(words) == 0 {
			return usagef("--fleet exec: names no program")
		}
		t.fleet = fleet.Command{Name: words[0], Args: words[1:], Health: &fleet.Health{Log: logger(c)}}
	default:
		t.fleet = fleet.File{Path: what, Health: &fleet.Health{Log: logger(c)}}
	}
	owner, err := fleetOwner(c.String("owner"), what)
	if owner != "" {
		t.fleet = fleet.Owned{Fleet: t.fleet, Owner: owner}
	}
	return err
}

// fleetOwner returns the owner of a fleet's records: a name that was given, or else where the fleet is kept. A fleet of AWS
// says it itself: the owner is empty then.
func fleetOwner(name, what string) (string, error) {
	program, isProgram := strings.CutPrefix(what, "exec:")
	if name != "" || what == "aws" {
		return name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("naming the owner of the records after this host: %w (name one with --owner)", err)
	}
	if isProgram {
		return host + ":" + strings.Join(strings.Fields(program), "+"), nil
	}
	path, err := filepath.Abs(what)
	if err != nil {
		return "", fmt.Errorf("naming the owner of the records after %s: %w (name one with --owner)", what, err)
	}
	return host + ":" + path, nil
}

// syncer returns the reconciler of the target.
func (t *dnsTarget) syncer(c *cli.Context) (*reconcile.Syncer, error) {
	return reconcile.New(reconcile.Config{Zone: t.zone, Fleet: t.fleet, Hooks: t.hooks, Policy: t.policy, Pace: t.pace, Log: logger(c)})
}
