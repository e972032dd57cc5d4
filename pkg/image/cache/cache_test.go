package cache

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestOpenSweeps: what killed processes have left is removed after a day, and nothing of a process that may be at work, nor a download
// that can be resumed.
func TestOpenSweeps(t *testing.T) {
	c, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	killed, written, working := now.Add(-leftFor-time.Minute), now.Add(-leftFor+time.Minute), now
	type left struct {
		path  string
		stays bool
	}
	var all []left
	add := func(path string, at time.Time, stays bool) {
		t.Helper()
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		all = append(all, left{path, stays})
	}
	for _, at := range []time.Time{killed, written, working} {
		dir, err := c.MakeBuildDir()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(dir, "src"), 0o755); err != nil {
			t.Fatal(err)
		}
		add(dir, at, at != killed)
	}
	if err := os.MkdirAll(c.partial(), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]time.Time{extractPrefix + "1": killed, extractPrefix + "2": written, "sha256-0123": killed} {
		path := filepath.Join(c.partial(), name)
		if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		add(path, at, name != extractPrefix+"1")
	}
	if _, err := Open(c.Dir); err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		if _, err := os.Stat(l.path); (err == nil) != l.stays {
			t.Errorf("%s: there %v, want %v", l.path, err == nil, l.stays)
		}
	}
}
