package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/check"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
)

// The check for unsigned updates runs only on zones with this interface.
var _ check.UpdateServer = (*zone.RFC2136)(nil)

func dnsDoctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "check what the records depend on: conditional updates, signatures, limits, the SOA minimum, agreement with the fleet",
		Flags: dnsFlags(
			&cli.BoolFlag{Name: "write", Usage: "also write a record set as large as the limit, and remove it again"},
			timeoutFlag(time.Minute),
		),
		Action: onTarget(func(c *cli.Context, t *dnsTarget, s *reconcile.Syncer) error {
			ctx, cancel := timeoutContext(c)
			defer cancel()
			checks := check.Run(ctx, check.Options{Cluster: t.cluster, Policy: t.policy, Zone: t.zone, Planner: s, Write: c.Bool("write")})
			for i, ch := range checks {
				checks[i].Next = cmp.Or(ch.Next, nextOf(ch, c.Bool("write")))
			}
			return report(c, checks)
		}),
	}
}

// nextOf returns the next step after a check: a command or a flag. Empty for most checks that pass.
func nextOf(ch doctor.Check, write bool) string {
	switch {
	case ch.Name == check.Limit && ch.State == doctor.OK && !write:
		return "try it with --write"
	case ch.State == doctor.OK:
		return ""
	}
	return map[string]string{
		check.Minimum:   lowersMinimum("hardtack dns zone prepare, with the same flags,"),
		check.Signature: "make a key with tsig-keygen, name it in the zone's allow-update and allow-transfer, and give it with --tsig-key",
		check.Limit:     "lower --max-records to the server's limit, or raise the server's",
		check.Agreement: "see them with hardtack dns plan, and run hardtack dns sync",
	}[ch.Name]
}

// lowersMinimum returns the next step in which command lowers the SOA minimum.
func lowersMinimum(command string) string {
	return fmt.Sprintf("%s lowers it to %s", command, record.NegativeTTL)
}
