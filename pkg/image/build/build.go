// Package build compiles components from Go modules, in the versions that a lock names. The assets have an archive for
// each component with its go.mod and go.sum.
//
// Its rule: builds are reproducible: the result depends on the lock, the archive and the tools, and on nothing else of
// this machine. Results are cached by everything that they depend on.
package build

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
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/cache"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// kindPause is the lock.Program.Kind of the pause image; "" is a Go program.
const kindPause = "pause"

// Builder compiles components. It is safe for concurrent use; one build runs at a time, since the compiler uses every
// core itself.
type Builder struct {
	// Assets has the module archives (images.FS).
	Assets fs.FS
	// Cache stores the results.
	Cache *cache.Cache
	// Arch is a GOARCH.
	Arch string
	// RequirePins refuses a program whose digest the lock does not pin, and compiles with the Go version of the lock's
	// pins: Go fetches that from its module proxy, and its checksum database vouches for it.
	RequirePins bool
	// Started, if not nil, is called at the start of each compilation; the function that it returns, at the end.
	Started func(what string) (done func(error))
	// Log may be nil.
	Log *slog.Logger

	// anew compiles programs that are not pinned even if the cache has them.
	anew bool
	// building is held by the build that runs; that of another builder, where this one was made of it.
	building sync.Mutex
	of       *Builder
}

// Anew returns a builder that compiles a program again, unless the cache has what the lock pins.
func (b *Builder) Anew() *Builder {
	return &Builder{Assets: b.Assets, Cache: b.Cache, Arch: b.Arch, RequirePins: b.RequirePins, Started: b.Started, Log: b.Log, anew: true, of: cmp.Or(b.of, b)}
}

