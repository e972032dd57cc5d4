package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// staleExit is the exit code of check if the image is out of date; 1 is an error, 2 a wrong command line.
const staleExit = 3

func imageCommand() *cli.Command {
	return &cli.Command{
		Name:  "image",
		Usage: "check a baked image; publish, promote and remove machine images (AMIs) on AWS",
		Subcommands: []*cli.Command{imagePublishCommand(), imageListCommand(), imagePromoteCommand(), imageRollbackCommand(), imageGCCommand(), imagePolicyCommand(), imageVerifyCommand(), {
			Name:      "check",
			Usage:     fmt.Sprintf("compare a baked image with the inputs of a new bake; exit with status %d if it is out of date", staleExit),
			ArgsUsage: "IMAGE.JSON",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "agent", Usage: "the hardtack-agent `PROGRAM` that would be baked in (default: not compared)"},
				&cli.StringFlag{Name: "reader", Usage: "the hardtack-userdata `PROGRAM` that would be baked in (default: not compared)"},
				&cli.StringFlag{Name: "hello", Usage: "the hardtack-hello `PROGRAM` that would be baked in (default: not compared)"},
				&cli.StringFlag{Name: "lock", Usage: "the `LOCK` that would be baked, a name or file (default: the built-in one of the baked lock's name)"},
				&cli.StringSliceFlag{Name: "units-dir", Usage: "a `DIRECTORY` of units that lie over the image's own, as the provisioner's option units_dir; may be repeated"},
			},
			Action: imageCheck,
		}},
	}
}

// freshness is the output of `hardtack image check --json`.
type freshness struct {
	Fresh bool `json:"fresh"`
	// Changed lists the differences: "lock, units, files or packages", "agent", "reader", "hello".
	Changed []string `json:"changed"`
}

func imageCheck(c *cli.Context) error {
	if c.NArg() != 1 {
		return usagef("one image.json is expected, not %d (see %s --help)", c.NArg(), name(c))
	}
	baked, err := bake.ReadManifest(c.Args().First())
	if err != nil {
		return usagef("%w", err)
	}
	ours, err := readPrograms(c, baked.Architecture)
	if err != nil {
		return err
	}
	now := image.Now{Assets: images.FS, Units: units.FS, Agent: ours.agent, Reader: ours.reader, Hello: ours.hello}
	if now.Layers, err = unitLayers(c.StringSlice("units-dir")); err != nil {
		return err
	}
	if c.IsSet("lock") {
		if now.Lock, err = readLock(c.String("lock")); err != nil {
			return err
		}
	}
	f := freshness{}
	if f.Changed, err = image.Changed(baked, now); err != nil {
		return err
	}
	f.Fresh = len(f.Changed) == 0
	if structured(c) {
		err = printResult(c, f)
	} else if f.Fresh {
		_, err = fmt.Fprintln(c.App.Writer, "the image is up to date")
	}
	if err == nil && !f.Fresh {
		return exitf(staleExit, "the image is stale: %s have changed since it was baked", strings.Join(f.Changed, ", "))
	}
	return err
}
