package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/formation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/rollout"
)

func stackDiffCommand() *cli.Command {
	return &cli.Command{
		Name:  "diff",
		Usage: "show what apply would change, and whose machines a refresh would then replace; change nothing",
		Flags: templateFlags(
			&cli.BoolFlag{Name: "exit-code", Usage: fmt.Sprintf("exit with %d where something would change", changesExit)},
		),
		Action: func(c *cli.Context) error {
			t, err := newStackTarget(c)
			if err != nil {
				return err
			}
			d, plan, err := t.diff(c)
			if err != nil {
				return err
			}
			if err := t.stacks.Discard(c.Context, plan); err != nil {
				return err
			}
			if c.Bool("json") {
				err = printJSON(c.App.Writer, d)
			} else {
				err = d.print(c.App.Writer)
			}
			if err == nil && c.Bool("exit-code") && (len(d.Changes) > 0 || len(d.Refresh) > 0) {
				return cli.Exit("the stack or its machines would change", changesExit)
			}
			return err
		},
	}
}

// stackDiff is what apply and refresh would do.
type stackDiff struct {
	Stack   string             `json:"stack"`
	Creates bool               `json:"creates"`
	Changes []formation.Change `json:"changes"`
	Refresh []needsRefresh     `json:"refresh"`
}

// needsRefresh is a group with machines that are not as the document and the channel say.
type needsRefresh struct {
	Group    string   `json:"group"`
	Machines []string `json:"machines"`
	Of       int      `json:"of"`
	Why      []string `json:"why"`
}

// diff makes a change set and says what it and a refresh would do. The caller executes or discards the plan.
func (t *stackTarget) diff(c *cli.Context) (*stackDiff, *formation.Plan, error) {
	p, err := t.propose(c)
	if err != nil {
		return nil, nil, err
	}
	plan, err := t.stacks.Propose(c.Context, p.Proposal)
	if err != nil {
		return nil, nil, err
	}
	d := &stackDiff{Stack: plan.Stack, Creates: plan.Creates, Changes: plan.Changes, Refresh: []needsRefresh{}}
	if !plan.Creates {
		d.Refresh, err = t.needs(c, p, plan.Changes)
	}
	if err != nil {
		return nil, nil, errors.Join(err, t.stacks.Discard(c.Context, plan))
	}
	return d, plan, nil
}

// needs compares each running machine with what the document and the channel say now.
func (t *stackTarget) needs(c *cli.Context, p *proposed, changes []formation.Change) ([]needsRefresh, error) {
	fleet, err := t.fleet(c, "")
	if err != nil {
		return nil, err
	}
	s, err := fleet.Read(c.Context)
	if err != nil {
		return nil, err
	}
	out := []needsRefresh{}
	for _, g := range s.Groups {
		one, err := t.complete.Group(g.Key)
		if err != nil {
			continue // it goes with the changes
		}
		if g.Wanted.Config, err = t.complete.Hash(g.Key, p.ca); err != nil {
			return nil, err
		}
		g.Wanted.Image, g.Wanted.Type = p.image, one.AWS.InstanceType
		n := needOf(g)
		if remade(changes, g.Template) && len(n.Why) == 0 && len(g.Machines) > 0 {
			n.Why = []string{"launch template"}
			for _, m := range g.Machines {
				n.Machines = append(n.Machines, m.ID)
			}
		}
		if len(n.Machines) > 0 {
			out = append(out, n)
		}
	}
	return out, nil
}

func needOf(g rollout.Group) needsRefresh {
	n := needsRefresh{Group: g.Name, Machines: []string{}, Of: len(g.Machines), Why: g.Why()}
	for _, m := range g.Stale() {
		n.Machines = append(n.Machines, m.ID)
	}
	return n
}

// remade reports whether the launch template with this id gets a version in which more than tags change.
func remade(changes []formation.Change, template string) bool {
	return slices.ContainsFunc(changes, func(c formation.Change) bool {
		return c.Type == "AWS::EC2::LaunchTemplate" && c.Action == formation.Modify && c.ID == template &&
			slices.ContainsFunc(c.Properties, func(p formation.Property) bool { return p.Name == "LaunchTemplateData" })
	})
}

func (d *stackDiff) print(w io.Writer) error {
	var b strings.Builder
	d.changes(&b)
	for _, n := range d.Refresh {
		fmt.Fprintf(&b, "refresh %s: %d of %d machines: %s\n", n.Group, len(n.Machines), n.Of, strings.Join(n.Why, ", "))
	}
	if b.Len() == 0 {
		b.WriteString("no changes\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// changes is the table of what apply does: a mark, the resource, and why.
func (d *stackDiff) changes(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range d.Changes {
		fmt.Fprintf(table, "%s %s\t%s\t%s\n", mark(c), c.Resource, c.Type, strings.Join(reasons(c), ", "))
	}
	_ = table.Flush() // into memory
}

// mark is a diff's; "!" is a replacement: what is there now goes.
func mark(c formation.Change) string {
	switch {
	case c.Action == formation.Add:
		return "+"
	case c.Action == formation.Remove:
		return "-"
	case c.Ends():
		return "!"
	}
	return "~"
}

// reasons are the properties that change, each with what replaces the resource or makes it change.
func reasons(c formation.Change) []string {
	var out []string
	for _, p := range c.Properties {
		text := p.Name
		switch p.Recreates {
		case "Always":
			text += " replaces it"
		case "Conditionally":
			text += " may replace it"
		}
		if p.Cause != "" {
			text += " (by " + p.Cause + ")"
		}
		out = append(out, text)
	}
	if c.Kept {
		out = append(out, "stays in the account")
	}
	return out
}

// stale are the groups with machines that are not from the latest version of their launch template.
func (t *stackTarget) stale(ctx context.Context, r rollout.Reader) ([]needsRefresh, error) {
	s, err := r.Read(ctx)
	out := []needsRefresh{}
	for _, g := range s.Groups {
		if n := needOf(g); len(n.Machines) > 0 {
			out = append(out, n)
		}
	}
	return out, err
}
