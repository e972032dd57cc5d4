package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fatih/color"
	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
)

// printEvent prints a line for each event of a stack.
func printEvent(c *cli.Context) func(cloudformation.Event) {
	return func(e cloudformation.Event) {
		line := fmt.Sprintf("%s %-28s %s %s", e.Time.Local().Format(time.TimeOnly), e.Status, e.Resource, e.Type)
		if e.Reason != "" && strings.HasSuffix(e.Status, "_FAILED") {
			line += ": " + e.Reason
		}
		fmt.Fprintln(c.App.ErrWriter, line)
	}
}

// printStep prints a line for each step of a rollout.
func printStep(c *cli.Context) func(rollout.Step) {
	return func(s rollout.Step) {
		what := map[rollout.Action]string{
			rollout.Wait: "waiting: ", rollout.Point: "", rollout.Replace: "replacing " + s.Machine + ": it ", rollout.Start: "refreshing: ", rollout.Watch: "refreshing: ",
		}[s.Action]
		if s.Action == rollout.Point {
			what = fmt.Sprintf("launching version %d from now on: ", s.To)
		}
		group := s.Group
		if group == "" {
			group = "cluster"
		}
		if s.Action != rollout.Finished {
			fmt.Fprintf(c.App.ErrWriter, "%s %s: %s%s\n", time.Now().Format(time.TimeOnly), group, what, s.Reason)
		}
	}
}

// stackAnswer prints the result of a stack command: with --json the value, else the text and the next commands.
func stackAnswer[A any](c *cli.Context, answer A, text string, next ...string) error {
	if structured(c) {
		return printResult(c, answer)
	}
	for _, command := range next {
		text += "next: " + command + "\n"
	}
	_, err := io.WriteString(c.App.Writer, text)
	return err
}

// changesText formats the changes of apply as a table of mark, resource and reasons, and then the refresh.
func changesText(changes []cloudformation.Change, refresh []cluster.Behind) string {
	var b strings.Builder
	table := newPainted()
	for _, c := range changes {
		paint := map[string]*color.Color{"+": green, "-": red, "!": red, "~": yellow}[mark(c)]
		table.row(paint, "%s %s\t%s\t%s", mark(c), c.Resource, c.Type, strings.Join(reasons(c), ", "))
	}
	b.WriteString(table.String())
	for _, n := range refresh {
		fmt.Fprintf(&b, "refresh %s: %d of %d machines: %s\n", n.Group, len(n.Machines), n.Of, strings.Join(n.Why, ", "))
	}
	return b.String()
}

// mark is the diff mark of a change; "!" is a replacement, which deletes the present resource.
func mark(c cloudformation.Change) string {
	switch {
	case c.Action == cloudformation.Add:
		return "+"
	case c.Action == cloudformation.Remove:
		return "-"
	case c.Ends():
		return "!"
	}
	return "~"
}

