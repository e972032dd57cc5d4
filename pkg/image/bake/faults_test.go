package bake_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// silent is what Packer's communicator "none" is: everything succeeds and nothing runs.
type silent struct{}

func (silent) Run(context.Context, string, io.Reader, io.Writer, io.Writer) (int, error) {
	return 0, nil
}

// flattering is a communicator that reports output but no exit status.
type flattering struct{}

func (flattering) Run(_ context.Context, script string, _ io.Reader, stdout, _ io.Writer) (int, error) {
	if word, ok := strings.CutPrefix(script, "echo "); ok {
		fmt.Fprintln(stdout, word)
	}
	return 0, nil
}

func TestBakeRefusesTargetsThatDoNotTellTheTruth(t *testing.T) {
	t.Parallel()
	_, err := bake.Run(t.Context(), silent{}, job(t, plan(t)))
	wantError(t, err, "probing the target", "does not run commands", `communicator = "none"`)
	_, err = bake.Run(t.Context(), flattering{}, job(t, plan(t)))
	wantError(t, err, "probing the target", "reports exit status 0 for `exit 7`")
}

func TestBakeRefusesAnotherArchitecture(t *testing.T) {
	t.Parallel()
	target, _ := newTarget(t, 200)
	j := job(t, plan(t))
	j.Architecture = "riscv64"
	_, err := bake.Run(t.Context(), target, j)
	wantError(t, err, "probing the target", "the tree is for riscv64")
}

// What Packer's RPC does to a stream whose reader fails: the target sees an early end, and nobody an
// error. GNU tar complains within a file, and says nothing between two.
func TestBakeFindsALostEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		bytes int64
		want  string
	}{
		"within a file":     {1 << 20, "writing the tree: the stream lost its end"},
		"between two files": {2 << 9, "kubelet.service: it is not there"},
	} {
		t.Run(name, func(t *testing.T) {
			target, _ := newTarget(t, 50)
			_, err := bake.Run(t.Context(), cut(target, test.bytes), job(t, plan(t)))
			wantError(t, err, test.want)
			if got := mustBake(t, target, job(t, plan(t))).Written; got.Bytes == 0 {
				t.Errorf("the next bake had nothing to repair: %+v", got)
			}
		})
	}
}

// cut is a target that gets no more than so many bytes of the first tar stream.
func cut(target bake.Target, bytes int64) bake.Target {
	first := true
	return wrapped{Target: target, stdin: func(script string, r io.Reader) io.Reader {
		if !first || !strings.Contains(script, "tar --extract") {
			return r
		}
		first = false
		read, write := io.Pipe()
		go func() {
			_, _ = io.CopyN(write, r, bytes)
			_ = write.Close()
			_, _ = io.Copy(io.Discard, r)
		}()
		return read
	}}
}

func TestBakeFindsAWrongDigest(t *testing.T) {
	t.Parallel()
	target, _ := newTarget(t, 200)
	damage := wrapped{Target: target, stdin: func(script string, r io.Reader) io.Reader {
		if !strings.Contains(script, "tar --extract") {
			return r
		}
		return &flip{r: r, at: 1 << 20}
	}}
	_, err := bake.Run(t.Context(), damage, job(t, plan(t)))
	wantError(t, err, "verifying the target", "/usr/lib/hardtack/bin/kubernetes", "its sha256 is")
}

// flip changes the byte at an offset.
type flip struct {
	r  io.Reader
	at int
}

func (f *flip) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if f.at >= 0 && f.at < n {
		p[f.at] ^= 1
	}
	f.at -= n
	return n, err
}

func TestBakeSaysAFullDiskPlainly(t *testing.T) {
	t.Parallel()
	target, _ := newTarget(t, 1)
	_, err := bake.Run(t.Context(), target, job(t, plan(t)))
	wantError(t, err, "the disk of the target is full", "needs 3 MB", "MB are free", "larger", "Cannot write: No space left on device")
}

// A bake that is killed right before any of its scripts leaves what the next one repairs, also where
// the next one is to bake something else.
func TestBakeAfterAKill(t *testing.T) {
	t.Parallel()
	errKilled := errors.New("killed")
	extra := rootfs.Bytes(rootfs.FromExtra, "/opt/only/first", 0o644, []byte("x\n"))
	var scripts int
	count := func(string) error { scripts++; return nil }
	whole, _ := newTarget(t, 50)
	mustBake(t, wrapped{Target: whole, before: count}, job(t, plan(t, extra)))
	for at := scripts - 1; at > 5; at -= 4 {
		target, root := newTarget(t, 50)
		left := at
		_, err := bake.Run(t.Context(), wrapped{Target: target, before: func(string) error {
			if left--; left < 0 {
				return errKilled
			}
			return nil
		}}, job(t, plan(t, extra)))
		if !errors.Is(err, errKilled) {
			t.Fatalf("killed at script %d of %d: %v", at, scripts, err)
		}
		mustBake(t, target, job(t, plan(t)))
		if found, _ := filepath.Glob(filepath.Join(root, "opt/*")); len(found) > 0 {
			t.Errorf("killed at script %d of %d: the next bake left %v", at, scripts, found)
		}
	}
}

func TestBakeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	target, _ := newTarget(t, 50)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := bake.Run(ctx, wrapped{Target: target, before: func(script string) error {
		if strings.Contains(script, "tar --extract") {
			cancel()
		}
		return nil
	}}, job(t, plan(t)))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled bake ended with %v", err)
	}
	wantError(t, err, "writing the tree")
}

func TestBakeFindsWhatNoImageMayHold(t *testing.T) {
	t.Parallel()
	target, root := newTarget(t, 50)
	pem := "-----BEGIN EC PRIVATE KEY-----\nMHc=\n-----END EC PRIVATE KEY-----\n" //nolint:gosec // not a key
	write(t, filepath.Join(root, "home/admin/.ssh/id"), pem)
	write(t, filepath.Join(root, "usr/share/talks-about-keys.py"), "if line == '-----BEGIN PRIVATE KEY-----':\n")
	write(t, filepath.Join(root, "etc/sysconfig/kubernetes-masters"), "")
	write(t, filepath.Join(root, "var/lib/docker/overlay2/x"), "")
	write(t, filepath.Join(root, "etc/ssh/ssh_host_old"), "") // of a name that the cleanup does not know
	_, err := bake.Run(t.Context(), target, job(t, plan(t)))
	wantError(t, err, "verifying the target", "/home/admin/.ssh/id: a private key", "kubernetes-masters: a role file", "ssh_host_old: a host key", "/var/lib/docker/overlay2: state of a container engine")
	if strings.Contains(err.Error(), "talks-about-keys") {
		t.Errorf("a program that names the header is taken for a key: %v", err)
	}
}

func TestBakeFindsWhatSystemdSays(t *testing.T) {
	t.Parallel()
	unit := func(name, text string) []rootfs.Entry {
		entries, err := rootfs.Unit(rootfs.FromExtra, name, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return entries
	}
	const tail = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
	for name, test := range map[string]struct{ unit, want string }{
		"cycle":     {"[Unit]\nAfter=multi-user.target\nBefore=sysinit.target\n" + tail, "ordering cycle"},
		"directive": {"[Unit]\nConditionPathExist=/x\n" + tail, "Unknown key"},
		"missing":   {"[Unit]\nRequires=not-there.service\n" + tail, "not-there.service"},
		"program":   {"[Service]\nExecStart=/usr/bin/not-there\n[Install]\nWantedBy=multi-user.target\n", "/usr/bin/not-there"},
	} {
		t.Run(name, func(t *testing.T) {
			target, _ := newTarget(t, 50)
			_, err := bake.Run(t.Context(), target, job(t, plan(t, unit("broken.service", test.unit)...)))
			wantError(t, err, "verifying the target", test.want)
		})
	}
}

// repository is a package archive inside the target with one package: the tests need no network.
const repository = `set -e
mkdir -p /tmp/p/DEBIAN /tmp/p/usr/bin /repo
printf '#!/bin/sh\n' >/tmp/p/usr/bin/hardtack-hello && chmod 755 /tmp/p/usr/bin/hardtack-hello
printf 'Package: hardtack-hello\nVersion: 1:2.0+b1\nArchitecture: all\nMaintainer: Test <t@example.com>\nDescription: test\n' >/tmp/p/DEBIAN/control
cd /repo && dpkg-deb --root-owner-group --build /tmp/p hello.deb >/dev/null
{ cat /tmp/p/DEBIAN/control; echo "Filename: ./hello.deb"; echo "Size: $(stat -c %s hello.deb)"
  echo "SHA256: $(sha256sum hello.deb | cut -d' ' -f1)"; } >Packages
rm -rf /tmp/p /etc/apt/sources.list.d/* && echo "deb [trusted=yes] file:/repo ./" >/etc/apt/sources.list`

func TestBakeInstallsMissingPackages(t *testing.T) {
	t.Parallel()
	target, root := newTarget(t, 100)
	if exit, err := target.Run(t.Context(), repository, nil, os.Stderr, os.Stderr); err != nil || exit != 0 {
		t.Fatalf("making the archive: %d, %v", exit, err)
	}
	p := plan(t)
	p.Packages = []string{"no-such-package-of-debian"}
	_, err := bake.Run(t.Context(), target, job(t, p))
	wantError(t, err, "installing packages", "Unable to locate package no-such-package-of-debian")
	p.Packages = []string{"hardtack-hello"}
	result := mustBake(t, target, job(t, p))
	if len(result.Installed) != 1 || result.Installed[0] != "hardtack-hello" {
		t.Errorf("installed %v", result.Installed)
	}
	if _, err := os.Stat(filepath.Join(root, "usr/bin/hardtack-hello")); err != nil {
		t.Error(err)
	}
	if lists, _ := filepath.Glob(filepath.Join(root, "var/lib/apt/lists/*")); len(lists) > 0 {
		t.Errorf("package lists are left: %v", lists)
	}
	if want := "pkg:deb/debian/hardtack-hello@1:2.0%2Bb1?arch=all&distro=debian-13"; !strings.Contains(string(result.SBOM), want) {
		t.Errorf("the SBOM lacks %s", want)
	}
	if again := mustBake(t, target, job(t, p)); len(again.Installed) > 0 || again.Written != (bake.Written{}) {
		t.Errorf("the second bake installed %v and wrote %+v", again.Installed, again.Written)
	}
}
