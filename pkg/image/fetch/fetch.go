// Package fetch fetches the files of a lock's components: upstream's releases, or builds of the same versions from Go
// modules (pkg/image/build).
//
// Its rule: no file is used, reported or stored in the cache under its final name before it is verified against the lock.
//
// # The mirror
//
// A mirror is the base of an https:// or http:// address, or a directory. Either way the file at
// https://HOST/PATH is at MIRROR/HOST/PATH, signatures and certificates included, and with a mirror
// no other server is contacted. The same rule holds for oci:// downloads, whose addresses are those of the
// registry protocol: MIRROR/HOST/v2/REPOSITORY/manifests/DIGEST and MIRROR/HOST/v2/REPOSITORY/blobs/DIGEST,
// so that plain files are enough.
//
// # The cache
//
// The files of pkg/image/cache, by the lock's digests, and also:
//
//	partial/…             interrupted downloads, to be resumed
//	signatures/HEX.*      signatures and certificates of blobs, once they have been verified
//
// What the lock has no digest of is derived from what it has one of whenever it is used: members from their archive, an
// OCI archive from its manifest. Compiled programs are compared with the lock's pins.
//
// Packer's own downloader, go-getter, knows neither such a mirror nor signatures, and so the few lines are ours.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/build"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/cache"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// Source is where components come from.
type Source string

