package image_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
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
	plan := containersPlan(t)
	plan.ContainerArchives = []string{name}
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
	if job, err = plan.Compose(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := job.Image.Containers[0].Path
	if want := at + ": registry.example/shop/ping:1: /ping has the extended attribute security.capability"; told != want || !job.Tree.Has(at) || path.Ext(at) != ".tar" {
		t.Errorf("an image with a capability: told %q, want %q", told, want)
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

// containersPlan is a small image's plan, without container images.
func containersPlan(t *testing.T) image.Plan {
	t.Helper()
	file, mirror := baketest.SmallRelease(t, load(t, bake.DefaultLock))
	return image.Plan{
		Plan: bake.Plan{Assets: images.FS, Units: units.FS, Lock: load(t, file), Architecture: "amd64",
			Extra: []rootfs.Entry{rootfs.Bytes(rootfs.FromAgent, rootfs.AgentPath, 0o755, []byte("agent")), rootfs.Bytes(rootfs.FromReader, rootfs.ReaderPath, 0o755, []byte("reader"))}},
		Fetch: fetch.Options{Mirror: mirror, Cache: filepath.Join(mirror, "cache"), Source: fetch.Release},
	}
}

// Archives of one base name, in directories of their own, are both in the image.
func TestArchivesOfOneName(t *testing.T) {
	plan, left := containersPlan(t), map[string]bool{}
	plan.OnArchive = func(archive, _ string) { left[archive] = true }
	for _, name := range []string{"registry.example/shop/web", "registry.example/shop/db"} {
		var layer bytes.Buffer
		w := tar.NewWriter(&layer)
		// They stay archives, whose paths are the image's.
		if err := errors.Join(w.WriteHeader(&tar.Header{Name: "null", Typeflag: tar.TypeChar}), w.Close()); err != nil {
			t.Fatal(err)
		}
		plan.ContainerArchives = append(plan.ContainerArchives, ociArchive(t, name, layer.Bytes()))
	}
	job, err := plan.Compose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range job.Image.Containers {
		e, _ := job.Tree.Entry(c.Path)
		in, err := e.Open()
		if err != nil {
			t.Fatal(err)
		}
		if found, err := oci.Read(in); err != nil || len(found) != 1 || found[0].Name != c.Name {
			t.Errorf("%s is by image.json at %s, which has %v, %v", c.Name, c.Path, found, err)
		}
		_ = in.Close() // it was only read
		if !left[c.Path] {
			t.Errorf("nobody was told of %s", c.Path)
		}
	}
	if len(job.Image.Containers) != 2 {
		t.Errorf("the images are %+v", job.Image.Containers)
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
