// Package ukitest makes the programs that tests of unified kernel images begin with.
package ukitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// Stub is a small EFI program with room for a few sections in its header, as objcopy writes one of nothing but a byte.
func Stub(t *testing.T) []byte {
	t.Helper()
	for _, program := range []string{"as", "ld", "objcopy"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%v: install Debian's package binutils", err)
		}
	}
	dir := t.TempDir()
	out := filepath.Join(dir, "stub.efi")
	script := `printf '.globl _start\n_start: ret\n.data\n.quad 1\n' | as -o s.o - && ld -m i386pep -o "$1" -e _start --subsystem 10 s.o 2>&1`
	if err := run.Run(t.Context(), run.Command{Name: "sh", Args: []string{"-c", script, "sh", out}, Dir: dir}); err != nil {
		t.Skipf("this computer's binutils make no EFI program: %v", err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
