//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// watchLab prints to stderr a line for each phase that a machine reaches and, on a terminal, one bar for all machines,
// until the cluster is ready. It fails if there is no progress and no machine writes any output for quiet.
func watchLab(c *cli.Context, client *lab.Client, quiet time.Duration) error {
	w := newWatch(c.App.ErrWriter)
	defer w.finish()
	s, err := client.Status(c.Context)
	for {
		if err != nil {
			return err
		}
		w.show(s)
		if s.Ready {
			return nil
		}
		if time.Since(w.progressed) > quiet {
			return stalled(s, quiet)
		}
		s, err = client.Next(c.Context, s.Revision)
	}
}

// stalled is the error that lists the last phase and failures of the machines that are not ready.
func stalled(s lab.Status, quiet time.Duration) error {
	var b strings.Builder
	fmt.Fprintf(&b, "no progress for %s", quiet)
	for _, m := range s.Machines {
		if m.Power == "off" || m.Lifecycle == "InService" && (m.NodeReady == nil || *m.NodeReady) {
			continue
		}
		fmt.Fprintf(&b, "\n  %s (%s): %s", m.ID, m.Group, m.Phase())
		for _, f := range m.Failures {
			fmt.Fprintf(&b, "\n    %s: [%s] %s (%s)", f.Unit, f.Reason, f.Cause, f.Next)
		}
	}
	return errors.New(b.String())
}

// watch is the progress of a lab that has been printed.
type watch struct {
	out io.Writer
	bar *progressbar.ProgressBar
	// printed is the last text printed about each machine.
	printed map[string]string
	// progressed is the time of the last progress.
	progressed time.Time
	nodes      map[string]bool
}

func newWatch(out io.Writer) *watch {
	w := &watch{out: out, printed: map[string]string{}, nodes: map[string]bool{}, progressed: time.Now()}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		w.bar = progressbar.NewOptions(1,
			progressbar.OptionSetWriter(out), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(),
			progressbar.OptionSetElapsedTime(true), progressbar.OptionSetPredictTime(false),
		)
	}
	return w
}

// show prints the news of a status.
func (w *watch) show(s lab.Status) {
	steps, done := 0, 0
	for _, m := range s.Machines {
		w.machine(m)
		if m.Power != "off" {
			roles, _ := role.ParseSet(m.Roles) // the lab's own roles are valid
			phases := len(timeline.Phases(roles))
			steps += phases
			done += min(len(m.Reached), phases)
		}
	}
	for _, n := range s.Nodes {
		if n.Ready != w.nodes[n.Name] {
			w.nodes[n.Name] = n.Ready
			w.line("%s  node %s is %s", elapsed(s.Since), n.Name, map[bool]string{true: "Ready", false: "not Ready: " + n.Why}[n.Ready])
		}
	}
	if w.bar != nil && steps > 0 {
		w.bar.ChangeMax(steps + 1) // the last step is the whole cluster's readiness
		w.bar.Describe(waitsFor(s))
		_ = w.bar.Set(done) // the terminal is gone; the work goes on
	}
}

// machine prints the news of one machine.
func (w *watch) machine(m lab.MachineStatus) {
	if m.LastWord.After(w.progressed) {
		w.progressed = m.LastWord
	}
	state := string(m.Phase())
	if m.Power == "off" {
		state = "off: " + m.End
	}
	for _, f := range m.Failures {
		state += fmt.Sprintf("; %s: [%s] %s", f.Unit, f.Reason, f.Cause)
	}
	if state == "" || w.printed[m.ID] == state {
		return
	}
	w.printed[m.ID] = state
	w.line("%s  %-10s %-19s %-11s %s", elapsed(m.Launched), m.Group, m.ID, m.Address, state)
}

// elapsed formats the time since a moment as a column of seconds.
func elapsed(since time.Time) string { return fmt.Sprintf("%6.1fs", time.Since(since).Seconds()) }

// line prints a line above the bar.
func (w *watch) line(format string, args ...any) {
	w.progressed = time.Now()
	if w.bar != nil {
		_ = w.bar.Clear()
	}
	fmt.Fprintf(w.out, format+"\n", args...)
}

func (w *watch) finish() {
	if w.bar != nil {
		_ = w.bar.Clear()
	}
}

// waitsFor lists for each group how many machines are in service and how many it wants.
func waitsFor(s lab.Status) string {
	var list []string
	for _, g := range s.Groups {
		list = append(list, fmt.Sprintf("%s %d/%d", g.Name, g.InService, g.Desired))
	}
	return strings.Join(list, ", ")
}
