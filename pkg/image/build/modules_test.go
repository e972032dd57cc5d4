package build

import (
	"go/format"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

// everyLock reads the repository's locks, by the names of their files.
func everyLock(t *testing.T) map[string]*lock.Lock {
	t.Helper()
	files, err := fs.Glob(images.FS, "*.lock.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no lock: %v", err)
	}
	locks := map[string]*lock.Lock{}
	for _, file := range files {
		data, err := fs.ReadFile(images.FS, file)
		if err != nil {
			t.Fatal(err)
		}
		var problems problem.List
		if locks[file], problems = lock.Parse(file, data); problems.Err() != nil {
			t.Fatal(problems.Err())
		}
	}
	return locks
}

// Every lock of the repository can be built: its archives are there, at the lock's versions, with the
// packages that it names.
func TestLocksMatchTheirModules(t *testing.T) {
	used := map[string]bool{}
	for file, l := range everyLock(t) {
		for _, c := range l.Components {
			if c.Modules == nil {
				t.Errorf("%s: %s has no modules", file, c.Name)
				continue
			}
			for _, name := range c.Modules.Sources() {
				used[name] = true
			}
			s, err := readSource(images.FS, c)
			if err != nil {
				t.Errorf("%s: %s: %v", file, c.Name, err)
				continue
			}
			for _, p := range c.Modules.Programs {
				if !s.has(p.Package) {
					t.Errorf("%s: %s: %s has no package %s and requires no module that has it", file, c.Name, s.name, p.Package)
				}
			}
		}
	}
	archives, err := fs.Glob(images.FS, "modules/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range archives {
		if !used[name] {
			t.Errorf("%s is used by no lock", name)
		}
	}
}

// has reports whether the package is in the archive, or below a module that go.mod requires.
func (s source) has(pkg string) bool {
	for _, f := range s.files {
		if strings.HasPrefix(pkg, "./") && path.Dir(f.Name) == path.Clean(pkg) && strings.HasSuffix(f.Name, ".go") {
			return true
		}
	}
	for _, r := range s.mod.Require {
		if pkg == r.Mod.Path || strings.HasPrefix(pkg, r.Mod.Path+"/") {
			return true
		}
	}
	return false
}

func TestModulesAreFormatted(t *testing.T) {
	archives, err := fs.Glob(images.FS, "modules/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archive: %v", err)
	}
	mains := map[string]bool{}
	for _, l := range everyLock(t) {
		for _, c := range l.Components {
			mains[c.Modules.Source] = true
		}
	}
	for _, name := range archives {
		data, err := fs.ReadFile(images.FS, name)
		if err != nil {
			t.Fatal(err)
		}
		archive := txtar.Parse(data)
		if len(archive.Comment) == 0 {
			t.Errorf("%s does not say what it is", name)
		}
		files := map[string]bool{}
		for _, f := range archive.Files {
			files[f.Name] = true
			if !strings.HasSuffix(f.Name, ".go") {
				continue
			}
			formatted, err := format.Source(f.Data)
			if err != nil {
				t.Errorf("%s: %s: %v", name, f.Name, err)
			} else if string(formatted) != string(f.Data) {
				t.Errorf("%s: %s is not as gofmt writes it", name, f.Name)
			}
		}
		if main := mains[name]; files["go.mod"] != files["go.sum"] || main && !files["go.mod"] {
			t.Errorf("%s lacks go.mod or go.sum", name)
		}
	}
}

// What the repository's locks compile is pinned for every architecture, as its archives are now: a change of an archive needs
// `hardtack lock pin` for each of them.
func TestLocksArePinned(t *testing.T) {
	for file, l := range everyLock(t) {
		for _, c := range l.Components {
			s, err := readSource(images.FS, c)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range c.Modules.Programs {
				from, err := job{component: c, source: s, program: p}.compiled()
				if err != nil {
					t.Fatal(err)
				}
				for _, arch := range lock.Architectures() {
					if !slices.ContainsFunc(c.Pins, func(pin lock.Pin) bool {
						return pin.File == p.Names[0] && pin.Version == c.Version && pin.Arch == arch && pin.Source == from
					}) {
						t.Errorf("%s pins no %s of %s for %s as it is compiled from %s (source %s)", file, p.Names[0], c.Name, arch, s.name, from)
					}
				}
			}
		}
	}
}

// What a lock says is within another component's programs is there, in its version; and such a component has programs of its
// own that serve the same, for where the other one comes from its release.
func TestLocksLinkWhatIsWithin(t *testing.T) {
	for file, l := range everyLock(t) {
		linked := 0
		for _, c := range l.Components {
			for _, f := range c.Files {
				if f.Within == "" {
					continue
				}
				linked++
				i := slices.IndexFunc(l.Components, func(host lock.Component) bool {
					return slices.ContainsFunc(host.Modules.Programs, func(p lock.Program) bool { return p.Path == f.Within })
				})
				if i < 0 {
					t.Errorf("%s: %s is within %s, which is no component's program", file, f.Name, f.Within)
					continue
				}
				if _, err := (&Builder{Assets: images.FS}).Link(c, l.Components[i:i+1]); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		}
		// flanneld and both ends of the tunnel; and with the newest, CoreDNS, crictl and metrics-server.
		want := 3
		if strings.Contains(file, "1.36") {
			want = 6
		}
		if linked != want {
			t.Errorf("%s: %d files are within other programs, and %d should be", file, linked, want)
		}
	}
}
