package bake

import (
	"encoding/json"
	"fmt"
	"os"
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

// Facts is a short summary of the manifest, for tags of machine images.
func (m Manifest) Facts() map[string]string {
	return map[string]string{"kubernetes": m.Kubernetes, "bake": m.Lock.Image, "version": m.Hardtack}
}
