// Package provenance says how a disk was made: what of, by which program and with which parameters, as an in-toto statement with
// SLSA's predicate.
//
// Its rule: a statement depends only on its input, so that the same bake gives the same bytes. It has no time and no path of
// the machine that bakes.
package provenance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
)

// File is the name of a statement beside its disk.
const File = "provenance.intoto.json"

// The identifiers of a statement. BuildType says how to read its parameters; where it leads, they are explained.
const (
	PredicateType = "https://slsa.dev/provenance/v1"
	BuildType     = "https://github.com/hardtack/packer-plugin-hardtack/blob/main/images/README.md#provenance"
	// Builder names the program: who runs it is not known to it.
	Builder = "https://github.com/hardtack/packer-plugin-hardtack/tree/main/cmd/packer-plugin-hardtack"
)

// The algorithms of digests that in-toto does not name.
const (
	// RootHash is the root of a dm-verity tree of sha256, which `hardtack image verify` computes.
	RootHash = "dmVeritySha256"
	// TreeDigest is rootfs.Tree.Digest.
	TreeDigest = "hardtackTree"
	// epochParameter is the internal parameter with the time of the files on the disk, in seconds since 1970.
	epochParameter = "sourceDateEpoch"
)

// Digest is a file with its sha256 in hex.
type Digest struct{ Name, SHA256 string }

// Bake is a bake that has succeeded.
type Bake struct {
	// Disks are the formats of the disk, Descriptions the files beside it.
	Disks, Descriptions []Digest
	// Manifest describes the disk; its RootHash is empty for a writable root.
	Manifest bake.Manifest
	// Parameters are those of the template that decide a byte of the disk, by the names that the template gives them. The values
	// are strings, numbers, booleans and lists of strings.
	Parameters map[string]any
	// Release maps the names of the Debian archive's release files, as apt keeps them, to their sha256 in hex.
	Release map[string]string
	// Epoch is the time of the files on the disk, in seconds since 1970.
	Epoch int64
}

// Statement returns the statement as JSON.
func (b Bake) Statement() ([]byte, error) {
	definition, err := b.definition()
	if err != nil {
		return nil, fmt.Errorf("writing the provenance: %w", err)
	}
	p := &provenance.Provenance{BuildDefinition: definition, RunDetails: &provenance.RunDetails{
		Builder:    &provenance.Builder{Id: Builder, Version: map[string]string{"hardtack": b.Manifest.Hardtack}},
		Byproducts: files(b.Descriptions),
	}}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("writing the provenance: %w", err)
	}
	predicate, err := toStruct(p)
	if err != nil {
		return nil, fmt.Errorf("writing the provenance: %w", err)
	}
	s := &intoto.Statement{Type: intoto.StatementTypeUri, PredicateType: PredicateType, Predicate: predicate, Subject: b.subjects()}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("writing the provenance: %w", err)
	}
	return encode(s)
}

// subjects are the disk in each of its formats, and what stands for its content in any format.
func (b Bake) subjects() []*intoto.ResourceDescriptor {
	list := files(b.Disks)
	list = append(list, &intoto.ResourceDescriptor{Name: "tree", Digest: map[string]string{TreeDigest: b.Manifest.Tree.Digest}})
	if b.Manifest.RootHash != "" {
		list = append(list, &intoto.ResourceDescriptor{Name: "root", Digest: map[string]string{RootHash: b.Manifest.RootHash}})
	}
	return list
}

func (b Bake) definition() (*provenance.BuildDefinition, error) {
	m := b.Manifest
	parameters := maps.Clone(b.Parameters)
	if parameters == nil {
		parameters = map[string]any{}
	}
	parameters["lock"] = map[string]any{"name": m.Lock.Name, "fingerprint": m.Lock.Fingerprint}
	external, err := structpb.NewStruct(parameters)
	if err != nil {
		return nil, fmt.Errorf("parameters: %w", err)
	}
	internal, err := structpb.NewStruct(map[string]any{epochParameter: b.Epoch, "image": m.Lock.Image})
	if err != nil {
		return nil, fmt.Errorf("parameters: %w", err)
	}
	return &provenance.BuildDefinition{BuildType: BuildType, ExternalParameters: external, InternalParameters: internal,
		ResolvedDependencies: b.dependencies()}, nil
}

// dependencies are the materials of the components, each once, then the archive's release files, and the packages. Those have
// no digest of their own here: by name and version they are in the indexes that the release files have the digests of.
func (b Bake) dependencies() []*intoto.ResourceDescriptor {
	var list []*intoto.ResourceDescriptor
	seen := map[string]bool{}
	for _, c := range b.Manifest.Components {
		for _, material := range c.Source.Materials {
			if !seen[material.URI] {
				list = append(list, &intoto.ResourceDescriptor{Uri: material.URI, Digest: material.Digest})
			}
			seen[material.URI] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.Release)) {
		list = append(list, &intoto.ResourceDescriptor{Name: releaseName(name), Digest: map[string]string{"sha256": b.Release[name]}})
	}
	for _, p := range b.Manifest.Packages {
		list = append(list, &intoto.ResourceDescriptor{Uri: p.URL(b.Manifest.System)})
	}
	return list
}

// releaseName is host and path of a release file, of the name that apt gives it: the slashes are underscores, and what was an
// underscore is escaped (apt-pkg's URItoFileName).
func releaseName(apt string) string {
	return strings.NewReplacer("_", "/", "%5f", "_").Replace(apt)
}

func files(list []Digest) []*intoto.ResourceDescriptor {
	var out []*intoto.ResourceDescriptor
	for _, f := range list {
		out = append(out, &intoto.ResourceDescriptor{Name: f.Name, Digest: map[string]string{"sha256": f.SHA256}})
	}
	return out
}

func toStruct(m proto.Message) (*structpb.Struct, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	s := &structpb.Struct{}
	return s, protojson.Unmarshal(text, s)
}

// encode is JSON for people, the same for the same message: the library varies its blanks by purpose, so they are written anew.
func encode(m proto.Message) ([]byte, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("writing the provenance: %w", err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return nil, fmt.Errorf("writing the provenance: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}
