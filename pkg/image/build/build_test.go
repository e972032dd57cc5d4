package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/cache"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// tinyModule is the beginning of a module without dependencies, up to the imports of its one program.
const tinyModule = `-- go.mod --
module hardtack.invalid/tiny

go 1.24

require hardtack.invalid/nothing v1.2.3
-- tiny/main.go --
package main

`

// tiny is such a module, whose program says what it is called and its version.
const tiny = tinyModule + `import (
	"fmt"
	"os"
	"path/filepath"
)

var version string

func main() { fmt.Println(filepath.Base(os.Args[0]), version) }
`

// tinyComponent is the lock's part for it.
func tinyComponent() lock.Component {
	return lock.Component{
		Name: "tiny", Version: "v1.2.3",
		Files: []lock.File{{Name: "one", Path: "/usr/bin/one", Mode: 0o755}, {Name: "two", Path: "/usr/bin/two", Mode: 0o755}},
		Modules: &lock.Modules{
			Source: "modules/tiny.txtar", Module: "hardtack.invalid/nothing",
			Programs: []lock.Program{{
				Package: "./tiny", Names: []string{"one", "two"}, Path: "/usr/lib/hardtack/bin/tiny",
				LDFlags: []string{"-X=main.version={{.Version}}"},
			}},
		},
	}
}

// counted counts the compilations of a builder.
type counted struct{ started []string }

func (c *counted) start(what string) func(error) {
	c.started = append(c.started, what)
	return func(error) {}
}

// newBuilder returns a builder with a new cache. Go's own caches are the user's.
func newBuilder(t *testing.T, assets fs.FS) (*Builder, *counted) {
	t.Helper()
	progress := &counted{}
	return &Builder{Assets: assets, Cache: newCache(t, t.TempDir()), Arch: runtime.GOARCH, Started: progress.start}, progress
}

func newCache(t *testing.T, dir string) *cache.Cache {
	t.Helper()
	c, err := cache.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func tinyAssets(archive string) fstest.MapFS {
	return fstest.MapFS{"modules/tiny.txtar": {Data: []byte(archive)}}
}

// install writes the entries below dir, as a bake would.
func install(t *testing.T, dir string, entries []rootfs.Entry) {
	t.Helper()
	for _, e := range entries {
		path := filepath.Join(dir, e.Path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if e.Mode.Type() == fs.ModeSymlink {
			if err := os.Symlink(e.Link, path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(path, readAll(t, e), e.Mode.Perm()); err != nil {
			t.Fatal(err)
		}
	}
}

// says builds the component, and returns what its first program prints.
func says(t *testing.T, b *Builder, c lock.Component) string {
	t.Helper()
	entries, _, err := b.Build(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	install(t, root, entries)
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, c.Files[0].Path)).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", c.Files[0].Path, err, out)
	}
	return string(out)
}

func TestBuildServesEveryName(t *testing.T) {
	b, progress := newBuilder(t, tinyAssets(tiny))
	entries, _, err := b.Build(t.Context(), tinyComponent())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, strings.TrimSpace(e.Mode.String()+" "+e.Path+" "+e.Link))
	}
	want := []string{
		"Lrwxrwxrwx /usr/bin/one ../lib/hardtack/bin/tiny",
		"Lrwxrwxrwx /usr/bin/two ../lib/hardtack/bin/tiny",
		"-rwxr-xr-x /usr/lib/hardtack/bin/tiny",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// The entries planned from the lock alone equal those of the build.
	for _, place := range (&lock.Lock{Components: []lock.Component{tinyComponent()}}).Placements(lock.FromModules) {
		if !slices.ContainsFunc(entries, func(e rootfs.Entry) bool {
			return e.Path == place.Path && e.Link == place.Link && e.Mode.Perm() == fs.FileMode(place.Mode) && e.Component == place.Component
		}) {
			t.Errorf("the lock places %+v, which was not built", place)
		}
	}
	root := t.TempDir()
	install(t, root, entries)
	for _, name := range []string{"one", "two"} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(root, "usr/bin", name)).Output()
		if err != nil || string(out) != name+" v1.2.3\n" {
			t.Errorf("%s says %q, %v", name, out, err)
		}
	}
	if !slices.Equal(progress.started, []string{"building tiny v1.2.3"}) {
		t.Errorf("progress: %q", progress.started)
	}
	if left, err := os.ReadDir(filepath.Join(b.Cache.Dir, "modules")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	again, _, err := b.Build(t.Context(), tinyComponent())
	if err != nil || len(progress.started) != 1 {
		t.Errorf("a second build compiled again: %q, %v", progress.started, err)
	}
	if again[2].Digest != entries[2].Digest {
		t.Errorf("the cache gave %s for %s", again[2].Digest, entries[2].Digest)
	}
}

