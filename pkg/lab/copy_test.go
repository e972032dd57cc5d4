package lab

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// localShell is bash on this computer, as a machine's would be: one output, and an argument no longer than the kernel takes.
func localShell(ctx context.Context, script string, out io.Writer) (int, error) {
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// TestCopy: what is copied to a machine and back is what it was, with odd names, in directories, larger than one command.
func TestCopy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	large := make([]byte, 3*copyPiece+17)
	if _, err := rand.Read(large); err != nil {
		t.Fatal(err)
	}
	for _, make := range []error{
		os.MkdirAll(at("here/a dir/below"), 0o755), os.MkdirAll(at("machine/tmp"), 0o755),
		os.WriteFile(at("here/a dir/it's large"), large, 0o640), os.WriteFile(at("here/a dir/below/empty"), nil, 0o755),
		os.Symlink("below/empty", at("here/a dir/link")),
	} {
		if make != nil {
			t.Fatal(make)
		}
	}
	if err := sendBy(t.Context(), localShell, at("here/a dir"), at("machine/tmp")); err != nil {
		t.Fatal(err)
	}
	if err := fetchBy(t.Context(), localShell, at("machine/tmp/a dir"), at("back")); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "diff", "--recursive", "--no-dereference", at("here/a dir"), at("back")).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	info, err := os.Stat(at("back/it's large"))
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v, want mode 0640", info, err)
	}
	// A file under another name, over one that is there.
	if err := sendBy(t.Context(), localShell, at("here/a dir/it's large"), at("machine/other")); err != nil {
		t.Fatal(err)
	}
	if err := fetchBy(t.Context(), localShell, at("machine/other"), at("back/below/empty")); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(at("back/below/empty")); err != nil || !bytes.Equal(got, large) {
		t.Errorf("%d bytes, %v, want %d", len(got), err, len(large))
	}
	for _, left := range []string{at(".hardtack-cp-*"), at("machine/.hardtack-cp-*"), at("machine/tmp/.hardtack-cp-*")} {
		if found, _ := filepath.Glob(left); len(found) > 0 {
			t.Errorf("left behind: %v", found)
		}
	}
}

// TestCopyFails: what is missing is named by the one who looked, and nothing is left.
func TestCopyFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := fetchBy(t.Context(), localShell, "/nowhere/file", filepath.Join(dir, "x")); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("a missing file of the machine: %v", err)
	}
	if err := sendBy(t.Context(), localShell, filepath.Join(dir, "none"), "/tmp"); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("a missing file here: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := sendBy(t.Context(), localShell, filepath.Join(dir, "file"), "/nowhere/at/all"); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("a missing directory of the machine: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// TestUnpackStaysInside: a machine cannot write beside what was asked for.
func TestUnpackStaysInside(t *testing.T) {
	t.Parallel()
	for _, headers := range [][]tar.Header{
		{{Name: "../out", Typeflag: tar.TypeReg}},
		{{Name: "link", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "link/out", Typeflag: tar.TypeReg}},
		{{Name: "pipe", Typeflag: tar.TypeFifo}},
	} {
		var data bytes.Buffer
		zipped := gzip.NewWriter(&data)
		archive := tar.NewWriter(zipped)
		for _, h := range headers {
			if err := archive.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(archive.Close(), zipped.Close()); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		inside := filepath.Join(dir, "inside")
		if err := os.Mkdir(inside, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unpack(&data, inside); err == nil {
			t.Errorf("%v was unpacked", headers)
		}
		if _, err := os.Lstat(filepath.Join(dir, "out")); err == nil {
			t.Errorf("%v was written outside", headers)
		}
	}
}
