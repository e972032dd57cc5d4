package e2e

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

// labCopies copies a directory to a machine and back by the command, and compares what is there with what was here: names, contents and
// modes. The machine's own tools say what it has got.
func labCopies(t *testing.T, r *running, s lab.Status) {
	minion := s.Machines[slices.IndexFunc(s.Machines, func(m lab.MachineStatus) bool { return m.Group == "minions" })]
	here := filepath.Join(t.TempDir(), "sent")
	// More than one command carries, and nothing that gzip makes smaller.
	large := make([]byte, 70<<10)
	if _, err := rand.NewChaCha8([32]byte{1}).Read(large); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]struct {
		content []byte
		mode    os.FileMode
	}{"large": {large, 0o640}, "bin/it's run": {[]byte("#!/bin/sh\necho it runs\n"), 0o755}, "empty": {nil, 0o600}} {
		at := filepath.Join(here, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, file.content, file.mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("bin/it's run", filepath.Join(here, "link")); err != nil {
		t.Fatal(err)
	}
	if out, err := r.run(t.Context(), "lab", "cp", "--name", "e2e", here, minion.ID+":/run/copied"); err != nil {
		t.Fatalf("lab cp to the machine: %v: %s", err, out)
	}
	said := r.ask(t, minion.ID, "cd /run/copied && sha256sum large && stat --format '%n %U %a' large empty && ./link && ls -A /run | grep hardtack-cp; ls /tmp")
	for _, want := range []string{fmt.Sprintf("%x  large", sha256.Sum256(large)), "large root 640", "empty root 600", "it runs"} {
		if !strings.Contains(said, want) {
			t.Errorf("the machine has no %q: %s", want, said)
		}
	}
	if strings.Contains(said, "hardtack-cp") || strings.Contains(said, "tmp.") {
		t.Errorf("something of the copy is left on the machine: %s", said)
	}
	back := filepath.Join(t.TempDir(), "back")
	if out, err := r.run(t.Context(), "lab", "cp", "--name", "e2e", minion.ID+":/run/copied", back); err != nil {
		t.Fatalf("lab cp from the machine: %v: %s", err, out)
	}
	sent, got := listing(t, here), listing(t, back)
	if !slices.Equal(sent, got) {
		t.Errorf("sent\n%s\nand got\n%s", strings.Join(sent, "\n"), strings.Join(got, "\n"))
	}
	out, err := r.run(t.Context(), "lab", "cp", "--name", "e2e", minion.ID+":/run/nothing", back+"-nothing")
	if err == nil || !strings.Contains(out, "/run/nothing") {
		t.Errorf("lab cp of what is not there: %v: %s", err, out)
	}
	if _, err := os.Lstat(back + "-nothing"); err == nil {
		t.Error("a copy of what is not there has appeared")
	}
}

// listing is every file below dir by name, mode, and content or target.
func listing(t *testing.T, dir string) (lines []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path) // it is below
		info, err := d.Info()
		if err != nil {
			return err
		}
		var content []byte
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			content = []byte(target)
		case !d.IsDir():
			if content, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		lines = append(lines, fmt.Sprintf("%s %s %x", name, info.Mode(), sha256.Sum256(content)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}
