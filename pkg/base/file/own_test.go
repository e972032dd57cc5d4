package file_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
)

func TestCheckOwn(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a")
	if err := file.CheckOwn(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("not there: %v", err)
	}
	if err := os.WriteFile(name, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[fs.FileMode]string{0o600: "", 0o755: "", 0o664: "chmod -R go-w " + name, 0o602: "chmod -R go-w " + name} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		data, err := file.ReadOwn(name)
		if want == "" && (err != nil || string(data) != "mine") {
			t.Errorf("%04o: %q %v", mode, data, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%04o: %v, want %s", mode, err, want)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("giving a file to another user needs root")
	}
	if err := errors.Join(os.Chmod(name, 0o600), os.Chown(name, 12345, 0)); err != nil {
		t.Fatal(err)
	}
	if err := file.CheckOwn(name); err == nil || !strings.Contains(err.Error(), "user 12345 and this is user 0") ||
		!strings.Contains(err.Error(), "chown -R 0 "+name) {
		t.Errorf("another's: %v", err)
	}
}

func TestReadWithin(t *testing.T) {
	host, dir := filepath.Join(t.TempDir(), "secret"), t.TempDir()
	write := func(name string) error { return os.WriteFile(name, []byte("text"), 0o600) }
	err := errors.Join(write(host), write(filepath.Join(dir, "plain")),
		os.Symlink("plain", filepath.Join(dir, "inside")),
		os.Symlink(host, filepath.Join(dir, "absolute")),
		os.Symlink("../"+filepath.Base(filepath.Dir(host))+"/secret", filepath.Join(dir, "relative")),
		os.Symlink(filepath.Dir(host), filepath.Join(dir, "sub")),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for name, ok := range map[string]bool{
		"plain": true, "inside": true, "absolute": false, "relative": false, "sub/secret": false, "pipe": false, ".": false, "none": false,
	} {
		if data, err := file.ReadWithin(dir, name); (err == nil) != ok || ok && string(data) != "text" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if _, err := file.ReadWithin(dir, "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
}
