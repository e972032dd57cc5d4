package main

import (
	"debug/elf"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds/imdstest"
)

// maxSize bounds the program, in bytes: it is in every image, and a boot reads it from a cold disk. The clients of the
// Kubernetes API and of AWS are 9 MB of it; code that a command does not run is not read.
const maxSize = 18 << 20

// program is the agent as it goes into the image.
var program string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "hardtack-agent-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // the system's temporary directory is cleaned anyway
	program = filepath.Join(dir, "hardtack-agent")
	if err := build(program, "amd64"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// build makes the program as the image has it.
func build(out, arch string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building for %s: %w\n%s", arch, err, text)
	}
	return nil
}

// TestStatic checks that the program needs no other file, and its size, for both architectures.
func TestStatic(t *testing.T) {
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		t.Run(arch, func(t *testing.T) {
			name := program
			if arch != "amd64" {
				if testing.Short() {
					t.Skip("compiling for another architecture takes long, and -short is set")
				}
				name = filepath.Join(t.TempDir(), arch)
				if err := build(name, arch); err != nil {
					t.Fatal(err)
				}
			}
			f, err := elf.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			if f.Machine != machine {
				t.Errorf("machine %v", f.Machine)
			}
			if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC }) {
				t.Error("not static: it asks for a dynamic loader")
			}
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %.1f MB", arch, float64(info.Size())/1e6)
			if info.Size() > maxSize {
				t.Errorf("%d bytes, want at most %d", info.Size(), maxSize)
			}
		})
	}
}

// TestScripts runs the real program as a user does.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", filepath.Dir(program)+":"+env.Getenv("PATH"))
			server := httptest.NewServer(&imdstest.Service{InstanceID: "i-0123456789abcdef0"})
			env.Defer(server.Close)
			env.Setenv("IMDS", server.URL)
			return nil
		},
	})
}
