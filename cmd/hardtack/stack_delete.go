package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dnssync"
	"github.com/hardtack/packer-plugin-hardtack/pkg/formation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/stack"
	"github.com/hardtack/packer-plugin-hardtack/pkg/zone"
)

// zoneType is the type of the zone that a stack has made.
const zoneType = "AWS::Route53::HostedZone"

// deletePatience is how long machines may take to end: pkg/stack's drain hook holds each for at most 5 minutes, and a
// machine stops within a few.
const deletePatience = 20 * time.Minute

// deleteTries is how often the zone is emptied again because the function has written into it.
const deleteTries = 3

func stackDeleteCommand() *cli.Command {
	return &cli.Command{
		Name:   "delete",
		Usage:  "end the cluster: its machines, then its records, then the stack; say what stays",
		Flags:  stackFlags(&cli.BoolFlag{Name: "yes", Usage: "do it; without it, say what would be ended"}),
		Action: onStack((*stackTarget).delete),
	}
}

// deleted is what delete did, or without --yes would do.
type deleted struct {
	Stack string `json:"stack"`
	// Found: there was such a stack. Done: there is none any more.
	Found    bool     `json:"found"`
	Done     bool     `json:"done"`
	Machines []string `json:"machines"`
	// Zone is the hosted zone's id where it ends with the stack; Records are the cluster's that are removed.
	Zone    string   `json:"zone"`
	Records []string `json:"records"`
	Stays   []left   `json:"stays"`
}

// delete ends machines first, since they need their records, then the records, since a zone has to be empty.
func (t *stackTarget) delete(c *cli.Context) (*deleted, error) {
	ctx := c.Context
	now, err := t.describe(ctx)
	if err != nil {
		return nil, err
	}
	out := &deleted{Stack: t.name, Found: now != nil, Done: now == nil, Machines: []string{}, Records: []string{}}
	if now != nil {
		if err := t.deletable(ctx, now, out); err != nil {
			return nil, err
		}
		if c.Bool("yes") {
			if err := t.end(ctx, now, out); err != nil {
				return nil, err
			}
			out.Done = true
		}
	}
	out.Stays, err = t.leftovers(ctx)
	return out, err
}

// deletable fills in what would be ended, and refuses what would fail half way.
func (t *stackTarget) deletable(ctx context.Context, now *formation.Stack, out *deleted) error {
	if now.Protected {
		return fmt.Errorf("stack %s is protected: hardtack stack apply --protect=false takes that away", t.name)
	}
	if now.Busy() {
		return fmt.Errorf("stack %s is %s: wait for its end (hardtack stack status)", t.name, now.Status)
	}
	var err error
	if out.Machines, err = t.machines(ctx); err != nil {
		return err
	}
	id := now.Outputs[stack.OutputZone]
	if id == "" {
		return nil // it never came so far
	}
	resources, err := t.stacks.Resources(ctx, now.ID)
	if err != nil {
		return err
	}
	d, err := t.zone(id)
	if err != nil {
		return err
	}
	have, err := d.zone.Read(ctx, t.cluster)
	if err != nil {
		return err
	}
	for _, s := range have {
		out.Records = append(out.Records, s.Name+" "+s.Type)
	}
	for _, r := range resources {
		if r.Type == zoneType && r.Status != "DELETE_COMPLETE" {
			out.Zone = r.ID
		}
	}
	if out.Zone == "" {
		return nil
	}
	others, err := zone.Others(ctx, route53.NewFromConfig(t.conf), out.Zone, t.cluster, d.policy)
	if err == nil && len(others) > 0 {
		err = fmt.Errorf("zone %s is this stack's, and has records of others, with which it cannot be deleted: %s (delete those clusters first, or remove the records)",
			out.Zone, strings.Join(others[:min(len(others), 10)], ", "))
	}
	return err
}

func (t *stackTarget) end(ctx context.Context, now *formation.Stack, out *deleted) error {
	if err := t.endMachines(ctx, now); err != nil {
		return err
	}
	for try := 1; ; try++ {
		if id := now.Outputs[stack.OutputZone]; id != "" {
			if err := t.emptyZone(ctx, id); err != nil {
				return err
			}
		}
		err := t.stacks.Delete(ctx, now.ID)
		var failure *formation.Failure
		// The function may have written once more before its groups were gone.
		if errors.As(err, &failure) && failure.Type == zoneType && out.Zone != "" && try < deleteTries {
			continue
		}
		return err
	}
}

// endMachines has the stack's groups empty, and waits until every machine is gone. A stack that cannot be updated any
// more has that done by its deletion.
func (t *stackTarget) endMachines(ctx context.Context, now *formation.Stack) error {
	if now.Parameters[stack.ParameterMachines] == stack.MachinesYes && slices.Contains([]string{"CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE"}, now.Status) {
		p := formation.Proposal{Stack: t.name, Parameters: map[string]string{stack.ParameterMachines: stack.MachinesNo}}
		for key := range now.Parameters {
			if key != stack.ParameterMachines {
				p.Keep = append(p.Keep, key)
			}
		}
		slices.Sort(p.Keep)
		plan, err := t.stacks.Propose(ctx, p)
		if err != nil {
			return err
		}
		if _, err := t.stacks.Execute(ctx, plan); err != nil {
			return err
		}
	}
	began := t.clock.Now()
	for {
		left, err := t.machines(ctx)
		if err != nil || len(left) == 0 {
			return err
		}
		if t.clock.Now().Sub(began) > deletePatience {
			return fmt.Errorf("waiting for the machines of %s to end: %s are still there (does the function complete their hooks? hardtack stack status; the same command again goes on)", t.cluster, strings.Join(left, ", "))
		}
		if err := t.clock.Sleep(ctx, t.stacks.Poll); err != nil {
			return fmt.Errorf("stopped waiting: the machines of %s end by themselves; the same command again goes on: %w", t.cluster, err)
		}
	}
}

// emptyZone removes the cluster's records; another's are left alone.
func (t *stackTarget) emptyZone(ctx context.Context, id string) error {
	d, err := t.zone(id)
	if err != nil {
		return err
	}
	for range lowerTries {
		have, err := d.zone.Read(ctx, t.cluster)
		if err != nil || len(have) == 0 {
			return err
		}
		err = d.zone.CompareAndSwap(ctx, t.cluster, have, nil)
		if err != nil && !errors.Is(err, dnssync.ErrConflict) {
			return fmt.Errorf("removing the records of %s: %w", t.cluster, err)
		}
	}
	return fmt.Errorf("removing the records of %s from zone %s: somebody writes them again and again (is the function still there? sam delete --stack-name hardtack-dns-%s)", t.cluster, id, t.cluster)
}

func (d *deleted) print(w io.Writer) error {
	var b strings.Builder
	switch {
	case !d.Found:
		fmt.Fprintf(&b, "stack %s: there is none\n", d.Stack)
	case d.Done:
		fmt.Fprintf(&b, "stack %s: deleted, with %d machines and %d records\n", d.Stack, len(d.Machines), len(d.Records))
	default:
		fmt.Fprintf(&b, "stack %s: --yes would delete it, with\n  %d machines: %s\n  %d records: %s\n", d.Stack, len(d.Machines), strings.Join(d.Machines, ", "), len(d.Records), strings.Join(d.Records, ", "))
		if d.Zone != "" {
			fmt.Fprintf(&b, "  the zone %s\n", d.Zone)
		}
	}
	for _, l := range d.Stays {
		fmt.Fprintf(&b, "stays: %s\n  %s\n", l.What, l.Command)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