// The sources. Auto uses Release, or Modules if the release is unavailable. A release that differs from the lock is
// an error for all of them, and never replaced by a build.
const (
	Release Source = lock.FromRelease
	Modules Source = lock.FromModules
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

// Options configure a Fetcher. Every zero value is usable, except that Modules needs Assets.
type Options struct {
	// Assets has the module archives of the lock (images.FS).
	Assets fs.FS
	// Cache is the cache's directory; "" is hardtack in the user's cache directory.
	Cache string
	// Mirror is an http(s) address or a directory; "" means upstream.
	Mirror string
	// NoPlainHTTP refuses plain http to other machines than this one, mirrors and redirects included. Files that the lock
	// has a digest of need it not; to believe a digest that is fetched does.
	NoPlainHTTP bool
	// Source is Auto if empty.
	Source Source
	// Arch is a GOARCH of lock.Architectures; "" means this program's.
	Arch string
	// RequirePins refuses to compile what the lock does not pin, and compiles with the Go that it pins (build.Builder).
	RequirePins bool
	// Progress shows transfers and builds; nil shows nothing.
	Progress Progress
	// Log receives retries and their reasons; nil discards them.
	Log *slog.Logger
	// Trust has the root certificates for signatures; nil means the public Sigstore instance.
	Trust *Trust
	// Transport sends the requests; nil means the package's own, with timeouts.
	Transport http.RoundTripper
}

// Result is one fetched component.
type Result struct {
	Component string `json:"component"`
	Version   string `json:"version"`
	// Source is the source that was used: Release or Modules.
	Source Source `json:"source"`
	// Origin is the host of the release, its mirror, or the module.
	Origin string `json:"origin"`
	// Fallback is the reason, in one line, why Auto did not use the release; else empty.
	Fallback string `json:"fallback,omitempty"`
	// Entries are the component's entries in the image.
	Entries []rootfs.Entry `json:"entries"`
	// Within are the components whose programs serve this one's files, as lock.File.Within says; none has pins of its own then.
	Within []string `json:"within,omitempty"`
	// Pins are what the files that were made here came to: members of archives and compiled programs.
	Pins []lock.Pin `json:"pins,omitempty"`
	// Unpinned are those of Pins that the lock does not have.
	Unpinned []lock.Pin `json:"unpinned,omitempty"`
}

// parallel is the number of components fetched at once: enough to overlap the servers' latency, few enough to leave
// each some bandwidth.
const parallel = 4

// builder builds a component from Go modules, and reports whether that was done before.
type builder interface {
	Build(ctx context.Context, c lock.Component) ([]rootfs.Entry, []lock.Pin, error)
	Built(ctx context.Context, c lock.Component) (bool, error)
	Link(c lock.Component, hosts []lock.Component) ([]rootfs.Entry, error)
}

// Fetcher fetches components. It is safe for concurrent use.
type Fetcher struct {
	source  Source
	arch    string
	mirror  string
	log     *slog.Logger
	cache   *cache.Cache
	client  *client
	trust   *Trust
	builder builder
	// thorough is set by Verify.
	thorough bool
}

// New validates the options and creates the cache's directory.
func New(o Options) (*Fetcher, error) {
	source, err := ParseSource(string(o.Source))
	if err != nil {
		return nil, err
	}
	if o.Arch == "" {
		o.Arch = runtime.GOARCH
	}
	if !slices.Contains(lock.Architectures(), o.Arch) {
		return nil, fmt.Errorf("architecture %q is not one of %s", o.Arch, strings.Join(lock.Architectures(), ", "))
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
	store, err := cache.Open(o.Cache)
	if err != nil {
		return nil, err
	}
	if o.Transport == nil {
		o.Transport = newTransport()
	}
	if o.NoPlainHTTP {
		if err := vouchedFor(o.Mirror); err != nil {
			return nil, err
		}
		o.Transport = vouched{o.Transport}
	}
	transport, err := mirrorTransport(o.Mirror, steady{o.Transport})
	if err != nil {
		return nil, err
	}
	return &Fetcher{
		source: source, arch: o.Arch, mirror: o.Mirror, log: o.Log, trust: o.Trust,
		cache:  store,
		client: newClient(transport, o.Mirror, o.Progress, o.Log),
		builder: &build.Builder{Assets: o.Assets, Cache: store, Arch: o.Arch, RequirePins: o.RequirePins, Log: o.Log,
			Started: func(what string) func(error) { return o.Progress.Start(what, 0).Done }},
	}, nil
}

// All fetches every component of the lock in parallel, and returns them in the lock's order. The first error cancels
// the others. A component that may be within programs of others waits for those, unless it comes from its release.
func (f *Fetcher) All(ctx context.Context, l *lock.Lock) ([]Result, error) {
	results := make([]Result, len(l.Components))
	group, going := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, c := range l.Components {
		group.Go(func() (err error) {
			if results[i], err = f.fromRelease(going, c); err != nil || results[i].Source == Release || f.joins(c) {
				return err
			}
			return f.build(going, c, &results[i])
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, c := range l.Components {
		if results[i].Source != "" {
			continue
		}
		if err := f.link(ctx, l, i, results); err != nil {
			return nil, fmt.Errorf("%s %s: %w", c.Name, c.Version, err)
		}
	}
	return results, nil
}

// joins reports whether the component may be within programs of others.
func (f *Fetcher) joins(c lock.Component) bool {
	return c.Modules != nil && c.Within(func(string) bool { return true })
}

// link makes a component, the lock's i-th, links to the programs of others that it is within, if all of those were compiled. Else
// it is built as any other.
func (f *Fetcher) link(ctx context.Context, l *lock.Lock, i int, results []Result) error {
	c, result := l.Components[i], &results[i]
	hosts := map[string]lock.Component{}
	for i, host := range l.Components {
		for _, e := range results[i].Entries {
			if results[i].Source == Modules && e.Mode.IsRegular() {
				hosts[e.Path] = host
			}
		}
	}
	if !c.Within(func(program string) bool { _, there := hosts[program]; return there }) {
		return f.build(ctx, c, result)
	}
	var compiled []lock.Component
	for _, file := range c.Files {
		if host := hosts[file.Within]; !slices.Contains(result.Within, host.Name) {
			result.Within, compiled = append(result.Within, host.Name), append(compiled, host)
		}
	}
	result.Source, result.Origin = Modules, c.Modules.Module
	var err error
	result.Entries, err = f.builder.Link(c, compiled)
	return err
}

// Get fetches one component from the fetcher's source, as if there were no others. Its files are then in the cache, verified.
func (f *Fetcher) Get(ctx context.Context, c lock.Component) (Result, error) {
	result, err := f.fromRelease(ctx, c)
	if err == nil && result.Source == "" {
		err = f.build(ctx, c, &result)
	}
	if err != nil {
		return Result{}, err
	}
	return result, nil
}

// fromRelease fetches the component's release. The result has no source yet if it has to come from modules: because the
// fetcher's source is Modules, or because Auto cannot get the release.
func (f *Fetcher) fromRelease(ctx context.Context, c lock.Component) (Result, error) {
	result := Result{Component: c.Name, Version: c.Version}
	if f.source == Modules {
		return result, nil
	}
	began := time.Now()
	entries, pins, err := f.release(ctx, c)
	if err == nil {
		result.Source, result.Origin, result.Entries, result.Pins, result.Unpinned = Release, f.origin(c), entries, pins, c.Unpinned(pins)
		f.log.Debug("component is here", "component", c.Name, "version", c.Version, "source", Release, "took", time.Since(began))
		return result, nil
	}
	err = fmt.Errorf("fetching %s %s: %w", c.Name, c.Version, err)
	var missing *UnavailableError
	switch {
	case !errors.As(err, &missing) || ctx.Err() != nil:
		return Result{}, err
	case f.source == Release && len(c.Release[f.arch]) == 0 && c.Modules != nil:
		return Result{}, fmt.Errorf("%w (the source %s builds it from modules)", err, Auto)
	case f.source == Release:
		return Result{}, err
	case c.Modules == nil:
		return Result{}, fmt.Errorf("%w; the lock has no modules for it to be built from", err)
	}
	result.Fallback = missing.line()
	f.log.Warn("release unavailable, building from modules", "component", c.Name, "version", c.Version, "why", result.Fallback)
	return result, nil
}

// build builds the component from modules into the result.
func (f *Fetcher) build(ctx context.Context, c lock.Component, result *Result) error {
	entries, pins, err := f.modules(ctx, c)
	if err != nil {
		return err
	}
	result.Source, result.Origin, result.Entries, result.Pins, result.Unpinned = Modules, c.Modules.Module, entries, pins, c.Unpinned(pins)
	for _, p := range result.Unpinned {
		f.log.Info("compiled program is not pinned by the lock", "program", p)
	}
	return nil
}

// modules builds the component.
func (f *Fetcher) modules(ctx context.Context, c lock.Component) ([]rootfs.Entry, []lock.Pin, error) {
	if c.Modules == nil {
		return nil, nil, fmt.Errorf("building %s %s: the lock has no modules for it (use the source %s)", c.Name, c.Version, Release)
	}
	entries, pins, err := f.builder.Build(ctx, c)
	if err != nil {
		return nil, nil, fmt.Errorf("building %s %s: %w", c.Name, c.Version, err)
	}
	return entries, pins, nil
}

// Built reports whether the cache has every program of the component as built from modules, so that Get with the
// source Modules would compile nothing.
func (f *Fetcher) Built(ctx context.Context, c lock.Component) (bool, error) {
	return f.builder.Built(ctx, c)
}
