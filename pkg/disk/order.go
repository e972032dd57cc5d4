//go:build linux

package disk

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
)

// firstReads are the files of Debian that a master or a minion reads until it is ready, as patterns of path.Match; a kernel
// module is there by its name alone, wherever it is below usr/lib/modules. They are of a trace of TestColdBytes. A file too
// many or too few costs bytes, and changes no result.
//
//go:embed first-reads.txt
var firstReads string

// The layers of a sealed root, in the order of the disk. mkfs.erofs sorts the data of one run by path, and appends that of
// the next one, so that each layer is a run.
const (
	// layerFirst is what every machine reads of Debian, together, and all directories and links; layerRest is the rest of Debian.
	layerFirst = iota
	layerRest
	// layerPrograms are the large files that a bake puts there: what the lock says. layerOwn is what changes with each
	// version of Hardtack, at the end: a later bake that differs in it alone has every block before it as it was.
	layerPrograms
	layerOwn
	layerCount
)

// largeFile is the size, in bytes, from which a file of a bake is a program or an image rather than a setting.
const largeFile = mib

// layers sorts the root's paths, relative to it, into layers. baked is the list of paths that a bake put there, a path a line.
func layers(root string, baked []byte) ([layerCount][]string, error) {
	ours := map[string]bool{}
	for line := range bytes.Lines(baked) {
		ours[strings.TrimPrefix(strings.TrimSpace(string(line)), "/")] = true
	}
	var all [layerCount][]string
	// The names of one file with several are in one layer, or it would be there twice.
	linked := map[uint64]int{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err = filepath.Rel(root, name)
		if err != nil {
			return err
		}
		layer := layerFirst
		if entry.Type().IsRegular() {
			info, err := entry.Info()
			if err != nil {
				return err
			}
			layer = layerOf(name, info.Size(), ours[name])
			if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink > 1 {
				if first, ok := linked[stat.Ino]; ok {
					layer = first
				}
				linked[stat.Ino] = layer
			}
		}
		all[layer] = append(all[layer], name)
		return nil
	})
	return all, err
}

func layerOf(name string, size int64, ours bool) int {
	switch {
	case !ours && isFirstRead(name):
		return layerFirst
	case !ours:
		return layerRest
	case size < largeFile || strings.HasPrefix(path.Base(name), "hardtack-"):
		return layerOwn
	}
	return layerPrograms
}

const modulesDir = "usr/lib/modules/"

func isFirstRead(name string) bool {
	if strings.HasPrefix(name, modulesDir) {
		// Of a module the release and the directory are left out.
		_, below, _ := strings.Cut(strings.TrimPrefix(name, modulesDir), "/")
		name = modulesDir + "*/" + path.Base(below)
	}
	for pattern := range strings.Lines(firstReads) {
		pattern = strings.TrimSpace(pattern)
		if match, err := path.Match(pattern, name); pattern == name || err == nil && match {
			return true
		}
	}
	return false
}

// writeLayers writes the layers' lists into dir, each path ended by a zero byte, and returns the files' names. They have no path that
// the disk does without.
func (c Composer) writeLayers(dir string, without map[string]bool) ([]string, error) {
	var baked []byte
	if c.Sealed.Baked != "" {
		var err error
		if baked, err = file.ReadWithin(c.Root, strings.TrimPrefix(c.Sealed.Baked, "/")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading what the bake put into the root: %w", err)
		}
	}
	all, err := layers(c.Root, baked)
	if err != nil {
		return nil, fmt.Errorf("listing the root: %w", err)
	}
	var lists []string
	for i, names := range all {
		names = slices.DeleteFunc(names, func(name string) bool { return without[name] })
		if len(names) == 0 {
			continue
		}
		list := fmt.Sprintf("layer-%d", i)
		if err := os.WriteFile(filepath.Join(dir, list), []byte(strings.Join(withParents(names), "\x00")+"\x00"), 0o644); err != nil {
			return nil, fmt.Errorf("listing the root: %w", err)
		}
		lists = append(lists, list)
	}
	return lists, nil
}

// withParents has before each path the directories that lead to it. Of a directory that a layer adds to without naming it, mkfs.erofs
// forgets the owner and the mode that an earlier layer gave it: anybody may write there then.
func withParents(names []string) []string {
	var all []string
	listed := map[string]bool{}
	var add func(name string)
	add = func(name string) {
		if listed[name] {
			return
		}
		listed[name] = true
		if name != "." {
			add(path.Dir(name))
		}
		all = append(all, name)
	}
	for _, name := range names {
		add(name)
	}
	return all
}
