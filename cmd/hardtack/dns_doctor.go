package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dnssync"
	"github.com/hardtack/packer-plugin-hardtack/pkg/doctor"
	"github.com/hardtack/packer-plugin-hardtack/pkg/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/zone"
)

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
			checks := doctor.List{t.checkNegative(ctx), t.checkRead(ctx), t.checkSigned()}
			if t.unsigned != nil {
				checks = append(checks, t.checkUnsigned(ctx))
			}
			checks = append(checks, t.checkPrerequisites(ctx), t.checkLimit(ctx, c.Bool("write")), t.checkRecords(ctx, s))
			return report(c, checks)
		}),
	}
}

func (t *dnsTarget) checkNegative(ctx context.Context) check {
	d, err := t.negative(ctx)
	if err != nil {
		return found("SOA minimum", doctor.Error, err.Error(), "see that the server runs and has the zone")
	}
	return negativeCheck("SOA minimum", d, "hardtack dns zone prepare, with the same flags,")
}

// negativeCheck judges how long the zone's "no such name" is kept; lower is the command that lowers it.
func negativeCheck(name string, d time.Duration, lower string) check {
	if d > zone.NegativeTTL {
		return found(name, doctor.Warning, fmt.Sprintf("a \"no such name\" is kept for %s: a machine that asks too early waits as long", d),
			fmt.Sprintf("%s lowers it to %s", lower, zone.NegativeTTL))
	}
	return check{Name: name, State: doctor.OK, Text: fmt.Sprintf("a \"no such name\" is kept for %s", d)}
}

func (t *dnsTarget) checkRead(ctx context.Context) check {
	have, err := t.zone.Read(ctx, t.cluster)
	if err != nil {
		return found("reading", "error", err.Error(), "let this key or role read the whole zone")
	}
	return check{Name: "reading", State: "ok", Text: fmt.Sprintf("%d record sets of %s", len(have), t.cluster)}
}

func (t *dnsTarget) checkSigned() check {
	if t.signed == "" {
		return found("signature", "warning", "requests are not signed: who has this machine's address may change the records",
			"make a key with tsig-keygen, name it in the zone's allow-update and allow-transfer, and give it with --tsig-key")
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
		return found("compare-and-swap", "error", "the server carries out changes whose prerequisites do not hold", "use a server that honours RFC 2136 prerequisites, such as BIND")
	}
	return found("compare-and-swap", "error", err.Error(), "let this key or role change the zone")
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
		return found(ch.Name, "error", err.Error(), "lower --max-records to the server's limit, or raise the server's")
	}
	if err := t.zone.CompareAndSwap(ctx, t.cluster, probe, nil); err != nil {
		return found(ch.Name, "error", err.Error(), "remove the records of "+probe[0].Name)
	}
	ch.Text = fmt.Sprintf("a set of %d records was taken, and removed again", limit)
	return ch
}

func (t *dnsTarget) checkRecords(ctx context.Context, s *dnssync.Syncer) check {
	plan, err := s.Plan(ctx, t.cluster)
	if err != nil {
		return found("records", "error", err.Error(), "put right what the line above names")
	}
	if n := differ(plan); n > 0 {
		return found("records", "warning", fmt.Sprintf("%d sets are not as the fleet is", n), "see them with hardtack dns plan, and run hardtack dns sync")
	}
	return check{Name: "records", State: "ok", Text: fmt.Sprintf("all %d sets are as the fleet is", len(plan.Have))}
}

// differ is how many sets are not as the fleet is.
func differ(p dnssync.Plan) int { return max(len(p.Change.Create), len(p.Change.Remove)) }
