package boot

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/sealed"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/userdata"
)

// sealedRoot is what the kernel of a machine with a sealed root was told.
var sealedRoot = tree{"proc/cmdline": sealed.Argument + "=0 quiet\n"}

// TestSealedAppend boots a machine twice whose /etc is new each time, and not the same: its users' file has the day of the boot.
func TestSealedAppend(t *testing.T) {
	const shadow = "etc/shadow"
	data := tree{credential: minions + "- {path: /etc/shadow, append: true, content: \"admin\\n\"}\n- {path: /var/log/boots, append: true, content: \"boot\\n\"}\n"}
	root := data.with(sealedRoot, tree{"var/log/boots": "log\n"}).make(t)
	for _, day := range []string{"20786", "20787"} {
		tree{shadow: day + "\n", "proc/sys/kernel/random/boot_id": day + "\n"}.put(t, root)
		for range 2 { // the reader's unit, started again
			mustRun(t, root)
			if got := readTree(t, root); got[shadow] != day+"\nadmin\n" || got["var/log/boots"] != "log\nboot\n" {
				t.Errorf("on day %s: %q, and in /var %q", day, got[shadow], got["var/log/boots"])
			}
		}
	}
}

// TestSealedRoot asks for files on a root that is mounted read-only, as a sealed one is, beside an /etc that is not.
func TestSealedRoot(t *testing.T) {
	root := t.TempDir()
	usr := filepath.Join(root, "usr")
	if err := errors.Join(os.Mkdir(usr, 0o755), os.Mkdir(filepath.Join(root, "etc"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", usr, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Skipf("mounts a file system, which takes root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(usr, 0); err != nil {
			t.Error(err)
		}
	})
	a := newAgent(Options{Root: root})
	files := []userdata.File{{Path: "/usr/lib/one", Mode: 0o644}, {Path: "/etc/deep/two", Mode: 0o644}, {Path: "/usr/three", Mode: 0o644}}
	_, err := a.plan(files)
	if err == nil {
		t.Fatal("it was planned")
	}
	for _, want := range []string{"/usr/lib/one cannot be written", "/usr/three cannot be written", "sealed", "baked into the image"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "/etc/deep") {
		t.Errorf("the error is about /etc too: %v", err)
	}
	if steps, err := a.plan(files[1:2]); err != nil || len(steps) != 1 {
		t.Errorf("/etc alone: %v, %v", steps, err)
	}
}

// TestSealedFull: on a machine whose state partition is full a reboot keeps the roles. The record of what was appended to /etc in
// the boot before is of no use in this one.
func TestSealedFull(t *testing.T) {
	data := tree{credential: minions + "- {path: /etc/hosts, append: true, content: \"10.0.0.1 x\\n\"}\n"}
	root := data.with(sealedRoot, tree{"etc/hosts": "h\n", "proc/sys/kernel/random/boot_id": "1\n"}).make(t)
	state := filepath.Dir(filepath.Join(root, recordFile))
	if err := os.MkdirAll(state, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", state, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mounts a file system to fill it, which is root's: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(state, 0) })
	mustRun(t, root)
	if err := os.WriteFile(filepath.Join(state, "full"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("filling it: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(root, "etc")); err != nil { // the next boot's is new
		t.Fatal(err)
	}
	tree{"etc/hosts": "h\n", "proc/sys/kernel/random/boot_id": "2\n"}.put(t, root)
	mustRun(t, root)
	if _, err := os.Stat(filepath.Join(root, minionsFile)); err != nil {
		t.Error(err)
	}
}
