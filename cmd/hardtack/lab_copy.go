//go:build linux

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

func labCopyCommand() *cli.Command {
	return &cli.Command{
		Name:      "cp",
		Usage:     "copy a file or directory to a machine or from it, as root, by its second serial line; a few megabytes take a minute",
		ArgsUsage: "SOURCE DESTINATION, one of them MACHINE:/PATH",
		Flags:     labFlags(),
		Action: func(c *cli.Context) error {
			if c.NArg() != 2 {
				return usagef("a source and a destination are expected, not %d words (see %s --help)", c.NArg(), name(c))
			}
			from, to := c.Args().Get(0), c.Args().Get(1)
			fromMachine, fromPath, fromThere := cutMachine(from)
			toMachine, toPath, toThere := cutMachine(to)
			if fromThere == toThere {
				return usagef("one of %s and %s is on a machine, as masters-1:/etc/os-release, and one is here", from, to)
			}
			return onLab(func(c *cli.Context, _ lab.Home, client *lab.Client) error {
				s, err := client.Status(c.Context)
				if err != nil {
					return err
				}
				m, err := s.Find(fromMachine + toMachine)
				if err != nil {
					return err
				}
				if fromThere {
					err = client.Fetch(c.Context, m.ID, fromPath, to)
				} else {
					err = client.Send(c.Context, m.ID, from, toPath)
				}
				if errors.Is(err, lab.ErrShellSilent) {
					return fmt.Errorf("%w (hardtack lab shell %s shows it)", err, m.ID)
				}
				if err != nil {
					return err
				}
				if structured(c) {
					return printResult(c, struct {
						Machine string `json:"machine"`
						From    string `json:"from"`
						To      string `json:"to"`
					}{m.ID, from, to})
				}
				_, err = fmt.Fprintf(c.App.Writer, "%s is copied to %s\n", from, to)
				return err
			})(c)
		},
	}
}

// cutMachine separates MACHINE:/PATH; a path of this computer has no colon before its first slash.
func cutMachine(word string) (machine, path string, found bool) {
	machine, path, found = strings.Cut(word, ":")
	if !found || strings.Contains(machine, "/") || machine == "" {
		return "", "", false
	}
	return machine, path, true
}
