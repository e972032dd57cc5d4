package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// changesExit is the exit code of plan --exit-code if something would change; 1 is an error, 2 a wrong command line.
const changesExit = 3

func dnsSyncCommand() *cli.Command {
	return &cli.Command{
		Name:  "sync",
		Usage: "update the records to match the healthy members, once or continuously with --watch",
		Flags: dnsFlags(
			&cli.BoolFlag{Name: "watch", Usage: "keep running and repeat until SIGTERM or Ctrl-C"},
			&cli.DurationFlag{Name: "interval", Value: 10 * time.Second, Usage: "with --watch: the `DURATION` between updates"},
			&cli.StringFlag{Name: "hook", Usage: "with --fleet aws: complete this lifecycle `HOOK` (hardtack-drain, or * for all) of machines that have left the records, which ends them"},
			timeoutFlag(time.Minute),
		),
		Action: func(c *cli.Context) error {
			if c.Duration("interval") <= 0 || c.Duration("timeout") <= reconcile.DefaultMargin {
				return usagef("--interval is above 0 and --timeout above %s", reconcile.DefaultMargin)
			}
			t, err := newDNSTarget(c)
			if err != nil {
				return err
			}
			s, err := t.syncer(c)
			if err != nil {
				return err
			}
			if c.Bool("watch") {
				return t.watch(c, s)
			}
			return t.sync(c, s, false)
		},
	}
}

// sync reconciles once and prints the report; with changesOnly, only if something changed, for a daemon's log.
func (t *dnsTarget) sync(c *cli.Context, s *reconcile.Syncer, changesOnly bool) error {
	ctx, cancel := timeoutContext(c)
	defer cancel()
	report, err := s.Sync(ctx, t.cluster)
	if err != nil {
		return err
	}
	if changesOnly && !report.Changed && len(report.Problems) == 0 {
		return nil
	}
	if structured(c) {
		return printResult(c, report)
	}
	return printReport(c.App.Writer, report)
}

// watch reconciles until the program is interrupted, which is not an error. It logs failures and tries again: a daemon
// that ended when a server restarts would leave the records out of date.
func (t *dnsTarget) watch(c *cli.Context, s *reconcile.Syncer) error {
	log := logger(c)
	log.Info("watching", "cluster", t.cluster, "interval", c.Duration("interval"))
	tick := time.NewTicker(c.Duration("interval"))
	defer tick.Stop()
	for {
		if err := t.sync(c, s, true); err != nil && c.Err() == nil {
			log.Error("the records may be out of date", "cluster", t.cluster, "error", err)
		}
		select {
		case <-c.Done():
			log.Info("asked to end", "cluster", t.cluster)
			return nil
		case <-tick.C:
		}
	}
}

func printReport(w io.Writer, r reconcile.Report) error {
	verb := "unchanged"
	if r.Changed {
		verb = "changed"
	}
	if _, err := fmt.Fprintf(w, "%s: %s (%d calls, %d conflicts)\n", r.Cluster, verb, r.Calls.Total(), r.Conflicts); err != nil {
		return err
	}
	for _, p := range r.Problems {
		if _, err := fmt.Fprintln(w, p); err != nil {
			return err
		}
	}
	return nil
}

func dnsPlanCommand() *cli.Command {
	return &cli.Command{
		Name:  "plan",
		Usage: "print what sync would change, as a diff, without changing anything",
		Flags: dnsFlags(
			&cli.BoolFlag{Name: "exit-code", Usage: fmt.Sprintf("exit with status %d if anything would change", changesExit)},
			timeoutFlag(time.Minute),
		),
		Action: onTarget(func(c *cli.Context, t *dnsTarget, s *reconcile.Syncer) error {
			return t.plan(c, s)
		}),
	}
}

func dnsAdoptCommand() *cli.Command {
	return &cli.Command{
		Name:  "adopt",
		Usage: "take over records that are not this fleet's: made by hand, by another fleet, or left without their control record",
		Flags: dnsFlags(dryRunFlag(), timeoutFlag(time.Minute)),
		Action: func(c *cli.Context) error {
			t, err := newDNSTarget(c)
			if err != nil {
				return err
			}
			t.policy.TakeOver = true
			s, err := t.syncer(c)
			if err != nil {
				return err
			}
			if !c.Bool("dry-run") {
				return t.sync(c, s, false)
			}
			return t.plan(c, s)
		},
	}
}

// plan prints what a reconcile would change.
func (t *dnsTarget) plan(c *cli.Context, s *reconcile.Syncer) error {
	ctx, cancel := timeoutContext(c)
	defer cancel()
	plan, err := s.Plan(ctx, t.cluster)
	if err != nil {
		return err
	}
	if structured(c) {
		err = printResult(c, plan)
	} else {
		_, err = io.WriteString(c.App.Writer, diffText(plan))
	}
	if err == nil && c.Bool("exit-code") && !plan.Change.Empty() {
		return exitf(changesExit, "the records would change")
	}
	return err
}

// diffText formats a plan as a diff: a line for each value that would be removed or added. The control record is left
// out, since it changes with every change.
func diffText(p reconcile.Plan) string {
	type pair struct{ old, new record.Set }
	pairs := map[string]pair{}
	for _, s := range p.Change.Remove {
		pairs[s.Name+" "+s.Type] = pair{old: s}
	}
	for _, s := range p.Change.Create {
		e := pairs[s.Name+" "+s.Type]
		e.new = s
		pairs[s.Name+" "+s.Type] = e
	}
	var titles []string
	for title := range pairs {
		if !strings.HasPrefix(title, "_hardtack.") {
			titles = append(titles, title)
		}
	}
	slices.Sort(titles)
	var b strings.Builder
	for _, title := range titles {
		e := pairs[title]
		writeLines(&b, "-", e.old, e.new)
		writeLines(&b, "+", e.new, e.old)
	}
	for _, problem := range p.Report.Problems {
		fmt.Fprintln(&b, problem)
	}
	if b.Len() == 0 {
		return "no changes\n"
	}
	return b.String()
}

// writeLines writes the values of s that other does not have.
func writeLines(b *strings.Builder, mark string, s, other record.Set) {
	for _, v := range s.Values {
		if s.TTL != other.TTL || !slices.Contains(other.Values, v) {
			fmt.Fprintf(b, "%s %s %d %s %s\n", mark, s.Name, int(s.TTL/time.Second), s.Type, v)
		}
	}
}

// onTarget returns the action of a command that needs the records and the fleet.
func onTarget(do func(c *cli.Context, t *dnsTarget, s *reconcile.Syncer) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		t, err := newDNSTarget(c)
		if err != nil {
			return err
		}
		s, err := t.syncer(c)
		if err != nil {
			return err
		}
		return do(c, t, s)
	}
}
