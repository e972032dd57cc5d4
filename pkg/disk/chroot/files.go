package chroot

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// WriteFile writes a file of the root, with parents as needed; the permission bits of mode are the
// file's, 0 meaning 0644. It is written inside the root, so that a link in it cannot lead out.
func (r *Root) WriteFile(ctx context.Context, name string, mode fs.FileMode, content io.Reader) error {
	perm := mode.Perm()
	if perm == 0 {
		perm = 0o644
	}
	script := fmt.Sprintf("set -e; f=%s; mkdir -p %s; cat >\"$f\"; chmod %04o \"$f\"",
		run.Quote(name), run.Quote(path.Dir(name)), perm)
	return r.mustRun(ctx, "writing "+name, script, content, nil)
}

// ReadFile copies a file of the root to w.
func (r *Root) ReadFile(ctx context.Context, name string, w io.Writer) error {
	return r.mustRun(ctx, "reading "+name, "exec cat "+run.Quote(name), nil, w)
}

// Unpack makes the directory dir in the root and unpacks a tar stream there, as root, keeping modes.
func (r *Root) Unpack(ctx context.Context, dir string, archive io.Reader) error {
	script := fmt.Sprintf("set -e; mkdir -p %s; exec tar -C %[1]s --no-same-owner -p -xf -", run.Quote(dir))
	return r.mustRun(ctx, "unpacking into "+dir, script, archive, nil)
}

// Pack writes the content of the directory dir of the root as a tar stream to w.
func (r *Root) Pack(ctx context.Context, dir string, w io.Writer) error {
	return r.mustRun(ctx, "packing "+dir, "exec tar -C "+run.Quote(dir)+" -cf - .", nil, w)
}

// mustRun runs a script and returns an error with its output if the exit status is not 0.
func (r *Root) mustRun(ctx context.Context, what, script string, stdin io.Reader, stdout io.Writer) error {
	var said bytes.Buffer
	exit, err := r.Run(ctx, script, stdin, stdout, &said)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if exit != 0 {
		return fmt.Errorf("%s: exit status %d: %s", what, exit, strings.TrimSpace(said.String()))
	}
	return nil
}
