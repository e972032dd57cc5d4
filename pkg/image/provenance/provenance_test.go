package provenance_test

import (
	"bytes"
	"strings"
	"testing"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"gotest.tools/v3/golden"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/provenance"
)

func baked() provenance.Bake {
	module := bake.Material{URI: "pkg:golang/example.com/etcd@v3.6.14", Digest: map[string]string{"dirHash": strings.Repeat("1", 64)}}
	compiler := bake.Material{URI: "pkg:golang/stdlib@1.26.8"}
	return provenance.Bake{
		Disks:        []provenance.Digest{{Name: "hardtack.qcow2", SHA256: strings.Repeat("a", 64)}},
		Descriptions: []provenance.Digest{{Name: "image.json", SHA256: strings.Repeat("b", 64)}},
		Manifest: bake.Manifest{
			Name: "test-1.0", Hardtack: "1.2.3", Lock: bake.LockName{Name: "test-1.0", Fingerprint: "0123456789ab", Image: "ba9876543210"},
			Tree: bake.TreeSummary{Digest: strings.Repeat("c", 64)}, RootHash: strings.Repeat("d", 64),
			Components: []bake.ManifestComponent{
				{Name: "etcd", Source: bake.Source{Kind: "modules", Materials: []bake.Material{module, compiler}}},
				{Name: "coredns", Source: bake.Source{Kind: "modules", Materials: []bake.Material{compiler}}},
				{Name: "runc", Source: bake.Source{Kind: "release", Materials: []bake.Material{{URI: "https://example.com/runc", Digest: map[string]string{"sha512": strings.Repeat("e", 128)}}}}},
			},
			System: bake.System{ID: "debian", Version: "13"}, Packages: []bake.Package{{Name: "libc6", Version: "2.41-12", Architecture: "amd64"}},
		},
		Parameters: map[string]any{"suite": "trixie", "formats": []any{"qcow2"}, "initrd": false},
		Release:    map[string]string{"archive.example.org_a%5fb_dists_trixie_InRelease": strings.Repeat("f", 64)},
		Epoch:      1795486335,
	}
}

// The judges are in-toto's and SLSA's own types, which refuse a field that they do not know, and their checks.
func TestStatement(t *testing.T) {
	text, err := baked().Statement()
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, string(text), provenance.File)
	var s intoto.Statement
	if err := protojson.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	predicate, err := protojson.Marshal(s.GetPredicate())
	if err != nil {
		t.Fatal(err)
	}
	var p slsa.Provenance
	if err := protojson.Unmarshal(predicate, &p); err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	for range 10 { // the library varies what it may
		if again, err := baked().Statement(); err != nil || !bytes.Equal(again, text) {
			t.Fatalf("the same bake has another statement: %v", err)
		}
	}
}

func TestStatementOfNothing(t *testing.T) {
	b := baked()
	b.Disks[0].SHA256 = "abc"
	if _, err := b.Statement(); err == nil {
		t.Error("a digest that is none was taken")
	}
	b = baked()
	b.Manifest.RootHash = ""
	text, err := b.Statement()
	if err != nil || bytes.Contains(text, []byte(provenance.RootHash)) {
		t.Errorf("a writable root has a root hash: %v\n%s", err, text)
	}
}