// reasons lists the properties that change, and their causes.
func reasons(c cloudformation.Change) []string {
	var out []string
	for _, p := range c.Properties {
		text := p.Name
		switch replaces, certain := c.Replaces(p); {
		case certain:
			text += " replaces it"
		case replaces:
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

func appliedText(a *cluster.Applied) string {
	var b strings.Builder
	what := "unchanged"
	if a.Changed {
		what = "changed"
	}
	fmt.Fprintf(&b, "stack %s: %s, %s\n%s", a.Stack, what, a.Status, a.Zone)
	if a.API != "" {
		fmt.Fprintf(&b, "load balancer: %s\n", a.API)
	}
	for _, name := range slices.Sorted(maps.Keys(a.PodRoles)) {
		fmt.Fprintf(&b, "role of pods: %s, %s\n", name, a.PodRoles[name])
	}
	b.WriteString(changesText(nil, a.Refresh))
	for _, h := range a.Held {
		fmt.Fprintf(&b, "held %s: it launches version %d, Kubernetes %s, until the masters are refreshed: their API servers would be older than its kubelets\n", h.Group, h.Version, h.Kubernetes)
	}
	b.WriteString(prunedText(a.Pruned) + unreadText(a.Unread) + unmovedText(a.Unmoved))
	return b.String()
}

// prunedText says how many old versions were deleted.
func prunedText(versions int) string {
	if versions == 0 {
		return ""
	}
	return fmt.Sprintf("launch templates: %d old versions deleted, which nothing needs\n", versions)
}

// unmovedText tells the owner of a cluster from before volumes what its new volumes are not.
func unmovedText(members []string) string {
	if len(members) == 0 {
		return ""
	}
	return fmt.Sprintf(`etcd: the volumes of %s are empty: the data are still on the machines' own disks, and no refresh ends these machines by itself.
  A machine that is launched from now on waits for its member's records. etcd: {storage: machine} in the document keeps the data where they are.
`, strings.Join(members, ", "))
}

func refreshedText(r *cluster.Refreshed) string {
	var b strings.Builder
	if r.Done != nil {
		return fmt.Sprintf("%s: every machine is as wanted; %d replaced one by one, %d groups refreshed, %s\n",
			r.Cluster, len(r.Done.Replaced), len(r.Done.Refreshed), time.Duration(r.Done.Seconds)*time.Second) + prunedText(r.Pruned)
	}
	for _, n := range r.Refresh {
		fmt.Fprintf(&b, "%s: %d of %d machines: %s: %s\n", n.Group, len(n.Machines), n.Of, strings.Join(n.Why, ", "), strings.Join(n.Machines, " "))
	}
	for _, group := range r.TakenBack {
		fmt.Fprintf(&b, "%s: the running refresh would be rolled back\n", group)
	}
	b.WriteString(unreadText(r.Unread))
	fmt.Fprintf(&b, "first: %s %s: %s\n", r.First.Action, strings.TrimSpace(r.First.Group+" "+r.First.Machine), r.First.Reason)
	return b.String()
}

func deletedText(d *cluster.Deleted, stays []leftover) string {
	var b strings.Builder
	what, rest := "stack "+d.Stack, ""
	if d.Terraform {
		what, rest = "Terraform's cluster", "; the rest is Terraform's"
	}
	switch {
	case !d.Found:
		fmt.Fprintf(&b, "%s does not exist\n", what)
	case d.Function != "":
		fmt.Fprintf(&b, "%s: %d machines ended; its %d records stay until the function is gone, which would write them again\n", what, len(d.Machines), len(d.Records))
	case d.Done && d.Terraform:
		fmt.Fprintf(&b, "%s: %d machines ended and %d records removed%s\n", what, len(d.Machines), len(d.Records), rest)
	case d.Done:
		fmt.Fprintf(&b, "%s: deleted, with %d machines and %d records\n", what, len(d.Machines), len(d.Records))
	default:
		fmt.Fprintf(&b, "%s: would be deleted, with\n  %d machines: %s\n  %d records: %s\n", what, len(d.Machines), strings.Join(d.Machines, ", "), len(d.Records), strings.Join(d.Records, ", "))
		if d.Zone != "" {
			fmt.Fprintf(&b, "  the zone %s%s\n", d.Zone, rest)
		}
	}
	for _, l := range stays {
		fmt.Fprintf(&b, "stays: %s\n  %s\n", l.What, l.Command)
	}
	return b.String()
}

// madeText says who made a cluster, and of which image its machines are to be.
func madeText(s *cluster.Status) string {
	image, by, apply := "", "", "hardtack stack apply"
	if s.Stack != nil {
		by = fmt.Sprintf("stack %s: %s", s.Stack.Name, strings.TrimSpace(s.Stack.Status+" "+s.Stack.Reason))
		if s.Stack.Protected {
			by += ", protected"
		}
		image = s.Stack.Resolved[template.ParameterImage]
	} else {
		by, apply = fmt.Sprintf("made by Terraform: %d groups in %s, zone %s", len(s.Terraform.Groups), s.Terraform.Region, s.Terraform.Zone), "terraform apply"
		if len(s.Groups) > 0 {
			image = s.Groups[0].Wanted.Image
		}
	}
	by += "\nimage: " + image + ", " + kubernetesText(s.Kubernetes[image])
	if s.Image != image {
		by += fmt.Sprintf("; the channel names %s, %s, which %s takes", s.Image, kubernetesText(s.Kubernetes[s.Image]), apply)
	}
	return by + "\n"
}

// kubernetesText is a version of Kubernetes, for people.
func kubernetesText(version string) string { return "Kubernetes " + cmp.Or(version, "unknown") }

func statusText(s *cluster.Status) string {
	var b strings.Builder
	b.WriteString(madeText(s))
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, g := range s.Groups {
		fmt.Fprintf(table, "%s\t%d of %d\tversion %d\t%s\t%s\n", g.Name, len(g.Machines), g.Desired, g.Launches.Number, kubernetesText(g.Launches.Kubernetes), strings.Join(groupNotes(g), "; "))
		for _, m := range g.Machines {
			fmt.Fprintf(table, "  %s\t%s\tversion %d\t%s\t%s\n", m.ID, m.State, m.From.Number, kubernetesText(m.Kubernetes), strings.Join(machineNotes(g, m), ", "))
		}
	}
	_ = table.Flush() // writes to memory
	b.WriteString(unreadText(s.Unread))
	return b.String()
}

// unreadText names the groups that could not be read.
func unreadText(groups []rollout.Unread) string {
	var b strings.Builder
	for _, u := range groups {
		fmt.Fprintf(&b, "left out: %s\n", u.Why)
	}
	return b.String()
}

// groupNotes describes a group's state.
func groupNotes(g rollout.Group) []string {
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

// machineNotes describes a machine's state.
func machineNotes(g rollout.Group, m rollout.Machine) []string {
	var out []string
	for _, f := range []struct {
		not  bool
		text string
	}{{!m.Running, "not running"}, {!m.Healthy, "unhealthy"}, {!m.Published, "not in DNS"}} {
		if f.not {
			out = append(out, f.text)
		}
	}
	if what := g.Lacks(m); len(what) > 0 {
		out = append(out, "differs: "+strings.Join(what, ", "))
	}
	return out
}
