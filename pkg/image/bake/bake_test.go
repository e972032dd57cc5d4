package bake_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

const testLock = `
schema: 1
name: test-1.0
components:
  - name: kubernetes
    version: v1.0.0
    licence: Apache-2.0
    homepage: https://example.com/
    files:
      - {name: kubelet, path: /usr/bin/kubelet, mode: "0755"}
      - {name: kubectl, path: /usr/bin/kubectl, mode: "0755"}
    modules:
      source: modules/test.txtar
      module: example.com/org/kubernetes
      programs:
        - {package: ./k, names: [kubelet, kubectl], path: /usr/lib/hardtack/bin/kubernetes}
`

const kubeletUnit = `[Unit]
Description=test
After=hardtack-userdata.service
ConditionPathExists=/etc/sysconfig/kubernetes-minions
[Service]
ExecStart=/usr/bin/kubelet
[Install]
WantedBy=multi-user.target
`

const userdataUnit = `[Unit]
Description=test
DefaultDependencies=no
Before=multi-user.target
[Service]
Type=oneshot
ExecStart=/usr/lib/hardtack/bin/hardtack-userdata
[Install]
WantedBy=multi-user.target
[X-Hardtack]
Role=any
`

// units are the reader of user data and every unit by which a role gets ready, without which no image is baked.
func units() fstest.MapFS {
	units := fstest.MapFS{"hardtack-userdata.service": {Data: []byte(userdataUnit)}}
	for _, r := range role.All() {
		for _, u := range r.Profile().Units {
			units[u.Name] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(kubeletUnit, role.Minions.File(), r.File()))}
		}
	}
	return units
}

// plan is an image of three small files and some units, with the extra entries.
func plan(t *testing.T, extra ...rootfs.Entry) bake.Plan {
	t.Helper()
	lock, problems := lock.Parse("test.lock.yaml", []byte(testLock))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return bake.Plan{
		Assets: fstest.MapFS{
			"packages":                      {Data: []byte("systemd # the first\n")},
			"rootfs/etc/hardtack-test.conf": {Data: []byte("a = b\n")},
		},
		Units: units(),
		Lock:  lock, Architecture: runtime.GOARCH,
		Extra: append(extra, rootfs.Bytes(rootfs.FromAgent, rootfs.AgentPath, 0o755, []byte("#!/bin/sh\n")), rootfs.Bytes(rootfs.FromReader, rootfs.ReaderPath, 0o755, []byte("#!/bin/sh\n"))),
	}
}

