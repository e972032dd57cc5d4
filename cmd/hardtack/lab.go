//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

func labCommand() *cli.Command {
	return &cli.Command{
		Name:  "lab",
		Usage: "run a cluster of virtual machines on this computer, from the baked disk",
		Subcommands: []*cli.Command{
			labUpCommand(),
			labDownCommand(),
			labStatusCommand(),
			labListCommand(),
			labKubectlCommand(),
			labAWSCommand(),
			labShellCommand(),
			labExecCommand(),
			labCopyCommand(),
			labLogsCommand(),
			labKillCommand(),
			labNoticeCommand(),
			labScaleCommand(),
			labLoadCommand(),
			labVolumeCommand(),
			labPlotCommand(),
			labDaemonCommand(),
		},
	}
}

// labFlags select the lab of a command.
func labFlags(more ...cli.Flag) []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "name", EnvVars: []string{"HARDTACK_LAB"}, Usage: "the lab's `NAME` (default: the one that is running)"},
	}, more...)
}

// labHome returns the lab of --name, or else the only one that runs, or else the only one that exists.
func labHome(c *cli.Context) (lab.Home, error) { return labNamed(c.String("name")) }

func labNamed(name string) (lab.Home, error) {
	root, err := lab.DefaultRoot(os.Getenv)
	if err != nil {
		return lab.Home{}, err
	}
	if name != "" {
		h, err := lab.NewHome(root, name)
		if err != nil {
			return lab.Home{}, usagef("--name: %w", err)
		}
		return h, nil
	}
	homes, err := lab.Homes(root)
	if err != nil {
		return lab.Home{}, err
	}
	var running []lab.Home
	var names []string
	for _, h := range homes {
		runs, err := h.Running()
		if err != nil {
			return lab.Home{}, err
		}
		if runs {
			running, names = append(running, h), append(names, h.Name)
		}
	}
	switch {
	case len(running) == 1:
		return running[0], nil
	case len(running) > 1:
		return lab.Home{}, usagef("several labs run (%s): name one with --name", strings.Join(names, ", "))
	case len(homes) == 1:
		return homes[0], nil
	case len(homes) == 0:
		return lab.Home{}, lab.ErrNotRunning
	}
	return lab.Home{}, fmt.Errorf("%w; to select a stopped one, name it with --name", lab.ErrNotRunning)
}

// onLab returns the action of a command that needs a running lab.
func onLab(do func(c *cli.Context, h lab.Home, client *lab.Client) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		h, err := labHome(c)
		if err != nil {
			return err
		}
		return do(c, h, lab.NewClient(h))
	}
}

// onMachine returns the action of a command for one machine, its first argument.
func onMachine(do func(c *cli.Context, h lab.Home, client *lab.Client, m lab.MachineStatus) error) cli.ActionFunc {
	on := onLab(func(c *cli.Context, h lab.Home, client *lab.Client) error {
		s, err := client.Status(c.Context)
		if err != nil {
			return err
		}
		m, err := s.Find(c.Args().First())
		if err != nil {
			return err
		}
		return do(c, h, client, m)
	})
	return func(c *cli.Context) error {
		if c.NArg() != 1 { // said whether or not a lab runs
			return usagef("one machine is expected, not %d (hardtack lab status lists them)", c.NArg())
		}
		return on(c)
	}
}

func labDownCommand() *cli.Command {
	return &cli.Command{
		Name:  "down",
		Usage: "stop a lab and remove its machines, disks and secrets; console logs and journals stay until the next start",
		Flags: labFlags(&cli.BoolFlag{Name: "delete", Usage: "also remove console logs and journals"}),
		Action: onLab(func(c *cli.Context, h lab.Home, client *lab.Client) error {
			if err := noArguments(c); err != nil {
				return err
			}
			_, none := os.Stat(h.Dir)
			never := errors.Is(none, fs.ErrNotExist)
			err := client.Down(c.Context)
			if err != nil && !errors.Is(err, lab.ErrNotRunning) {
				return err
			}
			ended, clearing := h.Clear()
			if clearing != nil {
				return clearing
			}
			if err != nil && !never {
				logger(c).Info("no daemon was running", "lab", h.Name, "machines_left_by_a_killed_one", ended)
			}
			if c.Bool("delete") {
				if err := h.Delete(); err != nil {
					return err
				}
			}
			if structured(c) {
				return printResult(c, struct {
					Lab string `json:"lab"`
					// Ended are the machines that a killed daemon had left.
					Ended   int  `json:"ended"`
					Deleted bool `json:"deleted"`
				}{h.Name, ended, c.Bool("delete")})
			}
			if never {
				_, err = fmt.Fprintf(c.App.Writer, "there is no lab %s\n", h.Name)
				return err
			}
			_, err = fmt.Fprintf(c.App.Writer, "lab %s is down\n", h.Name)
			return err
		}),
	}
}

