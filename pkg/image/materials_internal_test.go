package image

import (
	"slices"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/fetch"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

// Every component of every lock has digests for whatever it comes from.
func TestMaterials(t *testing.T) {
	lengths := map[string]int{"sha256": 64, "sha512": 128, "dirHash": 64}
	for _, name := range bake.LockNames(images.FS) {
		locked, err := bake.LoadLock(images.FS, name)
		if err != nil {
			t.Fatal(err)
		}
		p := Plan{Plan: bake.Plan{Assets: images.FS, Lock: locked, Architecture: "amd64"}}
		for _, c := range locked.Components {
			for _, source := range []fetch.Source{fetch.Release, fetch.Modules} {
				if source == fetch.Release && len(c.Release["amd64"]) == 0 || source == fetch.Modules && c.Modules == nil {
					continue
				}
				made, err := p.materials(fetch.Result{Component: c.Name, Source: source, Pins: []lock.Pin{{Go: "go1.26.8"}, {Go: "go1.26.8"}}})
				if err != nil {
					t.Errorf("%s: %s from %s: %v", name, c.Name, source, err)
				}
				checkMaterials(t, name+": "+c.Name, made, lengths)
				if last := made[len(made)-1]; source == fetch.Modules && (len(made) != 2+len(c.Modules.Sources()) || last.URI != "pkg:golang/stdlib@1.26.8") {
					t.Errorf("%s: %s was compiled from %v", name, c.Name, made)
				}
			}
		}
	}
}

// What is within the programs of others was compiled from their archives, each of which requires its module.
func TestMaterialsWithin(t *testing.T) {
	locked, err := bake.LoadLock(images.FS, bake.DefaultLock)
	if err != nil {
		t.Fatal(err)
	}
	kubernetes, _ := locked.Component("kubernetes")
	konnectivity, _ := locked.Component("konnectivity")
	made, err := Plan{Plan: bake.Plan{Assets: images.FS, Lock: locked, Architecture: "amd64"}}.materials(
		fetch.Result{Component: "konnectivity", Source: fetch.Modules, Within: []string{"kubernetes"}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range made {
		got = append(got, m.URI)
	}
	want := append(kubernetes.Modules.Sources(), bake.ModuleURL(konnectivity.Modules.Module, konnectivity.Version))
	if !slices.Equal(got, want) {
		t.Errorf("konnectivity was compiled from %v, want %v", got, want)
	}
}

func checkMaterials(t *testing.T, what string, made []bake.Material, lengths map[string]int) {
	t.Helper()
	if len(made) == 0 {
		t.Errorf("%s is made of nothing", what)
	}
	for _, m := range made {
		if len(m.Digest) == 0 && m.URI != "pkg:golang/stdlib@1.26.8" {
			t.Errorf("%s: %s has no digest", what, m.URI)
		}
		for algorithm, digest := range m.Digest {
			if want, known := lengths[algorithm]; !known || len(digest) != want {
				t.Errorf("%s: %s has the %s %q", what, m.URI, algorithm, digest)
			}
		}
	}
}
