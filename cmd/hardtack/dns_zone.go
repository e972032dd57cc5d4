package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dnssync"
	"github.com/hardtack/packer-plugin-hardtack/pkg/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/zone"
)

// newZoneNegative is what Route 53 gives a new zone: its SOA's TTL is 900 s.
const newZoneNegative = 15 * time.Minute

// lowerTries is how often the SOA is read again because somebody else's update came between.
const lowerTries = 5

func dnsZoneCommand() *cli.Command {
	return &cli.Command{
		Name:  "zone",
		Usage: "make a zone ready for a cluster, before its first machine asks",
		Subcommands: []*cli.Command{
			dnsZoneCreateCommand(),
			dnsZonePrepareCommand(),
		},
	}
}

// changeFlags are those of commands that may only show what they would do.
func changeFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "dry-run", Usage: "say what would be done, and change nothing"},
		&cli.DurationFlag{Name: "timeout", Value: time.Minute, Usage: "the `TIME` that it may take"},
	}
}

func dnsZoneCreateCommand() *cli.Command {
	return &cli.Command{
		Name:  "create",
		Usage: "create a private zone of Route 53 where the VPC sees none of the name, and prepare it",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "cluster", Usage: "the cluster's `NAME`, a DNS label"},
			&cli.StringFlag{Name: "suffix", Value: record.DefaultSuffix, Usage: "the `ZONE` below which the cluster's name is"},
			&cli.StringFlag{Name: "vpc", Usage: "the `VPC` that sees the zone"},
			&cli.StringFlag{Name: "region", Usage: "the VPC's `REGION`; left out, AWS_REGION or that of the AWS configuration"},
			&cli.BoolFlag{Name: "json", Usage: "print JSON"},
		}, changeFlags()...),
		Action: func(c *cli.Context) error {
			ctx, cancel := dnssyncContext(c)
			defer cancel()
			r, err := createZone(ctx, c)
			if err != nil {
				return err
			}
			return r.print(c)
		},
	}
}

func dnsZonePrepareCommand() *cli.Command {
	return &cli.Command{
		Name:  "prepare",
		Usage: "lower the SOA minimum of a zone that there is, and give the cluster its placeholders",
		Flags: zoneFlags(changeFlags()...),
		Action: func(c *cli.Context) error {
			ctx, cancel := dnssyncContext(c)
			defer cancel()
			t, err := newZoneTarget(c)
			if err != nil {
				return err
			}
			t.patient()
			r := &zoneReport{DryRun: c.Bool("dry-run")}
			if err := t.prepare(ctx, r); err != nil {
				return err
			}
			return r.print(c)
		},
	}
}

// zoneReport is what a zone command found and did, or would do.
type zoneReport struct {
	Zone    string `json:"zone"`
	ZoneID  string `json:"zone_id,omitempty"` // Route 53's; empty for a zone that would be created
	Cluster string `json:"cluster"`
	DryRun  bool   `json:"dry_run"`
	Created bool   `json:"created"`
	// Lowered: the SOA minimum. A resolver kept a "no such name" for NegativeBefore seconds, and now does
	// for Negative.
	Lowered        bool  `json:"lowered"`
	NegativeBefore int64 `json:"negative_seconds_before"`
	Negative       int64 `json:"negative_seconds"`
	// Placeholders are the sets that were created ("masters.demo.k8s. A"); Records those that were there.
	Placeholders []string `json:"placeholders"`
	Records      int      `json:"records"`
}

// createZone makes sure that the VPC sees a zone of the name, and prepares it.
func createZone(ctx context.Context, c *cli.Context) (*zoneReport, error) {
	if err := noArguments(c); err != nil {
		return nil, err
	}
	t := &dnsTarget{cluster: c.String("cluster"), policy: record.DefaultPolicy()}
	t.policy.Suffix = c.String("suffix")
	if t.cluster == "" || c.String("vpc") == "" {
		return nil, usagef("--cluster and --vpc are needed: whose records the zone holds, and who sees it (see %s --help)", name(c))
	}
	if err := t.checkNames(); err != nil {
		return nil, err
	}
	conf, err := awsConfig(ctx, config.WithRegion(c.String("region"))) // an empty one is none
	if err != nil {
		return nil, err
	}
	q := zone.Query{Name: t.policy.Suffix, VPC: c.String("vpc"), Region: conf.Region}
	r := &zoneReport{DryRun: c.Bool("dry-run")}
	api := route53.NewFromConfig(conf)
	if r.DryRun {
		r.ZoneID, err = zone.FindZone(ctx, api, q)
		if errors.Is(err, zone.ErrNoZone) {
			r.Created, r.Lowered, r.NegativeBefore = true, true, seconds(newZoneNegative)
			t.describe(r, nil)
			return r, nil
		}
	} else {
		r.ZoneID, r.Created, err = zone.EnsureZone(ctx, api, q, fmt.Sprintf("hardtack-%s-%016x", time.Now().UTC().Format("20060102T150405"), rand.Uint64()))
	}
	if err != nil {
		return nil, again(r, err)
	}
	if err := t.keepIn(api, r.ZoneID); err != nil {
		return nil, err
	}
	t.patient()
	if r.Created {
		r.Lowered, r.NegativeBefore = true, seconds(newZoneNegative)
	}
	return r, again(r, t.prepare(ctx, r))
}

