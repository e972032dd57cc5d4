package fetch

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/cache"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

// pack is a component whose files are members of one archive.
func pack(address string, data []byte, members map[string]string) lock.Component {
	c := lock.Component{Name: "pack", Version: "v2", Release: map[string][]lock.Download{"amd64": {{
		URL: address, Digest: "sha256:" + sha(data), Size: int64(len(data)), Members: members,
	}}}}
	for name := range members {
		c.Files = append(c.Files, lock.File{Name: name, Path: "/opt/" + name, Mode: 0o755})
	}
	return c
}

func TestArchiveMembers(t *testing.T) {
	const address = "https://up.example/pack-v2.tar.gz"
	u := newUpstream(t)
	data := archive(t,
		member{"../../../../etc/passwd", "not for you", tar.TypeReg},
		member{"/etc/shadow", "neither", tar.TypeReg},
		member{"./bridge", "bridge", tar.TypeReg},
		member{"bin/loop", "bridge", tar.TypeSymlink},
		member{"bin/etcd", "etcd " + string(noise(200<<10)), tar.TypeReg},
		member{"more/0", "0", tar.TypeReg}, member{"more/1", "1", tar.TypeReg}, member{"more/2", "2", tar.TypeReg},
	)
	u.put(address, data)
	f := newFetcher(t, Options{Mirror: u.URL})
	r, err := f.Get(t.Context(), pack(address, data, map[string]string{"bridge": "./bridge", "etcd": "bin/etcd"}))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(content(t, r, "/opt/bridge")); got != "bridge" {
		t.Errorf("bridge is %q", got)
	}
	if got := content(t, r, "/opt/etcd"); len(got) != 200<<10+5 {
		t.Errorf("etcd has %d bytes", len(got))
	}

	for name, test := range map[string]struct {
		members map[string]string
		want    []string
	}{
		"missing": {map[string]string{"a": "bin/a", "b": "bin/b", "bridge": "bridge"}, []string{"the archive has no bin/a, bin/b;", "it has ../../../../etc/passwd,", "bin/etcd", address}},
		"link":    {map[string]string{"loop": "bin/loop"}, []string{"bin/loop is not a regular file", address}},
	} {
		t.Run(name, func(t *testing.T) {
			before := listing(t, f.cache.Dir)
			_, err := f.Get(t.Context(), pack(address, data, test.members))
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v lacks %q", err, want)
				}
			}
			if after := listing(t, f.cache.Dir); !slices.Equal(before, after) {
				t.Errorf("the cache was %v and is %v", before, after)
			}
		})
	}

	// The archive is still there: another member needs no download.
	if _, err := f.Get(t.Context(), pack(address, data, map[string]string{"one": "more/1"})); err != nil || len(u.seen()) != 1 {
		t.Errorf("a further member: %v after %d requests", err, len(u.seen()))
	}
}

// Verify trusts neither the index about members, nor that the archive is still intact.
func TestVerifyReadsTheArchiveAgain(t *testing.T) {
	const address = "https://up.example/pack-v2.tgz"
	u := newUpstream(t)
	data := archive(t, member{"a", "right", tar.TypeReg})
	c := pack(u.put(address, data), data, map[string]string{"a": "a"})
	f := newFetcher(t, Options{Mirror: u.URL})
	if _, err := f.Get(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	poison(t, f.cache, []byte("wrong"))
	r, err := f.Verify(t.Context(), c)
	if err != nil || string(content(t, r, "/opt/a")) != "right" {
		t.Errorf("Verify believed the index: %v", err)
	}
	path := f.cache.Path(cache.Blob{Digest: sha(data)})
	if err := errors.Join(os.Chmod(path, 0o644), os.Truncate(path, 20)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Verify(t.Context(), c); err != nil || len(u.seen()) != 2 {
		t.Errorf("a damaged archive: %v after %d requests, want it fetched again", err, len(u.seen()))
	}
}

func TestBrokenArchive(t *testing.T) {
	const address = "https://up.example/broken.tar.gz"
	whole := archive(t, member{"a", string(noise(100 << 10)), tar.TypeReg})
	for name, data := range map[string][]byte{"not gzip": []byte("plain text"), "cut": whole[:50<<10], "empty": nil} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t)
			c := pack(u.put(address, data), data, map[string]string{"a": "a"})
			f := newFetcher(t, Options{Mirror: u.URL})
			if _, err := f.Get(t.Context(), c); err == nil || !strings.Contains(err.Error(), "extracting from "+address) {
				t.Errorf("error is %v", err)
			}
			for _, file := range listing(t, f.cache.Dir) {
				if file != "blobs/sha256/"+sha(data) {
					t.Errorf("left behind: %s", file)
				}
			}
		})
	}
}

// Digest and extraction run in every bake for files that are cached already.
func BenchmarkDigestAndExtract(b *testing.B) {
	const size = 32 << 20
	text := make([]byte, size)
	if _, err := io.ReadFull(rand.Reader, text[:size/2]); err != nil { // half of it compresses, as programs do
		b.Fatal(err)
	}
	data := archive(b, member{"a", string(text), tar.TypeReg})
	path := filepath.Join(b.TempDir(), "archive")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		b.Fatal(err)
	}
	for _, algorithm := range []string{"sha256", "sha512"} {
		b.Run(algorithm, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := cache.Sum(context.Background(), path, algorithm); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("extract", func(b *testing.B) {
		c := &cache.Cache{Dir: b.TempDir()}
		b.SetBytes(size)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := members(context.Background(), c, bytes.NewReader(data), map[string]string{"a": "a"}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
