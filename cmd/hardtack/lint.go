package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
)

func lintCommand() *cli.Command {
	return &cli.Command{
		Name:      "lint",
		Usage:     "check the systemd units against each other, the roles, and the contents of the image",
		ArgsUsage: "[UNITS DIRECTORY]...",
		Flags: []cli.Flag{
			aloneFlag(),
			&cli.StringFlag{Name: "lock", Usage: "the `LOCK`, a name or file, with the image's components (default: every built-in lock)"},
			&cli.StringFlag{Name: "rootfs", Usage: "the `DIRECTORY` with the image's plain files (default: the built-in ones)"},
			&cli.StringSliceFlag{Name: "path", Usage: "an absolute `PATH` that the template puts into the image too; may be repeated"},
			&cli.BoolFlag{Name: "packages", Usage: "the template installs further Debian packages: their programs and files are only known to the bake, and not asked for here"},
		},
		Action: func(c *cli.Context) error {
			plan, err := unitPlan(c)
			if err != nil {
				return err
			}
			if c.Bool("packages") {
				plan.Packages = []string{"any"}
			}
			tree, err := contents(c.String("lock"), c.String("rootfs"))
			if err != nil {
				return err
			}
			for _, file := range c.StringSlice("path") {
				tree.Add(file)
			}
			layered, us, found := plan.LoadUnits()
			linted := unit.Lint(us, plan.WithDebian(tree))
			layered.Locate(linted)
			return printFindings(c, append(found, linted...))
		},
	}
}

// printFindings prints the findings, and returns an error if there are any.
func printFindings(c *cli.Context, found problem.List) error {
	found.Sort()
	if structured(c) {
		// JSON has an empty array, not null.
		if err := printResult(c, append(problem.List{}, found...)); err != nil {
			return err
		}
	} else {
		for _, p := range found {
			fmt.Fprintf(c.App.Writer, "%s [%s]\n", p, p.Rule)
		}
	}
	switch len(found) {
	case 0:
		return nil
	case 1:
		return errors.New("1 finding")
	}
	return fmt.Errorf("%d findings", len(found))
}

// contents lists the image's content besides Debian. An empty lock means all locks of this program, an empty plain its
// plain files.
func contents(lock, plain string) (image.Contents, error) {
	locks, err := readLocks(lock)
	if err != nil {
		return nil, err
	}
	if plain != "" {
		if info, err := os.Stat(plain); err != nil || !info.IsDir() {
			return nil, usagef("--rootfs %s: %w", plain, cmp.Or(err, errors.New("it is no directory")))
		}
		return image.NewContents(locks, os.DirFS(plain))
	}
	own, err := fs.Sub(images.FS, "rootfs")
	if err != nil {
		return nil, err
	}
	return image.NewContents(locks, own)
}

// readLocks reads a lock by its name or file; all of this program if name is empty.
func readLocks(name string) ([]*lock.Lock, error) {
	names := []string{name}
	if name == "" {
		names = ownLocks()
	}
	locks := make([]*lock.Lock, len(names))
	for i, n := range names {
		var err error
		if locks[i], err = readLock(n); err != nil {
			return nil, err
		}
	}
	return locks, nil
}
