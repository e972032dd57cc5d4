package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dnssync"
	"github.com/hardtack/packer-plugin-hardtack/pkg/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/zone"
)

// check is one thing that dns doctor looked at.
type check struct {
	Name string `json:"name"`
	// State is "ok", "warning" or "error".
	State string `json:"state"`
	Text  string `json:"text"`
	// Next is what to do, empty where nothing is.
	Next string `json:"next,omitempty"`
}

func dnsDoctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "look at what the records need: prerequisites, signatures, limits, the SOA minimum, agreement with the fleet",
		Flags: dnsFlags(
			&cli.BoolFlag{Name: "write", Usage: "also write a set as large as the limit, and remove it again"},
			&cli.DurationFlag{Name: "timeout", Value: time.Minute, Usage: "the `TIME` that it may take"},
		),
		Action: onTarget(func(c *cli.Context, t *dnsTarget, s *dnssync.Syncer) error {
			ctx, cancel := dnssyncContext(c)
			defer cancel()
			checks := []check{t.checkNegative(ctx), t.checkRead(ctx), t.checkSigned()}
			if t.unsigned != nil {
				checks = append(checks, t.checkUnsigned(ctx))
			}
			checks = append(checks, t.checkPrerequisites(ctx), t.checkLimit(ctx, c.Bool("write")), t.checkRecords(ctx, s))
			var err error
			if c.Bool("json") {
				err = printJSON(c.App.Writer, checks)
			} else {
				err = printChecks(c.App.Writer, checks)
			}
			failed := 0
			for _, ch := range checks {
				if ch.State == "error" {
					failed++
				}
			}
			if err == nil && failed > 0 {
				return fmt.Errorf("%d of %d checks failed", failed, len(checks))
			}
			return err
		}),
	}
}

func printChecks(w io.Writer, checks []check) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, ch := range checks {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", ch.State, ch.Name, ch.Text)
		if ch.Next != "" {
			fmt.Fprintf(tw, "\t\tnext: %s\n", ch.Next)
		}
	}
	return tw.Flush()
}

func (t *dnsTarget) checkNegative(ctx context.Context) check {
	ch := check{Name: "SOA minimum", State: "ok"}
	d, err := t.negative(ctx)
	switch {
	case err != nil:
		ch.State, ch.Text = "error", err.Error()
		ch.Next = "see that the server runs and has the zone"
	case d > zone.NegativeTTL:
		ch.State, ch.Text = "warning", fmt.Sprintf("a \"no such name\" is kept for %s: a machine that asks too early waits as long", d)
		ch.Next = fmt.Sprintf("hardtack dns zone prepare, with the same flags, lowers it to %s", zone.NegativeTTL)
	default:
		ch.Text = fmt.Sprintf("a \"no such name\" is kept for %s", d)
	}
	return ch
}

func (t *dnsTarget) checkRead(ctx context.Context) check {
	have, err := t.zone.Read(ctx, t.cluster)
	if err != nil {
		return check{"reading", "error", err.Error(), "let this key or role read the whole zone"}
	}
	return check{Name: "reading", State: "ok", Text: fmt.Sprintf("%d record sets of %s", len(have), t.cluster)}
}

func (t *dnsTarget) checkSigned() check {
	if t.signed == "" {
		return check{"signature", "warning", "requests are not signed: who has this machine's address may change the records",
			"make a key with tsig-keygen, name it in the zone's allow-update and allow-transfer, and give it with --tsig-key"}
	}
	return check{Name: "signature", State: "ok", Text: "requests are signed with " + t.signed}
}

// checkUnsigned is about the server, whatever this caller signs with.
func (t *dnsTarget) checkUnsigned(ctx context.Context) check {
	ch := check{Name: "unsigned updates", State: "ok", Text: "the server refuses them from this machine"}
	switch open, err := t.unsigned(ctx); {
	case err != nil:
		ch.State, ch.Text, ch.Next = "error", err.Error(), "see that the server runs and has the zone"
	case open:
		ch.State, ch.Text = "warning", "the server takes updates without a signature from this machine: whoever can send from its address may change the records"
		ch.Next = "name keys and no addresses in the zone's allow-update"
	}
	return ch
}

// probe is a record that nobody has.
func (t *dnsTarget) probe(values ...string) record.Set {
	return record.Set{Name: "_hardtack-doctor." + t.policy.Domain(t.cluster), Type: record.TXT, TTL: time.Second, Values: values}
}

// checkPrerequisites removes a record that does not exist: a server that honours prerequisites refuses,
// and for one that does not nothing changes.
func (t *dnsTarget) checkPrerequisites(ctx context.Context) check {
	err := t.zone.CompareAndSwap(ctx, t.cluster, []record.Set{t.probe(fmt.Sprint("probe=", time.Now().UnixNano()))}, nil)
	switch {
	case errors.Is(err, dnssync.ErrConflict):
		return check{Name: "compare-and-swap", State: "ok", Text: "a change of what is not there is refused"}
	case err == nil:
		return check{"compare-and-swap", "error", "the server carries out changes whose prerequisites do not hold", "use a server that honours RFC 2136 prerequisites, such as BIND"}
	}
	return check{"compare-and-swap", "error", err.Error(), "let this key or role change the zone"}
}

func (t *dnsTarget) checkLimit(ctx context.Context, write bool) check {
	limit := t.zone.Limits().SetValues
	ch := check{Name: "record limit", State: "ok", Text: fmt.Sprintf("sets are kept to %d records (not tried)", limit)}
	if !write || limit == 0 {
		ch.Next = "try it with --write"
		return ch
	}
	values := make([]string, limit)
	for i := range values {
		values[i] = fmt.Sprintf("probe=%04d", i)
	}
	probe := []record.Set{t.probe(values...)}
	if err := t.zone.CompareAndSwap(ctx, t.cluster, nil, probe); err != nil {
		return check{ch.Name, "error", err.Error(), "lower --max-records to the server's limit, or raise the server's"}
	}
	if err := t.zone.CompareAndSwap(ctx, t.cluster, probe, nil); err != nil {
		return check{ch.Name, "error", err.Error(), "remove the records of " + probe[0].Name}
	}
	ch.Text = fmt.Sprintf("a set of %d records was taken, and removed again", limit)
	return ch
}

func (t *dnsTarget) checkRecords(ctx context.Context, s *dnssync.Syncer) check {
	plan, err := s.Plan(ctx, t.cluster)
	if err != nil {
		return check{"records", "error", err.Error(), "put right what the line above names"}
	}
	if !plan.Change.Empty() {
		return check{"records", "warning", fmt.Sprintf("%d sets are not as the fleet is", max(len(plan.Change.Create), len(plan.Change.Remove))), "see them with hardtack dns plan, and run hardtack dns sync"}
	}
	return check{Name: "records", State: "ok", Text: fmt.Sprintf("all %d sets are as the fleet is", len(plan.Have))}
}