// Build compiles every program of the component, or takes it from the cache, and returns the component's paths in the
// image, and what each program came to. A cancelled build leaves nothing behind.
func (b *Builder) Build(ctx context.Context, c lock.Component) (entries []rootfs.Entry, pins []lock.Pin, err error) {
	first := cmp.Or(b.of, b)
	first.building.Lock()
	defer first.building.Unlock()
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	j, err := b.job(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	if err := j.tools.supports(j.source); err != nil {
		return nil, nil, err
	}
	for _, p := range c.Modules.Programs {
		built, pin, err := b.program(ctx, j.forProgram(p))
		if err != nil {
			return nil, nil, err
		}
		placed, err := b.place(c, p, built)
		if err != nil {
			return nil, nil, err
		}
		entries, pins = append(entries, placed...), append(pins, pin)
	}
	slices.SortFunc(entries, func(a, b rootfs.Entry) int { return cmp.Compare(a.Path, b.Path) })
	return entries, pins, nil
}

// Link returns the paths of a component whose files are all within programs of hosts, compiled components: links to those. An
// error says that a host has another version of it.
func (b *Builder) Link(c lock.Component, hosts []lock.Component) ([]rootfs.Entry, error) {
	for _, host := range hosts {
		if _, err := readSource(b.Assets, c.CompiledWith(host)); err != nil {
			return nil, fmt.Errorf("%s %s within the programs of %s: %w", c.Name, c.Version, host.Name, err)
		}
	}
	var entries []rootfs.Entry
	for _, f := range c.Files {
		entries = append(entries, link(c, f, f.Within))
	}
	return entries, nil
}

// link returns the entry of a file that is a name of a program.
func link(c lock.Component, f lock.File, program string) rootfs.Entry {
	return rootfs.Entry{Path: f.Path, Mode: fs.ModeSymlink | 0o777, Link: lock.RelativeLink(f.Path, program), Component: c.Name}
}

func (b *Builder) log() *slog.Logger {
	if b.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return b.Log
}

// job is a program to build, with everything that its bytes depend on.
type job struct {
	component lock.Component
	program   lock.Program
	source    source
	arch      string
	tools     toolchain
}

// job returns the component's job, without a program yet.
func (b *Builder) job(ctx context.Context, c lock.Component) (job, error) {
	source, err := readSource(b.Assets, c)
	if err != nil {
		return job{}, err
	}
	asked := ""
	if b.RequirePins {
		if asked, err = pinnedGo(c, b.Arch); err != nil {
			return job{}, err
		}
	}
	tools, err := findToolchain(ctx, b.Arch, asked)
	return job{component: c, source: source, arch: b.Arch, tools: tools}, err
}

// forProgram returns the job for one of the component's programs.
func (j job) forProgram(p lock.Program) job {
	j.program = p
	return j
}

// Built reports whether the cache has every program of the component, so that Build would compile nothing.
func (b *Builder) Built(ctx context.Context, c lock.Component) (bool, error) {
	if c.Modules == nil {
		return false, nil
	}
	j, err := b.job(ctx, c)
	if err != nil {
		return false, err
	}
	for _, p := range c.Modules.Programs {
		j := j.forProgram(p)
		key, pin, err := j.key(ctx)
		if err != nil {
			return false, err
		}
		if _, ok := b.cached(ctx, key, c.PinOf(pin)); !ok {
			return false, nil
		}
	}
	return true, nil
}

// cached returns the program from the cache: by the lock's pin, or by the index if there is none.
func (b *Builder) cached(ctx context.Context, key, pin string) (cache.Blob, bool) {
	if pin != "" {
		return b.Cache.Find(ctx, pin)
	}
	known, ok := b.Cache.Lookup(key)
	return known, ok && b.Cache.Intact(ctx, known)
}

// name returns the program's name for messages.
func (j job) name() string { return strings.Join(j.program.Names, ", ") }

// program returns the built program from the cache, after compiling it if necessary, and what it came to. Only one
// process builds a program; others wait for it.
func (b *Builder) program(ctx context.Context, j job) (cache.Blob, lock.Pin, error) {
	key, pin, err := j.key(ctx)
	if err != nil {
		return cache.Blob{}, pin, fmt.Errorf("%s: %w", j.name(), err)
	}
	want := j.component.PinOf(pin)
	if want == "" && b.RequirePins {
		return cache.Blob{}, pin, fmt.Errorf("%s: the lock pins no digest of it as it is compiled here (%s): take the pins as they are said to be,"+
			" or use the source %s; `hardtack lock pin` writes pins", j.name(), pin, lock.FromRelease)
	}
	before := func() (cache.Blob, bool) {
		built, ok := b.cached(ctx, key, want)
		return built, ok && (want != "" || !b.anew)
	}
	built, ok := before()
	if !ok {
		// Only who has to compile waits for who compiles: lock pin does so for minutes though the cache has the program.
		unlock, err := b.Cache.Lock(ctx, key, func() {
			b.log().Info("waiting for another process, which builds the same", "component", j.component.Name, "version", j.component.Version, "programs", j.name())
		})
		if err != nil {
			return cache.Blob{}, pin, err
		}
		defer unlock()
		built, ok = before()
	}
	if ok {
		b.log().Debug("program was built before", "program", j.name(), "digest", built.Digest, "pinned", want != "")
		pin.Digest = "sha256:" + built.Digest
		return built, pin, nil
	}
	if built, err = b.announce(ctx, j); err != nil {
		return cache.Blob{}, pin, fmt.Errorf("%s: %w", j.name(), err)
	}
	pin.Digest = "sha256:" + built.Digest
	if want != "" && want != pin.Digest {
		return cache.Blob{}, pin, mismatch(j, pin, want)
	}
	return built, pin, b.Cache.Remember(key, built)
}

// mismatch is the error for a program that came out differently than the lock says.
func mismatch(j job, got lock.Pin, want string) error {
	return fmt.Errorf("%s: compiled here it is %s, but the lock pins %s of it (%s)."+
		" The same inputs give the same bytes, so one of them is another: if %s or the build itself was changed, `hardtack lock pin` writes new pins;"+
		" otherwise see whether this Go is go.dev's own and its caches are intact (go clean -cache -modcache)",
		j.name(), got.Digest, want, got, j.source.name)
}

// announce compiles the program, and says so.
func (b *Builder) announce(ctx context.Context, j job) (cache.Blob, error) {
	began := time.Now()
	b.log().Info("building from modules", "component", j.component.Name, "version", j.component.Version, "programs", j.name(), "arch", j.arch)
	done := func(error) {}
	if b.Started != nil {
		done = b.Started(fmt.Sprintf("building %s %s", j.component.Name, j.component.Version))
	}
	built, err := b.compile(ctx, j)
	done(err)
	if err == nil {
		b.log().Info("built", "programs", j.name(), "bytes", built.Size, "took", time.Since(began).Round(time.Millisecond))
	}
	return built, err
}

// compile builds the program in a temporary directory, which is always removed, and moves the result into the cache.
func (b *Builder) compile(ctx context.Context, j job) (built cache.Blob, err error) {
	dir, err := b.Cache.MakeBuildDir()
	if err != nil {
		return cache.Blob{}, err
	}
	defer func() {
		if e := os.RemoveAll(dir); e != nil {
			b.log().Warn("removing a build directory", "dir", dir, "error", e)
		}
	}()
	w := workspace{dir: filepath.Join(dir, "src"), out: filepath.Join(dir, "out"), tmp: filepath.Join(dir, "tmp")}
	if err := errors.Join(j.source.extract(w.dir), os.Mkdir(w.tmp, 0o755)); err != nil {
		return cache.Blob{}, err
	}
	if j.program.Kind == kindPause {
		err = j.buildPause(ctx, w)
	} else {
		err = j.buildGo(ctx, w)
	}
	if err != nil {
		return cache.Blob{}, err
	}
	s, err := cache.Sum(ctx, w.out, "")
	if err != nil {
		return cache.Blob{}, err
	}
	return s.Blob, b.Cache.Adopt(w.out, s.Blob)
}

// workspace is the directory of one build: the extracted module, the output file, and a directory for the
// compiler's temporary files, so that a cancelled build removes them too.
type workspace struct{ dir, out, tmp string }

// buildGo runs the Go compiler. Its output is only in the error.
func (j job) buildGo(ctx context.Context, w workspace) error {
	args := []string{"build", "-o", w.out, "-ldflags", j.ldflags()}
	if len(j.program.Tags) > 0 {
		args = append(args, "-tags", strings.Join(j.program.Tags, ","))
	}
	for _, f := range j.program.GCFlags {
		args = append(args, "-gcflags", f)
	}
	if err := j.copyMains(ctx, w); err != nil {
		return err
	}
	err := run.Run(ctx, run.Command{
		Name: j.tools.goCommand, Args: append(args, j.program.Package),
		Dir: w.dir, Env: j.tools.environment(j.program, w),
	})
	return j.tools.explain(err)
}

// ldflags strips debug information, and the build id, which differs between identical builds.
func (j job) ldflags() string {
	flags := []string{"-s", "-w", "-buildid="}
	for _, f := range j.program.LDFlags {
		flags = append(flags, strings.ReplaceAll(f, "{{.Version}}", j.component.Version))
	}
	return strings.Join(flags, " ")
}

// place returns the program's entries in the image.
func (b *Builder) place(c lock.Component, p lock.Program, built cache.Blob) ([]rootfs.Entry, error) {
	var entries []rootfs.Entry
	if p.Path != "" {
		file := lock.File{Path: p.Path, Mode: lock.ProgramMode}
		entries = append(entries, b.Cache.Entry(c.Name, file, built))
	}
	for _, name := range p.Names {
		file, ok := c.File(name)
		if !ok {
			return nil, fmt.Errorf("program %s serves %q, which is none of the component's files", p.Package, name)
		}
		if p.Path == "" {
			entries = append(entries, b.Cache.Entry(c.Name, file, built))
			continue
		}
		entries = append(entries, link(c, file, p.Path))
	}
	return entries, nil
}
