package main_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/version"
)

// compiler stands in for `go build` of a release, which would take an hour for six systems: of this system it gives the plugin that the
// tests have, and of others a text. That both programs compile for those is cmd's TestElsewhere. Everything else is asked of the real one.
const compiler = `#!/bin/sh
if [ "$1" != build ]; then exec %q "$@"; fi
while [ "$1" != -o ]; do shift; done
case "$2" in
*plugin*_%s) cp %q "$2" ;;
*) echo "for another system" >"$2"; chmod +x "$2" ;;
esac
`

// TestGoReleaser makes a release by GoReleaser itself, without publishing it: its files have the names that TestPackerInit has made of
// .goreleaser.yml, and Packer installs them.
func TestGoReleaser(t *testing.T) {
	// It runs wherever GoReleaser is built already.
	if built := exec.CommandContext(t.Context(), "../../scripts/tool", "-n", "goreleaser").Run(); built != nil && os.Getenv("HARDTACK_E2E_LONG") != "1" {
		t.Skip("GoReleaser is not built yet, which takes minutes: run make e2e-long, or set HARDTACK_E2E_LONG=1")
	}
	tool, err := exec.CommandContext(t.Context(), "../../scripts/tool", "goreleaser").Output()
	if err != nil {
		t.Fatalf("scripts/tool goreleaser: %v", err)
	}
	golang, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	programs, dir, plugin := t.TempDir(), t.TempDir(), released(t)
	text := fmt.Sprintf(compiler, golang, runtime.GOOS+"_"+runtime.GOARCH, plugin)
	if err := file.WriteProgram(filepath.Join(programs, "go"), strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".goreleaser.yml", "LICENSE", "go.mod", "cmd/hardtack/main.go", "cmd/packer-plugin-hardtack/main.go"} {
		put(t, filepath.Join(dir, name), read(t, filepath.Join("../..", name)))
	}
	put(t, filepath.Join(dir, ".gitignore"), "/dist/\n")
	env := append(os.Environ(), "PATH="+programs+string(filepath.ListSeparator)+os.Getenv("PATH"), "API_VERSION="+apiVersion(t), "GOFLAGS=-mod=mod",
		"GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull)
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = dir, env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
		}
	}
	git := func(args ...string) {
		t.Helper()
		run("git", append([]string{"-c", "user.name=nobody", "-c", "user.email=nobody@example.com"}, args...)...)
	}
	git("init", "--quiet")
	git("remote", "add", "origin", "https://github.com/hardtack/packer-plugin-hardtack")
	git("add", ".")
	git("commit", "--quiet", "--message=release")
	git("tag", "v"+version.Version)
	goreleaser := strings.TrimSpace(string(tool))
	run(goreleaser, "check")
	run(goreleaser, "release", "--clean", "--skip=before,publish,announce")
	files := map[string][]byte{}
	for _, pattern := range []string{"*.zip", "*SHA256SUMS"} {
		made, err := filepath.Glob(filepath.Join(dir, "dist", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range made {
			files[filepath.Base(file)] = []byte(read(t, file))
		}
	}
	if want, got := slices.Sorted(maps.Keys(release(t, plugin))), slices.Sorted(maps.Keys(files)); !slices.Equal(want, got) {
		t.Fatalf("TestPackerInit has\n%s\nand GoReleaser makes\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
	initInstalls(t, files)
}
