package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/component"
	"github.com/hardtack/packer-plugin-hardtack/pkg/rootfs"
)

// Verify brings the component as Get does and trusts nothing that the cache remembers: archives are
// checked again by the lock's digest, and their members are taken out again.
func (f *Fetcher) Verify(ctx context.Context, c component.Component) (Result, error) {
	thorough := *f
	thorough.thorough = true
	return thorough.Get(ctx, c)
}

// origin says in a word where the component's release comes from.
func (f *Fetcher) origin(c component.Component) string {
	if f.mirror != "" {
		return f.mirror
	}
	return hostOf(c.Release[f.arch][0].URL)
}

// release brings the files of the component's release.
func (f *Fetcher) release(ctx context.Context, c component.Component) ([]rootfs.Entry, error) {
	downloads := c.Release[f.arch]
	if len(downloads) == 0 {
		return nil, &unavailableError{"release", fmt.Errorf("the lock has no %s release of it", f.arch)}
	}
	files := map[string]blob{}
	for _, d := range downloads {
		var err error
		if strings.HasPrefix(d.URL, ociScheme) {
			files[d.As], err = f.image(ctx, d)
		} else {
			err = f.download(ctx, d, files)
		}
		if err != nil {
			return nil, err
		}
	}
	entries := make([]rootfs.Entry, 0, len(c.Files))
	for _, file := range c.Files {
		b, ok := files[file.Name]
		if !ok {
			return nil, &unavailableError{"release", fmt.Errorf("the lock's %s release has no %s", f.arch, file.Name)}
		}
		entries = append(entries, f.cache.entry(c.Name, file, b))
	}
	return entries, nil
}

// entry is the image's path that a blob becomes.
func (c *cache) entry(name string, file component.File, b blob) rootfs.Entry {
	return rootfs.Entry{
		Path: file.Path, Mode: fs.FileMode(file.Mode), Size: b.Size, Digest: b.Digest, Component: name,
		Open: func() (io.ReadCloser, error) { return c.open(b) },
	}
}

// download brings one download and adds the files that it is to files. While it works, nobody else
// works on the same download.
func (f *Fetcher) download(ctx context.Context, d component.Download, files map[string]blob) error {
	name := key(d.Digest)
	unlock, err := f.cache.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	known, ok := f.cache.lookup(name)
	if ok && f.extracted(ctx, d, known, files) {
		return nil
	}
	if !ok || !f.cached(ctx, d, known.blob) {
		if known.blob, err = f.transfer(ctx, d, name); err != nil {
			return err
		}
	}
	if err := f.signature(ctx, d, known.blob); err != nil {
		return err
	}
	if d.As != "" {
		files[d.As] = known.blob
		return f.cache.remember(name, known)
	}
	members, err := f.cache.extract(ctx, d, known.blob)
	if err != nil {
		return err
	}
	if known.Members == nil {
		known.Members = map[string]blob{}
	}
	for file, member := range d.Members {
		files[file], known.Members[member] = members[file], members[file]
	}
	return f.cache.remember(name, known)
}

// extracted adds the members of an archive that was verified and taken apart before; it is false
// where any of them is missing. The archive itself need not be read again for them.
func (f *Fetcher) extracted(ctx context.Context, d component.Download, known record, files map[string]blob) bool {
	if f.thorough || len(d.Members) == 0 || d.Signature != nil {
		return false
	}
	for _, file := range slices.Sorted(maps.Keys(d.Members)) {
		b := known.Members[d.Members[file]]
		if !f.cache.intact(ctx, b) {
			return false
		}
		files[file] = b
	}
	return true
}

// cached reports whether the download itself is in the cache and is what the lock says.
func (f *Fetcher) cached(ctx context.Context, d component.Download, b blob) bool {
	if !f.cache.intact(ctx, b) || d.Size > 0 && b.Size != d.Size {
		return false
	}
	if d.Digest == "sha256:"+b.Digest {
		return true
	}
	// The index is only a hint: by another algorithm than its name, the content is read once more.
	algorithm, _, _ := strings.Cut(d.Digest, ":")
	s, err := sum(ctx, f.cache.blobPath(b), algorithm)
	return err == nil && s.digest == d.Digest
}

// transfer downloads the file into the cache. What does not have the lock's digest is removed; when
// a part of it came from an earlier run, that part may be to blame, and it is fetched once from the start.
func (f *Fetcher) transfer(ctx context.Context, d component.Download, name string) (blob, error) {
	path := filepath.Join(f.cache.dir, "partial", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return blob{}, fmt.Errorf("cache: %w", err)
	}
	algorithm, _, _ := strings.Cut(d.Digest, ":")
	for {
		t := &transfer{client: f.client, url: d.URL, path: path, size: d.Size}
		if err := t.run(ctx); err != nil {
			return blob{}, f.explain(err)
		}
		s, err := sum(ctx, path, algorithm)
		if err != nil {
			return blob{}, err
		}
		if s.digest == d.Digest {
			_ = os.Remove(t.statePath())
			return s.blob, f.cache.adopt(path, s.blob)
		}
		t.discard()
		if !t.resumed {
			return blob{}, f.explain(&rejectedError{url: d.URL, what: "digest", want: d.Digest, got: s.digest,
				hint: "the lock's digest is from " + d.Published})
		}
		f.log.Warn("a resumed download has the wrong digest, fetching all of it again", "url", d.URL)
	}
}

// explain adds the mirror, where there is one, to an error that names upstream's address.
func (f *Fetcher) explain(err error) error {
	if f.mirror == "" || err == nil {
		return err
	}
	return fmt.Errorf("mirror %s: %w", f.mirror, err)
}

// maxSignature bounds signature and certificate files; real ones have about 100 bytes and 4 KiB.
const maxSignature = 64 << 10

// signature verifies upstream's signature over the blob, from the cache or fetched. A blob whose
// signature does not verify is removed.
func (f *Fetcher) signature(ctx context.Context, d component.Download, b blob) error {
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
		if err := f.cache.write(path, parts[suffix]); err != nil {
			return err
		}
	}
	if err != nil {
		_ = os.Remove(f.cache.blobPath(b))
		_ = os.Remove(f.cache.indexPath(key(d.Digest)))
		return f.explain(fmt.Errorf("signature of %s: %w", d.URL, err))
	}
	return nil
}

// signaturePath names a signature by what it is over and where it was, so that a lock that names
// another signature gets that one.
func (f *Fetcher) signaturePath(b blob, address, suffix string) string {
	sum := sha256.Sum256([]byte(address))
	return filepath.Join(f.cache.dir, "signatures", b.Digest+"-"+hex.EncodeToString(sum[:4])+suffix)
}