func TestBuildErrors(t *testing.T) {
	tests := map[string]struct {
		archive string
		change  func(*lock.Component)
		want    []string
	}{
		"another version":    {archive: strings.Replace(tiny, "v1.2.3", "v1.2.4", 1), want: []string{"requires hardtack.invalid/nothing v1.2.4, but the lock says v1.2.3"}},
		"replaced version":   {archive: strings.Replace(tiny, "v1.2.3\n", "v1.2.3\nreplace hardtack.invalid/nothing => hardtack.invalid/other v0.1.0\n", 1), want: []string{"v0.1.0, but the lock says v1.2.3"}},
		"not required":       {archive: tiny, change: func(c *lock.Component) { c.Modules.Module = "hardtack.invalid/gone" }, want: []string{"does not require hardtack.invalid/gone"}},
		"no go.mod":          {archive: "-- main.go --\n", want: []string{"modules/tiny.txtar has no go.mod"}},
		"broken go.mod":      {archive: "-- go.mod --\nmodul x\n", want: []string{"modules/tiny.txtar: go.mod:1"}},
		"no archive":         {archive: tiny, change: func(c *lock.Component) { c.Modules.Source = "modules/gone.txtar" }, want: []string{"gone.txtar"}},
		"a path that climbs": {archive: tiny + "-- ../x --\n", want: []string{`"../x" leads out`}},
		"newer Go":           {archive: strings.Replace(tiny, "go 1.24", "go 1.999", 1), want: []string{"needs Go 1.999 or newer", "go.dev/dl"}},
		"does not compile":   {archive: tiny + "-- tiny/b.go --\npackage main\n\nfunc f() int { return nope }\n", want: []string{"one, two: go build", "tiny/b.go:3:23: undefined: nope"}},
		"unknown file":       {archive: tiny, change: func(c *lock.Component) { c.Files = c.Files[:1] }, want: []string{`serves "two"`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b, _ := newBuilder(t, tinyAssets(test.archive))
			c := tinyComponent()
			if test.change != nil {
				test.change(&c)
			}
			_, _, err := b.Build(t.Context(), c)
			if err == nil {
				t.Fatal("it was built")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q:\n%v", want, err)
				}
			}
		})
	}
}

// A tool that is missing is named with the package that has it, before anything is compiled.
func TestBuildMissingTools(t *testing.T) {
	goCommand, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Fatal(err)
	}
	foreign, cross := "arm64", "gcc-aarch64-linux-gnu"
	if runtime.GOARCH == foreign {
		foreign, cross = "amd64", "gcc-x86-64-linux-gnu"
	}
	tests := map[string]struct {
		tools []string
		arch  string
		want  string
	}{
		"no go":             {nil, runtime.GOARCH, "install Go (https://go.dev/dl) or put it on PATH"},
		"no gcc":            {[]string{goCommand}, runtime.GOARCH, "apt-get install gcc)"},
		"no binutils":       {[]string{goCommand, gcc}, runtime.GOARCH, "apt-get install binutils)"},
		"no cross compiler": {[]string{goCommand, gcc}, foreign, "apt-get install " + cross + ")"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			for _, tool := range test.tools {
				if err := os.Symlink(tool, filepath.Join(bin, filepath.Base(tool))); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", bin)
			b, progress := newBuilder(t, tinyAssets(tiny))
			b.Arch = test.arch
			c := tinyComponent()
			c.Modules.Programs[0].CGO = true
			_, _, err := b.Build(t.Context(), c)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error does not say %q: %v", test.want, err)
			}
			if len(progress.started) != 0 {
				t.Errorf("it began to build: %q", progress.started)
			}
		})
	}
}

