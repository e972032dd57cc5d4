// Package fetch brings the files of a lock's components onto this machine: upstream's own releases,
// or builds of the same versions from Go modules.
//
// Its rule: nothing is used, shown or left in the cache under its name before it is what the lock
// says it is, byte for byte.
//
// # The mirror
//
// A mirror is the base of an https:// or http:// address, or a directory. Either way the file at
// https://HOST/PATH is at MIRROR/HOST/PATH, signatures and certificates included, and with a mirror
// nothing else is asked. The same rule holds for oci:// downloads, whose addresses are those of the
// registry protocol: MIRROR/HOST/v2/REPOSITORY/manifests/DIGEST and MIRROR/HOST/v2/REPOSITORY/blobs/DIGEST,
// so that plain files are enough.
//
// # The cache
//
//	blobs/sha256/HEX      content by its sha256
//	index/ALG-HEX.json    what a digest of the lock is: its content's sha256 and its members'
//	partial/…             downloads that were cut, to be resumed
//	signatures/HEX.*      signatures and certificates of blobs, once they have been verified
//	locks/…               held while one process downloads what others wait for
//	modules/…             what builds from Go modules keep
package fetch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hardtack/packer-plugin-hardtack/pkg/component"
	"github.com/hardtack/packer-plugin-hardtack/pkg/rootfs"
)

// Source says where components come from.
type Source string

// The sources. Auto takes Release where it can be had, else Modules. A release that arrives but is
// not what the lock says is an error for all of them: it is never replaced in silence.
const (
	Release Source = component.FromRelease
	Modules Source = component.FromModules
	Auto    Source = "auto"
)

// ParseSource returns the source of that name; "" is Auto.
func ParseSource(name string) (Source, error) {
	switch s := Source(name); s {
	case "":
		return Auto, nil
	case Release, Modules, Auto:
		return s, nil
	}
	return "", fmt.Errorf("source %q is not one of %s, %s, %s", name, Release, Modules, Auto)
}

// Options is what a Fetcher needs. Every zero value is usable but that of Assets, which Modules needs.
type Options struct {
	// Assets holds the module archives of the lock (images.FS).
	Assets fs.FS
	// Cache is the directory of the cache; "" is hardtack in the user's cache directory.
	Cache string
	// Mirror is an http(s) address or a directory; "" is upstream itself.
	Mirror string
	// Source is Auto when empty.
	Source Source
	// Arch is a GOARCH of component.Architectures; "" is that of this program.
	Arch string
	// Progress is told about transfers and builds; nil means nobody is.
	Progress Progress
	// Log is told what is retried and why; nil means nobody is.
	Log *slog.Logger
	// Trust holds the roots for signatures; nil means the public Sigstore instance.
	Trust *Trust
	// Transport carries the requests; nil means one of the package's own, with timeouts.
	Transport http.RoundTripper
}

// Result is one component, brought here.
type Result struct {
	Component string `json:"component"`
	Version   string `json:"version"`
	// Source is Release or Modules: what was really used.
	Source Source `json:"source"`
	// Origin names the release's host or mirror, or the module.
	Origin string `json:"origin"`
	// Fallback is the one line that says why the release was not used; empty when it was, or when it
	// was not asked for.
	Fallback string `json:"fallback,omitempty"`
	// Entries are the component's paths in the image.
	Entries []rootfs.Entry `json:"entries"`
}

// parallel is how many components are brought at once: enough to overlap waiting for servers, few
// enough to leave each a share of the line.
const parallel = 4

// maker builds a component from Go modules. It is told to stop by the context, leaves nothing half
// made, and returns the same entries for the same component.
type maker interface {
	build(ctx context.Context, c component.Component) ([]rootfs.Entry, error)
}

// Fetcher brings components. It may be used from several goroutines.
type Fetcher struct {
	source  Source
	arch    string
	mirror  string
	log     *slog.Logger
	cache   *cache
	client  *client
	trust   *Trust
	builder maker
	// building is held by the one build that runs: the compiler uses every core by itself.
	building chan struct{}
	// thorough is set by Verify.
	thorough bool
}

