package image

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/build"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/fetch"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

// materials says what a fetched component was made of: the files of its release that the lock has the digests of, or the
// modules that it was compiled from and the Go that compiled them.
func (p Plan) materials(r fetch.Result) ([]bake.Material, error) {
	c, _ := p.Lock.Component(r.Component)
	var made []bake.Material
	if r.Source == fetch.Release {
		for _, d := range c.Release[p.Architecture] {
			algorithm, digest, _ := strings.Cut(d.Digest, ":")
			made = append(made, bake.Material{URI: d.URL, Digest: map[string]string{algorithm: digest}})
		}
		return made, nil
	}
	compiled := []lock.Component{c}
	if len(r.Within) > 0 {
		compiled = nil
		for _, name := range r.Within {
			host, _ := p.Lock.Component(name)
			compiled = append(compiled, c.CompiledWith(host))
		}
	}
	for _, c := range compiled {
		from, err := build.MaterialsOf(p.Assets, c)
		if err != nil {
			return nil, fmt.Errorf("what %s was compiled from: %w", r.Component, err)
		}
		module, err := moduleMaterial(from)
		if err != nil {
			return nil, fmt.Errorf("what %s was compiled from: %s: %w", r.Component, from.Archives[0].Name, err)
		}
		for _, a := range from.Archives {
			made = append(made, bake.Material{URI: a.Name, Digest: map[string]string{"sha256": a.Digest}})
		}
		made = append(made, module)
	}
	for _, pin := range r.Pins {
		if pin.Go == "" {
			continue
		}
		// The name by which scanners know Go's own packages, which are linked into every program.
		compiler := bake.Material{URI: bake.ModuleURL("stdlib", strings.TrimPrefix(pin.Go, "go"))}
		if !slices.ContainsFunc(made, func(m bake.Material) bool { return m.URI == compiler.URI }) {
			made = append(made, compiler)
		}
	}
	return made, nil
}

// moduleMaterial is the module itself, with Go's digest of it: the sha256 of its files' digests, which in-toto calls dirHash and
// writes in hex (golang.org/x/mod/sumdb/dirhash, Hash1).
func moduleMaterial(from build.Materials) (bake.Material, error) {
	m := bake.Material{URI: bake.ModuleURL(from.Module, from.Version)}
	encoded, ok := strings.CutPrefix(from.Sum, "h1:")
	if !ok {
		return m, fmt.Errorf("its go.sum has no digest of %s %s (go mod tidy writes it)", from.Module, from.Version)
	}
	digest, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return m, fmt.Errorf("the digest of %s in its go.sum: %w", from.Module, err)
	}
	m.Digest = map[string]string{"dirHash": hex.EncodeToString(digest)}
	return m, nil
}
