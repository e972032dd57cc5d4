//go:build linux

package builder

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestSweepTakesOnlyWhatNobodyHolds(t *testing.T) {
	parent := t.TempDir()
	living, lock, err := claim(parent)
	if err != nil {
		t.Fatal(err)
	}
	dead, killed, err := claim(parent)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dead, "disk"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := killed.Close(); err != nil { // as the kernel does for a process that is killed
		t.Fatal(err)
	}
	other := filepath.Join(parent, "hardtack.qcow2")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	swept, err := sweep(parent)
	if err != nil || !slices.Equal(swept, []string{dead}) {
		t.Fatalf("swept %q, %v; want only %q", swept, err, dead)
	}
	for path, want := range map[string]bool{living: true, dead: false, other: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s is there: %t, want %t", path, err == nil, want)
		}
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if swept, err := sweep(parent); err != nil || !slices.Equal(swept, []string{living}) {
		t.Errorf("swept %q, %v; want %q once it is let go", swept, err, living)
	}
}
