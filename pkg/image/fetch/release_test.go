package fetch

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/cache"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

const address = "https://up.example/v1/tool"

func TestGetFileAndCache(t *testing.T) {
	u := newUpstream(t)
	data := noise(300 << 10)
	c := tool("tool", u.put(address, data), data)
	c.Release["amd64"][0].Digest = "sha512:" + sha2(data)
	f := newFetcher(t, Options{Mirror: u.URL})
	r, err := f.Get(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content(t, r, "/usr/bin/tool"), data) {
		t.Error("the content is not upstream's")
	}
	if r.Source != Release || r.Origin != u.URL || r.Fallback != "" || r.Entries[0].Mode != 0o755 {
		t.Errorf("result is %+v", r)
	}
	want := []string{"blobs/sha256/" + sha(data), "index/sha512-" + sha2(data) + ".json"}
	if got := listing(t, f.cache.Dir); !slices.Equal(got, want) {
		t.Errorf("the cache holds %v, want %v", got, want)
	}

	// Neither the second time nor with another fetcher is anything asked for.
	u.Close()
	again := newFetcher(t, Options{Mirror: u.URL, Cache: f.cache.Dir})
	for _, f := range []*Fetcher{f, again} {
		if _, err := f.Get(t.Context(), c); err != nil {
			t.Errorf("from the cache: %v", err)
		}
		if _, err := f.Verify(t.Context(), c); err != nil {
			t.Errorf("verifying the cache: %v", err)
		}
	}
}

