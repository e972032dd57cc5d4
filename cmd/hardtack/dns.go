package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awshttp"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dnssync"
	"github.com/hardtack/packer-plugin-hardtack/pkg/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/zone"
)

func dnsCommand() *cli.Command {
	return &cli.Command{
		Name:  "dns",
		Usage: "keep, plan and look at a cluster's DNS records",
		Subcommands: []*cli.Command{
			dnsSyncCommand(),
			dnsPlanCommand(),
			dnsLookupCommand(),
			dnsDoctorCommand(),
			dnsZoneCommand(),
		},
	}
}

// dnsFlags say which cluster, zone and fleet a command is about.
func dnsFlags(more ...cli.Flag) []cli.Flag {
	return append(zoneFlags(
		&cli.StringFlag{Name: "fleet", Usage: "who the members are: a `FILE` (YAML or JSON), aws, or exec:PROGRAM [ARGUMENTS] that prints such a file"},
	), more...)
}

// zoneFlags say which cluster and zone a command is about.
func zoneFlags(more ...cli.Flag) []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "cluster", Usage: "the cluster's `NAME`, a DNS label"},
		&cli.StringFlag{Name: "suffix", Value: record.DefaultSuffix, Usage: "the `ZONE` below which the cluster's name is"},
		&cli.StringFlag{Name: "zone-server", Usage: "keep the records by RFC 2136 on the zone's primary, `HOST[:PORT]`"},
		&cli.StringFlag{Name: "tsig-key", Usage: "`FILE` with the key that may update and transfer the zone, as tsig-keygen writes it"},
		&cli.IntFlag{Name: "max-records", Usage: "the server's own limit of `N` records in a set; BIND's is 100 unless max-records-per-type says otherwise", Value: 100},
		&cli.BoolFlag{Name: "route53", Usage: "keep the records in Route 53"},
		&cli.StringFlag{Name: "zone-id", Usage: "with --route53: the hosted zone's `ID`; left out, the zone is found by its name"},
		&cli.StringFlag{Name: "vpc", Usage: "with --route53: the `VPC` that sees the private zone, where several zones have the name"},
		&cli.BoolFlag{Name: "json", Usage: "print JSON"},
	}, more...)
}

// dnsTarget is what a dns command works on.
type dnsTarget struct {
	cluster string
	policy  record.Policy
	zone    dnssync.Zone
	zoneID  string // Route 53's
	fleet   dnssync.Fleet
	hooks   dnssync.Hooks
	// negative reads how long the zone's "no such name" is kept, and lower lowers it to zone.NegativeTTL.
	negative func(context.Context) (time.Duration, error)
	lower    func(context.Context) error
	// unsigned asks whether the server takes updates without a signature; nil where none can.
	unsigned func(context.Context) (bool, error)
	// signed says how requests are signed: a key's name, or AWS's signature.
	signed string
	// pace is dnssync's: a server of one's own has no quota that storms would use up.
	pace time.Duration
}

// newDNSTarget reads the flags; what they name is only looked up, never changed.
func newDNSTarget(c *cli.Context) (*dnsTarget, error) {
	t, err := newZoneTarget(c)
	if err != nil {
		return nil, err
	}
	return t, t.useFleet(c)
}

// newZoneTarget is one without a fleet.
func newZoneTarget(c *cli.Context) (*dnsTarget, error) {
	if err := noArguments(c); err != nil {
		return nil, err
	}
	t := &dnsTarget{cluster: c.String("cluster"), policy: record.DefaultPolicy()}
	if t.cluster == "" {
		return nil, usagef("--cluster is needed: the cluster's name (see %s --help)", name(c))
	}
	t.policy.Suffix = c.String("suffix")
	var err error
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
		conf.Key, t.signed = key, "key "+key.Name
	}
	z, err := zone.NewRFC2136(conf)
	if err != nil {
		return err
	}
	t.zone, t.pace = z, -1
	t.lower, t.unsigned = z.LowerMinimum, z.TakesUnsigned
	t.negative = func(ctx context.Context) (time.Duration, error) { return askNegative(ctx, conf.Server, t.policy) }
	return nil
}

func (t *dnsTarget) useRoute53(c *cli.Context) error {
	if c.IsSet("tsig-key") {
		return usagef("--tsig-key goes with --zone-server: Route 53 takes AWS credentials")
	}
	conf, err := awsConfig(c.Context)
	if err != nil {
		return err
	}
	api, id := route53.NewFromConfig(conf), c.String("zone-id")
	if id == "" {
		if id, err = zone.FindZone(c.Context, api, zone.Query{Name: t.policy.Suffix, VPC: c.String("vpc")}); err != nil {
			return err
		}
	}
	return t.keepIn(api, id)
}

// keepIn keeps the records in one hosted zone.
func (t *dnsTarget) keepIn(api *route53.Client, id string) (err error) {
	t.zoneID, t.signed = strings.TrimPrefix(id, "/hostedzone/"), "AWS credentials"
	t.negative = func(ctx context.Context) (time.Duration, error) {
		return zone.NegativeTTLOf(ctx, api, id, fqdn(t.policy.Suffix))
	}
	t.lower = func(ctx context.Context) error { return zone.LowerMinimum(ctx, api, id, fqdn(t.policy.Suffix)) }
	t.zone, err = zone.NewRoute53(api, id, t.policy)
	return err
}

func fqdn(name string) string { return strings.TrimSuffix(name, ".") + "." }

func (t *dnsTarget) useFleet(c *cli.Context) error {
	what := c.String("fleet")
	program, isProgram := strings.CutPrefix(what, "exec:")
	switch {
	case what == "":
		return usagef("--fleet is needed: a file, aws, or exec:PROGRAM (see %s --help)", name(c))
	case what == "aws":
		conf, err := awsConfig(c.Context)
		if err != nil {
			return err
		}
		groups := autoscaling.NewFromConfig(conf)
		t.fleet = &fleet.AWS{Scaling: groups, Machines: ec2.NewFromConfig(conf)}
		t.hooks = &fleet.Hooks{API: groups}
	case isProgram:
		words := strings.Fields(program)
		if len(words) == 0 {
			return usagef("--fleet exec: names no program")
		}
		t.fleet = fleet.Command{Name: words[0], Args: words[1:]}
	default:
		t.fleet = fleet.File{Path: what}
	}
	return nil
}

func awsConfig(ctx context.Context, more ...func(*config.LoadOptions) error) (aws.Config, error) {
	conf, err := config.LoadDefaultConfig(ctx, more...)
	if err != nil {
		return conf, fmt.Errorf("reading the AWS configuration: %w", err)
	}
	if conf.Region == "" {
		return conf, errors.New("reading the AWS configuration: no region is set (export AWS_REGION)")
	}
	conf.HTTPClient = awshttp.Client(conf.HTTPClient)
	return conf, nil
}

// syncer is the reconcile of the target.
func (t *dnsTarget) syncer(c *cli.Context) (*dnssync.Syncer, error) {
	return dnssync.New(dnssync.Config{Zone: t.zone, Fleet: t.fleet, Hooks: t.hooks, Policy: t.policy, Pace: t.pace, Log: logger(c)})
}
