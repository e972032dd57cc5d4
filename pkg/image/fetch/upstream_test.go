package fetch

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// upstream is a server that has files as upstream's hosts have them, at /HOST/PATH, as a mirror does.
type upstream struct {
	*httptest.Server
	mu       sync.Mutex
	files    map[string][]byte
	requests []*http.Request
	// fault may answer the n-th request (from 1) for a path itself, and says whether it did.
	fault func(w http.ResponseWriter, r *http.Request, n int) bool
}

func newUpstream(tb testing.TB) *upstream {
	tb.Helper()
	u := &upstream{files: map[string][]byte{}}
	u.Server = httptest.NewServer(u)
	tb.Cleanup(u.Close)
	return u
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	u.requests = append(u.requests, r)
	n := 0
	for _, old := range u.requests {
		if old.URL.Path == r.URL.Path {
			n++
		}
	}
	data, ok := u.files[r.URL.Path]
	u.mu.Unlock()
	if u.fault != nil && u.fault(w, r, n) {
		return
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("ETag", etag(data))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

// put makes data the file at the https address and returns the address.
func (u *upstream) put(address string, data []byte) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.files[strings.TrimPrefix(address, "https:/")] = data
	return address
}

// seen lists the Range headers of the requests so far, "all" for a request without one.
func (u *upstream) seen() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var out []string
	for _, r := range u.requests {
		out = append(out, max(r.Header.Get("Range"), "all"))
	}
	return out
}

func etag(data []byte) string { return `"` + sha(data)[:16] + `"` }

func sha(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func sha2(data []byte) string {
	sum := sha512.Sum512(data)
	return hex.EncodeToString(sum[:])
}

// noise is n bytes that do not compress and are the same in every run.
func noise(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	return data
}

// tool is a component with one file, which is a download by itself.
func tool(name, address string, data []byte) lock.Component {
	return lock.Component{
		Name: name, Version: "v1.0.0",
		Files: []lock.File{{Name: name, Path: "/usr/bin/" + name, Mode: 0o755}},
		Release: map[string][]lock.Download{"amd64": {{
			URL: address, Digest: "sha256:" + sha(data), Size: int64(len(data)),
			Published: "https://up.example/SUMS", As: name,
		}}},
	}
}

// newFetcher returns a fetcher with a new cache that waits a millisecond between tries.
func newFetcher(tb testing.TB, o Options) *Fetcher {
	tb.Helper()
	if o.Cache == "" {
		o.Cache = filepath.Join(tb.TempDir(), "cache") // a umask may leave the other open to a group
	}
	if o.Source == "" {
		o.Source = Release
	}
	o.Arch = "amd64"
	f, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	f.client.wait = time.Millisecond
	return f
}

// content reads the entry of that path.
func content(t *testing.T, r Result, path string) []byte {
	t.Helper()
	for _, e := range r.Entries {
		if e.Path != path {
			continue
		}
		f, err := e.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		data, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		if e.Digest != sha(data) || e.Size != int64(len(data)) || e.Mode.Type() != 0 {
			t.Errorf("entry %+v does not describe its %d bytes", e, len(data))
		}
		return data
	}
	t.Fatalf("no entry for %s in %v", path, r.Entries)
	return nil
}

// listing is every file in the directory.
func listing(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			files = append(files, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// member is one entry of a test archive.
type member struct {
	name, text string
	kind       byte
}

func archive(tb testing.TB, members ...member) []byte {
	tb.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, m := range members {
		h := &tar.Header{Name: m.name, Typeflag: m.kind, Mode: 0o755}
		if m.kind == tar.TypeReg {
			h.Size = int64(len(m.text))
		} else {
			h.Linkname = m.text
		}
		err := w.WriteHeader(h)
		if err == nil && m.kind == tar.TypeReg {
			_, err = io.WriteString(w, m.text)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// cut answers with the first n bytes of data and then closes the connection, with the headers of the
// whole.
func cut(w http.ResponseWriter, data []byte, n int) {
	w.Header().Set("ETag", etag(data))
	w.Header().Set("Content-Length", fmt.Sprint(len(data)))
	_, _ = w.Write(data[:n])
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// fakeMaker stands for a compiler.
type fakeMaker struct {
	mu    sync.Mutex
	built []string
	// linked are the components within others, and refuses what linking fails with.
	linked  []string
	refuses error
}

func (m *fakeMaker) Build(_ context.Context, c lock.Component) ([]rootfs.Entry, []lock.Pin, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.built = append(m.built, c.Name)
	return []rootfs.Entry{{Path: c.Files[0].Path, Component: c.Name}}, nil, nil
}

func (m *fakeMaker) Link(c lock.Component, hosts []lock.Component) ([]rootfs.Entry, error) {
	for _, host := range hosts {
		m.linked = append(m.linked, c.Name+" within "+host.Name)
	}
	return []rootfs.Entry{{Path: c.Files[0].Path, Mode: fs.ModeSymlink, Component: c.Name}}, m.refuses
}

func (m *fakeMaker) Built(context.Context, lock.Component) (bool, error) { return true, nil }
