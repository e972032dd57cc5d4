package debian

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"gotest.tools/v3/golden"
)

func TestCommand(t *testing.T) {
	for name, o := range map[string]Options{
		"default": {Suite: "trixie", Arch: "amd64"},
		"sealed":  {Suite: "trixie", Arch: "amd64", Sealed: true},
		"tools":   {Suite: "trixie", Arch: "amd64", Sealed: true, Initrd: true, Packages: []string{"zstd"}, Tools: true},
		"all": {
			Suite: "bookworm", Arch: "arm64", Mirror: "http://mirror.invalid/debian", Components: []string{"main", "contrib"},
			Keyring: "/keys.gpg", Packages: []string{"zstd", "acl", "systemd"}, Documentation: true, Initrd: true,
		},
	} {
		o, err := o.complete()
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(o.command("ROOT"), "\n") + "\n"
		golden.Assert(t, got, name+".golden")
	}
	if _, err := (Options{Arch: "riscv64"}).complete(); err == nil {
		t.Error("riscv64 was taken")
	}
}

func TestReadPackages(t *testing.T) {
	files := fstest.MapFS{"packages": {Data: []byte("# all\nudev\n\n  mount # for volumes\nnftables")}}
	got, err := ReadPackages(files, "packages")
	if want := []string{"udev", "mount", "nftables"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v %v, want %v", got, err, want)
	}
	if _, err := ReadPackages(files, "none"); err == nil {
		t.Error("a list that is not there was read")
	}
}

func TestReasons(t *testing.T) {
	const output = "Get:1 x\nErr:2 http://mirror.invalid trixy Release\n  404\nE: The repository has no Release file.\n" +
		"E: command failed: set -e\nexit 1\nE: mmdebstrap failed to run\n"
	want := "Err:2 http://mirror.invalid trixy Release\nE: The repository has no Release file."
	if got := reasons(output); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := reasons("killed\n"); got != "killed" {
		t.Errorf("got %q: without a reason, everything counts", got)
	}
}

func TestReadRelease(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := readRelease(dir); err == nil {
		t.Error("no release file, and no error")
	}
	write("a_InRelease", "Origin: Debian\nDate: Fri, 20 Nov 2026 00:12:42 UTC\n")
	write("b_InRelease", "Date: Sat, 11 Jul 2026 09:32:57 UTC\n")
	r, err := readRelease(dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := time.Date(2026, 11, 20, 0, 12, 42, 0, time.UTC); !r.Date.Equal(want) || len(r.Digests) != 2 {
		t.Errorf("got %+v, want the newer date %v and two digests", r, want)
	}
	for _, bad := range []string{"Origin: Debian\n", "Date: yesterday\n"} {
		write("a_InRelease", bad)
		if _, err := readRelease(dir); err == nil || !strings.Contains(err.Error(), "a_InRelease") {
			t.Errorf("%q: got %v, want an error with the file's name", bad, err)
		}
	}
}

func TestClean(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "precious")
	for name, text := range map[string]string{
		"usr/sbin/kept": "k", "etc/machine-id": "0123\n", "etc/hostname": "builder", "etc/passwd-": "old",
		"etc/resolv.conf": "nameserver 192.0.2.1", "etc/ssh/ssh_host_rsa_key": "secret", "etc/ssh/sshd_config": "kept",
		"var/lib/apt/lists/x_InRelease": "x", "var/log/dpkg.log": "x", "run/left": "x", "tmp/a/b": "x",
		"usr/lib/udev/hwdb.bin": "x",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(outside, []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"vmlinuz": "boot/gone", "tmp/out": filepath.Dir(outside)} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := Prepare(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, policy)); err != nil {
		t.Errorf("services may start: %v", err)
	}
	if err := Clean(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	want := []string{"etc/.updated", "etc/hosts", "etc/machine-id", "etc/ssh/sshd_config", "usr/sbin/kept", "var/.updated"}
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("left: %v, want %v", got, want)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "etc/machine-id")); err != nil || len(data) != 0 {
		t.Errorf("machine-id: %q %v, want it empty", data, err)
	}
	if data, _ := os.ReadFile(outside); string(data) != "kept" {
		t.Error("cleaning followed a link out of the root")
	}
}

func TestCleanKeepsTheImagesOwnResolver(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"etc", "var"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "etc/resolv.conf")
	if err := os.Symlink("../run/systemd/resolve/stub-resolv.conf", link); err != nil {
		t.Fatal(err)
	}
	if err := Clean(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(link); err != nil {
		t.Error(err)
	}
}

// files lists everything below dir that is not a directory.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestCache(t *testing.T) {
	o, err := Options{Suite: "trixie", Arch: "amd64"}.complete()
	if err != nil {
		t.Fatal(err)
	}
	m := Maker{Cache: filepath.Join(t.TempDir(), "cache"), Work: t.TempDir(), Offline: true}
	if _, err := m.Make(t.Context(), o, filepath.Join(m.Work, "none")); err == nil || !strings.Contains(err.Error(), "offline") {
		t.Fatalf("got %v, want an error that says offline", err)
	}
	source := t.TempDir()
	for n, day := range []int{1, 2} {
		if err := os.WriteFile(filepath.Join(source, "made"), []byte{byte('0' + day)}, 0o640); err != nil {
			t.Fatal(err)
		}
		r := Result{Release: Release{Date: time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC)}, Epoch: int64(day)}
		e, err := m.entry(t.Context(), o, r)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.usable(); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("found before it was kept: %v", err)
		}
		if err := e.store(t.Context(), source, r); err != nil {
			t.Fatal(err)
		}
		if err := e.usable(); err != nil {
			t.Errorf("result %d: not found after it was kept: %v", n, err)
		}
	}
	if kept := files(t, m.Cache); len(kept) != 2 {
		t.Errorf("kept %v, want the newer result alone", kept)
	}
	target := filepath.Join(m.Work, "root")
	r, err := m.Make(t.Context(), o, target)
	if err != nil || !r.Cached || r.Epoch != 2 {
		t.Fatalf("got %+v %v, want the newer result", r, err)
	}
	if data, err := os.ReadFile(filepath.Join(target, "made")); err != nil || string(data) != "2" {
		t.Errorf("unpacked %q %v", data, err)
	}
	zstd := o
	zstd.Packages = append(slices.Clone(o.Packages), "zstd")
	if _, err := m.Make(t.Context(), zstd, filepath.Join(m.Work, "other")); err == nil {
		t.Error("other packages found this result")
	}

	// A tar that is not what its record says is not unpacked, and neither is anything where others can write.
	tars, err := filepath.Glob(filepath.Join(m.Cache, "*.tar"))
	if err != nil || len(tars) != 1 {
		t.Fatal(tars, err)
	}
	if err := os.WriteFile(filepath.Join(source, "made"), []byte("a back door"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(m.Cache, 0o775); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Make(t.Context(), o, filepath.Join(m.Work, "open")); err == nil || !strings.Contains(err.Error(), "chmod -R go-w "+m.Cache) {
		t.Errorf("a cache that others can write: %v", err)
	}
	if err := errors.Join(os.Chmod(m.Cache, 0o755), pack(t.Context(), source, tars[0])); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Make(t.Context(), o, filepath.Join(m.Work, "poisoned")); err == nil || !strings.Contains(err.Error(), "in its record") {
		t.Errorf("another tar: %v", err)
	}
	if _, err := os.Stat(filepath.Join(m.Work, "poisoned")); err == nil {
		t.Error("the other tar was unpacked")
	}
}
