package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/formation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/stack"
)

func stackApplyCommand() *cli.Command {
	return &cli.Command{
		Name:  "apply",
		Usage: "make the stack what the document says; machines that run stay as they are until refresh",
		Flags: templateFlags(
			&cli.StringSliceFlag{Name: "allow-replacement", Usage: "let the `RESOURCE` be replaced or removed, by its logical name: a zone, a volume or a group, with all that it holds"},
			&cli.BoolFlag{Name: "protect", Usage: "set the stack's termination protection; --protect=false takes it away"},
			&cli.BoolFlag{Name: "yes", Usage: "with --machines no: end every machine of the cluster"},
		),
		Action: onStack((*stackTarget).apply),
	}
}

// interruption tells what goes on after Ctrl-C: what an interrupted program returns is not printed.
func interruption(c *cli.Context, err error) error {
	if c.Err() != nil {
		fmt.Fprintln(c.App.ErrWriter, err)
	}
	return err
}

// applied is what apply did.
type applied struct {
	Stack   string             `json:"stack"`
	Status  string             `json:"status"`
	Changed bool               `json:"changed"`
	Changes []formation.Change `json:"changes"`
	ZoneID  string             `json:"zone_id"`
	Zone    *zoneReport        `json:"zone"`
	Groups  []string           `json:"groups"`
	API     string             `json:"load_balancer,omitempty"`
	Refresh []needsRefresh     `json:"refresh"`
	// Next are the commands that follow.
	Next []string `json:"next"`
}

// apply shows what changes, gates it, carries it out, prepares the zone, and says what follows.
func (t *stackTarget) apply(c *cli.Context) (*applied, error) {
	before, err := t.describe(c.Context)
	if err != nil {
		return nil, err
	}
	if err := t.mayEnd(c, before); err != nil {
		return nil, err
	}
	d, plan, err := t.diff(c)
	if err != nil {
		return nil, err
	}
	if !c.Bool("json") {
		d.changes(c.App.ErrWriter)
	}
	if err := formation.Gate(d.Changes, c.StringSlice("allow-replacement")); err != nil {
		return nil, errors.Join(err, t.stacks.Discard(c.Context, plan))
	}
	if err := t.atRest(c, d.Changes); err != nil {
		return nil, errors.Join(err, t.stacks.Discard(c.Context, plan))
	}
	out := &applied{Stack: t.name, Changed: !plan.Empty(), Changes: d.Changes, Groups: t.groups(), Next: []string{}}
	now, err := t.stacks.Execute(c.Context, plan)
	if err != nil {
		return nil, err
	}
	if c.IsSet("protect") && now.Protected != c.Bool("protect") {
		if err := t.stacks.Protect(c.Context, t.name, c.Bool("protect")); err != nil {
			return nil, err
		}
		out.Changed = true
	}
	out.Status, out.ZoneID, out.API = now.Status, now.Outputs[stack.OutputZone], now.Outputs[stack.OutputAPI]
	if out.Zone, err = t.prepareZone(c.Context, out.ZoneID); err != nil {
		return nil, fmt.Errorf("%w\nthe stack is made; the same command again prepares the zone", err)
	}
	fleet, err := t.fleet(c, "")
	if err == nil {
		out.Refresh, err = t.stale(c.Context, fleet)
	}
	out.Next = t.next(now, out)
	return out, err
}

// mayEnd refuses --machines where that is not meant, or too early.
func (t *stackTarget) mayEnd(c *cli.Context, now *formation.Stack) error {
	switch machines := c.String("machines"); {
	case machines == stack.MachinesYes && !now.Made():
		return usagef("--machines yes: there is no stack %s yet: apply without it first, which makes and prepares the zone, then deploy the function, which keeps its records", t.name)
	case machines == stack.MachinesNo && now.Made() && now.Parameters[stack.ParameterMachines] == stack.MachinesYes && !c.Bool("yes"):
		return usagef("--machines no ends every machine of %s, and what etcd keeps with them: say --yes", t.cluster)
	}
	return nil
}

// groupType is the type of a stack's groups.
const groupType = "AWS::AutoScaling::AutoScalingGroup"

// atRest refuses changes of a group that AutoScaling is refreshing: it would refuse them too, in the middle of the
// operation.
func (t *stackTarget) atRest(c *cli.Context, changes []formation.Change) error {
	fleet, err := t.fleet(c, "")
	if err != nil {
		return err
	}
	s, err := fleet.Read(c.Context)
	if err != nil {
		return err
	}
	var errs []error
	for _, g := range s.Groups {
		changed := slices.ContainsFunc(changes, func(c formation.Change) bool { return c.Type == groupType && c.ID == g.Name })
		if changed && g.Refresh.Active() {
			errs = append(errs, fmt.Errorf("changing %s: AutoScaling is refreshing it, %s, %d %%: wait for its end (hardtack stack refresh --group %s watches it), or take it back (hardtack stack rollback --group %s)",
				g.Name, g.Refresh.Status, g.Refresh.Percent, g.Key, g.Key))
		}
	}
	return errors.Join(errs...)
}

// prepareZone does what CloudFormation cannot: it lowers the SOA minimum, and gives a cluster its placeholders in a zone
// that another one has made.
func (t *stackTarget) prepareZone(ctx context.Context, id string) (*zoneReport, error) {
	if id == "" {
		return nil, fmt.Errorf("preparing the zone: stack %s has no output %s (was it made by hardtack stack apply?)", t.name, stack.OutputZone)
	}
	d, err := t.zone(id)
	if err != nil {
		return nil, err
	}
	r := &zoneReport{}
	return r, d.prepare(ctx, r)
}

// next are the commands that follow. The function reads the groups that it was told of, and no others.
func (t *stackTarget) next(now *formation.Stack, a *applied) []string {
	out := []string{}
	empty := now.Parameters[stack.ParameterMachines] != stack.MachinesYes
	if empty || slices.ContainsFunc(a.Changes, func(c formation.Change) bool { return c.Type == groupType && c.Action != formation.Modify }) {
		out = append(out, fmt.Sprintf("sam deploy --stack-name hardtack-dns-%s --resolve-s3 --capabilities CAPABILITY_IAM --parameter-overrides ClusterName=%s ZoneId=%s ZoneName=k8s GroupNames=%s",
			t.cluster, t.cluster, a.ZoneID, strings.Join(a.Groups, ",")))
	}
	if empty {
		return append(out, "hardtack stack apply --machines yes")
	}
	if len(a.Refresh) > 0 {
		out = append(out, "hardtack stack refresh")
	}
	return out
}

func (a *applied) print(w io.Writer) error {
	var b strings.Builder
	what := "unchanged"
	if a.Changed {
		what = "changed"
	}
	fmt.Fprintf(&b, "stack %s: %s, %s\n", a.Stack, what, a.Status)
	b.WriteString(a.Zone.text())
	if a.API != "" {
		fmt.Fprintf(&b, "load balancer: %s\n", a.API)
	}
	for _, n := range a.Refresh {
		fmt.Fprintf(&b, "refresh %s: %d of %d machines: %s\n", n.Group, len(n.Machines), n.Of, strings.Join(n.Why, ", "))
	}
	for _, command := range a.Next {
		fmt.Fprintf(&b, "next: %s\n", command)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
