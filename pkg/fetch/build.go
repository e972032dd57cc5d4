package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/component"
	"github.com/hardtack/packer-plugin-hardtack/pkg/rootfs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/run"
)

// kindPause is the component.Program.Kind of the pause image; "" is a Go program.
const kindPause = "pause"

// builder compiles components from Go modules. What it has built once, it finds again by everything
// that decides the result's bytes.
type builder struct {
	assets   fs.FS
	cache    string
	arch     string
	progress Progress
	log      *slog.Logger
}

// build compiles every program of the component, or finds it in the cache, and returns the component's
// paths in the image.
func (b *builder) build(ctx context.Context, c component.Component) ([]rootfs.Entry, error) {
	source, err := readSource(b.assets, c)
	if err != nil {
		return nil, err
	}
	tools, err := findToolchain(ctx, b.arch)
	if err != nil {
		return nil, err
	}
	if err := tools.fits(source); err != nil {
		return nil, err
	}
	var entries []rootfs.Entry
	for _, p := range c.Modules.Programs {
		job := job{component: c, program: p, source: source, arch: b.arch, tools: tools}
		built, err := b.program(ctx, job)
		if err != nil {
			return nil, err
		}
		placed, err := b.place(c, p, built)
		if err != nil {
			return nil, err
		}
		entries = append(entries, placed...)
	}
	slices.SortFunc(entries, func(a, b rootfs.Entry) int { return cmp.Compare(a.Path, b.Path) })
	return entries, nil
}

// job is one program to be built, with all that decides its bytes.
type job struct {
	component component.Component
	program   component.Program
	source    source
	arch      string
	tools     toolchain
}

// name is how messages call the program.
func (j job) name() string { return strings.Join(j.program.Names, ", ") }

// program returns the built program, compiling it unless the cache has it. Only one process at a time
// builds the same thing; the others wait and find it.
func (b *builder) program(ctx context.Context, j job) (blob, error) {
	c := &cache{dir: b.cache}
	compilers, err := j.tools.compilers(ctx, j.program)
	if err != nil {
		return blob{}, fmt.Errorf("%s: %w", j.name(), err)
	}
	key, err := j.key(compilers)
	if err != nil {
		return blob{}, err
	}
	unlock, err := c.lock(ctx, key)
	if err != nil {
		return blob{}, err
	}
	defer unlock()
	if known, ok := c.lookup(key); ok && c.intact(ctx, known.blob) {
		b.log.Debug("program was built before", "program", j.name(), "digest", known.Digest)
		return known.blob, nil
	}
	began := time.Now()
	b.log.Info("building from modules", "component", j.component.Name, "version", j.component.Version, "programs", j.name(), "arch", j.arch)
	meter := b.progress.Start(fmt.Sprintf("building %s %s", j.component.Name, j.component.Version), 0)
	built, err := b.compile(ctx, c, j)
	meter.Done(err)
	if err != nil {
		return blob{}, fmt.Errorf("%s: %w", j.name(), err)
	}
	b.log.Info("built", "programs", j.name(), "bytes", built.Size, "took", time.Since(began).Round(time.Millisecond))
	return built, c.remember(key, record{blob: built})
}

// compile builds the program in a directory of its own and moves the result into the cache. The
// directory is removed in any case.
func (b *builder) compile(ctx context.Context, c *cache, j job) (built blob, err error) {
	parent := filepath.Join(b.cache, "modules")
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return blob{}, fmt.Errorf("cache: %w", err)
	}
	dir, err := os.MkdirTemp(parent, "build-*")
	if err != nil {
		return blob{}, fmt.Errorf("cache: %w", err)
	}
	defer func() {
		if e := os.RemoveAll(dir); e != nil {
			b.log.Warn("removing a build directory", "dir", dir, "error", e)
		}
	}()
	w := workspace{dir: filepath.Join(dir, "src"), out: filepath.Join(dir, "out"), tmp: filepath.Join(dir, "tmp")}
	if err := errors.Join(j.source.extract(w.dir), os.Mkdir(w.tmp, 0o755)); err != nil {
		return blob{}, err
	}
	if j.program.Kind == kindPause {
		err = j.buildPause(ctx, w)
	} else {
		err = j.buildGo(ctx, w)
	}
	if err != nil {
		return blob{}, err
	}
	s, err := sum(ctx, w.out, "")
	if err != nil {
		return blob{}, err
	}
	return s.blob, c.adopt(w.out, s.blob)
}

// workspace is where one build happens: the extracted module, the file that it shall make, and a
// directory for the compiler's temporary files, so that they go with the rest when a build is cancelled.
type workspace struct{ dir, out, tmp string }

// buildGo runs the compiler. Its progress goes nowhere; its complaints are in the error.
func (j job) buildGo(ctx context.Context, w workspace) error {
	args := []string{"build", "-o", w.out, "-ldflags", j.ldflags()}
	if len(j.program.Tags) > 0 {
		args = append(args, "-tags", strings.Join(j.program.Tags, ","))
	}
	err := run.Run(ctx, run.Command{
		Name: j.tools.goCommand, Args: append(args, j.program.Package),
		Dir: w.dir, Env: j.tools.environment(j.program, w),
	})
	return j.tools.explain(err)
}

// ldflags strips what nobody debugs in an image, and the build id, which differs where nothing else does.
func (j job) ldflags() string {
	flags := []string{"-s", "-w", "-buildid="}
	for _, f := range j.program.LDFlags {
		flags = append(flags, strings.ReplaceAll(f, "{{.Version}}", j.component.Version))
	}
	return strings.Join(flags, " ")
}

// place returns the paths of the image that the program serves.
func (b *builder) place(c component.Component, p component.Program, built blob) ([]rootfs.Entry, error) {
	store := &cache{dir: b.cache}
	var entries []rootfs.Entry
	if p.Path != "" {
		file := component.File{Path: p.Path, Mode: component.ProgramMode}
		entries = append(entries, store.entry(c.Name, file, built))
	}
	for _, name := range p.Names {
		file, ok := c.File(name)
		if !ok {
			return nil, fmt.Errorf("program %s serves %q, which is none of the component's files", p.Package, name)
		}
		if p.Path == "" {
			entries = append(entries, store.entry(c.Name, file, built))
			continue
		}
		entries = append(entries, rootfs.Entry{
			Path: file.Path, Mode: fs.ModeSymlink | 0o777, Link: component.RelativeLink(file.Path, p.Path), Component: c.Name,
		})
	}
	return entries, nil
}