func TestDamagedCacheIsFetchedAgain(t *testing.T) {
	u := newUpstream(t)
	data := noise(1000)
	c := tool("tool", u.put(address, data), data)
	f := newFetcher(t, Options{Mirror: u.URL})
	if _, err := f.Get(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	path := f.cache.Path(cache.Blob{Digest: sha(data)})
	damaged := bytes.Clone(data)
	damaged[500]++
	if err := errors.Join(os.Chmod(path, 0o644), os.WriteFile(path, damaged, 0o644)); err != nil {
		t.Fatal(err)
	}
	r, err := f.Get(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content(t, r, "/usr/bin/tool"), data) || len(u.seen()) != 2 {
		t.Errorf("after %v the damaged content is still used", u.seen())
	}
}

// The index is only a hint: one that leads to other content is not believed.
func TestMisleadingIndex(t *testing.T) {
	u := newUpstream(t)
	good, other := noise(1000), []byte("something else")
	f := newFetcher(t, Options{Mirror: u.URL})
	for _, digest := range []string{"sha256:" + sha(good), "sha512:" + sha2(good)} {
		c := tool("tool", u.put(address, good), good)
		c.Release["amd64"][0].Digest = digest
		b, err := f.cache.Store(t.Context(), bytes.NewReader(other))
		if err == nil {
			err = f.cache.Remember(cache.Key(digest), b)
		}
		if err != nil {
			t.Fatal(err)
		}
		r, err := f.Get(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(content(t, r, "/usr/bin/tool"), good) {
			t.Errorf("%s: the index was believed", digest)
		}
	}
}

func TestWrongContent(t *testing.T) {
	data := noise(5000)
	other := append(bytes.Clone(data[:4999]), 0)
	for name, test := range map[string]struct {
		change func(d *lock.Download)
		served []byte
		want   []string
	}{
		"sha256": {func(*lock.Download) {}, other, []string{"wrong digest", "sha256:" + sha(data), "sha256:" + sha(other), address, "https://up.example/SUMS"}},
		"sha512": {func(d *lock.Download) { d.Digest = "sha512:" + sha2(data) }, other, []string{"sha512:" + sha2(data), "sha512:" + sha2(other), address}},
		"longer": {func(*lock.Download) {}, append(bytes.Clone(data), 1), []string{"wrong size", "5000 bytes", "5001", address}},
		"short":  {func(*lock.Download) {}, data[:10], []string{"wrong size", "5000 bytes", "10", address}},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t)
			c := tool("tool", u.put(address, test.served), data)
			test.change(&c.Release["amd64"][0])
			c.Modules = &lock.Modules{Module: "example.com/tool"}
			m := &fakeMaker{}
			f := newFetcher(t, Options{Mirror: u.URL, Source: Auto})
			f.builder = m
			_, err := f.Get(t.Context(), c)
			if err == nil {
				t.Fatal("wrong content was accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
			if left := listing(t, f.cache.Dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if len(m.built) > 0 {
				t.Error("a wrong release was replaced by a build in silence")
			}
			if got := u.seen(); len(got) != 1 {
				t.Errorf("asked %v: wrong content does not get better", got)
			}
		})
	}
}

// Without Content-Length the size shows only while reading.
func TestWrongSizeChunked(t *testing.T) {
	data := noise(5000)
	for name, served := range map[string][]byte{"longer": append(bytes.Clone(data), data...), "short": data[:100]} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t)
			u.fault = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
				w.(http.Flusher).Flush()
				_, _ = w.Write(served)
				return true
			}
			f := newFetcher(t, Options{Mirror: u.URL})
			_, err := f.Get(t.Context(), tool("tool", address, data))
			if err == nil || !strings.Contains(err.Error(), "wrong size: the lock says 5000 bytes") {
				t.Errorf("error is %v", err)
			}
			if left := listing(t, f.cache.Dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestConcurrentFetchersDownloadOnce(t *testing.T) {
	u := newUpstream(t)
	data := noise(2 << 20)
	u.fault = func(http.ResponseWriter, *http.Request, int) bool { time.Sleep(100 * time.Millisecond); return false }
	packed := archive(t, member{"a", "content of a", tar.TypeReg}, member{"b", "content of b", tar.TypeReg})
	file := tool("tool", u.put(address, data), data)
	tgz := lock.Component{
		Name: "pair", Version: "v1",
		Files: []lock.File{{Name: "a", Path: "/a", Mode: 0o755}, {Name: "b", Path: "/b", Mode: 0o644}},
		Release: map[string][]lock.Download{"amd64": {{
			URL: u.put("https://up.example/pair.tgz", packed), Digest: "sha256:" + sha(packed), Members: map[string]string{"a": "a", "b": "b"},
		}}},
	}
	cache := t.TempDir()
	var wg sync.WaitGroup
	for range 6 {
		f := newFetcher(t, Options{Mirror: u.URL, Cache: cache})
		wg.Go(func() {
			results, err := f.All(t.Context(), &lock.Lock{Components: []lock.Component{file, tgz}})
			if err != nil {
				t.Error(err)
				return
			}
			if results[0].Component != "tool" || results[1].Component != "pair" || len(results[1].Entries) != 2 {
				t.Errorf("results are %+v", results)
			}
		})
	}
	wg.Wait()
	if got := u.seen(); !slices.Equal(got, []string{"all", "all"}) {
		t.Errorf("asked %d times, want once per download", len(got))
	}
	for _, file := range listing(t, cache) {
		if !strings.HasPrefix(file, "blobs/") && !strings.HasPrefix(file, "index/") {
			t.Errorf("left behind: %s", file)
		}
	}
}

func TestLockWaitEndsWithContext(t *testing.T) {
	u := newUpstream(t)
	data := noise(10)
	c := tool("tool", u.put(address, data), data)
	f := newFetcher(t, Options{Mirror: u.URL})
	unlock, err := f.cache.Lock(t.Context(), cache.Key(c.Release["amd64"][0].Digest), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := f.Get(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for a held lock ended with %v", err)
	}
	unlock()
	if _, err := f.Get(t.Context(), c); err != nil {
		t.Errorf("after the lock is free: %v", err)
	}
}

// A full disk is an error of this machine: it says so, leaves nothing, and is no reason to build.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			t.Skipf("mounting a tmpfs of 1 MB needs root: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	u := newUpstream(t)
	data := noise(3 << 20)
	c := tool("tool", u.put(address, data), data)
	c.Modules = &lock.Modules{Module: "example.com/tool"}
	m := &fakeMaker{}
	f := newFetcher(t, Options{Mirror: u.URL, Source: Auto, Cache: filepath.Join(dir, "cache")})
	f.builder = m
	_, err := f.Get(t.Context(), c)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "make room in the cache") {
		t.Errorf("error is %v", err)
	}
	if left := listing(t, dir); len(left) > 0 || len(m.built) > 0 || len(u.seen()) != 1 {
		t.Errorf("left %v, built %v, asked %v", left, m.built, u.seen())
	}
}
