package containerd_test

import (
	"archive/tar"
	"bytes"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/cache"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/containerd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/oci"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// file is a path of a layer; a directory's ends with a slash.
type file struct {
	name, content string
	header        tar.Header
}

func layer(t *testing.T, files ...file) v1.Layer {
	t.Helper()
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for _, f := range files {
		h := f.header
		h.Name, h.Size = f.name, int64(len(f.content))
		if h.Typeflag == 0 && strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text.Bytes())), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// archive is the entry of an OCI archive with an image of the layers.
func archive(t *testing.T, name string, layers ...v1.Layer) rootfs.Entry {
	t.Helper()
	return archiveOf(t, name, nil, layers...)
}

// archiveOf is an archive whose image has a changed configuration, unless change is nil.
func archiveOf(t *testing.T, name string, change func(*v1.ConfigFile), layers ...v1.Layer) rootfs.Entry {
	t.Helper()
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), layers...)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	if change != nil {
		change(config)
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := oci.Write(&text, image, "registry.example/shop/"+name+":1", "1"); err != nil {
		t.Fatal(err)
	}
	return rootfs.Bytes("shop", path.Join(oci.Dir, name+".tar"), 0o644, text.Bytes())
}

func unpack(t *testing.T, archives ...rootfs.Entry) containerd.Result {
	t.Helper()
	c, err := cache.Open(filepath.Join(t.TempDir(), "cache"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := containerd.Unpack(t.Context(), archives, "amd64", c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The layers of an image are one directory, with owners and modes, without what a layer deletes. The root is containerd's own, whatever a layer says of it.
func TestUnpack(t *testing.T) {
	a := archive(t, "web",
		layer(t, file{name: "./", header: tar.Header{Mode: 0o700, Uid: 42}}, file{name: "etc/"}, file{name: "etc/old", content: "old"}, file{name: "etc/kept", content: "kept", header: tar.Header{Mode: 0o640, Gid: 42}}),
		layer(t, file{name: "etc/.wh.old"}, file{name: "bin/"}, file{name: "bin/su", content: "su", header: tar.Header{Mode: 0o4755}},
			file{name: "bin/sudo", header: tar.Header{Typeflag: tar.TypeLink, Linkname: "bin/su"}},
			file{name: "tmp/", header: tar.Header{Mode: 0o1777, Uid: 65532, Gid: 65532}}, file{name: "sh", header: tar.Header{Typeflag: tar.TypeSymlink, Linkname: "bin/su"}}))
	r := unpack(t, a)
	if len(r.Left) != 0 {
		t.Fatalf("left: %v", r.Left)
	}
	dir := r.Unpacked[a.Path]
	tree, err := rootfs.Compose(rootfs.Inputs{Files: r.Entries})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]rootfs.Entry{
		"":          {Mode: fs.ModeDir | 0o755},
		"/etc/kept": {Mode: 0o640, GID: 42, Size: 4},
		"/bin/su":   {Mode: fs.ModeSetuid | 0o755, Size: 2},
		"/bin/sudo": {Mode: fs.ModeSetuid | 0o755, Size: 2},
		"/tmp":      {Mode: fs.ModeDir | fs.ModeSticky | 0o777, UID: 65532, GID: 65532},
		"/sh":       {Mode: fs.ModeSymlink | 0o777, Link: "bin/su"},
	} {
		e, ok := tree.Entry(dir + name)
		if !ok || e.Mode != want.Mode || e.UID != want.UID || e.GID != want.GID || e.Size != want.Size || e.Link != want.Link || e.Component != "shop" {
			t.Errorf("%s: %+v, want %+v", name, e, want)
		}
	}
	if tree.Has(dir + "/etc/old") {
		t.Error("what a layer deletes is there")
	}
	if above, _ := tree.Entry(path.Dir(dir)); above.Mode != fs.ModeDir|0o700 {
		t.Errorf("others than root reach a program that is setuid: %v", above.Mode)
	}
}

// What a tree cannot have is left, with its reason, and all of its archive is imported at boot.
func TestLeft(t *testing.T) {
	good := archive(t, "good", layer(t, file{name: "x", content: "x"}))
	etc := file{name: "etc", header: tar.Header{Typeflag: tar.TypeSymlink, Linkname: "/etc"}}
	for name, tt := range map[string]struct {
		files []file
		want  string
	}{
		"a device":                    {[]file{{name: "dev/null", header: tar.Header{Typeflag: tar.TypeChar}}}, "/dev/null is neither file, directory nor link"},
		"a capability":                {[]file{{name: "ping", header: tar.Header{PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "x"}}}}, "/ping has the extended attribute security.capability"},
		"a link to nothing":           {[]file{hard("x", "y")}, "/x is a hard link to /y, which is no file before it in its layer"},
		"a link to a layer below":     {[]file{hard("x", "good")}, "/x is a hard link to /good, which is no file before it in its layer"},
		"a name with a break":         {[]file{{name: "a\nb"}}, `the name "/a\nb" has a control character or a backslash`},
		"below a link to /etc":        {[]file{etc, {name: "etc/passwd"}}, "/etc/passwd is below /etc, which is no directory"},
		"deleted below a link":        {[]file{etc, {name: "etc/.wh.passwd"}}, "/etc/.wh.passwd is below /etc, which is no directory"},
		"twice in a layer":            {[]file{{name: "x", content: "1"}, {name: "./x", content: "2"}}, "/x is in one layer twice"},
		"deleted and there":           {[]file{{name: ".wh.app"}, {name: "app/"}, {name: "app/new"}}, "/app is in the layer that deletes /app"},
		"there and deleted":           {[]file{{name: "app/new"}, {name: ".wh.app"}}, "/app/new is in the layer that deletes /app"},
		"deleted above":               {[]file{{name: "app/.wh..."}}, "/app/.wh... deletes no name of /app"},
		"a directory that is deleted": {[]file{{name: ".wh.app"}, {name: "app/.wh.x"}}, "/app/.wh.x is in the layer that deletes /app"},
	} {
		bad := archive(t, "bad", layer(t, file{name: "good", content: "x"}), layer(t, tt.files...))
		r := unpack(t, bad, good)
		if got := r.Left[bad.Path]; !strings.HasSuffix(got, tt.want) || !strings.HasPrefix(got, "registry.example/shop/bad:1: ") {
			t.Errorf("%s: left because %q, want %q", name, got, tt.want)
		}
		if r.Unpacked[bad.Path] != "" || r.Unpacked[good.Path] == "" {
			t.Errorf("%s: unpacked %v", name, r.Unpacked)
		}
	}
	if r := unpack(t); len(r.Entries) != 0 {
		t.Errorf("without an image there is something: %v", r.Entries)
	}
}

// The bytes depend on the images alone: not on the time, and not on the order of the archives.
func TestReproducible(t *testing.T) {
	a, b := archive(t, "a", layer(t, file{name: "x", content: "x"})), archive(t, "b", layer(t, file{name: "y", content: "y"}))
	digest := func(archives ...rootfs.Entry) string {
		tree, err := rootfs.Compose(rootfs.Inputs{Files: unpack(t, archives...).Entries})
		if err != nil {
			t.Fatal(err)
		}
		return tree.Digest()
	}
	first := digest(a, b)
	for range 10 { // what is left to the order of a map would differ in one of them
		time.Sleep(time.Millisecond)
		if again := digest(b, a); again != first {
			t.Fatalf("%s, then %s", first, again)
		}
	}
	if digest(a) == first {
		t.Error("another image gives the same digest")
	}
}

// Two names of the same files have them once.
func TestShared(t *testing.T) {
	l := layer(t, file{name: "x", content: "x"})
	a, b := archive(t, "a", l), archive(t, "b", l)
	r := unpack(t, a, b)
	if r.Unpacked[a.Path] != r.Unpacked[b.Path] {
		t.Errorf("unpacked: %v", r.Unpacked)
	}
	n := 0
	for _, e := range r.Entries {
		if path.Base(e.Path) == "x" {
			n++
		}
	}
	if _, err := rootfs.Compose(rootfs.Inputs{Files: r.Entries}); err != nil || n != 1 {
		t.Errorf("%d times, %v", n, err)
	}
}

// An image that says of its layers what they are not would have its files in the place of another's.
func TestDiffIDs(t *testing.T) {
	good, evil := layer(t, file{name: "x", content: "good"}), layer(t, file{name: "x", content: "evil"})
	id, err := good.DiffID()
	if err != nil {
		t.Fatal(err)
	}
	c, err := cache.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for want, tt := range map[string]struct {
		says   []v1.Hash
		layers []v1.Layer
	}{
		"its layer 1 unpacks to sha256:": {[]v1.Hash{id}, []v1.Layer{evil}},
		"its layer 2 unpacks to sha256:": {[]v1.Hash{id, id}, []v1.Layer{good, evil}},
		"its configuration has 1 layers": {[]v1.Hash{id}, []v1.Layer{good, evil}},
		"its configuration has 2 layers": {[]v1.Hash{id, id}, []v1.Layer{good}},
	} {
		lying := archiveOf(t, "lying", func(c *v1.ConfigFile) { c.RootFS.DiffIDs = tt.says }, tt.layers...)
		r, err := containerd.Unpack(t.Context(), []rootfs.Entry{lying, archive(t, "honest", good)}, "amd64", c)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "registry.example/shop/lying:1") {
			t.Errorf("%v, want %q; left: %v", err, want, r.Left)
		}
	}
}
