package build

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/oci/ocitest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// pauseCode stands for upstream's program, which the module of Kubernetes has at the same path.
const pauseCode = `#include <stdio.h>
#define TEXT(x) #x
#define STRING(x) TEXT(x)
int main(void) { puts("pause " STRING(VERSION)); return 0; }
`

// newPauseProxy makes a directory that Go takes as a module proxy, with a k8s.io/kubernetes that has the
// program and the Makefile, and points Go at it with a module cache of its own.
func newPauseProxy(t *testing.T, makefile string) {
	t.Helper()
	source, proxy := t.TempDir(), t.TempDir()
	files := map[string]string{
		"go.mod": "module k8s.io/kubernetes\n\ngo 1.24\n", "build/pause/linux/pause.c": pauseCode, "build/pause/Makefile": makefile,
	}
	for name, text := range files {
		path := filepath.Join(source, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	versions := filepath.Join(proxy, "k8s.io/kubernetes/@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := zip.CreateFromDir(&archive, module.Version{Path: "k8s.io/kubernetes", Version: "v1.2.3"}, source); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{".info": []byte(`{"Version":"v1.2.3"}`), ".mod": []byte(files["go.mod"]), ".zip": archive.Bytes()} {
		if err := os.WriteFile(filepath.Join(versions, "v1.2.3"+name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOPROXY", "file://"+proxy)
	t.Setenv("GOSUMDB", "off")
	cache := t.TempDir()
	t.Setenv("GOMODCACHE", cache)
	// Go makes its module cache read-only, which would stop the removal of the temporary directory.
	t.Cleanup(func() {
		if out, err := exec.Command("chmod", "-R", "u+w", cache).CombinedOutput(); err != nil {
			t.Errorf("chmod: %v: %s", err, out)
		}
	})
}

func pauseComponent() lock.Component {
	return lock.Component{
		Name: "pause", Version: "3.10.1",
		Files: []lock.File{{Name: "pause.tar", Path: "/usr/lib/hardtack/images/pause.tar", Mode: 0o644}},
		Modules: &lock.Modules{
			Source: "modules/pause.txtar", Module: "k8s.io/kubernetes",
			Programs: []lock.Program{{Kind: kindPause, Package: "k8s.io/kubernetes/build/pause/linux/pause.c", Names: []string{"pause.tar"}}},
		},
	}
}

func pauseAssets() fstest.MapFS {
	return fstest.MapFS{"modules/pause.txtar": {Data: []byte("-- go.mod --\nmodule hardtack.invalid/pause\n\ngo 1.24\n\nrequire k8s.io/kubernetes v1.2.3\n")}}
}

func TestPauseImage(t *testing.T) {
	newPauseProxy(t, "REV = x\nTAG ?= 3.10.1\nALL = y\n")
	var digests []string
	var entry rootfs.Entry
	for range 2 {
		b, _ := newBuilder(t, pauseAssets())
		entries, _, err := b.Build(t.Context(), pauseComponent())
		if err != nil || len(entries) != 1 {
			t.Fatalf("%v, %v", entries, err)
		}
		entry = entries[0]
		digests = append(digests, entry.Digest)
	}
	if digests[0] != digests[1] {
		t.Errorf("two builds differ: %v", digests)
	}
	if entry.Path != "/usr/lib/hardtack/images/pause.tar" || entry.Mode != 0o644 {
		t.Errorf("the entry is %s %v", entry.Path, entry.Mode)
	}
	img, desc := ocitest.Unpack(t, readAll(t, entry))
	want := map[string]string{"io.containerd.image.name": "registry.k8s.io/pause:3.10.1", "org.opencontainers.image.ref.name": "3.10.1"}
	for key, value := range want {
		if desc.Annotations[key] != value {
			t.Errorf("annotation %s is %q, want %q", key, desc.Annotations[key], value)
		}
	}
	config := must(img.ConfigFile())
	if config.Config.User != "65535:65535" || strings.Join(config.Config.Entrypoint, " ") != "/pause" || config.Architecture != runtime.GOARCH || config.OS != "linux" {
		t.Errorf("the configuration is %+v", config)
	}
	if config.Created.Unix() != 0 {
		t.Errorf("created %v: the image would differ every time", config.Created)
	}
	layers := must(img.Layers())
	if len(layers) != 1 {
		t.Fatalf("there are %d layers", len(layers))
	}
	files := tar.NewReader(must(layers[0].Uncompressed()))
	header, err := files.Next()
	if err != nil || header.Name != "pause" || header.Mode != 0o755 || header.Uid != 0 {
		t.Fatalf("the layer begins with %+v, %v", header, err)
	}
	program := filepath.Join(t.TempDir(), "pause")
	if err := file.WriteProgram(program, files); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), program).Output(); err != nil || string(out) != "pause v3.10.1\n" {
		t.Errorf("the program says %q, %v", out, err)
	}
	if _, err := files.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("the layer has more than the program: %v", err)
	}
}

func TestPauseErrors(t *testing.T) {
	tests := map[string]struct {
		makefile string
		change   func(*lock.Component)
		want     string
	}{
		"another version": {makefile: "TAG ?= 3.11\n", want: "k8s.io/kubernetes v1.2.3 has the pause image 3.11, but the lock says 3.10.1"},
		"no version":      {makefile: "\n", want: "has no version of the pause image"},
		"another module":  {makefile: "TAG ?= 3.10.1\n", change: func(c *lock.Component) { c.Modules.Programs[0].Package = "example.org/pause.c" }, want: "is not below the module"},
		"no such file":    {makefile: "TAG ?= 3.10.1\n", change: func(c *lock.Component) { c.Modules.Programs[0].Package += "pp" }, want: "pause.cpp"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			newPauseProxy(t, test.makefile)
			b, _ := newBuilder(t, pauseAssets())
			c := pauseComponent()
			if test.change != nil {
				test.change(&c)
			}
			if _, _, err := b.Build(t.Context(), c); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error does not say %q: %v", test.want, err)
			}
		})
	}
}

// An unavailable module is an error that names where it was looked for.
func TestPauseWithoutModule(t *testing.T) {
	newPauseProxy(t, "TAG ?= 3.10.1\n")
	t.Setenv("GOPROXY", "http://127.0.0.1:1")
	b, _ := newBuilder(t, pauseAssets())
	_, _, err := b.Build(t.Context(), pauseComponent())
	if err == nil || !strings.Contains(err.Error(), "GOPROXY=http://127.0.0.1:1") || !strings.Contains(err.Error(), "dial tcp") {
		t.Errorf("the error is %v", err)
	}
}

func readAll(t *testing.T, e rootfs.Entry) []byte {
	t.Helper()
	r, err := e.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	return must(io.ReadAll(r))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