// The bytes come from the source and the flags, not from the directory, the user's settings or the time.
func TestBuildIsReproducible(t *testing.T) {
	c := lockComponent(t, "kubernetes-1.36.lock.yaml", "cni-plugins")
	digest := func(c lock.Component, dir string) string {
		b, _ := newBuilder(t, images.FS)
		b.Cache = newCache(t, filepath.Join(b.Cache.Dir, dir))
		entries, _, err := b.Build(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(entries, func(e rootfs.Entry) bool { return e.Mode.IsRegular() })
		return entries[i].Digest
	}
	first := digest(c, "a")
	t.Setenv("GOFLAGS", "-mod=mod -tags=other")
	t.Setenv("GOAMD64", "v3")
	t.Setenv("CGO_ENABLED", "1")
	t.Setenv("GOWORK", "/nonexistent")
	t.Setenv("LANG", "de_DE.UTF-8")
	if second := digest(c, "another/and/longer"); second != first {
		t.Errorf("two builds differ: %s and %s", first, second)
	}
	p := c.Modules.Programs[0]
	p.LDFlags = []string{"-X=github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion=other"}
	c.Modules.Programs, c.Pins = []lock.Program{p}, nil
	if changed := digest(c, "c"); changed == first {
		t.Error("another version stamp gave the same digest: the test cannot see a difference")
	}
}

// lockComponent is a component of one of the repository's locks.
func lockComponent(t *testing.T, file, name string) lock.Component {
	t.Helper()
	data, err := fs.ReadFile(images.FS, file)
	if err != nil {
		t.Fatal(err)
	}
	l, problems := lock.Parse(file, data)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	c, ok := l.Component(name)
	if !ok {
		t.Fatalf("%s has no component %s", file, name)
	}
	return c
}

// poisonIndex has every index entry of the cache name other content.
func poisonIndex(t *testing.T, b *Builder) {
	t.Helper()
	other, err := b.Cache.Store(t.Context(), strings.NewReader("a program with a back door"))
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(b.Cache.Dir, "index", "build-*.json"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no index: %v", err)
	}
	for _, name := range names {
		if err := os.WriteFile(name, fmt.Appendf(nil, `{"digest":%q,"size":%d}`, other.Digest, other.Size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Whoever can write the index decides no byte of a program that the lock pins, and is found out for the others when they
// are verified.
func TestAttackIndexNamesAnotherProgram(t *testing.T) {
	b, progress := newBuilder(t, tinyAssets(tiny))
	c := tinyComponent()
	entries, pins, err := b.Build(t.Context(), c)
	if err != nil || len(pins) != 1 {
		t.Fatalf("%v, %v", pins, err)
	}
	good := entries[2].Digest
	want := lock.Pin{Component: "tiny", File: "one", Version: "v1.2.3", Arch: runtime.GOARCH, Go: pins[0].Go, Source: pins[0].Source, Digest: "sha256:" + good}
	if diff := cmp.Diff(want, pins[0]); diff != "" {
		t.Error(diff)
	}
	poisonIndex(t, b)
	if again, _, err := b.Anew().Build(t.Context(), c); err != nil || again[2].Digest != good {
		t.Errorf("verified, the cache gave %v, %v", again, err)
	}
	c.Pins = pins
	poisonIndex(t, b)
	compiled := len(progress.started)
	if again, _, err := b.Build(t.Context(), c); err != nil || again[2].Digest != good || len(progress.started) != compiled {
		t.Errorf("pinned, the cache gave %v, %v after %q", again, err, progress.started)
	}
	c.Pins = []lock.Pin{pins[0]}
	c.Pins[0].Digest = "sha256:" + strings.Repeat("0", 64)
	_, _, err = b.Build(t.Context(), c)
	for _, text := range []string{c.Pins[0].Digest, "sha256:" + good, "modules/tiny.txtar", "hardtack lock pin", pins[0].Go} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("the error does not say %q: %v", text, err)
		}
	}
}

// A pin is of what was compiled: of a changed archive or other flags the cache does not give the program that is pinned.
func TestPinOfAnotherSource(t *testing.T) {
	for name, change := range map[string]func(*lock.Component, *Builder){
		"archive": func(_ *lock.Component, b *Builder) { b.Assets = tinyAssets(tiny + "// Changed.\n") },
		"tags":    func(c *lock.Component, _ *Builder) { c.Modules.Programs[0].Tags = []string{"changed"} },
		"gcflags": func(c *lock.Component, _ *Builder) { c.Modules.Programs[0].GCFlags = []string{"all=-l"} },
	} {
		b, progress := newBuilder(t, tinyAssets(tiny))
		c := tinyComponent()
		_, pins, err := b.Build(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		c.Pins = pins
		change(&c, b)
		compiled := len(progress.started)
		_, found, err := b.Build(t.Context(), c)
		if err != nil || len(progress.started) != compiled+1 || len(c.Unpinned(found)) != 1 {
			t.Errorf("another %s: %v, %v after %q", name, found, err, progress.started)
		}
		b.RequirePins = true
		if _, _, err := b.Build(t.Context(), c); err == nil || !strings.Contains(err.Error(), "the lock pins no digest") {
			t.Errorf("another %s, and pins are required: %v", name, err)
		}
	}
}

// Who has a program in the cache does not wait for who compiles it again; who has not, says that it waits.
func TestBuildWaits(t *testing.T) {
	b, _ := newBuilder(t, tinyAssets(tiny))
	c := tinyComponent()
	j, err := b.job(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	key, _, err := j.forProgram(c.Modules.Programs[0]).key(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []error{context.Canceled, nil} {
		unlock, err := b.Cache.Lock(t.Context(), key, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		b.Log = slog.New(slog.NewTextHandler(saying{"waiting for another process", cancel}, nil))
		if _, _, err = b.Build(ctx, c); !errors.Is(err, want) {
			t.Errorf("while another one builds: %v, want %v", err, want)
		}
		cancel()
		unlock()
		if _, _, err := b.Build(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
}

// saying calls then when the text is written.
type saying struct {
	text string
	then func()
}

func (s saying) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.text) {
		s.then()
	}
	return len(p), nil
}

// Another Go than the pins': by default the program is compiled and not pinned; where pins are required, the Go of the
// pins is asked for, and nothing is compiled without it.
func TestPinsOfAnotherGo(t *testing.T) {
	b, progress := newBuilder(t, tinyAssets(tiny))
	c := tinyComponent()
	pin := lock.Pin{Component: "tiny", File: "one", Version: "v1.2.3", Arch: runtime.GOARCH, Go: "go1.999.9", Digest: "sha256:" + strings.Repeat("0", 64)}
	c.Pins = []lock.Pin{pin}
	_, pins, err := b.Build(t.Context(), c)
	if err != nil || len(c.Unpinned(pins)) != 1 {
		t.Errorf("%v, %v", pins, err)
	}
	strict := &Builder{Assets: b.Assets, Cache: b.Cache, Arch: b.Arch, Started: progress.start, RequirePins: true}
	t.Setenv("GOPROXY", "off")
	compiled := len(progress.started)
	for name, test := range map[string]struct {
		pins []lock.Pin
		want string
	}{
		"none":             {nil, "the lock pins no program of tiny v1.2.3 for " + runtime.GOARCH},
		"of another Go":    {[]lock.Pin{pin}, "the lock's pins are of go1.999.9, and the installed Go cannot fetch it"},
		"of other C tools": {[]lock.Pin{{Component: "tiny", File: "two", Version: "v1.2.3", Arch: runtime.GOARCH, C: "c0ffee", Digest: pin.Digest}}, "the lock pins no digest of it as it is compiled here"},
	} {
		c.Pins = test.pins
		if _, _, err := strict.Build(t.Context(), c); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: the error does not say %q: %v", name, test.want, err)
		}
	}
	if len(progress.started) != compiled {
		t.Errorf("compiled without a pin: %q", progress.started)
	}
	c.Pins = pins
	if _, _, err := strict.Build(t.Context(), c); err != nil {
		t.Errorf("with a pin of the installed Go: %v", err)
	}
}
