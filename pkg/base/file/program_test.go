package file

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
)

// TestWriteProgram runs what it has just written while others start processes.
func TestWriteProgram(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skipf("%s has no ETXTBSY", runtime.GOOS)
	}
	var done atomic.Bool
	var others atomic.Int64
	for range 4 {
		ended := make(chan struct{})
		t.Cleanup(func() { done.Store(true); <-ended })
		go func() {
			defer close(ended)
			for !done.Load() {
				if exec.Command("true").Run() == nil {
					others.Add(1)
				}
			}
		}()
	}
	dir := t.TempDir()
	for others.Load() < 400 {
		name := filepath.Join(dir, "program")
		if err := WriteProgram(name, strings.NewReader("#!/bin/sh\n")); err != nil {
			t.Fatal(err)
		}
		if err := exec.Command(name).Run(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}
