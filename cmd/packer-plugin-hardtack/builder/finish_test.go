//go:build linux

package builder

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	packersdk "github.com/hashicorp/packer-plugin-sdk/packer"

	"github.com/hardtack/packer-plugin-hardtack/pkg/disk"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/chroot"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/provenance"
)

// filesIn writes files below a directory.
func filesIn(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPublishReplaces replaces an image that has a description, by a build that succeeds and by builds that fail: no disk is ever
// beside the description of another one, by which it would be published with the other one's root hash.
func TestPublishReplaces(t *testing.T) {
	const disks, manifest = "hardtack.raw", `{"schema": 1, "tree": {"digest": "12"}}`
	described := "image.json " + provenance.File
	for name, test := range map[string]struct {
		root map[string]string // what the root directory has
		left string            // in the output directory
	}{
		"the same way":            {map[string]string{bake.ManifestPath: manifest}, disks + " " + described},
		"without the provisioner": {map[string]string{"etc/hostname": "x"}, disks},
		"a manifest that is none": {map[string]string{bake.ManifestPath: "not json"}, ""},
		"a list that is none":     {map[string]string{bake.ManifestPath: manifest, bake.RolesPath + "/is/a": "directory"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir, work, out := t.TempDir(), t.TempDir(), t.TempDir()
			filesIn(t, dir, test.root)
			filesIn(t, work, map[string]string{"disk/disk.raw": "new"})
			old := map[string]string{disks: "old", provenance.File: "old"}
			for _, path := range bake.Descriptions() {
				old[filepath.Base(path)] = "old"
			}
			filesIn(t, out, old)
			root, err := chroot.New(dir, 0)
			if err != nil {
				t.Fatal(err)
			}
			b, err := prepare(t, map[string]any{"output_directory": out, "formats": []string{"raw"}})
			if err != nil {
				t.Fatal(err)
			}
			ui := &packersdk.BasicUi{Reader: strings.NewReader(""), Writer: io.Discard, ErrorWriter: io.Discard}
			step := &stepPublish{&job{config: &b.config, work: work, root: root, ui: ui, disk: disk.Result{RootHash: "34"}}}
			if err := step.publish(); (err == nil) != (test.left != "") {
				t.Errorf("publishing: %v", err)
			}
			files, err := os.ReadDir(out)
			if err != nil {
				t.Fatal(err)
			}
			var left []string
			for _, f := range files {
				left = append(left, f.Name())
				if content, err := os.ReadFile(filepath.Join(out, f.Name())); err != nil || string(content) == "old" {
					t.Errorf("%s is that of the image before, %v", f.Name(), err)
				}
			}
			if got := strings.Join(left, " "); got != test.left {
				t.Errorf("left are %q, want %q", got, test.left)
			}
		})
	}
}
