//go:build linux

package builder

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
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

// TestBuildsBeginTogether: of builds that begin at once, as those of a template with several sources do, each keeps the directory
// that it has made.
func TestBuildsBeginTogether(t *testing.T) {
	for range 100 {
		parent := t.TempDir()
		start := make(chan struct{})
		var builds sync.WaitGroup
		for range 3 {
			builds.Go(func() {
				<-start
				_, lock, swept, err := enter(parent)
				if err != nil || len(swept) > 0 {
					t.Errorf("a build begins, has swept %q, and ends with %v", swept, err)
				}
				t.Cleanup(func() { _ = lock.Close() }) // nil where there is none
			})
		}
		close(start)
		builds.Wait()
	}
}
