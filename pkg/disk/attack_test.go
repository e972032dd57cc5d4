//go:build linux

package disk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// hostAndRoot makes two directories: host is a directory with a secret and a kernel, as the host of a bake has them; root is an empty root directory on the
// same file system.
func hostAndRoot(t *testing.T) (host, root string) {
	t.Helper()
	host, root = filepath.Join(t.TempDir(), "host"), t.TempDir()
	err := errors.Join(os.MkdirAll(host, 0o755),
		os.WriteFile(filepath.Join(host, "secret"), []byte("host secret"), 0o600),
		os.WriteFile(filepath.Join(host, "vmlinuz-1"), []byte("host kernel"), 0o600),
		os.WriteFile(filepath.Join(host, "initrd.img-1"), []byte("host initrd"), 0o600),
		os.MkdirAll(filepath.Join(root, "etc/kernel"), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	return host, root
}

// The root's content was written by programs of the root, and the composer runs on the host as root: a link of the one
// must not lead to the files of the other.
func TestAttackLinksToTheHost(t *testing.T) {
	host, root := hostAndRoot(t)
	if err := os.Symlink(filepath.Join(host, "secret"), filepath.Join(root, "etc/kernel/cmdline")); err != nil {
		t.Fatal(err)
	}
	if got, err := (Composer{Root: root}).extraArguments(); err == nil || strings.Contains(got, "secret") {
		t.Errorf("the kernel's command line is %q, %v", got, err)
	}
	m, err := machineOf("amd64")
	if err != nil {
		t.Fatal(err)
	}
	for at, to := range map[string]string{
		"boot": ".", "boot/vmlinuz-1": "vmlinuz-1", "boot/initrd.img-1": "initrd.img-1", m.loader: "secret",
	} {
		t.Run(filepath.Base(at), func(t *testing.T) {
			host, root := hostAndRoot(t)
			link := filepath.Join(root, at)
			if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(filepath.Join(host, to), link)); err != nil {
				t.Fatal(err)
			}
			// All else is as it should be, so that the link alone is refused.
			for _, name := range []string{"boot/vmlinuz-1", m.loader} {
				if at == "boot" && name != m.loader {
					continue
				}
				name := filepath.Join(root, name)
				if _, err := os.Lstat(name); err == nil {
					continue
				}
				if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte("own"), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			staging := t.TempDir()
			if err := (esp{root: root, machine: m}).stage(staging); err == nil {
				t.Error("it was taken")
			}
			for _, kept := range []string{"secret", "vmlinuz-1", "initrd.img-1"} {
				if _, err := os.Stat(filepath.Join(host, kept)); err != nil {
					t.Errorf("the host lost a file: %v", err)
				}
			}
			_ = filepath.Walk(staging, func(path string, info os.FileInfo, err error) error {
				if err == nil && info.Mode().IsRegular() {
					if data, _ := os.ReadFile(path); strings.HasPrefix(string(data), "host ") {
						t.Errorf("%s has the %s", path, data)
					}
				}
				return nil
			})
		})
	}
}

// What a link leads to inside the root directory is used, and the kernel leaves the root.
func TestMoveKernel(t *testing.T) {
	_, root := hostAndRoot(t)
	boot, staging := filepath.Join(root, "boot"), t.TempDir()
	err := errors.Join(os.MkdirAll(boot, 0o755), os.WriteFile(filepath.Join(boot, "vmlinuz-6.12"), []byte("kernel"), 0o600),
		os.WriteFile(filepath.Join(boot, "config-6.12"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if initrd, err := (esp{root: root}).moveKernel(staging); err != nil || initrd {
		t.Errorf("without an initrd: %v, %v", initrd, err)
	}
	if _, err := (esp{root: root}).moveKernel(staging); err == nil || !strings.Contains(err.Error(), "holds 0 kernels") {
		t.Errorf("the kernel is still there: %v", err)
	}
	for _, name := range []string{"vmlinuz-6.13", "initrd.img-6.13"} {
		if err := os.WriteFile(filepath.Join(boot, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	staging = t.TempDir()
	if initrd, err := (esp{root: root}).moveKernel(staging); err != nil || !initrd {
		t.Errorf("with an initrd: %v, %v", initrd, err)
	}
	for name, want := range map[string]string{"vmlinuz": "vmlinuz-6.13", "initrd": "initrd.img-6.13"} {
		if data, err := os.ReadFile(filepath.Join(staging, name)); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if left, _ := os.ReadDir(boot); len(left) != 1 {
		t.Errorf("left in /boot: %v", left)
	}
}
