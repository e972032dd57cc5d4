// Package cache is a content-addressed store of files of components, downloaded or built.
//
// Its rule: a blob's name is the sha256 of its content, and an incomplete file never has such a name. A blob is
// compared with its name whenever it is used. The index is signed by nobody: what it says is a hint where a lock's
// digest decides, and counts otherwise because the cache is this user's alone, which Open checks.
//
//	blobs/sha256/HEX      content by its sha256
//	index/KEY.json        the sha256 of a key's content
//	partial/…             files that are being written
//	modules/…             directories of builds
//	locks/…               locks of keys that a process is working on
package cache

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// Cache is the store in one directory, which several processes may share.
type Cache struct {
	// Dir is the directory, absolute; Open creates it.
	Dir string
}

// dirs are the cache's own directories, fetch's among them.
var dirs = []string{".", "blobs", "blobs/sha256", "index", "locks", "modules", "partial", "signatures"}

// Open opens the cache in a directory, creating it; "" is hardtack in the user's cache directory. A cache that belongs
// to another user, or that others can write, is an error.
func Open(dir string) (*Cache, error) {
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("finding the user's cache directory (name one instead): %w", err)
		}
		dir = filepath.Join(user, "hardtack")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("cache directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the cache directory: %w", err)
	}
	for _, name := range dirs {
		if err := file.CheckOwn(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cache: %w", err)
		}
	}
	c := &Cache{dir}
	c.sweep()
	return c, nil
}

// What a process is writing has a name that begins thus. It counts as left by one that was killed once it is much older than a
// build takes. A lock would say it sooner, but Windows has none for directories, and earlier versions, which may be at work in the
// same cache, take none.
const (
	extractPrefix = "extract-"
	buildPrefix   = "build-"
	leftFor       = 24 * time.Hour
)

// sweep removes what processes that were killed have left. What cannot be removed is no reason to work without the cache: it
// takes space and nothing else.
func (c *Cache) sweep() {
	for dir, prefix := range map[string]string{c.partial(): extractPrefix, c.builds(): buildPrefix} {
		entries, _ := os.ReadDir(dir) // none where it is not there yet
		for _, e := range entries {
			info, err := e.Info()
			if err == nil && strings.HasPrefix(e.Name(), prefix) && time.Since(info.ModTime()) > leftFor {
				_ = os.RemoveAll(filepath.Join(dir, e.Name()))
			}
		}
	}
}

func (c *Cache) partial() string { return filepath.Join(c.Dir, "partial") }

func (c *Cache) builds() string { return filepath.Join(c.Dir, "modules") }

// MakeBuildDir makes a directory for a build, on the cache's file system. The caller must remove it.
func (c *Cache) MakeBuildDir() (string, error) {
	if err := os.MkdirAll(c.builds(), 0o755); err != nil {
		return "", fmt.Errorf("cache: %w", err)
	}
	dir, err := os.MkdirTemp(c.builds(), buildPrefix)
	if err != nil {
		return "", fmt.Errorf("cache: %w", err)
	}
	return dir, nil
}

// Blob identifies content: its sha256 in hex and its size in bytes.
type Blob struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

// Path returns the file of a blob.
func (c *Cache) Path(b Blob) string { return filepath.Join(c.Dir, "blobs", "sha256", b.Digest) }

// IndexPath returns the file of a key's index entry.
func (c *Cache) IndexPath(key string) string { return filepath.Join(c.Dir, "index", key+".json") }

// Open opens a blob. The caller must close it.
func (c *Cache) Open(b Blob) (io.ReadCloser, error) { return os.Open(c.Path(b)) }

// Entry returns the image's entry for a blob that is a file of a component.
func (c *Cache) Entry(component string, f lock.File, b Blob) rootfs.Entry {
	return rootfs.Entry{
		Path: f.Path, Mode: fs.FileMode(f.Mode), Size: b.Size, Digest: b.Digest, Component: component,
		Open: func() (io.ReadCloser, error) { return c.Open(b) },
	}
}

// Lookup returns the index entry of key; ok is false if there is none, it is unreadable, or others can write it.
func (c *Cache) Lookup(key string) (b Blob, ok bool) {
	data, err := file.ReadOwn(c.IndexPath(key))
	if err != nil || json.Unmarshal(data, &b) != nil || !blobForm.MatchString(b.Digest) {
		return Blob{}, false
	}
	return b, true
}

// blobForm is the name of a blob: no index entry leads to a file outside of blobs.
var blobForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Remember writes the index entry of key.
func (c *Cache) Remember(key string, b Blob) error {
	data, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("cache index %s: %w", key, err)
	}
	return c.Write(c.IndexPath(key), append(data, '\n'))
}

