package build

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/version"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/cache"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

// toolchain is the installed Go, or the one that the lock pins, and for programs with C code a C compiler for the architecture.
type toolchain struct {
	goCommand string
	version   string // "go1.26.8"
	// choice is the value of GOTOOLCHAIN: "local" is the installed Go.
	choice string
	arch   string
	// settings are the user's module proxy and cache directories.
	settings map[string]string
}

// kept lists the settings of `go env` that builds take from the user. None changes the result: go.sum and the checksum
// database fix it.
func kept() []string {
	return []string{"GOAUTH", "GOCACHE", "GOINSECURE", "GOMODCACHE", "GONOPROXY", "GONOSUMDB", "GOPATH", "GOPRIVATE", "GOPROXY", "GOSUMDB", "GOVCS"}
}

// passed lists the user's environment variables that builds get: those that find programs, and those of the network.
func passed() []string {
	return []string{"PATH", "HOME", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_DIR", "SSL_CERT_FILE"}
}

// pinnedGo returns the newest Go version for which the lock pins a program of the component; "" if it pins only
// programs without Go code.
func pinnedGo(c lock.Component, arch string) (string, error) {
	newest, any := "", false
	for _, p := range c.Pins {
		if p.Archive != "" || p.Version != c.Version || p.Arch != arch {
			continue
		}
		any = true
		if p.Go != "" && (newest == "" || version.Compare(newest, p.Go) < 0) {
			newest = p.Go
		}
	}
	if !any {
		return "", fmt.Errorf("the lock pins no program of %s %s for %s, and pins are required: `hardtack lock pin` writes them, and the source %s needs none",
			c.Name, c.Version, arch, lock.FromRelease)
	}
	return newest, nil
}

// findToolchain asks the Go on PATH for its version, and with asked, a Go version, has it fetch that one.
func findToolchain(ctx context.Context, arch, asked string) (toolchain, error) {
	t := toolchain{goCommand: "go", arch: arch, choice: cmp.Or(asked, "local"), settings: map[string]string{}}
	var out bytes.Buffer
	err := run.Run(ctx, run.Command{
		Name: t.goCommand, Args: append([]string{"env", "-json", "GOVERSION"}, kept()...),
		// Run outside any module, and only with that toolchain.
		Dir: os.TempDir(), Env: append(os.Environ(), "GOTOOLCHAIN="+t.choice, "GOWORK=off", "GOFLAGS="), Stdout: &out,
	})
	if errors.Is(err, exec.ErrNotFound) {
		return t, fmt.Errorf("%w: to build from modules, install Go (https://go.dev/dl) or put it on PATH, which sudo resets; or use the source %s", err, lock.FromRelease)
	}
	if err != nil && asked != "" {
		return t, fmt.Errorf("the lock's pins are of %s, and the installed Go cannot fetch it: %w (install that Go, or do not require pins)", asked, err)
	}
	if err != nil {
		return t, fmt.Errorf("asking Go for its settings: %w", err)
	}
	if err := json.Unmarshal(out.Bytes(), &t.settings); err != nil {
		return t, fmt.Errorf("asking Go for its settings: %w", err)
	}
	t.version = t.settings["GOVERSION"]
	delete(t.settings, "GOVERSION")
	return t, nil
}

// supports returns an error if the installed Go is older than the source requires.
func (t toolchain) supports(s source) error {
	if s.mod.Go == nil {
		return fmt.Errorf("module archive %s: go.mod has no Go version", s.name)
	}
	// A toolchain with an experiment has the version "go1.26.8 X:name".
	installed, _, _ := strings.Cut(t.version, " ")
	if version.Compare(installed, "go"+s.mod.Go.Version) < 0 {
		return fmt.Errorf("%s needs Go %s or newer and the installed one is %s: install it from https://go.dev/dl, or use the source %s",
			s.name, s.mod.Go.Version, strings.TrimPrefix(t.version, "go"), lock.FromRelease)
	}
	return nil
}

// pinned returns the settings that the result depends on, equal on every machine.
func (t toolchain) pinned(p lock.Program) []string {
	env := []string{
		"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + t.arch, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=-mod=readonly -trimpath -buildvcs=false", "GOTOOLCHAIN=" + t.choice, "GOWORK=off", "GOENV=off", "LC_ALL=C",
	}
	if p.CGO {
		env[0] = "CGO_ENABLED=1"
		env = append(env, "CC="+t.cc(), "AR="+t.prefix()+"ar")
	}
	if p.CGO && t.crosses() {
		// Without this pkg-config finds the libraries of this machine's architecture.
		env = append(env, "PKG_CONFIG_LIBDIR=/usr/lib/"+gnuTriplet(t.arch)+"/pkgconfig:/usr/share/pkgconfig")
	}
	return env
}

// environment returns the compiler's whole environment.
func (t toolchain) environment(p lock.Program, w workspace) []string {
	env := append(t.pinned(p), "GOTMPDIR="+w.tmp, "TMPDIR="+w.tmp)
	for _, name := range passed() {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	for _, name := range kept() {
		if value := t.settings[name]; value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func (t toolchain) crosses() bool { return t.arch != runtime.GOARCH }

// gnuTriplet returns Debian's name of the architecture in paths and program names.
func gnuTriplet(arch string) string {
	if arch == "arm64" {
		return "aarch64-linux-gnu"
	}
	return "x86_64-linux-gnu"
}

// prefix returns the prefix of the GNU tools' names; "" for this machine's architecture.
func (t toolchain) prefix() string {
	if t.crosses() {
		return gnuTriplet(t.arch) + "-"
	}
	return ""
}

func (t toolchain) cc() string { return t.prefix() + "gcc" }

// debianPackages returns the packages with the tools and libraries of a C build.
func (t toolchain) debianPackages() (compiler, binutils, seccomp string) {
	if !t.crosses() {
		return "gcc", "binutils", "libseccomp-dev"
	}
	triplet := strings.ReplaceAll(gnuTriplet(t.arch), "_", "-")
	return "gcc-" + triplet, "binutils-" + triplet, "libseccomp-dev:" + t.arch
}

// compilers finds the tools that the program needs beside Go, and returns their versions, on which the result
// depends. It runs before any compilation, so that a missing package is reported at once.
func (t toolchain) compilers(ctx context.Context, p lock.Program) ([]string, error) {
	if !p.CGO && p.Kind != kindPause {
		return nil, nil
	}
	compiler, binutils, seccomp := t.debianPackages()
	cc, err := t.versionOf(ctx, compiler, t.cc(), "--version")
	if err != nil {
		return nil, err
	}
	// The linker and strip are binutils', and the C library is linked statically: the result depends on both.
	ld, err := t.versionOf(ctx, binutils, t.prefix()+"ld", "--version")
	if err != nil {
		return nil, err
	}
	libc, err := t.libc(ctx)
	if err != nil {
		return nil, err
	}
	versions := []string{cc, ld, libc}
	if !slices.Contains(p.Tags, "seccomp") {
		return versions, nil
	}
	if _, err := t.versionOf(ctx, "pkg-config", "pkg-config", "--version"); err != nil {
		return nil, err
	}
	lib, err := t.library(ctx, p, "libseccomp", seccomp)
	return append(versions, lib), err
}

// versionOf returns the first line of the tool's version. If the tool is missing the error names its Debian package.
func (t toolchain) versionOf(ctx context.Context, debian, name string, args ...string) (string, error) {
	out, err := run.Output(ctx, name, args...)
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%w: building C code for %s needs the Debian package %s (apt-get install %[3]s)", err, t.arch, debian)
	}
	if err != nil {
		return "", fmt.Errorf("asking for a version: %w", err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return name + ": " + first, nil
}

// libc identifies the static C library by its content, since no tool prints its version for another architecture.
func (t toolchain) libc(ctx context.Context) (string, error) {
	out, err := run.Output(ctx, t.cc(), "-print-file-name=libc.a")
	if err != nil {
		return "", fmt.Errorf("asking for the C library: %w", err)
	}
	path := strings.TrimSpace(string(out))
	if !filepath.IsAbs(path) {
		debian := "libc6-dev"
		if t.crosses() {
			debian += "-" + t.arch + "-cross"
		}
		return "", fmt.Errorf("%s finds no static C library: it is in the Debian package %s (apt-get install %[2]s)", t.cc(), debian)
	}
	s, err := cache.Sum(ctx, path, "")
	if err != nil {
		return "", err
	}
	return "libc.a: " + s.Digest, nil
}

// library returns the version of a C library, from pkg-config.
func (t toolchain) library(ctx context.Context, p lock.Program, name, debian string) (string, error) {
	var out bytes.Buffer
	err := run.Run(ctx, run.Command{
		Name: "pkg-config", Args: []string{"--modversion", name}, Stdout: &out,
		Env: append(os.Environ(), t.pinned(p)...),
	})
	if err != nil {
		return "", fmt.Errorf("%w: the Debian package %s has the library %s (apt-get install %[2]s)", err, debian, name)
	}
	return name + ": " + strings.TrimSpace(out.String()), nil
}

// explain adds the next step to a compiler's error.
func (t toolchain) explain(err error) error {
	var failed *run.Error
	if !errors.As(err, &failed) {
		return err
	}
	for _, sign := range []string{"dial tcp", "no such host", "TLS handshake", "Forbidden", "Not Found", "i/o timeout"} {
		if strings.Contains(failed.Output, sign) {
			return fmt.Errorf("%w\n(Go modules come from GOPROXY=%s: check that it can be reached from here)", err, t.settings["GOPROXY"])
		}
	}
	if strings.Contains(failed.Output, "signal: killed") {
		return fmt.Errorf("%w\n(the compiler was killed: Kubernetes needs 2 GB of free memory to build)", err)
	}
	if strings.Contains(failed.Output, "no space left on device") {
		return fmt.Errorf("%w\n(Go's caches are %s and %s)", err, t.settings["GOCACHE"], t.settings["GOMODCACHE"])
	}
	return err
}
