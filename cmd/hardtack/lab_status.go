//go:build linux

package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fatih/color"
	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

// notReadyExit is the exit code of status --exit-code if the cluster is not ready; 1 is an error, 2 a wrong command
// line.
const notReadyExit = 3

func labStatusCommand() *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "show a lab's groups, machines, DNS records and nodes, and what keeps a machine from becoming ready",
		Flags: labFlags(
			&cli.BoolFlag{Name: "all", Usage: "include stopped machines"},
			&cli.BoolFlag{Name: "exit-code", Usage: fmt.Sprintf("exit with status %d if the cluster is not ready", notReadyExit)},
		),
		Action: onLab(func(c *cli.Context, _ lab.Home, client *lab.Client) error {
			if err := noArguments(c); err != nil {
				return err
			}
			s, err := client.Status(c.Context)
			if err != nil {
				return err
			}
			if !c.Bool("all") {
				s.Machines = slices.DeleteFunc(s.Machines, func(m lab.MachineStatus) bool { return m.Power == "off" && m.Lifecycle == "" })
			}
			if structured(c) {
				err = printResult(c, s)
			} else {
				err = printStatus(c.App.Writer, s)
			}
			if err == nil && c.Bool("exit-code") && !s.Ready {
				return exitf(notReadyExit, "the cluster is not ready")
			}
			return err
		}),
	}
}

// printStatus prints the tables of groups, machines and records, and then the problems.
func printStatus(out io.Writer, s lab.Status) error {
	table := newPainted()
	ready, paint := "is not ready yet", yellow
	if s.Ready {
		ready, paint = "is ready", green
	}
	table.row(paint, "lab %s: cluster %s %s, up for %s, API server at %s\n", s.Lab, s.Cluster, ready, time.Since(s.Since).Round(time.Second), s.API)
	table.row(nil, "MACHINE\tGROUP\tROLES\tADDRESS\tMEMBER\tPOWER\tLIFECYCLE\tNODE\tPHASE\tSECONDS")
	for _, m := range s.Machines {
		var paint *color.Color
		if len(m.Failures) > 0 || m.NodeReady != nil && !*m.NodeReady {
			paint = red
		}
		table.row(paint, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s",
			m.ID, m.Group, m.Roles, m.Address, dash(m.Member), power(m), dash(m.Lifecycle), nodeState(m), dash(string(m.Phase())), bootTime(m))
	}
	table.row(nil, "\nRECORD\tTYPE\tTTL\tVALUES")
	for _, r := range s.Records {
		table.row(nil, "%s\t%s\t%d\t%s", strings.TrimSuffix(r.Name, "."), r.Type, r.TTL, strings.Join(r.Values, " "))
	}
	if _, err := io.WriteString(out, table.String()); err != nil {
		return err
	}
	return printTroubles(out, s)
}

// printTroubles prints the failures that machines report, and the dropped packets to addresses outside.
func printTroubles(out io.Writer, s lab.Status) error {
	var b strings.Builder
	for _, m := range s.Machines {
		for _, f := range m.Failures {
			fmt.Fprintf(&b, "%s (%s): %s: [%s] %s\n  next: %s\n", m.ID, m.Group, f.Unit, f.Reason, f.Cause, f.Next)
		}
	}
	refused := map[string]int64{}
	for _, o := range s.Outside {
		refused[o.Proto+" "+o.To.String()] += o.Packets
	}
	b.WriteString("nothing was fetched from outside")
	for i, to := range slices.Sorted(maps.Keys(refused)) {
		fmt.Fprintf(&b, "%s %d packets %s", []string{", refused were", ","}[min(i, 1)], refused[to], to)
	}
	b.WriteString("\n")
	_, err := io.WriteString(out, "\n"+b.String())
	return err
}

func power(m lab.MachineStatus) string {
	if m.Power == "off" && m.End != "" {
		first, _, _ := strings.Cut(m.End, "\n")
		return "off (" + first + ")"
	}
	return m.Power
}

func nodeState(m lab.MachineStatus) string {
	switch {
	case m.NodeReady == nil:
		return "-"
	case *m.NodeReady:
		return "Ready"
	}
	return "not ready"
}

// bootTime is the time from power-on to the machine's last phase, in seconds.
func bootTime(m lab.MachineStatus) string {
	if len(m.Reached) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", m.Reached[len(m.Reached)-1].Seconds)
}

// labLine is a lab in the output of list.
type labLine struct {
	Name      string `json:"name"`
	Running   bool   `json:"running"`
	Directory string `json:"directory"`
	Cluster   string `json:"cluster,omitempty"`
	Machines  int    `json:"machines"`
	Ready     bool   `json:"ready"`
}

func labListCommand() *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "list the labs of this user",
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			lines, err := labLines(c)
			if err != nil {
				return err
			}
			if structured(c) {
				return printResult(c, lines)
			}
			w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "LAB\tSTATE\tCLUSTER\tMACHINES\tDIRECTORY")
			for _, l := range lines {
				state := map[bool]string{true: "up", false: "down"}[l.Running]
				if l.Ready {
					state = "ready"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", l.Name, state, dash(l.Cluster), l.Machines, l.Directory)
			}
			return w.Flush()
		},
	}
}

func labLines(c *cli.Context) ([]labLine, error) {
	root, err := lab.DefaultRoot(os.Getenv)
	if err != nil {
		return nil, err
	}
	homes, err := lab.Homes(root)
	if err != nil {
		return nil, err
	}
	lines := []labLine{}
	for _, h := range homes {
		line := labLine{Name: h.Name, Directory: h.Dir}
		if line.Running, err = h.Running(); err != nil {
			return nil, err
		}
		if s, err := lab.NewClient(h).Status(c.Context); err == nil {
			line.Cluster, line.Ready = s.Cluster, s.Ready
			for _, m := range s.Machines {
				if m.Power == "on" {
					line.Machines++
				}
			}
		}
		lines = append(lines, line)
	}
	return lines, nil
}
