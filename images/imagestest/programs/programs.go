// Package programs installs components of the locks for tests that run the real programs.
package programs

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/fetch"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// Bin is the directory of the programs in an image, without the first slash.
const Bin = "usr/bin"

// DefaultLock reads the lock that images are baked from if none is named.
func DefaultLock(tb testing.TB) *lock.Lock {
	tb.Helper()
	return Lock(tb, bake.DefaultLock)
}

// Lock reads the named lock.
func Lock(tb testing.TB, name string) *lock.Lock {
	tb.Helper()
	path := name + ".lock.yaml"
	data, err := fs.ReadFile(images.FS, path)
	if err != nil {
		tb.Fatal(err)
	}
	l, problems := lock.Parse(path, data)
	if err := problems.Err(); err != nil {
		tb.Fatal(err)
	}
	return l
}

// NeedBuilt skips the test if a component of the lock is not in the cache, since building it takes minutes. One that is within
// programs of the others has not to be there.
func NeedBuilt(tb testing.TB, l *lock.Lock, components ...string) {
	tb.Helper()
	some := part(tb, l, components)
	for _, c := range some.Components {
		if c.Within(some.compiles) {
			continue
		}
		built, err := fetcher(tb, images.FS).Built(tb.Context(), c)
		if err != nil {
			tb.Fatal(err)
		}
		if !built {
			tb.Skipf("%s %s is not built: run hardtack lock verify --source modules --lock %s", c.Name, c.Version, l.Name)
		}
	}
}

// Install puts components of the lock into a root directory, as an image has them that has no others. It builds those that are
// not in the cache. Files that are there already are replaced.
func Install(tb testing.TB, root string, l *lock.Lock, components ...string) {
	tb.Helper()
	some := part(tb, l, components)
	place(tb, root, images.FS, &some.Lock)
}

// partial is a lock of a few components.
type partial struct{ lock.Lock }

func part(tb testing.TB, l *lock.Lock, components []string) partial {
	tb.Helper()
	some := partial{lock.Lock{Schema: l.Schema, Name: l.Name}}
	for _, name := range components {
		some.Components = append(some.Components, component(tb, l, name))
	}
	return some
}

// compiles reports whether a component of the lock has the program.
func (p partial) compiles(program string) bool {
	return slices.ContainsFunc(p.Components, func(c lock.Component) bool {
		return c.Modules != nil && slices.ContainsFunc(c.Modules.Programs, func(p lock.Program) bool { return p.Path == program })
	})
}

// InstallFrom puts a component into a root directory as Install does, compiled from another archive of modules than the lock's,
// of another version.
func InstallFrom(tb testing.TB, root string, l *lock.Lock, name, version string, archive []byte) {
	tb.Helper()
	c := component(tb, l, name)
	modules := *c.Modules
	modules.Source = "modules/other.txtar"
	c.Version, c.Release, c.Pins, c.Modules = version, nil, nil, &modules
	place(tb, root, fstest.MapFS{modules.Source: {Data: archive}}, &lock.Lock{Components: []lock.Component{c}})
}

func place(tb testing.TB, root string, assets fs.FS, l *lock.Lock) {
	tb.Helper()
	results, err := fetcher(tb, assets).All(tb.Context(), l)
	if err != nil {
		tb.Fatal(err)
	}
	for _, result := range results {
		for _, e := range result.Entries {
			if err := install(root, e); err != nil {
				tb.Fatal(err)
			}
		}
	}
}

func component(tb testing.TB, l *lock.Lock, name string) lock.Component {
	tb.Helper()
	c, ok := l.Component(name)
	if !ok {
		tb.Fatalf("the lock %s has no component %s", l.Name, name)
	}
	return c
}

func fetcher(tb testing.TB, assets fs.FS) *fetch.Fetcher {
	tb.Helper()
	f, err := fetch.New(fetch.Options{Assets: assets, Source: fetch.Modules, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func install(root string, e rootfs.Entry) error {
	to := filepath.Join(root, e.Path)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil || e.Mode.IsDir() {
		return err
	}
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if e.Link != "" {
		return os.Symlink(e.Link, to)
	}
	content, err := e.Open()
	if err != nil {
		return err
	}
	return errors.Join(file.WriteProgram(to, content), content.Close())
}