func job(t *testing.T, p bake.Plan) bake.Job {
	t.Helper()
	job, err := p.Job([]bake.Fetched{{
		Source: bake.Source{Component: "kubernetes", Kind: "modules", Origin: "example.com/org/kubernetes"},
		Entries: []rootfs.Entry{
			rootfs.Bytes("kubernetes", "/usr/lib/hardtack/bin/kubernetes", 0o755, bytes.Repeat([]byte("#!/bin/sh\n"), 1<<18)),
			{Component: "kubernetes", Path: "/usr/bin/kubelet", Mode: fs.ModeSymlink | 0o777, Link: "../lib/hardtack/bin/kubernetes"},
			{Component: "kubernetes", Path: "/usr/bin/kubectl", Mode: fs.ModeSymlink | 0o777, Link: "../lib/hardtack/bin/kubernetes"},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	job.Log = slog.New(slog.DiscardHandler)
	return job
}

func mustBake(t *testing.T, target bake.Target, job bake.Job) bake.Result {
	t.Helper()
	result, err := bake.Run(t.Context(), target, job)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestBakeThenAgain(t *testing.T) {
	t.Parallel()
	target, root := newTarget(t, 200)
	for _, file := range []string{"etc/machine-id", "etc/ssh/ssh_host_ed25519_key", "var/lib/systemd/random-seed"} {
		write(t, filepath.Join(root, file), "this machine's own\n")
	}
	first := mustBake(t, target, job(t, plan(t)))
	if first.Written.Bytes < 2<<20 {
		t.Errorf("the first bake wrote %d bytes", first.Written.Bytes)
	}
	onTarget := read(t, filepath.Join(root, bake.ManifestPath))
	if onTarget != string(first.ManifestJSON) {
		t.Error("the manifest in the image is not the one that is brought back")
	}
	var manifest bake.Manifest
	if err := json.Unmarshal(first.ManifestJSON, &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest.Packages) < 50 || manifest.System.ID != "debian" || manifest.Components[0].Size != 10<<18 {
		t.Errorf("manifest: %d packages, system %v, components %v", len(manifest.Packages), manifest.System, manifest.Components)
	}
	exit, err := target.Run(t.Context(), "cd / && sha256sum --check --quiet --strict "+bake.SumsPath, nil, os.Stderr, os.Stderr)
	if err != nil || exit != 0 {
		t.Errorf("sha256sum says %d, %v about the image's own digests", exit, err)
	}
	if id := read(t, filepath.Join(root, "etc/machine-id")); id != "" {
		t.Errorf("the machine id is %q", id)
	}

	second := mustBake(t, target, job(t, plan(t)))
	if second.Written != (bake.Written{}) {
		t.Errorf("the second bake wrote %+v", second.Written)
	}
	if !bytes.Equal(first.ManifestJSON, second.ManifestJSON) || !bytes.Equal(first.SBOM, second.SBOM) {
		t.Error("the second bake describes the image in other bytes")
	}
}

func TestBakeRemovesWhatEarlierBakesWrote(t *testing.T) {
	t.Parallel()
	target, root := newTarget(t, 200)
	extra := rootfs.Bytes(rootfs.FromExtra, "/opt/mine/deep/file", 0o644, []byte("x\n"))
	mustBake(t, target, job(t, plan(t, extra)))
	write(t, filepath.Join(root, "opt/mine/kept"), "somebody else's\n")
	result := mustBake(t, target, job(t, plan(t)))
	if result.Written.Removed != 3 { // the file, its directory, and the one that has something else in it
		t.Errorf("removed %d paths", result.Written.Removed)
	}
	if _, err := os.Stat(filepath.Join(root, "opt/mine/deep")); !os.IsNotExist(err) {
		t.Errorf("the earlier bake's directory: %v", err)
	}
	if got := read(t, filepath.Join(root, "opt/mine/kept")); got != "somebody else's\n" {
		t.Errorf("what is not the bake's is %q", got)
	}
}

// A link must not lead a write out, a directory that is a link stays one, modes of directories that
// are there stay, and what is half written or has the wrong mode or owner is written again.
func TestBakeRepairs(t *testing.T) {
	t.Parallel()
	target, root := newTarget(t, 200)
	write(t, filepath.Join(root, "victim"), "precious\n")
	for path, link := range map[string]string{"etc/hardtack-test.conf": "/victim", "usr/bin/kubelet": "/victim", "srv/real": "/opt"} {
		if err := os.Symlink(link, filepath.Join(root, path)); err != nil {
			t.Fatal(err)
		}
	}
	p := plan(t, rootfs.Bytes(rootfs.FromExtra, "/srv/real/a", 0o600, []byte("x")),
		rootfs.Bytes(rootfs.FromExtra, "/root/b", 0o600, []byte("x")),
		rootfs.Entry{Component: rootfs.FromExtra, Path: "/srv/closed", Mode: fs.ModeDir | 0o700})
	write(t, filepath.Join(root, "usr/lib/hardtack/bin/kubernetes"), "half a prog")
	write(t, filepath.Join(root, "srv/closed/inside"), "")
	mustBake(t, target, job(t, p))
	if got := read(t, filepath.Join(root, "victim")); got != "precious\n" {
		t.Errorf("a link led the write to the victim: %q", got)
	}
	if got, err := os.Readlink(filepath.Join(root, "srv/real")); err != nil || got != "/opt" {
		t.Errorf("the link to a directory is %q, %v", got, err)
	}
	for path, mode := range map[string]fs.FileMode{"root": 0o700, "opt/a": 0o600, "srv/closed": 0o700, "usr/lib/hardtack/bin/kubernetes": 0o755} {
		info, err := os.Stat(filepath.Join(root, path))
		if err != nil {
			t.Error(err)
		} else if info.Mode().Perm() != mode {
			t.Errorf("/%s has mode %v instead of %v", path, info.Mode().Perm(), mode)
		}
	}
	if err := os.Chown(filepath.Join(root, "opt/a"), 1000, 1000); err != nil {
		t.Fatal(err)
	}
	if got := mustBake(t, target, job(t, p)).Written; got != (bake.Written{Paths: 1, Bytes: 1}) {
		t.Errorf("repairing one owner wrote %+v", got)
	}
}

func TestBakeRefusesObstacle(t *testing.T) {
	t.Parallel()
	target, root := newTarget(t, 200)
	write(t, filepath.Join(root, "etc/hardtack-test.conf/inside"), "x")
	_, err := bake.Run(t.Context(), target, job(t, plan(t)))
	wantError(t, err, "writing the tree", "/etc/hardtack-test.conf is in the way", "not empty")
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, but one was expected with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error lacks %q:\n%v", part, err)
		}
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
