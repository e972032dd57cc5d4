// Package uefivarstest reads stores of UEFI variables for tests with the tool that EC2's user guide names for them, python-uefivars.
package uefivarstest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/judges"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// Variable names a checkout of the tool, where it is not beside the other judges.
const Variable = "HARDTACK_UEFIVARS"

// Convert returns a store, as EC2 takes it, in another form of the tool's: json, or edk2, which is a file of OVMF's variables. The test
// skips where the tool is not there, or lacks a module of Python's.
func Convert(t *testing.T, store, form string) []byte {
	t.Helper()
	tool := os.Getenv(Variable)
	if tool == "" {
		tool = judges.Path("python-uefivars")
	}
	if _, err := os.Stat(filepath.Join(tool, "uefivars")); err != nil {
		t.Skipf("EC2's own tool is not here: git clone https://github.com/awslabs/python-uefivars %s, or set %s to where it is (%v)", tool, Variable, err)
	}
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := os.WriteFile(in, []byte(store), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := run.Output(t.Context(), "python3", filepath.Join(tool, "uefivars"), "-i", "aws", "-I", in, "-o", form, "-O", out)
	if err != nil && strings.Contains(err.Error(), "No module named") {
		t.Skipf("EC2's own tool lacks a module: pip install -r %s (%v)", filepath.Join(tool, "requirements.txt"), err)
	}
	text, reading := os.ReadFile(out)
	if err := errors.Join(err, reading); err != nil {
		t.Fatalf("reading UEFI variables: %v", err)
	}
	return text
}
