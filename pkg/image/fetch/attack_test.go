package fetch

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/cache"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

// poison has every index entry of the cache name the blob of other content, as its digest and as that of every member.
func poison(t *testing.T, c *cache.Cache, other []byte) {
	t.Helper()
	b, err := c.Store(t.Context(), bytes.NewReader(other))
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(c.Dir, "index", "*.json"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no index: %v", err)
	}
	for _, name := range names {
		entry := map[string]any{"digest": b.Digest, "size": b.Size, "members": map[string]cache.Blob{"bin/kubelet": b}}
		data, err := json.Marshal(entry)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Whoever can write the index, as a poisoned cache of a CI job does, decides no byte of a member of an archive.
func TestAttackIndexNamesAnotherMember(t *testing.T) {
	const address = "https://up.example/pack-v2.tar.gz"
	u := newUpstream(t)
	data := archive(t, member{"bin/kubelet", "a kubelet", tar.TypeReg})
	u.put(address, data)
	f := newFetcher(t, Options{Mirror: u.URL})
	c := pack(address, data, map[string]string{"kubelet": "bin/kubelet"})
	if _, err := f.Get(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	poison(t, f.cache, []byte("a kubelet with a back door"))
	r, err := f.Get(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(content(t, r, "/opt/kubelet")); got != "a kubelet" {
		t.Errorf("the image gets %q", got)
	}
}

// The same for an image of a registry.
func TestAttackIndexNamesAnotherImage(t *testing.T) {
	index := pauseIndex(t)
	transport, _ := newRegistry(t, index)
	f := newFetcher(t, Options{Transport: transport})
	c := pause(must(index.Digest()).String())
	want := content(t, must(f.Get(t.Context(), c)), c.Files[0].Path)
	if names, _ := filepath.Glob(filepath.Join(f.cache.Dir, "index", "*.json")); len(names) > 0 {
		poison(t, f.cache, []byte("another image"))
	}
	if got := content(t, must(f.Get(t.Context(), c)), c.Files[0].Path); !bytes.Equal(got, want) {
		t.Errorf("the image gets %q", got)
	}
}

// A part of the image that was exchanged in the cache is fetched again.
func TestAttackImagePartInCache(t *testing.T) {
	index := pauseIndex(t)
	transport, _ := newRegistry(t, index)
	f := newFetcher(t, Options{Transport: transport})
	c := pause(must(index.Digest()).String())
	want := content(t, must(f.Get(t.Context(), c)), c.Files[0].Path)
	blobs, err := filepath.Glob(filepath.Join(f.cache.Dir, "blobs", "sha256", "*"))
	if err != nil || len(blobs) < 5 {
		t.Fatalf("%v, %v: want index, manifest, configuration and two layers", blobs, err)
	}
	for _, name := range blobs {
		if err := errors.Join(os.Chmod(name, 0o644), os.WriteFile(name, []byte("{}"), 0o644)); err != nil {
			t.Fatal(err)
		}
		if got := content(t, must(f.Get(t.Context(), c)), c.Files[0].Path); !bytes.Equal(got, want) {
			t.Errorf("%s: the image gets %q", name, got)
		}
	}
}

// A pin that the archive's member does not have is an error, whatever the cache says.
func TestPinOfMember(t *testing.T) {
	const address = "https://up.example/pack-v2.tar.gz"
	u := newUpstream(t)
	data := archive(t, member{"bin/kubelet", "a kubelet", tar.TypeReg})
	u.put(address, data)
	f := newFetcher(t, Options{Mirror: u.URL})
	c := pack(address, data, map[string]string{"kubelet": "bin/kubelet"})
	r := must(f.Get(t.Context(), c))
	want := []lock.Pin{{Component: "pack", File: "kubelet", Archive: "sha256:" + sha(data), Digest: "sha256:" + sha([]byte("a kubelet"))}}
	if diff := cmp.Diff(want, r.Pins); diff != "" || len(r.Unpinned) != 1 {
		t.Errorf("%s, not pinned: %v", diff, r.Unpinned)
	}
	// With the pin the archive is not needed again.
	c.Pins = want
	if err := os.Remove(f.cache.Path(cache.Blob{Digest: sha(data)})); err != nil {
		t.Fatal(err)
	}
	if r := must(f.Get(t.Context(), c)); len(u.seen()) != 1 || len(r.Unpinned) != 0 {
		t.Errorf("asked %v, not pinned: %v", u.seen(), r.Unpinned)
	}
	if _, err := f.Verify(t.Context(), c); err != nil || len(u.seen()) != 2 {
		t.Errorf("verifying does not read the archive again: %v, asked %v", err, u.seen())
	}
	c.Pins = []lock.Pin{want[0]}
	c.Pins[0].Digest = "sha256:" + sha([]byte("another"))
	_, err := f.Get(t.Context(), c)
	for _, text := range []string{"bin/kubelet", c.Pins[0].Digest, want[0].Digest, "hardtack lock pin"} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v lacks %q", err, text)
		}
	}
}