// Write writes a small file of the cache atomically.
func (c *Cache) Write(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	if _, err := file.Replace(path, data, 0o600); err != nil {
		return fmt.Errorf("cache: writing %s: %w", path, err)
	}
	return nil
}

// Intact reports whether the blob exists and its content has its digest. A corrupt blob is removed, so that it is
// fetched again.
func (c *Cache) Intact(ctx context.Context, b Blob) bool {
	if b.Digest == "" {
		return false
	}
	path := c.Path(b)
	s, err := Sum(ctx, path, "")
	if err == nil && s.Blob == b {
		return true
	}
	if ctx.Err() == nil && !errors.Is(err, fs.ErrNotExist) {
		_ = os.Remove(path)
	}
	return false
}

// Find returns the blob with the digest, "sha256:hex", whatever the index says; ok is false if the cache does not have
// it or its content has another digest.
func (c *Cache) Find(ctx context.Context, digest string) (b Blob, ok bool) {
	b.Digest = strings.TrimPrefix(digest, "sha256:")
	info, err := os.Stat(c.Path(b))
	if err != nil {
		return Blob{}, false
	}
	b.Size = info.Size()
	return b, c.Intact(ctx, b)
}

// Adopt renames a file of the cache's file system to the blob's name.
func (c *Cache) Adopt(path string, b Blob) error {
	target := c.Path(b)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	if err := os.Chmod(path, 0o444); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	if err := os.Rename(path, target); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	return nil
}

// Store copies r into the cache and returns its blob. After an error nothing of it remains.
func (c *Cache) Store(ctx context.Context, r io.Reader) (b Blob, err error) {
	if err := os.MkdirAll(c.partial(), 0o755); err != nil {
		return Blob{}, fmt.Errorf("cache: %w", err)
	}
	tmp, err := os.CreateTemp(c.partial(), extractPrefix)
	if err != nil {
		return Blob{}, fmt.Errorf("cache: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(tmp, h), cancellable{ctx, r})
	if err = errors.Join(err, tmp.Close()); err != nil {
		return Blob{}, err
	}
	b = Blob{Digest: hex.EncodeToString(h.Sum(nil)), Size: n}
	return b, c.Adopt(tmp.Name(), b)
}

// Sums are the sha256 and size of a file, and its digest by another algorithm.
type Sums struct {
	Blob
	// ByLock is the digest as a lock writes it: "sha512:HEX".
	ByLock string
}

// Sum reads the file once. algorithm is the one of the lock's digest; "" means sha256.
func Sum(ctx context.Context, path, algorithm string) (Sums, error) {
	f, err := os.Open(path)
	if err != nil {
		return Sums{}, err
	}
	defer f.Close()
	own, asked := sha256.New(), hash.Hash(nil)
	w := io.Writer(own)
	if algorithm == "sha512" {
		asked = sha512.New()
		w = io.MultiWriter(own, asked)
	}
	n, err := io.CopyBuffer(w, cancellable{ctx, f}, make([]byte, 256<<10))
	if err != nil {
		return Sums{}, fmt.Errorf("reading %s: %w", path, err)
	}
	s := Sums{Blob: Blob{Digest: hex.EncodeToString(own.Sum(nil)), Size: n}}
	s.ByLock = "sha256:" + s.Digest
	if asked != nil {
		s.ByLock = algorithm + ":" + hex.EncodeToString(asked.Sum(nil))
	}
	return s, nil
}

// cancellable ends a copy when its context ends.
type cancellable struct {
	ctx context.Context //nolint:containedctx // a reader's Read has no context to be given
	r   io.Reader
}

func (c cancellable) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

// Key turns a digest of the lock into a file name.
func Key(digest string) string { return strings.ReplaceAll(digest, ":", "-") }

// poll is the interval for retrying a lock that is taken; a lock that waits cannot be cancelled by a context.
const poll = 50 * time.Millisecond

// Lock waits until no other process or goroutine has the lock of key. Before the first wait it calls waits, unless that is nil. The
// returned function releases the lock and removes its file.
func (c *Cache) Lock(ctx context.Context, key string, waits func()) (func(), error) {
	dir := filepath.Join(c.Dir, "locks")
	path := filepath.Join(dir, key)
	for {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("cache: %w", err)
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, fmt.Errorf("cache: %w", err)
		}
		err = file.TryLock(f)
		if err == nil && sameFile(f, path) {
			return func() {
				// Removed while locked: others that opened it before notice that it is no longer the file at path.
				_ = os.Remove(path)
				_ = f.Close()
			}, nil
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, file.ErrLocked) {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if err != nil && waits != nil {
			waits()
			waits = nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(poll):
		}
	}
}

func sameFile(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(open, named)
}
