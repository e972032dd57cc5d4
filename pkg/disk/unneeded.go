//go:build linux

package disk

import (
	"bufio"
	"bytes"
	"debug/elf"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// unneededText lists what a sealed root does without.
//
//go:embed unneeded.txt
var unneededText string

// packaged is what the list of packages says of the root's files.
type packaged struct {
	root *os.Root
	// owners are the packages of each path, relative to the root.
	owners map[string][]string
	// gone are the packages that the root does without; why says of one that stays, although it is listed, what needs it.
	gone map[string]bool
	why  map[string]string
	// files are the patterns of single files to do without.
	files []string
}

// unneeded returns the paths of the root, relative to it, that a sealed disk does not get: files of packages that only install or
// configure, none of which can happen there, and devices, of which a machine's own /dev has what it has. The list of packages stays
// whole, and so does the software bill of materials.
func (c Composer) unneeded() (map[string]bool, error) {
	root, err := os.OpenRoot(c.Root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // a handle on a directory
	p := packaged{root: root, owners: map[string][]string{}, gone: map[string]bool{}, why: map[string]string{}}
	if err := p.read(c.Sealed.Packages); err != nil {
		return nil, err
	}
	if err := p.keepNeeded(); err != nil {
		return nil, err
	}
	if len(p.gone) > 0 {
		c.sayf("Without %s: nothing is installed or configured on a sealed root", strings.Join(slices.Sorted(maps.Keys(p.gone)), ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(p.why)) {
		c.sayf("With %s: %s", name, p.why[name])
	}
	return p.paths()
}

// read reads the lists of all packages' files, and sorts the packages. Those that are named stay.
func (p *packaged) read(named []string) error {
	lists, err := fs.Glob(p.root.FS(), sealedPackageBase+"/info/*.list")
	if err != nil {
		return err
	}
	var patterns []string
	for line := range strings.Lines(unneededText) {
		switch line = strings.TrimSpace(line); {
		case line == "" || line[0] == '#':
		case strings.Contains(line, "/"):
			p.files = append(p.files, line)
		default:
			patterns = append(patterns, line)
		}
	}
	for _, list := range lists {
		name, _, _ := strings.Cut(strings.TrimSuffix(path.Base(list), ".list"), ":")
		content, err := p.root.ReadFile(list)
		if err != nil {
			return err
		}
		for line := range bytes.Lines(content) {
			file := strings.TrimPrefix(string(bytes.TrimSpace(line)), "/")
			p.owners[file] = append(p.owners[file], name)
		}
		if slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, name) }) {
			if slices.Contains(named, name) {
				p.why[name] = "the template names it"
			} else {
				p.gone[name] = true
			}
		}
	}
	return nil
}

func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// isGone reports whether a path is no disk's: all its packages are gone, or it is listed itself.
func (p *packaged) isGone(name string) bool {
	if len(p.goneOwners(name)) > 0 {
		return true
	}
	// What such a package has written is in no list: its directory in /var is.
	for dir := path.Dir(name); strings.HasPrefix(dir, "var/") && len(p.owners[name]) == 0; dir = path.Dir(dir) {
		if len(p.owners[dir]) > 0 {
			return len(p.goneOwners(dir)) > 0
		}
	}
	return slices.ContainsFunc(p.files, func(pattern string) bool { return matches(pattern, name) }) && p.interpreterGone(name)
}

// interpreterGone reports whether a file is a script whose interpreter is gone: what is listed by its path stays with it.
func (p *packaged) interpreterGone(name string) bool {
	needs, err := p.needs(name)
	return err == nil && slices.ContainsFunc(needs, func(of string) bool { return len(p.goneOwners(of)) > 0 })
}

// goneOwners are the packages of a path, if all of them are gone.
func (p *packaged) goneOwners(name string) []string {
	owners := p.owners[name]
	if slices.ContainsFunc(owners, func(of string) bool { return !p.gone[of] }) {
		return nil
	}
	return owners
}

// keepNeeded has packages stay that a file needs which stays.
func (p *packaged) keepNeeded() error {
	// A library is looked for by its name, in any directory.
	libraries := map[string]string{}
	for name, owners := range p.owners {
		if strings.Contains(path.Base(name), ".so") && p.gone[owners[0]] {
			libraries[path.Base(name)] = name
		}
	}
	needs := map[string][]string{}
	err := fs.WalkDir(p.root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		found, err := p.needs(name)
		for _, f := range found {
			if library, ok := libraries[f]; ok {
				f = library
			}
			if len(p.goneOwners(f)) > 0 {
				needs[name] = append(needs[name], f)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	for stays := true; stays; {
		stays = false
		for _, name := range slices.Sorted(maps.Keys(needs)) {
			if p.isGone(name) {
				continue
			}
			for _, f := range needs[name] {
				for _, of := range p.goneOwners(f) {
					delete(p.gone, of)
					p.why[of], stays = fmt.Sprintf("/%s needs /%s", name, f), true
				}
			}
		}
	}
	return nil
}

// needs are what the kernel and the dynamic linker look for when a file is run: the paths of a script's interpreter, and the names of a
// program's libraries.
func (p *packaged) needs(name string) (list []string, err error) {
	f, err := p.root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading what %s runs with: %w", name, err)
	}
	defer func() { _ = f.Close() }() // only read
	start, err := bufio.NewReader(f).Peek(256)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("reading what %s runs with: %w", name, err)
	case bytes.HasPrefix(start, []byte("#!")):
		line, _, _ := strings.Cut(string(start[2:]), "\n")
		words := strings.Fields(line)
		if len(words) > 1 && path.Base(words[0]) == "env" {
			return []string{"usr/bin/" + words[1]}, nil
		}
		if len(words) > 0 {
			return []string{strings.TrimPrefix(words[0], "/")}, nil
		}
	case bytes.HasPrefix(start, []byte(elf.ELFMAG)):
		program, err := elf.NewFile(f)
		if err != nil {
			return nil, nil // such as a kernel module of another form: nothing is linked to it
		}
		return program.ImportedLibraries()
	}
	return nil, nil
}

// paths are the files and devices to do without, and the directories that would be empty without them and are no other package's.
func (p *packaged) paths() (map[string]bool, error) {
	gone, needed := map[string]bool{}, map[string]bool{}
	var directories []string
	err := fs.WalkDir(p.root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			directories = append(directories, name)
		case p.isGone(name) || entry.Type()&fs.ModeDevice != 0:
			gone[name] = true
		default:
			for dir := path.Dir(name); dir != "." && !needed[dir]; dir = path.Dir(dir) {
				needed[dir] = true
			}
		}
		return nil
	})
	for _, dir := range directories {
		if p.isGone(dir) && !needed[dir] {
			gone[dir] = true
		}
	}
	return gone, err
}
