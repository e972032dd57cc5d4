package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

func unitsCommand() *cli.Command {
	return &cli.Command{
		Name:  "units",
		Usage: "write out the image's systemd units",
		Subcommands: []*cli.Command{{
			Name: "export", Usage: "write the built-in units into a directory, to read them or to change a copy",
			ArgsUsage: "DIRECTORY",
			Flags:     []cli.Flag{&cli.StringSliceFlag{Name: "unit", Usage: "only this `UNIT`, by its file name; may be repeated"}},
			Action:    unitsExport,
		}},
	}
}

func unitsExport(c *cli.Context) error {
	files := map[string][]byte{}
	err := fs.WalkDir(units.FS, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files[name], err = fs.ReadFile(units.FS, name)
		return err
	})
	if err != nil {
		return err
	}
	if asked := c.StringSlice("unit"); len(asked) > 0 {
		for _, name := range asked {
			if files[name] == nil {
				return usagef("--unit: the image has no %q: hardtack units export without --unit writes all that it has", name)
			}
		}
		maps.DeleteFunc(files, func(name string, _ []byte) bool { return !slices.Contains(asked, name) })
	}
	return export(c, files)
}

func lockExport(c *cli.Context) error {
	files, err := bake.LockFile(images.FS, c.String("lock"))
	if errors.As(err, new(*bake.UnknownLockError)) {
		return usagef("--lock: %w", err)
	}
	if err != nil {
		return err
	}
	return export(c, files)
}

// export writes files below the directory in the command's argument, which it makes, and prints their paths. Nothing is
// written if a file is there with another content.
func export(c *cli.Context, files map[string][]byte) error {
	if c.NArg() != 1 {
		return usagef("one directory is expected, not %d (see %s --help)", c.NArg(), name(c))
	}
	dir, names := c.Args().First(), slices.Sorted(maps.Keys(files))
	var changed []error
	for _, name := range names {
		there, err := os.ReadFile(filepath.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			changed = append(changed, fmt.Errorf("writing it out: %w", err))
		case !bytes.Equal(there, files[name]):
			changed = append(changed, fmt.Errorf("%s is there, and is another", filepath.Join(dir, name)))
		}
	}
	if len(changed) > 0 {
		return fmt.Errorf("%w\nnothing was written: name an empty directory, or remove what is there", errors.Join(changed...))
	}
	for _, name := range names {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return fmt.Errorf("writing %s: %w", at, err)
		}
		if _, err := file.Replace(at, files[name], 0o644); err != nil {
			return fmt.Errorf("writing %s: %w", at, err)
		}
	}
	return printWritten(c, dir, names)
}
