// Package ukitest makes the programs that tests of unified kernel images begin with.
package ukitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
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
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", out)
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("this computer's binutils make no EFI program: %v\n%s", err, text)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
