//go:build linux

package disk

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLayers sorts a root: what every machine reads of Debian first, what changes with Hardtack last.
func TestLayers(t *testing.T) {
	root := t.TempDir()
	write := func(name string, size int) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{
		"usr/bin/bash", "usr/bin/zcat", "usr/lib/aarch64-linux-gnu/libc.so.6", "usr/lib/aarch64-linux-gnu/libc.txt",
		"usr/lib/modules/6.13/kernel/net/bridge/bridge.ko.xz", "usr/lib/modules/6.13/kernel/net/bridge/other.ko.xz", "usr/lib/modules/6.13/modules.dep.bin",
		"usr/lib/hardtack/image.json", "etc/kubernetes/config",
	} {
		write(name, 10)
	}
	write("usr/bin/runc", largeFile)
	write("usr/lib/hardtack/bin/hardtack-agent", largeFile)
	write("usr/share/large", largeFile)
	for from, to := range map[string]string{"usr/bin/gunzip": "usr/bin/zcat", "usr/bin/rbash": "usr/bin/bash"} {
		if err := os.Link(filepath.Join(root, to), filepath.Join(root, from)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("bash", filepath.Join(root, "usr/bin/sh")); err != nil {
		t.Fatal(err)
	}
	got, err := layers(root, []byte("/etc/kubernetes/\n/etc/kubernetes/config\n/usr/bin/runc\n/usr/bin/sh\n/usr/lib/hardtack/bin/hardtack-agent\n/usr/lib/hardtack/image.json\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := [layerCount][]string{
		layerFirst: {
			".", "etc", "etc/kubernetes", "usr", "usr/bin", "usr/bin/bash", "usr/bin/rbash", "usr/bin/sh", "usr/lib", "usr/lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu/libc.so.6",
			"usr/lib/hardtack", "usr/lib/hardtack/bin", "usr/lib/modules", "usr/lib/modules/6.13", "usr/lib/modules/6.13/kernel", "usr/lib/modules/6.13/kernel/net",
			"usr/lib/modules/6.13/kernel/net/bridge", "usr/lib/modules/6.13/kernel/net/bridge/bridge.ko.xz", "usr/lib/modules/6.13/modules.dep.bin", "usr/share",
		},
		layerRest:     {"usr/bin/gunzip", "usr/bin/zcat", "usr/lib/aarch64-linux-gnu/libc.txt", "usr/lib/modules/6.13/kernel/net/bridge/other.ko.xz", "usr/share/large"},
		layerPrograms: {"usr/bin/runc"},
		layerOwn:      {"etc/kubernetes/config", "usr/lib/hardtack/bin/hardtack-agent", "usr/lib/hardtack/image.json"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// As files: without a list of what was baked, or with one that is not there, all is Debian's.
	if err := os.WriteFile(filepath.Join(root, "usr/lib/hardtack/paths"), []byte("/usr/bin/runc\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for baked, want := range map[string][]string{
		"/usr/lib/hardtack/paths": {"layer-0", "layer-1", "layer-2"}, "/usr/lib/hardtack/none": {"layer-0", "layer-1"}, "": {"layer-0", "layer-1"},
	} {
		dir := t.TempDir()
		lists, err := Composer{Root: root, Options: Options{Sealed: &Sealed{Baked: baked}}}.writeLayers(dir, nil)
		if err != nil || !slices.Equal(lists, want) {
			t.Errorf("with the list %q: %v, %v; want %v", baked, lists, err, want)
		}
		text, err := os.ReadFile(filepath.Join(dir, "layer-0"))
		if err != nil || !strings.HasPrefix(string(text), ".\x00etc\x00") || !strings.HasSuffix(string(text), "usr/share\x00") {
			t.Errorf("the first layer is %q, %v", text, err)
		}
		// The next one has again each directory that it adds to, before what is in it.
		text, err = os.ReadFile(filepath.Join(dir, "layer-1"))
		if err != nil || !strings.HasPrefix(string(text), ".\x00etc\x00etc/kubernetes\x00etc/kubernetes/config\x00usr\x00usr/bin\x00usr/bin/gunzip\x00") &&
			!strings.HasPrefix(string(text), ".\x00usr\x00usr/bin\x00usr/bin/gunzip\x00usr/bin/zcat\x00usr/lib\x00") {
			t.Errorf("the second layer is %q, %v", text, err)
		}
	}
	if _, err := layers(filepath.Join(root, "none"), nil); err == nil {
		t.Error("a root that is not there is listed")
	}
}
