// Package layer lays directories of systemd units over each other: an image's own units over those that come with Hardtack.
//
// Its rule: it decides by names alone which file is in the image; what a unit says is pkg/image/unit's.
package layer

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/near"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
)

// The rules of findings about layers.
const (
	Rule      = "layer"
	RuleClash = "clash"
)

// Layer is a directory of units and drop-ins that lies over others.
type Layer struct {
	// Name goes before the names of its files in findings: "units/".
	Name string
	// FS has the units at its root, and drop-ins as systemd lays them out (NAME.d/*.conf). Other files are left alone.
	FS fs.FS
	// AddOnly refuses a file that a layer below has too.
	AddOnly bool
}

// Directory is the layer of a local directory.
func Directory(dir string) Layer {
	return Layer{Name: strings.TrimSuffix(dir, "/") + "/", FS: os.DirFS(dir)}
}

// Single is the layer of one local unit, which replaces none.
func Single(file string) (Layer, error) {
	dir, name := filepath.Split(file)
	if !unit.IsUnit(name) {
		return Layer{}, fmt.Errorf("%s: systemd reads no unit of this name: it ends with one of .%s", file, strings.Join(unit.Kinds(), ", ."))
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return Layer{}, err
	}
	fsys, err := txtar.FS(&txtar.Archive{Files: []txtar.File{{Name: name, Data: content}}})
	return Layer{Name: dir, FS: fsys, AddOnly: true}, err
}

// Merged is what layers come to.
type Merged struct {
	// FS has the units of all layers at its root.
	FS   fs.FS
	from map[string]string // by file: the Name of its layer
}

// Merge lays layers over each other, the first lowest. A file takes the place of the one of the same name below it; an
// empty one, or a link to /dev/null, takes it away, as it does in systemd: of a unit with all drop-ins that lie below. The
// list has what is wrong with the layers as such: one that holds nothing, a suffix or a drop-in's unit with a typo, a file
// that takes nothing away or must not replace what it replaces.
func Merge(layers ...Layer) (Merged, problem.List) {
	m := merger{files: map[string][]byte{}, from: map[string]string{}}
	for _, l := range layers {
		m.add(l)
	}
	m.dropIns()
	m.found.Sort()
	archive := &txtar.Archive{}
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		archive.Files = append(archive.Files, txtar.File{Name: name, Data: m.files[name]})
	}
	fsys, err := txtar.FS(archive)
	if err != nil { // a name below another one that is a file; directory entries exclude it within a layer
		m.found.Add(problem.Problem{Rule: Rule, Text: err.Error()})
	}
	return Merged{FS: fsys, from: m.from}, m.found
}

// Locate puts the name of its layer before the file of every finding.
func (l Merged) Locate(found problem.List) {
	for i := range found {
		found[i].File = l.from[found[i].File] + found[i].File
	}
}

type merger struct {
	files map[string][]byte
	from  map[string]string
	found problem.List
}

func (m *merger) report(l Layer, file, rule, hint, format string, args ...any) {
	m.found.Add(problem.Problem{File: l.Name + file, Rule: rule, Hint: hint, Text: fmt.Sprintf(format, args...)})
}

// add lays one layer over those before it.
func (m *merger) add(l Layer) {
	names, err := m.names(l)
	if err != nil {
		if at := new(fs.PathError); errors.As(err, &at) {
			err = at.Err // the path of a layer's root says nothing
		}
		m.report(l, "", Rule, "", "reading the units: %v", err)
		return
	}
	if len(names) == 0 {
		m.report(l, "", Rule, "a unit is a file at its root, such as web.service, and a drop-in of it web.service.d/10-own.conf", "the directory holds no units")
	}
	for _, name := range names {
		content, err := fs.ReadFile(l.FS, name)
		_, there := m.files[name]
		switch {
		case err != nil:
			m.report(l, name, Rule, "", "reading the unit: %v", err)
		case there && l.AddOnly:
			m.report(l, name, RuleClash, "give it another name; to replace that one on purpose, put it into a directory of units_dir",
				"%s%s is a unit of this name already", m.from[name], name)
		case len(content) == 0 && there:
			m.remove(name)
		case len(content) == 0:
			m.report(l, name, Rule, "an empty file takes away a unit of the layers below, and they have none of this name: write the unit, or remove the file", "the file is empty")
		default:
			m.files[name], m.from[name] = content, l.Name
		}
	}
}

// remove takes a unit away with its drop-ins, or one drop-in.
func (m *merger) remove(name string) {
	delete(m.files, name)
	maps.DeleteFunc(m.files, func(file string, _ []byte) bool { return strings.HasPrefix(file, name+".d/") })
}

// names lists a layer's units and drop-ins, units first, so that drop-ins of the same layer outlive an empty unit.
func (m *merger) names(l Layer) ([]string, error) {
	entries, err := fs.ReadDir(l.FS, ".")
	if err != nil {
		return nil, err
	}
	var units, dropped []string
	for _, e := range entries {
		name := e.Name()
		of, isDropIn := strings.CutSuffix(name, ".d")
		switch {
		case isDropIn && unit.IsUnit(of):
			dropped = append(dropped, unit.DropIns(l.FS, of)...)
		case unit.IsUnit(name):
			units = append(units, name)
		default:
			m.typo(l, strings.TrimSuffix(name, ".d"))
		}
	}
	return append(units, dropped...), nil
}

// typo reports a file whose suffix was probably meant as a unit's: systemd would not look at it.
func (m *merger) typo(l Layer, name string) {
	const shortest = 3 // ".md" and ".go" are like nothing
	kind := strings.TrimPrefix(path.Ext(name), ".")
	if meant := near.To(kind, unit.Kinds()); len(kind) > shortest && meant != "" {
		m.report(l, name, Rule, fmt.Sprintf("did you mean %s?", strings.TrimSuffix(name, kind)+meant), "systemd reads no unit with the suffix .%s", kind)
	}
}

// dropIns reports drop-ins whose unit is not there and is named like one that is. A drop-in of a unit of Debian's is fine.
func (m *merger) dropIns() {
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		dir, _, isDropIn := strings.Cut(name, ".d/")
		if _, there := m.files[dir]; !isDropIn || there {
			continue
		}
		// Without the suffix, which is most of a short name.
		suffix := path.Ext(dir)
		if meant := near.Typo(strings.TrimSuffix(dir, suffix), m.stems(suffix)); meant != "" {
			m.found.Add(problem.Problem{File: m.from[name] + name, Rule: Rule, Text: "it is a drop-in of " + dir + ", and the image has no unit of this name",
				Hint: "did you mean " + meant + suffix + ".d?"})
		}
	}
}

// stems lists the units of one suffix, without it.
func (m *merger) stems(suffix string) []string {
	var stems []string
	for name := range m.files {
		if stem, ok := strings.CutSuffix(name, suffix); ok && !strings.Contains(name, "/") {
			stems = append(stems, stem)
		}
	}
	slices.Sort(stems)
	return stems
}
