package fetch

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
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cache is the content-addressed store. Several processes may use one directory.
type cache struct{ dir string }

// blob is content that the cache holds: its sha256 in hex and its size in bytes.
type blob struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

// record is what the index keeps about one digest of a lock.
type record struct {
	blob
	// Members maps the paths inside an archive that have been extracted to their content.
	Members map[string]blob `json:"members,omitempty"`
}

func (c *cache) blobPath(b blob) string { return filepath.Join(c.dir, "blobs", "sha256", b.Digest) }

func (c *cache) indexPath(key string) string { return filepath.Join(c.dir, "index", key+".json") }

// open returns the content of a blob.
func (c *cache) open(b blob) (io.ReadCloser, error) { return os.Open(c.blobPath(b)) }

// lookup returns what the index knows about key; ok is false when it knows nothing usable.
func (c *cache) lookup(key string) (r record, ok bool) {
	data, err := os.ReadFile(c.indexPath(key))
	if err != nil || json.Unmarshal(data, &r) != nil {
		return record{}, false
	}
	return r, true
}

// remember writes what the index shall know about key.
func (c *cache) remember(key string, r record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("cache index %s: %w", key, err)
	}
	return c.write(c.indexPath(key), append(data, '\n'))
}

// write puts a small file into the cache, all of it or nothing.
func (c *cache) write(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("cache: writing %s: %w", path, err)
	}
	return nil
}

// intact reports whether the blob is there with the content that its name says. One that is not is
// removed, so that it is fetched again.
func (c *cache) intact(ctx context.Context, b blob) bool {
	if b.Digest == "" {
		return false
	}
	path := c.blobPath(b)
	s, err := sum(ctx, path, "")
	if err == nil && s.blob == b {
		return true
	}
	if ctx.Err() == nil && !errors.Is(err, fs.ErrNotExist) {
		_ = os.Remove(path)
	}
	return false
}

// adopt moves a file of the cache's own file system to the blob's name.
func (c *cache) adopt(path string, b blob) error {
	target := c.blobPath(b)
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

// store copies r into the cache and returns what it was. At an error nothing of it stays.
func (c *cache) store(ctx context.Context, r io.Reader) (b blob, err error) {
	dir := filepath.Join(c.dir, "partial")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return blob{}, fmt.Errorf("cache: %w", err)
	}
	tmp, err := os.CreateTemp(dir, "extract-*")
	if err != nil {
		return blob{}, fmt.Errorf("cache: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(tmp, h), cancellable{ctx, r})
	if err = errors.Join(err, tmp.Close()); err != nil {
		return blob{}, err
	}
	b = blob{Digest: hex.EncodeToString(h.Sum(nil)), Size: n}
	return b, c.adopt(tmp.Name(), b)
}

// sums is what a file is: its sha256 and size, and its digest by the lock's algorithm.
type sums struct {
	blob
	digest string
}

// sum reads the file once. algorithm is that of the lock's digest; "" is sha256.
func sum(ctx context.Context, path, algorithm string) (sums, error) {
	f, err := os.Open(path)
	if err != nil {
		return sums{}, err
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
		return sums{}, fmt.Errorf("reading %s: %w", path, err)
	}
	s := sums{blob: blob{Digest: hex.EncodeToString(own.Sum(nil)), Size: n}}
	s.digest = "sha256:" + s.Digest
	if asked != nil {
		s.digest = algorithm + ":" + hex.EncodeToString(asked.Sum(nil))
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

// key turns a digest of the lock into a file name.
func key(digest string) string { return strings.ReplaceAll(digest, ":", "-") }

// poll is how often a held lock is tried again; flock(2) itself cannot be given a context.
const poll = 50 * time.Millisecond

// lock waits until no other process and no other goroutine works on key. The returned function ends
// the hold and removes the lock file.
func (c *cache) lock(ctx context.Context, key string) (func(), error) {
	dir := filepath.Join(c.dir, "locks")
	path := filepath.Join(dir, key)
	for {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("cache: %w", err)
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, fmt.Errorf("cache: %w", err)
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && sameFile(f, path) {
			return func() {
				// Removed while held: whoever opened it before sees that it is no longer the file at path.
				_ = os.Remove(path)
				_ = f.Close()
			}, nil
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("locking %s: %w", path, err)
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
