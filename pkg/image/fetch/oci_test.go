package fetch

import (
	"bytes"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/oci/ocitest"
)

// pauseIndex is an image for two architectures.
func pauseIndex(t *testing.T) v1.ImageIndex {
	t.Helper()
	index := v1.ImageIndex(empty.Index)
	for _, arch := range []string{"amd64", "arm64"} {
		img, err := random.Image(20<<10, 2)
		if err == nil {
			img, err = mutate.ConfigFile(img, &v1.ConfigFile{Architecture: arch, OS: "linux", RootFS: must(img.ConfigFile()).RootFS})
		}
		if err != nil {
			t.Fatal(err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: arch},
		}})
	}
	return index
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func pause(digest string) lock.Component {
	d := []lock.Download{{URL: "oci://registry.example/pause:3.10.1", Digest: digest, As: "pause.tar"}}
	return lock.Component{
		Name: "pause", Version: "3.10.1",
		Files:   []lock.File{{Name: "pause.tar", Path: "/usr/lib/hardtack/images/pause.tar", Mode: 0o644}},
		Release: map[string][]lock.Download{"amd64": d, "arm64": d},
	}
}

// newRegistry is an in-memory registry and a transport that leads registry.example to it.
func newRegistry(t *testing.T, index v1.ImageIndex) (http.RoundTripper, *[]string) {
	t.Helper()
	var (
		mu    sync.Mutex
		paths []string
	)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	ref, err := name.ParseReference(host + "/pause:3.10.1")
	if err == nil {
		err = remote.WriteIndex(ref, index)
	}
	if err != nil {
		t.Fatal(err)
	}
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		paths = append(paths, r.URL.Path)
		mu.Unlock()
		r = r.Clone(r.Context())
		r.URL.Scheme, r.URL.Host = "http", host
		return http.DefaultTransport.RoundTrip(r)
	}), &paths
}

func TestImageBecomesArchive(t *testing.T) {
	index := pauseIndex(t)
	pinned := must(index.Digest()).String()
	transport, paths := newRegistry(t, index)
	var archives []string
	for _, arch := range []string{"amd64", "arm64", "amd64"} {
		f, err := New(Options{Arch: arch, Cache: t.TempDir(), Source: Release, Transport: transport})
		if err != nil {
			t.Fatal(err)
		}
		r, err := f.Get(t.Context(), pause(pinned))
		if err != nil {
			t.Fatal(err)
		}
		data := content(t, r, "/usr/lib/hardtack/images/pause.tar")
		archives = append(archives, sha(data))
		img, desc := ocitest.Unpack(t, data)
		if got := must(img.ConfigFile()).Architecture; got != arch {
			t.Errorf("the image is for %s, want %s", got, arch)
		}
		if desc.Annotations["io.containerd.image.name"] != "registry.example/pause:3.10.1" || desc.Annotations["org.opencontainers.image.ref.name"] != "3.10.1" {
			t.Errorf("annotations are %v", desc.Annotations)
		}
		asked := len(*paths)
		if _, err := f.Get(t.Context(), pause(pinned)); err != nil || len(*paths) != asked {
			t.Errorf("the second time: %v, asked %v", err, (*paths)[asked:])
		}
	}
	if archives[0] != archives[2] || archives[0] == archives[1] {
		t.Errorf("archives are %v: the same image must give the same bytes", archives)
	}
	for _, path := range *paths {
		if strings.HasSuffix(path, "/manifests/3.10.1") {
			t.Error("the tag was asked for: only the digest may decide")
		}
	}
}

