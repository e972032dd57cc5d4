package image_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

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

	plan.ContainerArchives = []string{name, name}
	if _, err := plan.Compose(t.Context()); err == nil || !strings.Contains(err.Error(), "registry.example/shop/web:1.2 is there twice") {
		t.Errorf("the same image twice: %v", err)
	}
	plan.ContainerArchives, plan.ContainerImages = nil, []string{"registry.example/shop/web:1.2"}
	if _, err := plan.Compose(t.Context()); err == nil || !strings.Contains(err.Error(), "has no digest") {
		t.Errorf("no digest: %v", err)
	}
}
