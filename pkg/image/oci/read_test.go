package oci_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/oci"
)

// archive is an archive with one image, changed: a nil text leaves a file out.
func archive(t *testing.T, change func(name string, text []byte) []byte) []byte {
	t.Helper()
	var whole, out bytes.Buffer
	if err := oci.WriteProgram(&whole, oci.Program{Name: "web", Content: []byte("program"), Image: "registry.example/shop/web", Tag: "1.2", User: oci.NobodyUser, Arch: "amd64"}); err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(&out)
	for r := tar.NewReader(&whole); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		text, readErr := io.ReadAll(r)
		if err = errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		if text = change(h.Name, text); text == nil {
			continue
		}
		h.Size = int64(len(text))
		writeErr := w.WriteHeader(h)
		if _, err := w.Write(text); errors.Join(err, writeErr) != nil {
			t.Fatal(err, writeErr)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestRead(t *testing.T) {
	t.Parallel()
	images, err := oci.Read(bytes.NewReader(archive(t, func(_ string, text []byte) []byte { return text })))
	if err != nil || len(images) != 1 || images[0].Name != "registry.example/shop/web:1.2" || !strings.HasPrefix(images[0].Digest, "sha256:") {
		t.Fatalf("%+v, %v", images, err)
	}
	manifest := "blobs/sha256/" + strings.TrimPrefix(images[0].Digest, "sha256:")
	without := func(files ...string) func(string, []byte) []byte {
		return func(name string, text []byte) []byte {
			for _, f := range files {
				if name == f {
					return nil
				}
			}
			return text
		}
	}
	for what, tt := range map[string]struct {
		change func(string, []byte) []byte
		want   string
	}{
		"no index":    {without("index.json"), "no OCI archive"},
		"no layout":   {without("oci-layout"), "no OCI archive"},
		"no manifest": {without(manifest), "lacks the manifest"},
		"no layers": {func(name string, text []byte) []byte {
			return map[bool][]byte{true: nil, false: text}[strings.HasPrefix(name, "blobs/") && name != manifest]
		}, "the archive lacks sha256:"},
		"a changed blob": {func(name string, text []byte) []byte {
			if name == manifest {
				return append(text, ' ')
			}
			return text
		}, "another content than its name says"},
		"no name": {func(name string, text []byte) []byte {
			if name == "index.json" {
				return bytes.ReplaceAll(text, []byte("io.containerd.image.name"), []byte("com.example.name"))
			}
			return text
		}, "has no name"},
		"no images": {func(name string, text []byte) []byte {
			if name == "index.json" {
				return []byte(`{"schemaVersion":2,"manifests":[]}`)
			}
			return text
		}, "no images"},
	} {
		if images, err := oci.Read(bytes.NewReader(archive(t, tt.change))); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, %v, want %q", what, images, err, tt.want)
		}
	}
	if _, err := oci.Read(strings.NewReader("no tar")); err == nil {
		t.Error("what is no tar has been read")
	}
}
