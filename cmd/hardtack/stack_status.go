package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/formation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/stack"
)

func stackStatusCommand() *cli.Command {
	return &cli.Command{
		Name:   "status",
		Usage:  "print the stack's state and every machine of its groups: from which version, and whether DNS names it",
		Flags:  stackFlags(),
		Action: onStack((*stackTarget).status),
	}
}

// stackStatus is a cluster's stack and its machines.
type stackStatus struct {
	Stack *formation.Stack `json:"stack"`
	// Image is what the channel names; the stack's own is among its resolved parameters.
	Image  string          `json:"image"`
	Groups []rollout.Group `json:"groups"`
}

func (t *stackTarget) status(c *cli.Context) (*stackStatus, error) {
	now, err := t.stacks.Describe(c.Context, t.name)
	if err != nil {
		return nil, fmt.Errorf("%w (hardtack stack apply makes it)", err)
	}
	out := &stackStatus{Stack: now, Groups: []rollout.Group{}}
	if out.Image, err = t.image(c.Context); err != nil {
		return nil, err
	}
	fleet, err := t.fleet(c, now.Outputs[stack.OutputZone])
	if err != nil {
		return nil, err
	}
	s, err := fleet.Read(c.Context)
	out.Groups = append(out.Groups, s.Groups...)
	return out, err
}

func (s *stackStatus) print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "stack %s: %s", s.Stack.Name, strings.TrimSpace(s.Stack.Status+" "+s.Stack.Reason))
	if s.Stack.Protected {
		b.WriteString(", protected")
	}
	fmt.Fprintf(&b, "\nimage: %s", s.Stack.Resolved[stack.ParameterImage])
	if s.Image != s.Stack.Resolved[stack.ParameterImage] {
		fmt.Fprintf(&b, "; the channel names %s, which hardtack stack apply takes", s.Image)
	}
	b.WriteString("\n")
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, g := range s.Groups {
		fmt.Fprintf(table, "%s\t%d of %d\tversion %d\t%s\n", g.Name, len(g.Machines), g.Desired, g.Launches.Number, strings.Join(standing(g), "; "))
		for _, m := range g.Machines {
			fmt.Fprintf(table, "  %s\t%s\tversion %d\t%s\n", m.ID, m.State, m.From.Number, strings.Join(about(g, m), ", "))
		}
	}
	_ = table.Flush() // into memory
	_, err := io.WriteString(w, b.String())
	return err
}

// standing is what is to be said of a group.
func standing(g rollout.Group) []string {
	var out []string
	if what := g.Launches.Differs(g.Wanted); len(what) > 0 {
		out = append(out, fmt.Sprintf("the stack's is %d: %s", g.Wanted.Number, strings.Join(what, ", ")))
	}
	if r := g.Refresh; r.Active() {
		out = append(out, strings.TrimSpace(fmt.Sprintf("refresh to version %d: %s, %d %% %s", r.To, r.Status, r.Percent, r.Reason)))
	}
	if n := len(g.Stale()); n > 0 {
		out = append(out, fmt.Sprintf("%d to refresh", n))
	}
	return out
}

// about is what is to be said of a machine.
func about(g rollout.Group, m rollout.Machine) []string {
	var out []string
	for _, f := range []struct {
		not  bool
		text string
	}{{!m.Running, "not running"}, {!m.Healthy, "unhealthy"}, {!m.Published, "not in DNS"}} {
		if f.not {
			out = append(out, f.text)
		}
	}
	if what := m.From.Differs(g.Wanted); len(what) > 0 {
		out = append(out, "differs: "+strings.Join(what, ", "))
	}
	return out
}
