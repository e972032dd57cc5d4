package bake

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// ReadManifest reads an image.json that this version can read.
func ReadManifest(name string) (Manifest, error) {
	var m Manifest
	text, err := os.ReadFile(name)
	if err != nil {
		return m, fmt.Errorf("reading the image's description: %w", err)
	}
	if err := json.Unmarshal(text, &m); err != nil || m.Schema != ManifestSchema {
		return m, fmt.Errorf("%s is no description of an image that this version writes", name)
	}
	return m, nil
}

// maxTag is how many characters the value of a tag has at most.
const maxTag = 256

// Facts is a short summary of the manifest, for tags of machine images.
func (m Manifest) Facts() map[string]string {
	facts := map[string]string{"kubernetes": m.Kubernetes, "bake": m.Lock.Image, "version": m.Hardtack}
	var roles []role.Role
	for _, r := range m.Roles.Roles {
		roles = append(roles, r.Role)
	}
	// A tag's value has at most 256 characters (EC2 User Guide, "Tag restrictions"): more roles or ports than that are not said.
	if text := role.NewSet(roles...).String(); len(text) <= maxTag {
		facts["roles"] = text
	}
	if m.Sealed() {
		facts["root-hash"] = m.RootHash
		if m.EFIPartition != "" {
			facts["efi-sha256"] = m.EFIPartition
		}
	}
	if text := role.FormatOpenings(m.Roles.Ports); len(text) <= maxTag {
		facts["ports"] = text
	}
	return facts
}

// Sealed reports whether the disk beside the manifest has a sealed root, which UEFI alone starts.
func (m Manifest) Sealed() bool { return m.RootHash != "" }
