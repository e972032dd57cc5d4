package bake_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/chroot"
	"github.com/hardtack/packer-plugin-hardtack/pkg/run"
)

// base is an unpacked Debian for all tests of this package; each test sees it through an overlay.
var base struct {
	sync.Once
	dir string
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if base.dir != "" {
		if err := os.RemoveAll(base.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// packages of the test machine: those that every image needs.
func packages(t *testing.T) []string {
	t.Helper()
	names, err := bake.Packages(os.DirFS("../../images"))
	if err != nil {
		t.Fatal(err)
	}
	return names
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

// newTarget is a Debian of the test's own with room for that many MB.
func newTarget(t *testing.T, room int) (*chroot.Root, string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting an overlay needs root")
	}
	base.Do(func() { base.dir, base.err = unpack(t.Context(), packages(t)) })
	if base.err != nil {
		t.Fatal(base.err)
	}
	work := t.TempDir()
	mount(t, "tmpfs", work, "tmpfs", fmt.Sprintf("size=%dm", room))
	upper, scratch, root := filepath.Join(work, "upper"), filepath.Join(work, "work"), filepath.Join(work, "root")
	for _, dir := range []string{upper, scratch, root} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mount(t, "overlay", root, "overlay", "lowerdir="+base.dir+",upperdir="+upper+",workdir="+scratch)
	target, err := chroot.New(root, 0)
	if err != nil {
		t.Fatal(err)
	}
	return target, root
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

// wrapped is a target that a test interferes with; a nil hook does not.
type wrapped struct {
	bake.Target
	before func(script string) error
	stdin  func(script string, r io.Reader) io.Reader
}

func (w wrapped) Run(ctx context.Context, script string, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	if w.before != nil {
		if err := w.before(script); err != nil {
			return 0, err
		}
	}
	if w.stdin != nil && stdin != nil {
		stdin = w.stdin(script, stdin)
	}
	return w.Target.Run(ctx, script, stdin, stdout, stderr)
}
