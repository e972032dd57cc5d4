package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/component"
	"github.com/hardtack/packer-plugin-hardtack/pkg/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/rootfs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/unit"
)

func lintCommand() *cli.Command {
	return &cli.Command{
		Name:      "lint",
		Usage:     "check the units against each other, the roles, and what the image holds",
		ArgsUsage: "[directory of units]",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "lock", Usage: "the `LOCK` whose components the image holds, by name or file (default: each of this program's)"},
			&cli.StringFlag{Name: "rootfs", Usage: "the `DIRECTORY` of the image's plain files (default: those of this program)"},
			&cli.BoolFlag{Name: "json", Usage: "print the findings as a JSON array"},
		},
		Action: func(c *cli.Context) error {
			fsys, prefix, err := unitFiles(c)
			if err != nil {
				return err
			}
			tree, err := imagePaths(c.String("lock"), c.String("rootfs"))
			if err != nil {
				return err
			}
			us, found := unit.Load(fsys)
			found = append(found, unit.Lint(us, unit.OnDebian(tree))...)
			if len(us) == 0 && len(found) == 0 {
				return usagef("%s holds no units", strings.TrimSuffix(prefix, "/"))
			}
			return printFindings(c, found, prefix)
		},
	}
}

// printFindings prints the findings, and is an error when there are any.
func printFindings(c *cli.Context, found problem.List, prefix string) error {
	for i := range found {
		if found[i].File != "" {
			found[i].File = prefix + found[i].File
		}
	}
	found.Sort()
	if c.Bool("json") {
		// An empty array, and not null.
		if err := printJSON(c.App.Writer, append(problem.List{}, found...)); err != nil {
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
		return fmt.Errorf("1 finding in %s", strings.TrimSuffix(prefix, "/"))
	}
	return fmt.Errorf("%d findings in %s", len(found), strings.TrimSuffix(prefix, "/"))
}

// pathSet is what an image holds besides its units.
type pathSet map[string]bool

// Has is unit.Tree's.
func (s pathSet) Has(file string) bool { return s[file] }

// add puts a path and the directories above it into the set.
func (s pathSet) add(file string) {
	for ; file != "/" && file != "."; file = path.Dir(file) {
		s[file] = true
	}
}

// imagePaths lists what the image holds beside Debian: what every lock places, the plain files and the
// agent. An empty name means this program's own.
func imagePaths(lock, plain string) (pathSet, error) {
	set := pathSet{}
	set.add(rootfs.AgentPath)
	if err := addPlain(set, plain); err != nil {
		return nil, err
	}
	locks, err := readLocks(lock)
	if err != nil {
		return nil, err
	}
	// Only what all locks place counts: the units are the same for each.
	placed := map[string]int{}
	for _, l := range locks {
		for _, p := range l.Placements(component.FromRelease) {
			placed[p.Path]++
		}
	}
	for file, n := range placed {
		if n == len(locks) {
			set.add(file)
		}
	}
	return set, nil
}

// addPlain adds the files of a directory that is laid out as the image is.
func addPlain(set pathSet, dir string) error {
	var fsys fs.FS
	if dir != "" {
		fsys = os.DirFS(dir)
	} else {
		sub, err := fs.Sub(images.FS, "rootfs")
		if err != nil {
			return err
		}
		fsys = sub
	}
	return fs.WalkDir(fsys, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("reading the image's plain files: %w", err)
		}
		if !d.IsDir() {
			set.add("/" + file)
		}
		return nil
	})
}

// readLocks reads the lock of that name or file, or all of this program.
func readLocks(name string) ([]*component.Lock, error) {
	names := []string{name}
	if name == "" {
		names = ownLocks()
	}
	locks := make([]*component.Lock, len(names))
	for i, n := range names {
		var err error
		if locks[i], err = readLock(n); err != nil {
			return nil, err
		}
	}
	return locks, nil
}
