package bake_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/chroot"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake/baketest"
)

var base baketest.Base

func TestMain(m *testing.M) {
	code := m.Run()
	if err := base.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// newTarget is a Debian of the test's own with room for that many MB.
func newTarget(t *testing.T, room int) (*chroot.Root, string) {
	t.Helper()
	root := base.Root(t, "../../../images", room)
	target, err := chroot.New(root, 0)
	if err != nil {
		t.Fatal(err)
	}
	return target, root
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
