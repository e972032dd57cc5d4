package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/build"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/cache"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// Verify fetches the component as Get does, but even what the lock pins is made again: members are extracted from their
// archive, and programs that are not pinned are compiled.
func (f *Fetcher) Verify(ctx context.Context, c lock.Component) (Result, error) {
	thorough := *f
	thorough.thorough = true
	if b, ok := f.builder.(*build.Builder); ok {
		thorough.builder = b.Anew()
	}
	return thorough.Get(ctx, c)
}

// origin returns the host of the component's release, or the mirror.
func (f *Fetcher) origin(c lock.Component) string {
	if f.mirror != "" {
		return f.mirror
	}
	return hostOf(c.Release[f.arch][0].URL)
}

// release fetches the files of the component's release. pins say what the members of its archives came to.
func (f *Fetcher) release(ctx context.Context, c lock.Component) (entries []rootfs.Entry, pins []lock.Pin, err error) {
	downloads := c.Release[f.arch]
	if len(downloads) == 0 {
		return nil, nil, &UnavailableError{"release", fmt.Errorf("the lock has no %s release of it", f.arch)}
	}
	files := map[string]cache.Blob{}
	for _, d := range downloads {
		if strings.HasPrefix(d.URL, ociScheme) {
			files[d.As], err = f.image(ctx, d)
		} else {
			err = f.download(ctx, c, d, files)
		}
		if err != nil {
			return nil, nil, err
		}
		for _, file := range slices.Sorted(maps.Keys(d.Members)) {
			pin := memberPin(c, d, file)
			pin.Digest = "sha256:" + files[file].Digest
			pins = append(pins, pin)
		}
	}
	for _, file := range c.Files {
		b, ok := files[file.Name]
		if !ok {
			return nil, nil, &UnavailableError{"release", fmt.Errorf("the lock's %s release has no %s", f.arch, file.Name)}
		}
		entries = append(entries, f.cache.Entry(c.Name, file, b))
	}
	return entries, pins, nil
}

// memberPin returns the pin of an archive's member, without its digest.
func memberPin(c lock.Component, d lock.Download, file string) lock.Pin {
	return lock.Pin{Component: c.Name, File: file, Archive: d.Digest}
}

// waits says that another process fetches the same.
func (f *Fetcher) waits(d lock.Download) func() {
	return func() {
		f.log.Info("waiting for another process, which fetches the same", "url", d.URL)
	}
}

// download fetches one download and adds its files to files, holding the lock of the download.
func (f *Fetcher) download(ctx context.Context, c lock.Component, d lock.Download, files map[string]cache.Blob) error {
	name := cache.Key(d.Digest)
	unlock, err := f.cache.Lock(ctx, name, f.waits(d))
	if err != nil {
		return err
	}
	defer unlock()
	if f.pinned(ctx, c, d, files) {
		return nil
	}
	b, ok := f.cached(ctx, d, name)
	if !ok {
		if b, err = f.transfer(ctx, d, name); err != nil {
			return err
		}
	}
	if err := f.signature(ctx, d, b); err != nil {
		return err
	}
	if d.As != "" {
		files[d.As] = b
		return f.cache.Remember(name, b)
	}
	// Nobody vouches for an index of members: they are taken out of the archive, which the lock vouches for, each time.
	members, err := extract(ctx, f.cache, d, b)
	if err != nil {
		return err
	}
	for file, member := range members {
		got, want := "sha256:"+member.Digest, c.PinOf(memberPin(c, d, file))
		if want != "" && want != got {
			return &RejectedError{URL: d.Members[file] + " of " + d.URL, What: "digest", Want: want, Got: got,
				Hint: "the archive is what the lock says, so the lock's pin of the member is wrong: `hardtack lock pin` writes it anew"}
		}
		files[file] = member
	}
	return f.cache.Remember(name, b)
}

// pinned adds the members of an archive by the lock's pins; it returns false if one has no pin or is not in the cache.
// The archive itself need not be read.
func (f *Fetcher) pinned(ctx context.Context, c lock.Component, d lock.Download, files map[string]cache.Blob) bool {
	if f.thorough || len(d.Members) == 0 || d.Signature != nil {
		return false
	}
	for file := range d.Members {
		digest := c.PinOf(memberPin(c, d, file))
		if digest == "" {
			return false
		}
		b, ok := f.cache.Find(ctx, digest)
		if !ok {
			return false
		}
		files[file] = b
	}
	return true
}

