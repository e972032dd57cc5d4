//go:build linux

package disk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// erofs makes the root file system with the root's own tools, a layer after the other. All times are one: nobody changes a file
// later.
func (c Composer) erofs(ctx context.Context, s seal, without map[string]bool) error {
	const what = "making the sealed root file system"
	lists, err := c.writeLayers(c.Work, without)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for i, list := range lists {
		add := ""
		if i > 0 {
			add = " --incremental=data"
		}
		// Only as a tar does mkfs.erofs take some of a directory's files.
		err := c.inside(ctx, what, "tar and mkfs.erofs", strings.Join([]string{
			"cd " + AtRoot + " && exec bash -o pipefail -c 'export LC_ALL=C TMPDIR=" + AtWork + "; tar --create --format=pax --numeric-owner --xattrs --xattrs-include=*",
			"--null --no-recursion --files-from=" + AtWork + "/" + list,
			"| mkfs.erofs --quiet --tar=f" + add + " -zzstd,level=" + strconv.Itoa(rootLevel) + " -C" + strconv.Itoa(rootCluster),
			"-T" + strconv.FormatInt(c.Epoch, 10), "-U" + s.FileSystem.String(), "-Lroot", AtWork + "/" + filepath.Base(s.rootFile) + "'",
		}, " "))
		if err := errors.Join(err, os.Remove(filepath.Join(c.Work, list))); err != nil {
			return err
		}
	}
	return nil
}

// checkErofs has the root's own fsck.erofs read the file system, and compares all that it finds with what is wanted.
func (c Composer) checkErofs(ctx context.Context, s seal, want []item) error {
	const what = "checking the sealed root file system"
	have, err := c.extract(ctx, what, s, "--preserve")
	if err != nil {
		return err
	}
	if slices.ContainsFunc(want, func(it item) bool { return len(it.capability) > 0 }) {
		// It gives a file its owner after its capabilities, which the kernel then takes away again: they are those of files that stay root's.
		again, err := c.extract(ctx, what, s, "--preserve-perms --no-preserve-owner")
		if err != nil {
			return err
		}
		for i := range min(len(have), len(again)) {
			have[i].capability = again[i].capability
		}
	}
	if different := differences(want, have); len(different) > 0 {
		return fmt.Errorf("%s: it is not what the root directory is, and machines would run with that: %s", what, strings.Join(different, "; "))
	}
	return nil
}

// extract writes the root file system's files out, reads them, and removes them again.
func (c Composer) extract(ctx context.Context, what string, s seal, options string) ([]item, error) {
	const name = "extracted"
	dir := filepath.Join(c.Work, name)
	defer os.RemoveAll(dir)
	script := "LC_ALL=C exec fsck.erofs --extract=" + AtWork + "/" + name + " --xattrs " + options + " " + AtWork + "/" + filepath.Base(s.rootFile)
	if err := c.inside(ctx, what, "fsck.erofs", script); err != nil {
		return nil, err
	}
	items, err := readAll(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return items, nil
}

// differencesMost is how many differences are worth reading.
const differencesMost = 10

// differences says in what two directories differ, with as many paths as are worth reading: sorted, nil for none.
func differences(want, have []item) []string {
	lines := map[string][2]string{}
	for i, items := range [][]item{want, have} {
		for _, it := range items {
			both := lines[it.path]
			both[i] = it.facts()
			lines[it.path] = both
		}
	}
	maps.DeleteFunc(lines, func(_ string, both [2]string) bool { return both[0] == both[1] })
	var all []string
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		if len(all) == differencesMost {
			return append(all, fmt.Sprintf("and %d more", len(lines)-differencesMost))
		}
		both := lines[name]
		for i := range both {
			if both[i] == "" {
				both[i] = "not there"
			}
		}
		all = append(all, fmt.Sprintf("%s: %s, and is %s", filepath.Join("/", name), both[0], both[1]))
	}
	return all
}
