package bake

import (
	"bytes"
	"encoding/hex"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
	"github.com/package-url/packageurl-go"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

// sbom lists components and packages as CycloneDX 1.6. It carries no time, and its serial number
// comes from the tree, so that the same image has the same bytes.
func sbom(m Manifest, lock *lock.Lock) ([]byte, error) {
	bom := cdx.NewBOM()
	bom.SerialNumber = "urn:uuid:" + serial(m)
	image := cdx.Component{BOMRef: "image", Type: cdx.ComponentTypeOS, Name: m.Name, Version: m.Lock.Image,
		Hashes: sha256Hash(m.Tree.Digest)}
	bom.Metadata = &cdx.Metadata{
		Component: &image,
		Tools: &cdx.ToolsChoice{Components: &[]cdx.Component{
			{Type: cdx.ComponentTypeApplication, Name: "hardtack", Version: m.Hardtack}}},
	}
	var parts []cdx.Component
	for _, c := range m.Components {
		locked, _ := lock.Component(c.Name)
		parts = append(parts, componentSBOM(c, locked, m.Architecture))
	}
	for _, p := range m.Packages {
		parts = append(parts, packageSBOM(p, m.System))
	}
	for _, c := range m.ContainerImages {
		parts = append(parts, containerSBOM(c))
	}
	bom.Components = &parts
	refs := make([]string, len(parts))
	for i, p := range parts {
		refs[i] = p.BOMRef
	}
	bom.Dependencies = &[]cdx.Dependency{{Ref: image.BOMRef, Dependencies: &refs}}
	var out bytes.Buffer
	err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).EncodeVersion(bom, cdx.SpecVersion1_6)
	return out.Bytes(), err
}

// serial is a UUID that only another image has another of: of what the tree and the packages are.
func serial(m Manifest) string {
	text := []string{m.Tree.Digest, m.Lock.Fingerprint, m.Architecture}
	for _, p := range m.Packages {
		text = append(text, p.Name, p.Version, p.Architecture)
	}
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(strings.Join(text, "\n"))).String()
}

// componentSBOM is the component with a part for each of its files: those are what a digest is of.
func componentSBOM(c ManifestComponent, locked lock.Component, arch string) cdx.Component {
	purl := packageurl.NewPackageURL("generic", "", c.Name, c.Version, nil, "").ToString()
	if locked.Modules != nil {
		purl = ModuleURL(locked.Modules.Module, c.Version)
	}
	part := cdx.Component{
		BOMRef: "component/" + c.Name, Type: cdx.ComponentTypeApplication, Name: c.Name, Version: c.Version,
		PackageURL: purl, Licenses: &cdx.Licenses{{Expression: c.Licence}},
		Properties: &[]cdx.Property{{Name: "hardtack:architecture", Value: arch},
			{Name: "hardtack:source", Value: c.Source.Kind}, {Name: "hardtack:origin", Value: c.Source.Origin}},
	}
	if locked.Homepage != "" {
		part.ExternalReferences = &[]cdx.ExternalReference{{Type: cdx.ERTypeWebsite, URL: locked.Homepage}}
	}
	var files []cdx.Component
	for _, f := range c.Files {
		if f.Digest != "" {
			files = append(files, cdx.Component{BOMRef: "file" + f.Path, Type: cdx.ComponentTypeFile, Name: f.Path, Hashes: sha256Hash(f.Digest)})
		}
	}
	if len(files) > 0 {
		part.Components = &files
	}
	return part
}

func packageSBOM(p Package, system System) cdx.Component {
	return cdx.Component{BOMRef: "deb/" + p.Name + "/" + p.Architecture, Type: cdx.ComponentTypeLibrary,
		Name: p.Name, Version: p.Version, PackageURL: p.URL(system)}
}

// URL is the package URL of a package of a system.
func (p Package) URL(system System) string {
	qualifiers := packageurl.QualifiersFromMap(map[string]string{"arch": p.Architecture, "distro": system.ID + "-" + system.Version})
	return packageurl.NewPackageURL("deb", system.ID, p.Name, p.Version, qualifiers, "").ToString()
}

// ModuleURL is the package URL of a Go module.
func ModuleURL(module, version string) string {
	namespace, name := "", module
	if i := strings.LastIndex(name, "/"); i >= 0 {
		namespace, name = name[:i], name[i+1:]
	}
	return packageurl.NewPackageURL(packageurl.TypeGolang, namespace, name, version, nil, "").ToString()
}

// sha256Hash is nil unless the digest is a sha256 in hex.
func sha256Hash(digest string) *[]cdx.Hash {
	if raw, err := hex.DecodeString(digest); err != nil || len(raw) != 32 {
		return nil
	}
	return &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: digest}}
}