func labKillCommand() *cli.Command {
	return &cli.Command{
		Name:      "kill",
		Usage:     "power a machine off at once, or with --graceful after its pods have moved away; its group replaces it",
		ArgsUsage: "MACHINE",
		Flags:     labFlags(&cli.BoolFlag{Name: "graceful", Usage: "have its group end it: it is held until its pods have moved away, for at most the group's drainTimeout"}),
		Action: onMachine(func(c *cli.Context, _ lab.Home, client *lab.Client, m lab.MachineStatus) error {
			if c.Bool("graceful") {
				return endMachine(c, client, m)
			}
			if err := client.Kill(c.Context, m.ID); err != nil {
				return err
			}
			if structured(c) {
				return printResult(c, m)
			}
			if _, err := fmt.Fprintf(c.App.Writer, "%s of group %s is powered off\n", m.ID, m.Group); err != nil {
				return err
			}
			if strings.HasPrefix(m.Lifecycle, "Pending") {
				// AutoScaling checks the health of machines in service only.
				logger(c).Warn("its group is still launching it, and replaces it once the launch is given up (autoscaling complete-lifecycle-action --lifecycle-action-result ABANDON, by hardtack lab aws) or its hook's time is over",
					"machine", m.ID, "lifecycle", m.Lifecycle)
			}
			return nil
		}),
	}
}

// endMachine ends a machine after its pods have moved away, and says which have not.
func endMachine(c *cli.Context, client *lab.Client, m lab.MachineStatus) error {
	out, err := client.End(c.Context, m, func(text string) { logger(c).Info(text) })
	if err != nil {
		return err
	}
	if structured(c) {
		return printResult(c, out)
	}
	pods := "all its pods have moved away"
	switch {
	case out.Left != "":
		pods = out.Left
	case out.Unknown != "":
		pods = "what became of its pods is not known: " + out.Unknown
	}
	_, err = fmt.Fprintf(c.App.Writer, "%s of group %s has ended after %s: %s\n", m.ID, m.Group, out.Took.Round(time.Second), pods)
	return err
}

func labLoadCommand() *cli.Command {
	return &cli.Command{
		Name:      "load",
		Usage:     "put the container images of archives into the lab's registry, from which its machines pull",
		ArgsUsage: "ARCHIVE...",
		Flags:     labFlags(),
		Action: onLab(func(c *cli.Context, _ lab.Home, client *lab.Client) error {
			if c.NArg() == 0 {
				return usagef("no archive is given (docker save -o image.tar NAME:TAG writes one)")
			}
			loaded := []string{}
			for _, archive := range c.Args().Slice() {
				names, err := client.Load(c.Context, archive)
				if err != nil {
					return err
				}
				loaded = append(loaded, names...)
				for _, name := range names {
					logger(c).Info("loaded", "image", name)
				}
			}
			if structured(c) {
				return printResult(c, loaded)
			}
			_, err := fmt.Fprintf(c.App.Writer, "%d images are in the registry of the lab\n", len(loaded))
			return err
		}),
	}
}

func labScaleCommand() *cli.Command {
	return &cli.Command{
		Name:      "scale",
		Usage:     "change a group's number of machines",
		ArgsUsage: "GROUP SIZE",
		Flags:     labFlags(),
		Action: func(c *cli.Context) error {
			size, err := strconv.Atoi(c.Args().Get(1))
			if c.NArg() != 2 || err != nil || size < 0 {
				return usagef("a group and a number are expected (see %s --help)", name(c))
			}
			return onLab(func(c *cli.Context, _ lab.Home, client *lab.Client) error { return scale(c, client, size) })(c)
		},
	}
}

func scale(c *cli.Context, client *lab.Client, size int) error {
	group := c.Args().First()
	if err := client.Scale(c.Context, group, size); err != nil {
		return err
	}
	if structured(c) {
		return printResult(c, struct {
			Group string `json:"group"`
			Size  int    `json:"size"`
		}{group, size})
	}
	_, err := fmt.Fprintf(c.App.Writer, "group %s will have %d machines (hardtack lab status shows them)\n", group, size)
	return err
}
