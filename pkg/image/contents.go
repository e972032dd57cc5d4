package image

import (
	"fmt"
	"io/fs"
	"path"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
)

// Contents are the paths that an image holds besides Debian and the units.
type Contents map[string]bool

var _ unit.Tree = Contents{}

// Has reports whether a path is one of them.
func (c Contents) Has(file string) bool { return c[file] }

// Lint checks the units of a plan without fetching or composing anything. files are the paths that a template adds.
func Lint(p bake.Plan, files []string) (problem.List, error) {
	plain, err := fs.Sub(p.Assets, "rootfs")
	if err != nil {
		return nil, err
	}
	contents, err := NewContents([]*lock.Lock{p.Lock}, plain)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		contents.Add(f)
	}
	layered, units, found := p.LoadUnits()
	linted := unit.Lint(units, p.WithDebian(contents))
	layered.Locate(linted)
	found = append(found, linted...)
	found.Sort()
	return found, nil
}

// NewContents lists what an image holds without fetching any of it: our own programs, the plain files (a directory that is laid out
// as the image is), and what every one of the locks places, since the units are the same for each lock.
func NewContents(locks []*lock.Lock, plain fs.FS) (Contents, error) {
	c := Contents{}
	c.Add(rootfs.AgentPath)
	c.Add(rootfs.ReaderPath)
	err := fs.WalkDir(plain, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("reading the image's plain files: %w", err)
		}
		if !d.IsDir() {
			c.Add("/" + file)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	placed := map[string]int{}
	for _, l := range locks {
		for _, p := range l.Placements(lock.FromRelease) {
			placed[p.Path]++
		}
	}
	for file, n := range placed {
		if n == len(locks) {
			c.Add(file)
		}
	}
	return c, nil
}

// Add puts a path and the directories above it into the set.
func (c Contents) Add(file string) {
	for ; file != "/" && file != "."; file = path.Dir(file) {
		c[file] = true
	}
}
