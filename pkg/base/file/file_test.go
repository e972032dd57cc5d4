package file_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
)

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
