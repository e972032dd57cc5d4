package file_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
)

// TestReadUpTo: a file of the limit is read, a larger one and one without an end are not.
func TestReadUpTo(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(name, []byte("four"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := file.ReadUpTo(name, 4); err != nil || string(data) != "four" {
		t.Errorf("%q, %v", data, err)
	}
	for _, name := range []string{name, "/dev/zero"} {
		if data, err := file.ReadUpTo(name, 3); err == nil || err.Error() != "read "+name+": it is larger than 3 bytes" {
			t.Errorf("%q, %v", data, err)
		}
	}
}

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a")
	for _, step := range []struct {
		content string
		changed bool
	}{{"one", true}, {"one", false}, {"two", true}, {"", true}} {
		changed, err := file.Replace(name, []byte(step.content), 0o640)
		if err != nil || changed != step.changed {
			t.Fatalf("%q: changed %v, %v", step.content, changed, err)
		}
		if have, err := os.ReadFile(name); err != nil || string(have) != step.content {
			t.Fatalf("%q: %q, %v", step.content, have, err)
		}
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	// A directory in its place is an error, and leaves nothing beside it.
	if err := os.Mkdir(filepath.Join(dir, "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := file.Replace(filepath.Join(dir, "b"), nil, 0o600); err == nil {
		t.Error("a directory is replaced")
	}
	if _, err := file.Replace(filepath.Join(dir, "none", "c"), nil, 0o600); err == nil {
		t.Error("a directory is made")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left: %v, %v", left, err)
	}
}
