package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/scaling"
	"github.com/hardtack/packer-plugin-hardtack/pkg/stack"
)

// rolloutFlags are those of commands that replace machines.
func rolloutFlags(more ...cli.Flag) []cli.Flag {
	return stackFlags(append([]cli.Flag{
		&cli.StringSliceFlag{Name: "group", Usage: "only this `GROUP` of the document, once for each (default: all)"},
		&cli.StringSliceFlag{Name: "lose-etcd", Usage: "replace the machines of this `GROUP` although what etcd keeps on them is lost with them"},
		&cli.IntFlag{Name: "min-healthy", Value: 90, Usage: "how many `PERCENT` of a group of minions stay in service"},
		&cli.StringFlag{Name: "checkpoints", Value: "25,50,100", Usage: "the `PERCENTAGES` of a group of minions after which AutoScaling waits, with commas, up to 100; empty: none"},
		&cli.DurationFlag{Name: "checkpoint-delay", Value: 5 * time.Minute, Usage: "the `TIME` that it waits at a checkpoint"},
		&cli.StringFlag{Name: "kubeconfig", Usage: "also ask the API servers whether they are ready, by the kubeconfig in `FILE`, before a machine of the control plane is ended"},
		&cli.DurationFlag{Name: "patience", Value: rollout.DefaultPatience, Usage: "the `TIME` after which waiting for a machine is an error"},
		&cli.BoolFlag{Name: "cancel-on-interrupt", Usage: "at Ctrl-C also end AutoScaling's refresh (default: it goes on)"},
		&cli.BoolFlag{Name: "dry-run", Usage: "print the machines and the first step, and do nothing"},
	}, more...)...)
}

func stackRefreshCommand() *cli.Command {
	return &cli.Command{
		Name:  "refresh",
		Usage: "replace machines whose image or configuration is not the stack's: etcd and masters one by one, minions by AutoScaling; run again, it goes on",
		Flags: rolloutFlags(),
		Action: func(c *cli.Context) error {
			return rollOut(c, func(*scaling.Cluster, rollout.State) error { return nil })
		},
	}
}

// rolledOut is what refresh and rollback did, or would do first.
type rolledOut struct {
	Cluster string         `json:"cluster"`
	DryRun  bool           `json:"dry_run"`
	Refresh []needsRefresh `json:"refresh"`
	First   rollout.Step   `json:"first"`
	Done    *rollout.Done  `json:"done,omitempty"`
	// Next are the commands that follow.
	Next []string `json:"next"`
}

// rollOut brings the cluster's machines to what is wanted, which aim may change beforehand.
func rollOut(c *cli.Context, aim func(*scaling.Cluster, rollout.State) error) error {
	t, err := newStackTarget(c)
	if err != nil {
		return err
	}
	fleet, err := t.rollers(c)
	if err != nil {
		return err
	}
	s, err := fleet.Read(c.Context)
	if err != nil {
		return err
	}
	if len(s.Groups) == 0 {
		return fmt.Errorf("reading the groups of %s: there are none (hardtack stack apply makes them)", t.cluster)
	}
	if err := aim(fleet, s); err != nil {
		return err
	}
	if s, err = fleet.Read(c.Context); err != nil {
		return err
	}
	o := rollout.Options{
		Poll: c.Duration("poll"), Checkpoint: c.Duration("checkpoint-delay"), Only: c.StringSlice("group"), Lose: c.StringSlice("lose-etcd"), Patience: c.Duration("patience"), CancelOnInterrupt: c.Bool("cancel-on-interrupt"),
	}
	if err := rollout.Refuse(s, o.Only, o.Lose); err != nil {
		return err
	}
	out := &rolledOut{Cluster: t.cluster, DryRun: c.Bool("dry-run"), Refresh: []needsRefresh{}, First: rollout.Next(s, o.Only), Next: []string{}}
	for _, g := range s.Groups {
		if n := needOf(g); len(n.Machines) > 0 && g.Chosen(o.Only) {
			out.Refresh = append(out.Refresh, n)
		}
	}
	if !out.DryRun {
		runner := &rollout.Runner{Reader: fleet, Hand: fleet, Clock: t.clock, Options: o, Tell: tellStep(c)}
		done, err := runner.Run(c.Context)
		if err != nil {
			return interruption(c, err)
		}
		out.Done = &done
		out.Next, err = t.afterwards(c.Context, fleet)
		if err != nil {
			return err
		}
	}
	if c.Bool("json") {
		return printJSON(c.App.Writer, out)
	}
	return out.print(c.App.Writer)
}

// rollers are the cluster's machines with what gates their replacement.
func (t *stackTarget) rollers(c *cli.Context) (*scaling.Cluster, error) {
	wants := scaling.Preferences{MinHealthy: c.Int("min-healthy"), Delay: int(c.Duration("checkpoint-delay") / time.Second)}
	for text := range strings.SplitSeq(c.String("checkpoints"), ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		percent, err := strconv.Atoi(text)
		if err != nil {
			return nil, usagef("--checkpoints: %q is not a number", text)
		}
		wants.Checkpoints = append(wants.Checkpoints, percent)
	}
	if err := wants.Check(); err != nil {
		return nil, usagef("%w", err)
	}
	now, err := t.describe(c.Context)
	if err != nil {
		return nil, err
	}
	if !now.Made() {
		return nil, fmt.Errorf("there is no stack %s (hardtack stack apply makes it)", t.name)
	}
	if now.Busy() {
		return nil, fmt.Errorf("stack %s is %s: wait for its end (hardtack stack apply waits for it)", t.name, now.Status)
	}
	fleet, err := t.fleet(c, now.Outputs[stack.OutputZone])
	if err != nil {
		return nil, err
	}
	fleet.Preferences = wants
	if name := c.String("kubeconfig"); name != "" {
		file := kube.NewFile(name)
		if _, err := file.Client(); err != nil {
			return nil, usagef("--kubeconfig: %w", err)
		}
		fleet.Ready = func(ctx context.Context) error {
			api, err := file.Client()
			if err != nil {
				return err
			}
			return api.Ready(ctx)
		}
	}
	return fleet, nil
}

// tellStep prints each step, a line for each.
func tellStep(c *cli.Context) func(rollout.Step) {
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
			fmt.Fprintf(c.App.ErrWriter, "%s %s: %s%s\n", time.Now().Format("15:04:05"), group, what, s.Reason)
		}
	}
}

func (r *rolledOut) print(w io.Writer) error {
	var b strings.Builder
	if r.Done == nil {
		for _, n := range r.Refresh {
			fmt.Fprintf(&b, "%s: %d of %d machines: %s: %s\n", n.Group, len(n.Machines), n.Of, strings.Join(n.Why, ", "), strings.Join(n.Machines, " "))
		}
		fmt.Fprintf(&b, "first: %s %s: %s\n", r.First.Action, strings.TrimSpace(r.First.Group+" "+r.First.Machine), r.First.Reason)
	} else {
		fmt.Fprintf(&b, "%s: every machine is as wanted; %d replaced one by one, %d groups refreshed, %s\n",
			r.Cluster, len(r.Done.Replaced), len(r.Done.Refreshed), time.Duration(r.Done.Seconds)*time.Second)
	}
	for _, command := range r.Next {
		fmt.Fprintf(&b, "next: %s\n", command)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
