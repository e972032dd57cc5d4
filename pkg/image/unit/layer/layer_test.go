package layer

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

// TestMerge lays two layers over units as a template's are.
func TestMerge(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	own := fstest.MapFS{"web.service": file("own\n"), "a.service": file("ours\n"), "b.service": file(""), "b.service.d/20.conf": file("kept\n"),
		"c.service.d/10.conf": file(""), "systemd-journald.service.d/10.conf": file("debian's\n"), "README.md": file("text\n"), ".git": file("x\n")}
	base := Layer{Name: "units/", FS: fstest.MapFS{"a.service": file("a\n"), "b.service": file("b\n"), "b.service.d/10.conf": file("b\n"),
		"c.service": file("c\n"), "c.service.d/10.conf": file("c\n")}}
	merged, found := Merge(base, Layer{Name: "own/", FS: own}, Layer{Name: "top/", FS: fstest.MapFS{"web.service": file("top\n")}})
	if len(found) > 0 {
		t.Fatal(found)
	}
	var names []string
	err := fs.WalkDir(merged.FS, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			content, _ := fs.ReadFile(merged.FS, name)
			names = append(names, merged.from[name]+name+"="+strings.TrimSpace(string(content)))
		}
		return err
	})
	want := "own/a.service=ours own/b.service.d/20.conf=kept units/c.service=c own/systemd-journald.service.d/10.conf=debian's top/web.service=top"
	if got := strings.Join(names, " "); got != want || err != nil {
		t.Errorf("%s, %v, want\n%s", got, err, want)
	}
}

// TestMergeFinds has the layers that say something else than was meant.
func TestMergeFinds(t *testing.T) {
	layer := func(files ...string) Layer {
		l := Layer{Name: "own/", FS: fstest.MapFS{}}
		for _, name := range files {
			l.FS.(fstest.MapFS)[name] = &fstest.MapFile{Data: []byte("x\n")}
		}
		return l
	}
	alone := layer("etcd.service")
	alone.AddOnly = true
	base := Layer{Name: "units/", FS: layer("etcd.service", "kubelet.service").FS}
	for _, tt := range []struct {
		layer Layer
		want  string
	}{
		{layer(), "own/: the directory holds no units"},
		{layer("README.md"), "own/: the directory holds no units"},
		{layer("a.service", "b.servce"), "own/b.servce: systemd reads no unit with the suffix .servce (did you mean b.service?)"},
		{layer("kublet.service.d/1.conf"), "own/kublet.service.d/1.conf: it is a drop-in of kublet.service, and the image has no unit of this name (did you mean kubelet.service.d?)"},
		{alone, "own/etcd.service: units/etcd.service is a unit of this name already (give it another name; to replace that one on purpose, put it into a directory of units_dir)"},
		{Layer{Name: "own/", FS: fstest.MapFS{"no.service": {}}}, "own/no.service: the file is empty"},
		{Directory("/nowhere/"), "/nowhere/: reading the units: no such file or directory"},
	} {
		_, found := Merge(base, tt.layer)
		if len(found) != 1 || !strings.HasPrefix(found[0].String(), tt.want) {
			t.Errorf("%v, want %s", found, tt.want)
		}
	}
}
