//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

func labVolumeCommand() *cli.Command {
	return &cli.Command{
		Name:  "volume",
		Usage: "list the volumes of a lab's account, and lose or wipe them to see what a cluster does then",
		Subcommands: []*cli.Command{
			labVolumeListCommand(),
			labVolumeVerb("wipe", "make a volume blank that no machine has", "is blank", (*lab.Client).WipeVolume),
			labVolumeVerb("lose", "lose a volume with its content at once, whoever has it", "is lost", (*lab.Client).LoseVolume),
		},
	}
}

func labVolumeListCommand() *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "list the volumes, and the machines that have them",
		Flags: labFlags(),
		Action: onLab(func(c *cli.Context, _ lab.Home, client *lab.Client) error {
			if err := noArguments(c); err != nil {
				return err
			}
			list, err := client.Volumes(c.Context)
			if err != nil {
				return err
			}
			if structured(c) {
				return printResult(c, list)
			}
			return printVolumes(c.App.Writer, list)
		}),
	}
}

func printVolumes(out io.Writer, list []lab.VolumeStatus) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "VOLUME\tMEMBER\tZONE\tGIB\tUSED MIB\tSTATE\tATTACHMENT\tMACHINE")
	for _, v := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", v.ID, dash(v.Member), v.Zone, v.Bytes>>30, v.Used>>20, v.State, dash(v.Attachment), dash(v.Machine))
	}
	return w.Flush()
}

// labVolumeVerb is a command that does something to one volume; done says of the volume that it was done.
func labVolumeVerb(verb, usage, done string, do func(*lab.Client, context.Context, string) error) *cli.Command {
	return &cli.Command{
		Name:      verb,
		Usage:     usage,
		ArgsUsage: "VOLUME",
		Flags:     labFlags(),
		Action: onLab(func(c *cli.Context, _ lab.Home, client *lab.Client) error {
			if c.NArg() != 1 {
				return usagef("one volume is expected, not %d (hardtack lab volume list shows them)", c.NArg())
			}
			list, err := client.Volumes(c.Context)
			if err != nil {
				return err
			}
			id := c.Args().First()
			i := slices.IndexFunc(list, func(v lab.VolumeStatus) bool { return v.ID == id })
			if i < 0 {
				return fmt.Errorf("there is no volume %s (hardtack lab volume list)", id)
			}
			if err := do(client, c.Context, id); err != nil {
				return err
			}
			if structured(c) {
				return printResult(c, list[i])
			}
			_, err = fmt.Fprintf(c.App.Writer, "%s %s\n", id, done)
			return err
		}),
	}
}
