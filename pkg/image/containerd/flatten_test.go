package containerd_test

import (
	"archive/tar"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apply "github.com/containerd/containerd/v2/pkg/archive"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/containerd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// filesOf are the files and links of an unpacked archive, with their contents and targets.
func filesOf(t *testing.T, r containerd.Result, a rootfs.Entry) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, e := range r.Entries {
		name, below := strings.CutPrefix(e.Path, r.Unpacked[a.Path]+"/")
		switch {
		case !below || r.Unpacked[a.Path] == "":
		case e.Open != nil:
			in, err := e.Open()
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(in)
			if err != nil {
				t.Fatal(err)
			}
			_ = in.Close() // it was only read
			files[name] = string(text)
		case e.Link != "":
			files[name] = "-> " + e.Link
		}
	}
	return files
}

func hard(name, of string) file {
	return file{name: name, header: tar.Header{Typeflag: tar.TypeLink, Linkname: of}}
}

// The files are those of containerd's own code that applies layer after layer.
func TestLayers(t *testing.T) {
	for what, tt := range map[string]struct {
		layers []v1.Layer
		want   map[string]string
	}{
		"a hard link whose other name a layer replaces": {
			[]v1.Layer{layer(t, file{name: "gunzip", content: "old"}, hard("uncompress", "gunzip")), layer(t, file{name: "gunzip", content: "new"})},
			map[string]string{"gunzip": "new", "uncompress": "old"}},
		"a hard link whose other name a layer deletes": {
			[]v1.Layer{layer(t, file{name: "gunzip", content: "old"}, hard("uncompress", "gunzip")), layer(t, file{name: ".wh.gunzip"})},
			map[string]string{"uncompress": "old"}},
		"a hard link to a hard link": {
			[]v1.Layer{layer(t, file{name: "a", content: "x"}, hard("b", "a"), hard("c", "b"))},
			map[string]string{"a": "x", "b": "x", "c": "x"}},
		"a symbolic link out of the root": {
			[]v1.Layer{layer(t, file{name: "lib64", header: tar.Header{Typeflag: tar.TypeSymlink, Linkname: "../lib"}})},
			map[string]string{"lib64": "-> ../lib"}},
		"names with and without a slash": {
			[]v1.Layer{layer(t, file{name: "etc/x", content: "old"}, file{name: "y", content: "y"}), layer(t, file{name: "/etc/x", content: "new"}, file{name: "/.wh.y"})},
			map[string]string{"etc/x": "new"}},
		"an opaque directory, named last": {
			[]v1.Layer{layer(t, file{name: "a/b/old", content: "old"}), layer(t, file{name: "a/b/"}, file{name: "a/b/new", content: "new"}, file{name: "a/.wh..wh..opq"})},
			map[string]string{"a/b/new": "new"}},
		"a directory that goes and comes again": {
			[]v1.Layer{layer(t, file{name: "a/"}, file{name: "a/old", content: "old"}), layer(t, file{name: ".wh.a"}), layer(t, file{name: "a/"}, file{name: "a/new", content: "new"})},
			map[string]string{"a/new": "new"}},
		"a file in the place of a directory": {
			[]v1.Layer{layer(t, file{name: "a/old", content: "old"}), layer(t, file{name: "a", content: "file"})},
			map[string]string{"a": "file"}},
	} {
		a := archive(t, "web", tt.layers...)
		r := unpack(t, a)
		if got := filesOf(t, r, a); !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v (left: %v)", what, got, tt.want, r.Left)
		}
		if judge := applied(t, tt.layers...); !maps.Equal(judge, tt.want) {
			t.Errorf("%s: containerd has %v, want %v", what, judge, tt.want)
		}
	}
}

// applied are the files and links that containerd makes of layers.
func applied(t *testing.T, layers ...v1.Layer) map[string]string {
	t.Helper()
	root, files := t.TempDir(), map[string]string{}
	for _, l := range layers {
		r, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := apply.Apply(t.Context(), root, r, apply.WithNoSameOwner()); err != nil {
			t.Fatal(err)
		}
		_ = r.Close() // it was only read
	}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		if d.Type() == fs.ModeSymlink {
			var to string
			to, err = os.Readlink(name)
			text = []byte("-> " + to)
		}
		files[strings.TrimPrefix(name, root+"/")] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
