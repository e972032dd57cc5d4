package image_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake/baketest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/containerd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/fetch"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/oci"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// The images of an archive of the template's are unpacked, and described. The same image twice is
// an error, and so is a reference without a digest.
func TestContainerArchives(t *testing.T) {
	var archive bytes.Buffer
	if err := oci.WriteProgram(&archive, oci.Program{Name: "web", Content: []byte("program"), Image: "registry.example/shop/web", Tag: "1.2", User: oci.NobodyUser, Arch: "amd64"}); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "web.oci")
	if err := os.WriteFile(name, archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	file, mirror := baketest.SmallRelease(t, load(t, bake.DefaultLock))
	plan := image.Plan{
		Plan: bake.Plan{Assets: images.FS, Units: units.FS, Lock: load(t, file), Architecture: "amd64",
			Extra: []rootfs.Entry{rootfs.Bytes(rootfs.FromAgent, rootfs.AgentPath, 0o755, []byte("agent")), rootfs.Bytes(rootfs.FromReader, rootfs.ReaderPath, 0o755, []byte("reader"))}},
		Fetch:             fetch.Options{Mirror: mirror, Cache: filepath.Join(mirror, "cache"), Source: fetch.Release},
		ContainerArchives: []string{name},
	}
	job, err := plan.Compose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list := job.Image.Containers
	if len(list) != 1 || list[0].Name != "registry.example/shop/web:1.2" || list[0].Origin != "file" {
		t.Fatalf("the images are %+v", list)
	}
	if e, ok := job.Tree.Entry(list[0].Path + "/web"); !ok || e.Size != int64(len("program")) || e.Component != bake.FromContainers {
		t.Errorf("the tree has %+v", e)
	}
	for e := range job.Tree.All() {
		if strings.HasSuffix(e.Path, ".tar") {
			t.Errorf("the tree has the archive %s", e.Path)
		}
	}
	if !job.Tree.Has(containerd.Seed + "/" + containerd.Mark) {
		t.Error("containerd does not begin with the images")
	}
	if text, err := json.Marshal(list[0]); err != nil || strings.Contains(string(text), "Entry") {
		t.Errorf("described as %s, %v", text, err)
	}

	var capable bytes.Buffer
	w := tar.NewWriter(&capable)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "ping", Mode: 0o755, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "x"}}), w.Close()); err != nil {
		t.Fatal(err)
	}
	plan.ContainerArchives = []string{ociArchive(t, "registry.example/shop/ping", capable.Bytes())}
	told := ""
	plan.OnArchive = func(archive, why string) { told += archive + ": " + why }
	const want = "/usr/lib/hardtack/images/layer.tar: registry.example/shop/ping:1: /ping has the extended attribute security.capability"
	if job, err = plan.Compose(t.Context()); err != nil || told != want || !job.Tree.Has("/usr/lib/hardtack/images/layer.tar") {
		t.Errorf("an image with a capability: %v, told %q, want %q", err, told, want)
	}

	plan.ContainerArchives = []string{name, name}
	if _, err := plan.Compose(t.Context()); err == nil || !strings.Contains(err.Error(), "registry.example/shop/web:1.2 is there twice") {
		t.Errorf("the same image twice: %v", err)
	}
	plan.ContainerArchives, plan.ContainerImages = nil, []string{"registry.example/shop/web:1.2"}
	if _, err := plan.Compose(t.Context()); err == nil || !strings.Contains(err.Error(), "has no digest") {
		t.Errorf("no digest: %v", err)
	}
}

// ociArchive is a file with an image of one layer.
func ociArchive(t *testing.T, name string, layer []byte) string {
	t.Helper()
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), l)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := oci.Write(&text, image, name+":1", "1"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "layer.tar")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
