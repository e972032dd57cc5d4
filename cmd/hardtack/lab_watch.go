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
)

// watchLab tells on stderr how far each machine has come, a line for each phase and, on a terminal, a bar for all of
// them, until the cluster is ready. It gives up when nothing has got on, and no machine has said a word, for quiet.
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
		if time.Since(w.moved) > quiet {
			return stalled(s, quiet)
		}
		s, err = client.Next(c.Context, s.Revision)
	}
}

// stalled says what the machines that are not ready were doing.
func stalled(s lab.Status, quiet time.Duration) error {
	var b strings.Builder
	fmt.Fprintf(&b, "nothing has got on for %s", quiet)
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

// watch is what has been told of a lab so far.
type watch struct {
	out io.Writer
	bar *progressbar.ProgressBar
	// told is what was said last of each machine.
	told map[string]string
	// moved is when anything last got on.
	moved time.Time
	nodes map[string]bool
}

func newWatch(out io.Writer) *watch {
	w := &watch{out: out, told: map[string]string{}, nodes: map[string]bool{}, moved: time.Now()}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		w.bar = progressbar.NewOptions(1,
			progressbar.OptionSetWriter(out), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(),
			progressbar.OptionSetElapsedTime(true), progressbar.OptionSetPredictTime(false),
		)
	}
	return w
}

// show tells what is new.
func (w *watch) show(s lab.Status) {
	steps, done := 0, 0
	for _, m := range s.Machines {
		w.machine(m)
		if m.Power != "off" {
			steps += len(phasesOf(m.Roles))
			done += min(len(m.Reached), len(phasesOf(m.Roles)))
		}
	}
	for _, n := range s.Nodes {
		if n.Ready != w.nodes[n.Name] {
			w.nodes[n.Name] = n.Ready
			w.line("%s  node %s is %s", clock(s.Since), n.Name, map[bool]string{true: "Ready", false: "not Ready: " + n.Why}[n.Ready])
		}
	}
	if w.bar != nil && steps > 0 {
		w.bar.ChangeMax(steps + 1) // the last step is that all is ready
		w.bar.Describe(waitsFor(s))
		_ = w.bar.Set(done) // the terminal is gone; the work goes on
	}
}

// machine tells what is new of one machine.
func (w *watch) machine(m lab.MachineStatus) {
	if m.LastWord.After(w.moved) {
		w.moved = m.LastWord
	}
	state := string(m.Phase())
	if m.Power == "off" {
		state = "off: " + m.End
	}
	for _, f := range m.Failures {
		state += fmt.Sprintf("; %s: [%s] %s", f.Unit, f.Reason, f.Cause)
	}
	if state == "" || w.told[m.ID] == state {
		return
	}
	w.told[m.ID] = state
	w.line("%s  %-10s %-19s %-11s %s", clock(m.Launched), m.Group, m.ID, m.Address, state)
}

// clock is how long ago something began, as a column of seconds.
func clock(since time.Time) string { return fmt.Sprintf("%6.1fs", time.Since(since).Seconds()) }

// line prints a line above the bar.
func (w *watch) line(format string, args ...any) {
	w.moved = time.Now()
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

// phasesOf are those that a machine with these roles goes through.
func phasesOf(roles string) []lab.Phase {
	var list []lab.Phase
	for _, p := range lab.Phases() {
		role, only := map[lab.Phase]string{lab.PhaseEtcd: "etcd", lab.PhaseAPI: "masters", lab.PhaseKubelet: "minions"}[p]
		if !only || strings.Contains(roles, role) {
			list = append(list, p)
		}
	}
	return list
}

// waitsFor says in a few words what is missing.
func waitsFor(s lab.Status) string {
	var list []string
	for _, g := range s.Groups {
		list = append(list, fmt.Sprintf("%s %d/%d", g.Name, g.InService, g.Desired))
	}
	return strings.Join(list, ", ")
}
