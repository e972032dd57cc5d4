package boot

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// volume makes a NoCloud volume in a file with the tools that people use, and returns the file.
func volume(t *testing.T, kind string, files tree) string {
	t.Helper()
	dir, image := files.make(t), filepath.Join(t.TempDir(), "seed")
	command := func(name string, args ...string) {
		t.Helper()
		if _, err := run.Output(t.Context(), name, args...); err != nil {
			t.Fatal(err)
		}
	}
	switch kind {
	case "iso9660":
		command("xorriso", "-as", "mkisofs", "-quiet", "-V", "cidata", "-J", "-r", "-o", image, dir)
	case "ext4":
		command("mke2fs", "-q", "-t", "ext4", "-L", "cidata", "-d", dir, image, "8m")
	default: // FAT12, FAT16 or FAT32
		command("mkfs.vfat", "-C", "-n", "CIDATA", "-F", strings.TrimPrefix(kind, "fat"), image, "66000")
		for name := range files {
			command("mcopy", "-i", image, filepath.Join(dir, name), "::"+name)
		}
	}
	return image
}

// attach makes a block device of an image until the test ends.
func attach(t *testing.T, image string) string {
	t.Helper()
	needRoot(t)
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("a block device for the volume needs loop devices:", err)
	}
	ctx := t.Context()
	out, err := run.Output(ctx, "losetup", "--find", "--show", "--read-only", image)
	if err != nil {
		t.Fatal(err)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		// The test's context has ended when cleanups run.
		if err := run.Run(context.WithoutCancel(ctx), run.Command{Name: "losetup", Args: []string{"--detach", device}}); err != nil {
			t.Error(err)
		}
	})
	return device
}

// needFilesystem skips where the kernel neither has the file system nor can load it.
func needFilesystem(t *testing.T, kind string) {
	t.Helper()
	have, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(have), "\t"+kind+"\n") {
		return
	}
	if _, err := run.Output(t.Context(), "modprobe", "--dry-run", "fs-"+kind); err != nil {
		t.Skipf("the kernel has no %s, and no module of it: %v", kind, err)
	}
}

var seedFiles = tree{"user-data": minions, "meta-data": "instance-id: i-volume\n"}

// TestVolume reads real NoCloud volumes as block devices, found by their label.
func TestVolume(t *testing.T) {
	for kind, filesystem := range map[string]string{"iso9660": "iso9660", "fat12": "vfat", "fat16": "vfat", "fat32": "vfat"} {
		t.Run(kind, func(t *testing.T) {
			needRoot(t)
			needFilesystem(t, filesystem)
			device := attach(t, volume(t, kind, seedFiles))
			root := tree{"dev/disk/by-label/cidata": "-> " + device, fileSource: masters}.make(t)
			report, err := Run(t.Context(), options(root, &service{}))
			if err != nil {
				t.Fatal(err)
			}
			if report.Source != "volume" || report.From != device || report.InstanceID != "i-volume" || report.Roles.String() != "minions" {
				t.Errorf("%+v", report)
			}
			notMounted(t, device)
		})
	}
}

// TestReadMounted reads a volume of a file system that every kernel has, by the same calls.
func TestReadMounted(t *testing.T) {
	needRoot(t)
	needFilesystem(t, "ext4")
	device := attach(t, volume(t, "ext4", seedFiles))
	got, err := readMounted(device, "ext4")
	if err != nil {
		t.Fatal(err)
	}
	if got.from != device || string(got.data) != minions || got.instanceID != "i-volume" {
		t.Errorf("%+v", got)
	}
	notMounted(t, device)
}

// TestReadMountedRefuses gives volumes that are not as they should be.
func TestReadMountedRefuses(t *testing.T) {
	needRoot(t)
	needFilesystem(t, "ext4")
	tests := []struct {
		name  string
		files tree
		want  string
	}{
		{"a link out of the volume", tree{"user-data": "-> /etc/passwd"}, "too many levels of symbolic links"},
		{"a directory", tree{"user-data/x": "x"}, "is not a regular file"},
		{"too long", tree{"user-data": strings.Repeat("x", 1<<20+1)}, "over the bound"},
		{"broken meta-data", tree{"user-data": minions, "meta-data": "["}, "reading meta-data"},
		{"nothing", tree{"other": ""}, "no such file"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			device := attach(t, volume(t, "ext4", test.files))
			_, err := readMounted(device, "ext4")
			if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, fs.ErrNotExist) != (test.name == "nothing") {
				t.Errorf("%v, want %q", err, test.want)
			}
			notMounted(t, device)
		})
	}
}

// TestFilesystem tells real volumes apart, which needs no device.
func TestFilesystem(t *testing.T) {
	for kind, want := range map[string]string{"iso9660": "iso9660", "fat12": "vfat", "fat16": "vfat", "fat32": "vfat"} {
		got, err := filesystem(volume(t, kind, seedFiles))
		if err != nil || got != want {
			t.Errorf("%s: %q, %v", kind, got, err)
		}
	}
	if _, err := filesystem(volume(t, "ext4", seedFiles)); err == nil || !strings.Contains(err.Error(), "neither vfat nor iso9660") {
		t.Errorf("ext4: %v", err)
	}
}

// TestVolumeUnusable ends the search where a volume is there and cannot be read: the next source may
// hold another machine's role.
func TestVolumeUnusable(t *testing.T) {
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	root := tree{"dev/disk/by-label/CIDATA": "-> " + image, fileSource: masters}.make(t)
	_, err := Run(t.Context(), options(root, &service{}))
	if err == nil || !strings.Contains(err.Error(), "volume: volume "+image+": labelled cidata, but neither vfat nor iso9660") {
		t.Errorf("%v", err)
	}
	left := readTree(t, root, tree{fileSource: "", "dev/disk/by-label/CIDATA": ""})
	if diff := cmp.Diff(tree{}, left); diff != "" {
		t.Errorf("written: %s", diff)
	}
}

// notMounted fails where the device is still mounted, in this namespace or held by this process.
func notMounted(t *testing.T, device string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), device+" ") {
		t.Errorf("%s is mounted", device)
	}
	// A detached mount is in no table, but it keeps the device from being opened exclusively.
	f, err := os.OpenFile(device, os.O_RDONLY|os.O_EXCL, 0)
	if err != nil {
		t.Errorf("%s is still in use: %v", device, err)
		return
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
