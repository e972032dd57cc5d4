package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dnssync"
	"github.com/hardtack/packer-plugin-hardtack/pkg/record"
)

// changesExit is plan's exit code with --exit-code where something would change; 1 is an error, 2 a wrong call.
const changesExit = 3

func dnsSyncCommand() *cli.Command {
	return &cli.Command{
		Name:  "sync",
		Usage: "make the records equal to the healthy members, once or with --watch for ever",
		Flags: dnsFlags(
			&cli.BoolFlag{Name: "watch", Usage: "stay, and do it again and again until SIGTERM or Ctrl-C"},
			&cli.DurationFlag{Name: "interval", Value: 10 * time.Second, Usage: "with --watch: the `TIME` from one to the next"},
			&cli.DurationFlag{Name: "timeout", Value: time.Minute, Usage: "the `TIME` that one may take"},
		),
		Action: func(c *cli.Context) error {
			if c.Duration("interval") <= 0 || c.Duration("timeout") <= dnssync.DefaultMargin {
				return usagef("--interval is above 0 and --timeout above %s", dnssync.DefaultMargin)
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

// sync reconciles once and prints the report; a daemon's log has no line for what did not change.
func (t *dnsTarget) sync(c *cli.Context, s *dnssync.Syncer, changesOnly bool) error {
	ctx, cancel := dnssyncContext(c)
	defer cancel()
	report, err := s.Sync(ctx, t.cluster)
	if err != nil {
		return err
	}
	if changesOnly && !report.Changed && len(report.Problems) == 0 {
		return nil
	}
	if c.Bool("json") {
		return printJSON(c.App.Writer, report)
	}
	return printReport(c.App.Writer, report)
}

// watch reconciles until the program is asked to end, which is no error. What goes wrong is told and
// tried again: a daemon that ends because a server restarts would leave the records to rot.
func (t *dnsTarget) watch(c *cli.Context, s *dnssync.Syncer) error {
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

func printReport(w io.Writer, r dnssync.Report) error {
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
		Usage: "show what sync would change, as a diff, and change nothing",
		Flags: dnsFlags(
			&cli.BoolFlag{Name: "exit-code", Usage: fmt.Sprintf("exit with %d where something would change", changesExit)},
			&cli.DurationFlag{Name: "timeout", Value: time.Minute, Usage: "the `TIME` that it may take"},
		),
		Action: onTarget(func(c *cli.Context, t *dnsTarget, s *dnssync.Syncer) error {
			ctx, cancel := dnssyncContext(c)
			defer cancel()
			plan, err := s.Plan(ctx, t.cluster)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				err = printJSON(c.App.Writer, plan)
			} else {
				_, err = io.WriteString(c.App.Writer, diffText(plan))
			}
			if err == nil && c.Bool("exit-code") && !plan.Change.Empty() {
				return cli.Exit("the records would change", changesExit)
			}
			return err
		}),
	}
}

// diffText is a change as a diff: a line for each value that goes, comes or stays beside such a one.
// The control record is left out, since it changes with every change.
func diffText(p dnssync.Plan) string {
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

// writeLines lists what s has and other has not.
func writeLines(b *strings.Builder, mark string, s, other record.Set) {
	for _, v := range s.Values {
		if s.TTL != other.TTL || !slices.Contains(other.Values, v) {
			fmt.Fprintf(b, "%s %s %d %s %s\n", mark, s.Name, int(s.TTL/time.Second), s.Type, v)
		}
	}
}

// onTarget is the action of a command that needs the records and who should be in them.
func onTarget(do func(c *cli.Context, t *dnsTarget, s *dnssync.Syncer) error) cli.ActionFunc {
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

// dnssyncContext ends with the program and with the time that one run may take.
func dnssyncContext(c *cli.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Context, c.Duration("timeout"))
}
