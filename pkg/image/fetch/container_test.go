package fetch

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/oci"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/oci/ocitest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// TestContainer fetches from a registry on loopback by the digest, whatever the tag has become since, and from the cache when the
// registry is gone. Another tag of the digest is an archive of its own.
func TestContainer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(registry.New())
	host := strings.TrimPrefix(server.URL, "http://")
	index := pauseIndex(t)
	tag, err := name.NewTag(host + "/shop/web:1.2")
	if err == nil {
		err = remote.WriteIndex(tag, index)
	}
	if err == nil {
		err = remote.WriteIndex(tag, pauseIndex(t)) // the tag moves on
	}
	if err != nil {
		t.Fatal(err)
	}
	digest := must(index.Digest()).String()
	cache := t.TempDir()
	f, err := New(Options{Arch: "arm64", Cache: cache, Source: Release})
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"registry", "cache"} {
		got, err := f.Container(t.Context(), host+"/shop/web:1.2@"+digest)
		if err != nil {
			t.Fatalf("%s: %v", state, err)
		}
		want := bake.Container{Name: host + "/shop/web:1.2", Digest: digest, Origin: "registry"}
		archive := content(t, Result{Entries: []rootfs.Entry{got.Entry}}, got.Path)
		got.Entry = want.Entry
		if got.Name != want.Name || got.Digest != want.Digest || !strings.HasPrefix(got.Path, oci.Dir+"/web-") || got.Origin != want.Origin {
			t.Errorf("%s: %+v, want %+v", state, got, want)
		}
		if other, err := f.Container(t.Context(), host+"/shop/web:latest@"+digest); err != nil || other.Path == got.Path {
			t.Errorf("%s: two tags of a digest are both at %s, %v", state, other.Path, err)
		}
		img, desc := ocitest.Unpack(t, archive)
		if arch := must(img.ConfigFile()).Architecture; arch != "arm64" || desc.Annotations["io.containerd.image.name"] != want.Name {
			t.Errorf("%s: the archive has an image of %s, called %v", state, arch, desc.Annotations)
		}
		server.Close()
	}
	if _, err := f.Container(t.Context(), host+"/shop/web:1.2@sha256:"+strings.Repeat("0", 64)); err == nil || !strings.Contains(err.Error(), "fetching the container image") {
		t.Errorf("what no registry and no cache has: %v", err)
	}
}

func TestParseContainer(t *testing.T) {
	t.Parallel()
	good := "sha256:" + strings.Repeat("a", 64)
	d, err := ParseContainer("registry.example:5000/shop/web:1.2@" + good)
	if err != nil || d.URL != "oci://registry.example:5000/shop/web:1.2" || d.Digest != good {
		t.Errorf("%+v, %v", d, err)
	}
	for bad, want := range map[string]string{
		"registry.example/web:1.2":                "has no digest",
		"registry.example/web@" + good:            "is not of the form",
		"web:1.2@" + good:                         "is not of the form",
		"registry.example/web:1.2@sha256:12":      "digest that is none",
		"registry.example/web:1.2@md5:00":         "digest that is none",
		"registry.example/Web:1.2@" + good:        "is not of the form",
		"registry.example/web:1.2@" + good + "@x": "digest that is none",
		"": "is not of the form",
	} {
		if d, err := ParseContainer(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseContainer(%q) = %+v, %v, want %q", bad, d, err, want)
		}
	}
}
