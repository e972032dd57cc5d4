package bake

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/images"
)

// TestLoadLockLayers reads a lock over a lock over a built-in one, whose module archive is beside it.
func TestLoadLockLayers(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	component := func(name, version, source string) string {
		return "  - name: " + name + "\n    version: " + version + "\n    licence: MIT\n    homepage: https://example.com\n" +
			"    files: [{name: x, path: /opt/" + name + ", mode: \"0755\"}]\n" +
			"    modules: {source: modules/" + source + ".txtar, module: example.com/x, programs: [{package: ./x, names: [x]}]}\n"
	}
	write("team/team.lock.yaml", "schema: 1\nname: team\nover: [kubernetes-1.35]\ncomponents:\n"+component("own", "v1", "own")+component("cri-tools", "v9", "crictl"))
	archive := write("team/modules/own.txtar", "-- go.mod --\nmodule x\n")
	top := write("top.lock.yaml", "schema: 1\nname: top\nover: [team/team.lock.yaml]\ncomponents:\n"+component("cri-tools", "v10", "crictl"))
	base, err := LoadLock(images.FS, "kubernetes-1.35")
	if err != nil {
		t.Fatal(err)
	}
	l, err := LoadLock(images.FS, top)
	if err != nil {
		t.Fatal(err)
	}
	own, _ := l.Component("own")
	crictl, _ := l.Component("cri-tools")
	if l.Name != "top" || len(l.Components) != len(base.Components)+1 || l.Kubernetes() != base.Kubernetes() || crictl.Version != "v10" || own.Version != "v1" {
		t.Errorf("%s has %d components, crictl %s, own %s", l.Name, len(l.Components), crictl.Version, own.Version)
	}
	if string(own.Modules.Archives["modules/own.txtar"]) != "-- go.mod --\nmodule x\n" || crictl.Modules.Archives != nil {
		t.Errorf("the archives are %q and %q", own.Modules.Archives, crictl.Modules.Archives)
	}
	for _, pin := range l.Pins {
		if pin.Component == "cri-tools" {
			t.Errorf("the replaced component's pin is there: %s", pin)
		}
	}
	before := l.Fingerprint()
	write("team/modules/own.txtar", "-- go.mod --\nmodule y\n")
	if l, err = LoadLock(images.FS, top); err != nil || l.Fingerprint() == before {
		t.Errorf("with another archive the fingerprint is still %s, %v", before, err)
	}
	if err := os.Remove(archive); err != nil {
		t.Fatal(err)
	}
	_, err = LoadLock(images.FS, top)
	if err == nil || !strings.Contains(err.Error(), "team.lock.yaml: components[0].modules.source: modules/own.txtar is neither beside the lock nor one of Hardtack's archives") {
		t.Errorf("without the archive: %v", err)
	}
}

// TestSharedArchives: a shared archive is read beside the lock or is one of Hardtack's, a missing one is named, and a lock that is
// exported has those of its components with it.
func TestSharedArchives(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "own.lock.yaml")
	text := []byte("schema: 1\nname: own\ncomponents:\n  - name: own\n    version: v1\n    licence: MIT\n    homepage: https://example.com\n" +
		"    files: [{name: x, path: /opt/x, mode: \"0755\"}]\n" +
		"    modules: {source: modules/flannel.txtar, shared: [modules/names.txtar, modules/more.txtar], module: example.com/x, programs: [{package: ./x, names: [x]}]}\n")
	if _, problems := ParseLock(images.FS, file, text); len(problems) != 1 || problems[0].Field != "components[0].modules.shared[1]" {
		t.Errorf("without modules/more.txtar: %v", problems)
	}
	if err := os.Mkdir(filepath.Join(dir, "modules"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "modules/more.txtar"), []byte("-- more/more.go --\npackage more\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, problems := ParseLock(images.FS, file, text)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if archives := l.Components[0].Modules.Archives; len(archives) != 1 || len(archives["modules/more.txtar"]) == 0 {
		t.Errorf("beside the lock are %v", archives)
	}
	files, err := LockFile(images.FS, DefaultLock)
	if err != nil || files["modules/names.txtar"] == nil || files["modules/flannel.txtar"] == nil {
		t.Errorf("an exported lock lacks shared archives: %v", err)
	}
}
