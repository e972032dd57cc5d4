package bake

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	"github.com/package-url/packageurl-go"
	"gotest.tools/v3/golden"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
)

// described is a job that no target is needed for, and the packages that a target could have.
func described(t *testing.T) (Job, System, []Package) {
	t.Helper()
	lock, problems := lock.Parse("test.lock.yaml", []byte(`schema: 1
name: test-1.0
components:
  - name: kubernetes
    version: v1.0.0
    licence: Apache-2.0 OR MIT
    homepage: https://example.com/
    files: [{name: kubelet, path: /usr/bin/kubelet, mode: "0755"}]
    modules:
      source: modules/test.txtar
      module: example.com/org/kubernetes/v2
      programs: [{package: ./k, names: [kubelet]}]
`))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	tree, err := rootfs.Compose(rootfs.Inputs{Files: []rootfs.Entry{
		rootfs.Bytes("kubernetes", "/usr/bin/kubelet", 0o755, []byte("program\n")),
		rootfs.Bytes(rootfs.FromExtra, "/etc/issue", 0o644, []byte("hello\n")),
	}})
	if err != nil {
		t.Fatal(err)
	}
	image := Image{Lock: lock, Fingerprint: "0123456789ab", Units: []string{"kubelet.service"}, Roles: unit.NewTable(nil),
		Sources:         []Source{{Component: "kubernetes", Kind: "modules", Origin: "example.com/org/kubernetes/v2"}},
		KernelArguments: []string{"a=b&c"},
		Containers:      []Container{{Name: "registry.example:5000/shop/web:1.2", Digest: "sha256:" + strings.Repeat("a", 64), Path: "/usr/lib/hardtack/images/web.tar", Origin: "registry"}}}
	return Job{Tree: tree, Architecture: "amd64", Image: image}, System{ID: "debian", Version: "13"},
		[]Package{{Name: "libc6", Version: "2.41-12", Architecture: "amd64"}, {Name: "libstdc++6", Version: "1:14.2.0-19+b1", Architecture: "amd64"}}
}

func TestGolden(t *testing.T) {
	job, system, packages := described(t)
	m := newManifest(job, system, packages)
	manifest, err := encode(m)
	if err != nil {
		t.Fatal(err)
	}
	bill, err := sbom(m, job.Image.Lock)
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string][]byte{"image.json": manifest, "sbom.cdx.json": bill} {
		golden.Assert(t, string(got), name)
	}
}

func TestSBOM(t *testing.T) {
	job, system, packages := described(t)
	m := newManifest(job, system, packages)
	data, err := sbom(m, job.Image.Lock)
	if err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(data), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if bom.SpecVersion != cdx.SpecVersion1_6 || len(*bom.Components) != 4 {
		t.Errorf("version %v, %d components", bom.SpecVersion, len(*bom.Components))
	}
	refs := []string{bom.Metadata.Component.BOMRef}
	for _, c := range *bom.Components {
		refs = append(refs, c.BOMRef)
		if c.Components != nil {
			for _, f := range *c.Components {
				refs = append(refs, f.BOMRef)
			}
		}
		purl, err := packageurl.FromString(c.PackageURL)
		if err != nil {
			t.Errorf("%s: %v", c.PackageURL, err)
		}
		if purl.Version != c.Version {
			t.Errorf("%s is of version %q instead of %q", c.PackageURL, purl.Version, c.Version)
		}
	}
	slices.Sort(refs)
	if len(slices.Compact(slices.Clone(refs))) != len(refs) {
		t.Errorf("two parts have the same reference: %v", refs)
	}
	again, err := sbom(newManifest(job, system, packages), job.Image.Lock)
	if err != nil || !bytes.Equal(data, again) {
		t.Errorf("the same image has another SBOM: %v", err)
	}
	packages[0].Version += "+deb13u1"
	other, err := sbom(newManifest(job, system, packages), job.Image.Lock)
	if err != nil {
		t.Fatal(err)
	}
	var otherBOM cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(other), cdx.BOMFileFormatJSON).Decode(&otherBOM); err != nil {
		t.Fatal(err)
	}
	if otherBOM.SerialNumber == bom.SerialNumber {
		t.Error("an image with another package has the same serial number")
	}
}

func TestFingerprint(t *testing.T) {
	tree := func(name, content string) fstest.MapFS { return fstest.MapFS{name: {Data: []byte(content)}} }
	seen := map[string]bool{}
	for _, f := range []func() (string, error){
		func() (string, error) { return Fingerprint("a", nil) },
		func() (string, error) { return Fingerprint("b", nil) },
		func() (string, error) { return Fingerprint("a", []string{"p"}) },
		func() (string, error) { return Fingerprint("a", nil, tree("x", "1")) },
		func() (string, error) { return Fingerprint("a", nil, tree("x", "2")) },
		func() (string, error) { return Fingerprint("a", nil, tree("x1", "")) },
	} {
		got, err := f()
		again, _ := f()
		if err != nil || len(got) != 12 || got != again || seen[got] {
			t.Errorf("fingerprint %q, then %q, %v, after %v", got, again, err, seen)
		}
		seen[got] = true
	}
}

func TestLoadLock(t *testing.T) {
	assets := fstest.MapFS{"one.lock.yaml": {Data: []byte("schema: 9\n")}, "two.lock.yaml": {Data: []byte("schema: 1\n")}}
	if _, err := LoadLock(assets, "one"); err == nil || !strings.Contains(err.Error(), "one.lock.yaml") {
		t.Errorf("a lock of another schema: %v", err)
	}
	if _, err := LoadLock(assets, "three"); err == nil || !strings.Contains(err.Error(), "one, two") {
		t.Errorf("a lock that is not there: %v", err)
	}
}

func TestPackages(t *testing.T) {
	got, err := Packages(fstest.MapFS{"packages": {Data: []byte("# all\nsystemd # PID 1\n\n  udev kmod\n")}})
	if d := cmp.Diff([]string{"systemd", "udev", "kmod"}, got); err != nil || d != "" {
		t.Errorf("%v, -want +got:\n%s", err, d)
	}
	if _, err := Packages(fstest.MapFS{}); err == nil {
		t.Error("a list that is not there is no error")
	}
}
