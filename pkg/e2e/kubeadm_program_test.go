package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"golang.org/x/mod/modfile"
	"golang.org/x/tools/txtar"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/fetch"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

// kubeadmPath is where kubeadm is on a machine.
const kubeadmPath = "/usr/bin/kubeadm"

// kubeadmLock is the lock of the compared images: testdata has the additional modules of kubeadm.
const kubeadmLock = "kubernetes-1.36.lock.yaml"

// kubeadmComponent is kubeadm as a component of the lock, with the version, modules and flags of the image's
// Kubernetes. Its main module is that of Kubernetes with the additions that kubeadm needs.
func kubeadmComponent() (lock.Component, fs.FS, error) {
	data, err := fs.ReadFile(images.FS, kubeadmLock)
	if err != nil {
		return lock.Component{}, nil, err
	}
	l, problems := lock.Parse(kubeadmLock, data)
	if err := problems.Err(); err != nil {
		return lock.Component{}, nil, err
	}
	i := slices.IndexFunc(l.Components, func(c lock.Component) bool { return c.Name == "kubernetes" && c.Modules != nil })
	if i < 0 {
		return lock.Component{}, nil, errors.New(kubeadmLock + " builds no kubernetes from modules")
	}
	of := l.Components[i]
	archive, err := kubeadmModules(of.Modules.Source)
	if err != nil {
		return lock.Component{}, nil, err
	}
	const source = "modules/kubeadm.txtar"
	return lock.Component{
		Name: "kubeadm", Version: of.Version, Licence: of.Licence, Homepage: of.Homepage,
		Files: []lock.File{{Name: "kubeadm", Path: kubeadmPath, Mode: lock.ProgramMode}},
		Modules: &lock.Modules{Source: source, Module: of.Modules.Module, Programs: []lock.Program{{
			Package: of.Modules.Module + "/cmd/kubeadm", Names: []string{"kubeadm"}, LDFlags: of.Modules.Programs[0].LDFlags,
		}}},
	}, fstest.MapFS{source: {Data: archive}}, nil
}

// kubeadmModules is go.mod and go.sum of the image's Kubernetes with the additions in testdata.
func kubeadmModules(source string) ([]byte, error) {
	data, err := fs.ReadFile(images.FS, source)
	if err != nil {
		return nil, err
	}
	more, err := os.ReadFile("testdata/kubeadm/modules.txtar")
	if err != nil {
		return nil, err
	}
	mod, sum := moduleFiles(data)
	moreMod, moreSum := moduleFiles(more)
	whole, err := modfile.Parse(source, mod, nil)
	if err != nil {
		return nil, err
	}
	added, err := modfile.Parse("testdata/kubeadm/modules.txtar", moreMod, nil)
	if err != nil {
		return nil, err
	}
	for _, r := range added.Require {
		whole.AddNewRequire(r.Mod.Path, r.Mod.Version, r.Indirect)
	}
	if mod, err = whole.Format(); err != nil {
		return nil, err
	}
	return txtar.Format(&txtar.Archive{Files: []txtar.File{{Name: "go.mod", Data: mod}, {Name: "go.sum", Data: slices.Concat(sum, moreSum)}}}), nil
}

// moduleFiles are the go.mod and the go.sum of an archive.
func moduleFiles(archive []byte) (mod, sum []byte) {
	for _, f := range txtar.Parse(archive).Files {
		switch f.Name {
		case "go.mod":
			mod = f.Data
		case "go.sum":
			sum = f.Data
		}
	}
	return mod, sum
}

// buildKubeadm compiles kubeadm into the cache, as the image's programs are compiled, and copies it to dir.
func buildKubeadm(ctx context.Context, c lock.Component, assets fs.FS, dir string, log *slog.Logger) (string, error) {
	fetcher, err := fetch.New(fetch.Options{Assets: assets, Source: fetch.Modules, Log: log})
	if err != nil {
		return "", err
	}
	got, err := fetcher.Get(ctx, c)
	if err != nil {
		return "", err
	}
	in, err := got.Entries[0].Open()
	if err != nil {
		return "", err
	}
	defer in.Close()
	program := filepath.Join(dir, "kubeadm")
	out, err := os.OpenFile(program, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(out, in)
	return program, errors.Join(err, out.Close())
}

// TestKubeadmComponent checks, without building it, that kubeadm has the image's modules: testdata adds no line that
// the image's files have, and all its lines are in the result.
func TestKubeadmComponent(t *testing.T) {
	t.Parallel()
	c, assets, err := kubeadmComponent()
	if err != nil {
		t.Fatal(err)
	}
	archive, err := fs.ReadFile(assets, c.Modules.Source)
	if err != nil {
		t.Fatal(err)
	}
	mod, sum := moduleFiles(archive)
	whole, err := modfile.Parse("go.mod", mod, nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range whole.Require {
		if seen[r.Mod.Path] {
			t.Errorf("go.mod requires %s twice: the image's modules have it now", r.Mod.Path)
		}
		seen[r.Mod.Path] = true
		if want := r.Mod.String(); r.Mod.Path == c.Modules.Module && r.Mod.Version != c.Version {
			t.Errorf("go.mod requires %s, the lock has %s", want, c.Version)
		}
	}
	for _, path := range []string{c.Modules.Module, "k8s.io/system-validators", "github.com/coredns/corefile-migration"} {
		if !seen[path] || !bytes.Contains(sum, []byte("\n"+path+" ")) && path != c.Modules.Module {
			t.Errorf("go.mod or go.sum lacks %s", path)
		}
	}
	if len(c.Modules.Programs[0].LDFlags) == 0 {
		t.Error("kubeadm is built without the version that the image's programs are told")
	}
}
