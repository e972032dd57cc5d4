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
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/tools/txtar"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

// recipe is increased whenever a change of this package gives other bytes for the same inputs.
const recipe = 1

// source is the main module of a build: the archive in the assets.
type source struct {
	name    string // path in the assets
	digest  string // sha256 of the archive, in hex
	archive *txtar.Archive
	mod     *modfile.File
}

// readSource reads the component's archive, from the lock or the assets, and checks that it compiles the version that the lock names.
func readSource(assets fs.FS, c lock.Component) (source, error) {
	name, data := c.Modules.Source, c.Modules.Archive
	if data == nil {
		if assets == nil {
			return source{}, errors.New("there are no module archives to build from (Builder.Assets)")
		}
		var err error
		if data, err = fs.ReadFile(assets, name); err != nil {
			return source{}, fmt.Errorf("module archive: %w", err)
		}
	}
	hash := sha256.Sum256(data)
	s := source{name: name, digest: hex.EncodeToString(hash[:]), archive: txtar.Parse(data)}
	for _, f := range s.archive.Files {
		if f.Name == "go.mod" {
			var err error
			if s.mod, err = modfile.Parse(name+": go.mod", f.Data, nil); err != nil {
				return source{}, err
			}
		}
	}
	if s.mod == nil {
		return source{}, fmt.Errorf("module archive %s has no go.mod", name)
	}
	return s, s.check(c)
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

// extract writes the archive's files below dir, which it creates.
func (s source) extract(dir string) error {
	for _, f := range s.archive.Files {
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
	// Archive is the name of the archive of modules, and Digest its sha256 in hex: its go.sum has the digest of every module.
	Archive, Digest string
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
	m := Materials{Archive: s.name, Digest: s.digest}
	m.Module, m.Version = s.module(c.Modules.Module)
	for _, f := range s.archive.Files {
		if f.Name != "go.sum" {
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
