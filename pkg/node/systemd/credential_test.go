package systemd_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/systemd"
)

func TestCredential(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "there"), []byte(" http://192.0.2.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "broken"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	if got, err := systemd.Credential("there"); got != "" || err != nil {
		t.Errorf("a unit without credentials: %q, %v", got, err)
	}
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	for name, want := range map[string]string{"there": "http://192.0.2.1", "elsewhere": ""} {
		if got, err := systemd.Credential(name); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	if _, err := systemd.Credential("broken"); err == nil {
		t.Error("what cannot be read is no error")
	}
}