// New checks the options and makes the cache's directory.
func New(o Options) (*Fetcher, error) {
	source, err := ParseSource(string(o.Source))
	if err != nil {
		return nil, err
	}
	if o.Arch == "" {
		o.Arch = runtime.GOARCH
	}
	if !slices.Contains(component.Architectures(), o.Arch) {
		return nil, fmt.Errorf("architecture %q is not one of %s", o.Arch, strings.Join(component.Architectures(), ", "))
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Progress == nil {
		o.Progress = silent{}
	}
	if o.Trust == nil {
		if o.Trust, err = PublicTrust(); err != nil {
			return nil, err
		}
	}
	dir, err := cacheDir(o.Cache)
	if err != nil {
		return nil, err
	}
	transport, err := mirrorTransport(o.Mirror, o.Transport)
	if err != nil {
		return nil, err
	}
	return &Fetcher{
		source: source, arch: o.Arch, mirror: o.Mirror, log: o.Log, trust: o.Trust,
		cache:    &cache{dir: dir},
		client:   newClient(transport, o.Mirror, o.Progress, o.Log),
		builder:  &builder{assets: o.Assets, cache: dir, arch: o.Arch, progress: o.Progress, log: o.Log},
		building: make(chan struct{}, 1),
	}, nil
}

// cacheDir returns the absolute cache directory and makes it.
func cacheDir(dir string) (string, error) {
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("finding the user's cache directory (name one instead): %w", err)
		}
		dir = filepath.Join(user, "hardtack")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("cache directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making the cache directory: %w", err)
	}
	return dir, nil
}

// All brings every component of the lock, several at once, and returns them in the lock's order. The
// first error ends the others.
func (f *Fetcher) All(ctx context.Context, l *component.Lock) ([]Result, error) {
	results := make([]Result, len(l.Components))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, c := range l.Components {
		group.Go(func() error {
			r, err := f.Get(ctx, c)
			results[i] = r
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return results, nil
}

// Get brings one component from the fetcher's source. Its files are in the cache afterwards, verified.
func (f *Fetcher) Get(ctx context.Context, c component.Component) (Result, error) {
	result := Result{Component: c.Name, Version: c.Version}
	if f.source != Modules {
		began := time.Now()
		entries, err := f.release(ctx, c)
		if err == nil {
			result.Source, result.Origin, result.Entries = Release, f.origin(c), entries
			f.log.Debug("component is here", "component", c.Name, "version", c.Version, "source", Release, "took", time.Since(began))
			return result, nil
		}
		err = fmt.Errorf("fetching %s %s: %w", c.Name, c.Version, err)
		var missing *unavailableError
		if !errors.As(err, &missing) || ctx.Err() != nil {
			return Result{}, err
		}
		if f.source == Release {
			if len(c.Release[f.arch]) == 0 && c.Modules != nil {
				err = fmt.Errorf("%w (the source %s builds it from modules)", err, Auto)
			}
			return Result{}, err
		}
		if c.Modules == nil {
			return Result{}, fmt.Errorf("%w; the lock has no modules for it to be built from", err)
		}
		result.Fallback = missing.line()
		f.log.Warn("release cannot be had, building from modules", "component", c.Name, "version", c.Version, "why", result.Fallback)
	}
	entries, err := f.modules(ctx, c)
	if err != nil {
		return Result{}, err
	}
	result.Source, result.Origin, result.Entries = Modules, c.Modules.Module, entries
	return result, nil
}

// modules builds the component; one build at a time.
func (f *Fetcher) modules(ctx context.Context, c component.Component) ([]rootfs.Entry, error) {
	if c.Modules == nil {
		return nil, fmt.Errorf("building %s %s: the lock has no modules for it (use the source %s)", c.Name, c.Version, Release)
	}
	select {
	case f.building <- struct{}{}:
		defer func() { <-f.building }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	entries, err := f.builder.build(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("building %s %s: %w", c.Name, c.Version, err)
	}
	return entries, nil
}
