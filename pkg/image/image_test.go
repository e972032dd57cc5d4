package image_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake/baketest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/fetch"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

func load(t *testing.T, name string) *lock.Lock {
	t.Helper()
	l, err := bake.LoadLock(images.FS, name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestCompose(t *testing.T) {
	file, mirror := baketest.SmallRelease(t, load(t, bake.DefaultLock))
	plan := image.Plan{
		Plan: bake.Plan{Assets: images.FS, Units: units.FS, Lock: load(t, file), Architecture: "amd64",
			Extra: []rootfs.Entry{rootfs.Bytes(rootfs.FromAgent, rootfs.AgentPath, 0o755, []byte("agent")), rootfs.Bytes(rootfs.FromReader, rootfs.ReaderPath, 0o755, []byte("reader"))}},
		Fetch: fetch.Options{Mirror: mirror, Cache: filepath.Join(mirror, "cache"), Source: fetch.Release},
	}
	job, err := plan.Compose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{rootfs.AgentPath, rootfs.ReaderPath, "/usr/bin/kubelet", "/etc/systemd/system/multi-user.target.wants/etcd.service"} {
		if !job.Tree.Has(path) {
			t.Errorf("the tree has no %s", path)
		}
	}
	if len(job.Image.Sources) != len(plan.Lock.Components) || job.Architecture != "amd64" {
		t.Errorf("%d sources of %d components, for %s", len(job.Image.Sources), len(plan.Lock.Components), job.Architecture)
	}

	plan.Fetch.Source = "elsewhere"
	if _, err := plan.Compose(t.Context()); !errors.As(err, new(*image.OptionsError)) {
		t.Errorf("a source that is none: %v", err)
	}
}

func TestContents(t *testing.T) {
	plain := fstest.MapFS{"etc/containerd/config.toml": {}}
	var locks []*lock.Lock
	for _, name := range bake.LockNames(images.FS) {
		locks = append(locks, load(t, name))
	}
	c, err := image.NewContents(locks, plain)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		rootfs.AgentPath: true, rootfs.ReaderPath: true, "/usr/bin/kubelet": true, "/usr/bin": true, "/etc/containerd/config.toml": true, "/etc/containerd": true, "/etc/nothing": false,
	} {
		if c.Has(path) != want {
			t.Errorf("%s: %v, want %v", path, !want, want)
		}
	}
	// What one lock alone places is not in every image.
	c, err = image.NewContents(append(locks, &lock.Lock{}), plain)
	if err != nil || c.Has("/usr/bin/kubelet") || !c.Has(rootfs.AgentPath) {
		t.Errorf("with an empty lock: %v, %v", c.Has("/usr/bin/kubelet"), err)
	}
}

func TestChanged(t *testing.T) {
	agent := rootfs.Bytes(rootfs.FromAgent, rootfs.AgentPath, 0o755, []byte("agent"))
	other := rootfs.Bytes(rootfs.FromAgent, rootfs.AgentPath, 0o755, []byte("another"))
	baked := bake.Manifest{}
	baked.Lock.Name = bake.DefaultLock
	baked.Tree.Files = []bake.File{{Path: agent.Path, Digest: agent.Digest, From: agent.Component}}
	for name, tt := range map[string]struct {
		now  image.Now
		want []string
	}{
		"another lock": {image.Now{}, []string{"lock, units, files or packages"}},
		"the agent":    {image.Now{Agent: &agent}, []string{"lock, units, files or packages"}},
		"an agent":     {image.Now{Agent: &other, Reader: &other, Hello: &other}, []string{"lock, units, files or packages", "agent", "reader", "hello"}},
	} {
		tt.now.Assets, tt.now.Units = images.FS, units.FS
		got, err := image.Changed(baked, tt.now)
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

// TestDevicesOnce: what udev is told of at boot it is not told of again when the user data are read, unless that was a part only of
// a kind. systemd has no list that two units could share.
func TestDevicesOnce(t *testing.T) {
	read := func(name string) string {
		text, err := fs.ReadFile(images.FS, "rootfs/usr/lib/systemd/system/"+name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first, late := read("systemd-udev-trigger.service.d/10-hardtack.conf"), read("udev-trigger-late.service")
	matched := regexp.MustCompile(`--subsystem-match=(\w+)`).FindAllStringSubmatch(first, -1)
	if len(matched) < 2 {
		t.Fatalf("no subsystems in:\n%s", first)
	}
	for _, m := range matched {
		// Of ACPI's devices only the power button is among the first.
		if again := !strings.Contains(late, "--subsystem-nomatch="+m[1]+" "); again != (m[1] == "acpi") {
			t.Errorf("subsystem %s is told of twice: %v", m[1], again)
		}
	}
}
