// Package imagestest makes root directories for the tests of programs that run on a machine.
package imagestest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/images"
)

// Root makes a root directory with the image's own files below /etc/kubernetes, and returns its path. Files maps paths to
// contents: each is added, or replaces the image's.
func Root(tb testing.TB, files map[string]string) string {
	tb.Helper()
	root := tb.TempDir()
	image, err := fs.Sub(images.FS, "rootfs/etc/kubernetes")
	if err == nil {
		err = os.CopyFS(filepath.Join(root, "etc/kubernetes"), image)
	}
	if err != nil {
		tb.Fatal(err)
	}
	Write(tb, root, files)
	return root
}

// Write writes files below a root directory.
func Write(tb testing.TB, root string, files map[string]string) {
	tb.Helper()
	for name, content := range files {
		file := filepath.Join(root, name)
		// Files copied from an embedded file system are read-only, so that they are replaced and not written to.
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			tb.Fatal(err)
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o600)); err != nil {
			tb.Fatal(err)
		}
	}
}
