package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/tools/txtar"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

// The files of an archive that say which modules are compiled.
const (
	goMod = "go.mod"
	goSum = "go.sum"
)

// recipe is increased whenever a change of this package gives other bytes for the same inputs.
const recipe = 1

// source is the main module of a build: the archives in the assets or beside the lock.
type source struct {
	name     string    // of the archive with go.mod
	archives []Archive // all of them, that one first
	digest   string    // of all of them, in hex
	files    []txtar.File
	mod      *modfile.File
}

// Archive is one archive of Go modules.
type Archive struct {
	// Name is its path in the assets or beside the lock, and Digest its sha256 in hex.
	Name, Digest string
}

// readSource reads the component's archives, from the lock or the assets, and checks that they compile the version that the lock
// names.
func readSource(assets fs.FS, c lock.Component) (source, error) {
	s := source{name: c.Modules.Source}
	for _, name := range c.Modules.Sources() {
		data, beside := c.Modules.Archives[name]
		if !beside {
			if assets == nil {
				return source{}, errors.New("there are no module archives to build from (Builder.Assets)")
			}
			var err error
			if data, err = fs.ReadFile(assets, name); err != nil {
				return source{}, fmt.Errorf("module archive: %w", err)
			}
		}
		hash := sha256.Sum256(data)
		s.archives = append(s.archives, Archive{name, hex.EncodeToString(hash[:])})
		if err := s.add(name, txtar.Parse(data).Files); err != nil {
			return source{}, err
		}
	}
	s.digest = s.archives[0].Digest
	if len(s.archives) > 1 {
		hash := sha256.New()
		for _, a := range s.archives {
			_, _ = fmt.Fprintln(hash, a.Digest) // a hash takes everything
		}
		s.digest = hex.EncodeToString(hash.Sum(nil))
	}
	if s.mod == nil {
		return source{}, fmt.Errorf("module archive %s has no go.mod", s.name)
	}
	return s, s.check(c)
}

// add adds an archive's files. Of a shared one, go.mod and go.sum are left out: they say what its packages are compiled with
// where it is the main module.
func (s *source) add(name string, files []txtar.File) error {
	for _, f := range files {
		if f.Name == goMod || f.Name == goSum {
			if name != s.name {
				continue
			}
			if f.Name == goMod {
				var err error
				if s.mod, err = modfile.Parse(name+": "+goMod, f.Data, nil); err != nil {
					return err
				}
			}
		}
		if slices.ContainsFunc(s.files, func(have txtar.File) bool { return have.Name == f.Name }) {
			return fmt.Errorf("module archive %s: another archive of the same main module (%s) has %s too", name, s.name, f.Name)
		}
		s.files = append(s.files, f)
	}
	return nil
}

// check compares the version in go.mod with the lock's. The pause image has its own version, which only the downloaded
// module has: buildPause checks it.
func (s source) check(c lock.Component) error {
	version := s.version(c.Modules.Module)
	if version == "" {
		return fmt.Errorf("module archive %s does not require %s: name another module in the lock, or `go get` it there", s.name, c.Modules.Module)
	}
	for _, p := range c.Modules.Programs {
		if p.Kind != kindPause && version != c.Version {
			return fmt.Errorf("module archive %s requires %s %s, but the lock says %s: `go get %[2]s@%[4]s` in the archive, or change the lock",
				s.name, c.Modules.Module, version, c.Version)
		}
	}
	return nil
}

// version returns the version of the module that is compiled, its replacement's if it has one, or "" if the module is
// not required.
func (s source) version(module string) string {
	_, version := s.module(module)
	return version
}

// module returns path and version of what is compiled as a module: its replacement's if it has one.
func (s source) module(required string) (module, version string) {
	module = required
	for _, r := range s.mod.Require {
		if r.Mod.Path == required {
			version = r.Mod.Version
		}
	}
	for _, r := range s.mod.Replace {
		if r.Old.Path == required && (r.Old.Version == "" || r.Old.Version == version) {
			return r.New.Path, r.New.Version
		}
	}
	return module, version
}

// extract writes the archives' files below dir, which it creates.
func (s source) extract(dir string) error {
	for _, f := range s.files {
		if !filepath.IsLocal(f.Name) {
			return fmt.Errorf("module archive %s: %q leads out of the archive", s.name, f.Name)
		}
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("unpacking %s: %w", s.name, err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			return fmt.Errorf("unpacking %s: %w", s.name, err)
		}
	}
	return nil
}

// key returns the cache key of the job, a digest of everything that the result depends on, and the pin of the result,
// without its digest.
func (j job) key(ctx context.Context) (string, lock.Pin, error) {
	pin := lock.Pin{Component: j.component.Name, File: j.program.Names[0], Version: j.component.Version, Arch: j.arch}
	var err error
	if pin.Source, err = j.compiled(); err != nil {
		return "", pin, err
	}
	if j.program.Kind != kindPause {
		pin.Go = j.tools.version
	}
	compilers, err := j.tools.compilers(ctx, j.program)
	if err != nil {
		return "", pin, err
	}
	if len(compilers) > 0 {
		pin.C = short([]byte(strings.Join(compilers, "\n")))
	}
	data, err := json.Marshal(struct {
		Recipe                 int
		Source, Version, Arch  string
		Program                lock.Program
		Go                     string
		Compilers, Environment []string
	}{recipe, j.source.digest, j.component.Version, j.arch, j.program, j.tools.version, compilers, j.tools.pinned(j.program)})
	if err != nil {
		return "", pin, fmt.Errorf("naming the build: %w", err)
	}
	hash := sha256.Sum256(data)
	return "build-" + hex.EncodeToString(hash[:]), pin, nil
}

// compiled identifies what is compiled, and how, whatever the tools: the Source of a pin.
func (j job) compiled() (string, error) {
	data, err := json.Marshal(struct {
		Recipe  int
		Archive string
		Program lock.Program
	}{recipe, j.source.digest, j.program})
	if err != nil {
		return "", fmt.Errorf("naming the build: %w", err)
	}
	return short(data), nil
}

// short identifies data in a pin: the first 12 hex digits of its sha256.
func short(data []byte) string {
	hash := sha256.Sum256(data)
	return hex.EncodeToString(hash[:6])
}

// Materials are what stands for every source file of a component that is compiled.
type Materials struct {
	// Archives are the archives of modules: the go.sum of the first has the digest of every module.
	Archives []Archive
	// Module and Version are those that are compiled, after a replacement; Sum is its digest in go.sum, "h1:" and base64, or "" if
	// go.sum has none.
	Module, Version, Sum string
}

// MaterialsOf reads what a component is compiled from, without fetching or compiling it.
func MaterialsOf(assets fs.FS, c lock.Component) (Materials, error) {
	s, err := readSource(assets, c)
	if err != nil {
		return Materials{}, err
	}
	m := Materials{Archives: s.archives}
	m.Module, m.Version = s.module(c.Modules.Module)
	for _, f := range s.files {
		if f.Name != goSum {
			continue
		}
		for line := range strings.Lines(string(f.Data)) {
			if sum, ok := strings.CutPrefix(line, m.Module+" "+m.Version+" "); ok {
				m.Sum = strings.TrimSpace(sum)
			}
		}
	}
	return m, nil
}