// cached returns the download from the cache, if it is there and matches the lock.
func (f *Fetcher) cached(ctx context.Context, d lock.Download, name string) (cache.Blob, bool) {
	algorithm, _, _ := strings.Cut(d.Digest, ":")
	if algorithm == "sha256" {
		b, ok := f.cache.Find(ctx, d.Digest)
		return b, ok && (d.Size == 0 || b.Size == d.Size)
	}
	// The index is only a hint: the content is read once more, with the lock's algorithm.
	b, ok := f.cache.Lookup(name)
	if !ok || d.Size > 0 && b.Size != d.Size {
		return cache.Blob{}, false
	}
	s, err := cache.Sum(ctx, f.cache.Path(b), algorithm)
	return s.Blob, err == nil && s.ByLock == d.Digest
}

// transfer downloads the file into the cache. A file with the wrong digest is removed; if a part of it came from an
// earlier run, that part may be the cause, and the file is fetched once more from the start.
func (f *Fetcher) transfer(ctx context.Context, d lock.Download, name string) (cache.Blob, error) {
	path := filepath.Join(f.cache.Dir, "partial", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return cache.Blob{}, fmt.Errorf("cache: %w", err)
	}
	algorithm, _, _ := strings.Cut(d.Digest, ":")
	for {
		t := &transfer{client: f.client, url: d.URL, path: path, size: d.Size}
		if err := t.run(ctx); err != nil {
			return cache.Blob{}, f.explain(err)
		}
		s, err := cache.Sum(ctx, path, algorithm)
		if err != nil {
			return cache.Blob{}, err
		}
		if s.ByLock == d.Digest {
			_ = os.Remove(t.statePath())
			return s.Blob, f.cache.Adopt(path, s.Blob)
		}
		t.discard()
		if !t.resumed {
			return cache.Blob{}, f.explain(&RejectedError{URL: d.URL, What: "digest", Want: d.Digest, Got: s.ByLock,
				Hint: "the lock's digest is from " + d.Published})
		}
		f.log.Warn("a resumed download has the wrong digest, fetching all of it again", "url", d.URL)
	}
}

// explain adds the mirror, if there is one, to an error that names upstream's address.
func (f *Fetcher) explain(err error) error {
	if f.mirror == "" || err == nil {
		return err
	}
	return fmt.Errorf("mirror %s: %w", f.mirror, err)
}

// maxSignature bounds signature and certificate files, in bytes; real ones have about 100 bytes and 4 KiB.
const maxSignature = 64 << 10

// signature verifies upstream's signature over the blob, cached or fetched. A blob whose signature is invalid is
// removed.
func (f *Fetcher) signature(ctx context.Context, d lock.Download, b cache.Blob) error {
	s := d.Signature
	if s == nil {
		return nil
	}
	parts := map[string][]byte{}
	for suffix, address := range map[string]string{".sig": s.URL, ".cert": s.Certificate} {
		data, err := os.ReadFile(f.signaturePath(b, address, suffix))
		if err != nil {
			if data, err = f.client.small(ctx, address, maxSignature); err != nil {
				return f.explain(fmt.Errorf("signature of %s: %w", d.URL, err))
			}
		}
		parts[suffix] = data
	}
	err := f.trust.verify(*s, b.Digest, parts[".sig"], parts[".cert"])
	for suffix, address := range map[string]string{".sig": s.URL, ".cert": s.Certificate} {
		path := f.signaturePath(b, address, suffix)
		if err != nil {
			_ = os.Remove(path)
			continue
		}
		if err := f.cache.Write(path, parts[suffix]); err != nil {
			return err
		}
	}
	if err != nil {
		_ = os.Remove(f.cache.Path(b))
		_ = os.Remove(f.cache.IndexPath(cache.Key(d.Digest)))
		return f.explain(fmt.Errorf("signature of %s: %w", d.URL, err))
	}
	return nil
}

// signaturePath returns the cache path of a signature, which depends on the blob and on the address: a lock that
// names another signature gets that one.
func (f *Fetcher) signaturePath(b cache.Blob, address, suffix string) string {
	sum := sha256.Sum256([]byte(address))
	return filepath.Join(f.cache.Dir, "signatures", b.Digest+"-"+hex.EncodeToString(sum[:4])+suffix)
}
