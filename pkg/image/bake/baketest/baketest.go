// Package baketest gives tests a Debian to bake into.
//
// Its rule: a test's Debian is its own, and gone when the test ends; what it cost to make is kept.
package baketest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
)

// Base is one unpacked Debian, which every test sees through an overlay of its own. The zero value is
// ready; Close it when the package's tests are done.
type Base struct {
	once sync.Once
	dir  string
	err  error
}

// Close removes what was unpacked.
func (b *Base) Close() error {
	if b.dir == "" {
		return nil
	}
	return os.RemoveAll(b.dir)
}

// Root is the root directory of a Debian with what images, the directory of that name in the checkout,
// lists as packages, and with room for that many MB more. The test is skipped where mounting is not allowed.
func (b *Base) Root(t *testing.T, images string, room int) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting an overlay needs root")
	}
	packages, err := bake.Packages(os.DirFS(images))
	if err != nil {
		t.Fatal(err)
	}
	b.once.Do(func() { b.dir, b.err = unpack(t.Context(), packages) })
	if b.err != nil {
		t.Fatal(b.err)
	}
	work := t.TempDir()
	mount(t, "tmpfs", work, "tmpfs", fmt.Sprintf("size=%dm", room))
	upper, scratch, root := filepath.Join(work, "upper"), filepath.Join(work, "work"), filepath.Join(work, "root")
	for _, dir := range []string{upper, scratch, root} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mount(t, "overlay", root, "overlay", "lowerdir="+b.dir+",upperdir="+upper+",workdir="+scratch)
	return root
}

// unpack makes the Debian, from a tar that is kept in the cache under the digest of what it is made of.
func unpack(ctx context.Context, packages []string) (string, error) {
	args := []string{"--variant=apt", "--include=" + strings.Join(packages, ","), "--dpkgopt=path-exclude=/usr/share/doc/*", "trixie"}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(strings.Join(args, "\n")))
	file := filepath.Join(cache, "hardtack", "test", hex.EncodeToString(sum[:8])+".tar")
	if _, err := os.Stat(file); err != nil {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return "", err
		}
		partial := fmt.Sprintf("%s.%d.tar", file, os.Getpid())
		defer os.Remove(partial) // gone already when all went well
		if err := run.Run(ctx, run.Command{Name: "mmdebstrap", Args: append(args, partial)}); err != nil {
			return "", err
		}
		if err := os.Rename(partial, file); err != nil {
			return "", err
		}
	}
	dir, err := os.MkdirTemp("", "hardtack-bake-test-")
	if err != nil {
		return "", err
	}
	return dir, run.Run(ctx, run.Command{Name: "tar", Args: []string{"--extract", "--numeric-owner", "--file", file, "--directory", dir}})
}

func mount(t *testing.T, source, dir, kind, options string) {
	t.Helper()
	if err := syscall.Mount(source, dir, kind, 0, options); err != nil {
		t.Fatalf("mounting %s on %s: %v", kind, dir, err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmounting %s: %v", dir, err)
		}
	})
}