// A mirror holds a registry's answers as plain files, in a directory or behind any web server.
func TestImageFromMirror(t *testing.T) {
	index := pauseIndex(t)
	pinned := must(index.Digest()).String()
	transport, paths := newRegistry(t, index)
	direct := newFetcher(t, Options{Transport: transport})
	want := must(direct.Get(t.Context(), pause(pinned)))

	dir := t.TempDir()
	for _, path := range *paths {
		if path == "/v2/" {
			continue
		}
		resp := must(transport.RoundTrip(must(http.NewRequestWithContext(t.Context(), http.MethodGet, "https://registry.example"+path, http.NoBody))))
		file := filepath.Join(dir, "registry.example", path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, must(io.ReadAll(resp.Body)), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(http.StripPrefix("/files", http.FileServer(http.Dir(dir))))
	t.Cleanup(server.Close)
	for _, mirror := range []string{dir, server.URL + "/files", server.URL + "/files/"} {
		f := newFetcher(t, Options{Mirror: mirror})
		r, err := f.Get(t.Context(), pause(pinned))
		if err != nil {
			t.Errorf("%s: %v", mirror, err)
			continue
		}
		if r.Entries[0].Digest != want.Entries[0].Digest || r.Origin != mirror {
			t.Errorf("%s: %+v, want the digest %s", mirror, r, want.Entries[0].Digest)
		}
	}
}

func TestImageErrors(t *testing.T) {
	index := pauseIndex(t)
	pinned := must(index.Digest()).String()
	transport, _ := newRegistry(t, index)
	t.Run("not there", func(t *testing.T) {
		f := newFetcher(t, Options{Transport: transport})
		_, err := f.Get(t.Context(), pause("sha256:"+strings.Repeat("0", 64)))
		var missing *UnavailableError
		if !errors.As(err, &missing) || !strings.Contains(err.Error(), "registry.example/pause:3.10.1: 404") {
			t.Errorf("error is %v", err)
		}
	})
	t.Run("cannot be reached", func(t *testing.T) {
		tries := 0
		f := newFetcher(t, Options{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			tries++
			return nil, errors.New("connection refused")
		})})
		_, err := f.Get(t.Context(), pause(pinned))
		var missing *UnavailableError
		if !errors.As(err, &missing) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("error is %v after %d tries", err, tries)
		}
	})
	t.Run("tampered", func(t *testing.T) {
		for _, part := range []string{"/manifests/", "/blobs/"} {
			f := newFetcher(t, Options{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				resp, err := transport.RoundTrip(r)
				if err == nil && strings.Contains(r.URL.Path, part) {
					data := must(io.ReadAll(resp.Body))
					data[len(data)/2] ^= 1
					resp.Body = io.NopCloser(bytes.NewReader(data))
				}
				return resp, err
			})})
			_, err := f.Get(t.Context(), pause(pinned))
			var missing *UnavailableError
			if err == nil || errors.As(err, &missing) {
				t.Errorf("%s: error is %v, want one that is no reason to build", part, err)
			}
			if left := listing(t, f.cache.Dir); len(left) > 0 {
				t.Errorf("%s: left behind %v", part, left)
			}
		}
	})
}

func TestMirrorDirectory(t *testing.T) {
	dir := t.TempDir()
	data := noise(10 << 10)
	file := filepath.Join(dir, "up.example", "v1", "tool")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, data, 0o644)); err != nil {
		t.Fatal(err)
	}
	f := newFetcher(t, Options{Mirror: dir})
	r, err := f.Get(t.Context(), tool("tool", address, data))
	if err != nil || !bytes.Equal(content(t, r, "/usr/bin/tool"), data) {
		t.Errorf("from a directory: %v", err)
	}
	_, err = f.Get(t.Context(), tool("other", "https://up.example/v1/other", noise(5)))
	if err == nil || !strings.Contains(err.Error(), "mirror "+dir+": https://up.example/v1/other: 404 Not Found") {
		t.Errorf("a file that the mirror lacks: %v", err)
	}
	for mirror, want := range map[string]string{file: "is not a directory", dir + "/none": "no such file", "ftp://up.example": "neither an http(s) address nor a directory"} {
		if _, err := New(Options{Mirror: mirror, Cache: t.TempDir()}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("mirror %s: %v, want %q", mirror, err, want)
		}
	}
}

// A mirror may send us elsewhere; that is no upstream address to be mapped again.
func TestMirrorRedirect(t *testing.T) {
	u := newUpstream(t)
	data := noise(1000)
	u.fault = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if !strings.HasPrefix(r.URL.Path, "/up.example/") {
			return false
		}
		http.Redirect(w, r, (&url.URL{Path: "/store/" + sha(data)}).String(), http.StatusFound)
		return true
	}
	u.files["/store/"+sha(data)] = data
	r, err := newFetcher(t, Options{Mirror: u.URL}).Get(t.Context(), tool("tool", address, data))
	if err != nil || !bytes.Equal(content(t, r, "/usr/bin/tool"), data) {
		t.Errorf("after a redirect: %v", err)
	}
	if got := u.seen(); !slices.Equal(got, []string{"all", "all"}) {
		t.Errorf("asked %v", got)
	}
}
