package bake_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// wanted are Debian's units that an image starts, besides those that systemd itself always starts.
var wanted = []string{
	"apparmor.service", "getty@.service", "remote-fs.target", "systemd-resolved.service", "systemd-timesyncd.service",
	"systemd-pstore.service", // what the kernel said last, before a panic
	"fstrim.timer",           // local disks, thin volumes and the lab's
}

// TestNobodyAskedFor: nothing of Debian's packages starts in an image that nobody asked for. apt and the backup of dpkg's
// database are for systems that change, and e2scrub is for volumes of LVM.
func TestNobodyAskedFor(t *testing.T) {
	t.Parallel()
	root := base.Root(t, "../../../images", 20)
	if got := enabled(t, root); len(got) <= len(wanted) {
		t.Fatalf("Debian enables no more than is wanted, so that this test shows nothing: %v", got)
	}
	rootfs, err := fs.Sub(images.FS, "rootfs")
	if err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(rootfs, "etc/systemd", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(root, name), 0o755)
		}
		content, err := fs.ReadFile(rootfs, name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(root, name), content, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range enabled(t, root) {
		if !slices.Contains(wanted, name) {
			t.Errorf("%s starts in every image: mask it by an empty file in images/rootfs/etc/systemd/system, or say here why it is wanted", name)
		}
	}
}

// enabled asks systemd which units of a root directory are enabled.
func enabled(t *testing.T, root string) []string {
	t.Helper()
	out, err := run.Output(t.Context(), "systemctl", "--root="+root, "list-unit-files", "--state=enabled", "--output=json")
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		Name string `json:"unit_file"`
	}
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var names []string
	for _, u := range list {
		names = append(names, u.Name)
	}
	return names
}