// again adds the next step to an error after which there is a zone that was not there before.
func again(r *zoneReport, err error) error {
	if err != nil && r.Created {
		return fmt.Errorf("%w (zone %s has been created: the same command goes on from there)", err, r.ZoneID)
	}
	return err
}

// checkNames looks at the cluster's name and the zone's before anything is made of them.
func (t *dnsTarget) checkNames() error {
	_, problems := record.Desired(record.Fleet{Cluster: t.cluster}, t.policy, record.Limits{})
	return problems.Err()
}

// prepare lowers the SOA minimum, and gives the cluster its placeholders, where either is to be done.
func (t *dnsTarget) prepare(ctx context.Context, r *zoneReport) error {
	if err := t.checkNames(); err != nil {
		return err
	}
	have, err := t.zone.Read(ctx, t.cluster)
	if err != nil {
		return err
	}
	before, err := t.negative(ctx)
	if err != nil {
		return err
	}
	if !r.Created {
		r.NegativeBefore, r.Lowered = seconds(before), before > zone.NegativeTTL
	}
	t.describe(r, have)
	if r.DryRun {
		return nil
	}
	if err := t.lowerMinimum(ctx, before); err != nil {
		return err
	}
	if len(have) > 0 {
		return nil
	}
	made, err := zone.Prepare(ctx, t.zone, t.cluster, t.policy, dnssync.NewGeneration(time.Now(), rand.Uint64()))
	if err == nil && !made { // somebody else was faster
		have, err = t.zone.Read(ctx, t.cluster)
		t.describe(r, have)
	}
	return err
}

// lowerMinimum lowers what is too high, and makes sure that the server has it so.
func (t *dnsTarget) lowerMinimum(ctx context.Context, now time.Duration) error {
	for range lowerTries {
		if now <= zone.NegativeTTL {
			return nil
		}
		err := t.lower(ctx)
		if err != nil && !errors.Is(err, dnssync.ErrConflict) {
			return err
		}
		if now, err = t.negative(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("lowering the SOA minimum of zone %s: it still is %s after %d tries (is the server asked the zone's primary?)", fqdn(t.policy.Suffix), now, lowerTries)
}

// describe fills in what comes of these records.
func (t *dnsTarget) describe(r *zoneReport, have []record.Set) {
	r.ZoneID, r.Zone, r.Cluster, r.Records, r.Placeholders = t.zoneID, fqdn(t.policy.Suffix), t.cluster, len(have), []string{}
	r.Negative = min(r.NegativeBefore, seconds(zone.NegativeTTL))
	if len(have) > 0 {
		return
	}
	for _, s := range record.Placeholders(t.cluster, t.policy) {
		r.Placeholders = append(r.Placeholders, s.Name+" "+s.Type)
	}
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }

func (r *zoneReport) print(c *cli.Context) error {
	if c.Bool("json") {
		return printJSON(c.App.Writer, r)
	}
	_, err := io.WriteString(c.App.Writer, r.text())
	return err
}

func (r *zoneReport) text() string {
	would, title := "", "zone "+r.Zone
	if r.DryRun {
		would = "would be "
	}
	if r.ZoneID != "" {
		title += " (" + r.ZoneID + ")"
	}
	lines := []string{title + ": is there", fmt.Sprintf("SOA minimum: a \"no such name\" is kept for %d s", r.Negative),
		fmt.Sprintf("records of %s: %d are there", r.Cluster, r.Records)}
	if r.Created {
		lines[0] = fmt.Sprintf("%s: %screated", title, would)
	}
	if r.Lowered {
		lines[1] = fmt.Sprintf("SOA minimum: %slowered from %d to %d s", would, r.NegativeBefore, r.Negative)
	}
	if len(r.Placeholders) > 0 {
		lines[2] = fmt.Sprintf("placeholders of %s: %screated, %s", r.Cluster, would, strings.Join(r.Placeholders, ", "))
	}
	return strings.Join(lines, "\n") + "\n"
}
