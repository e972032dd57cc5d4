// Package oci writes container images as OCI archives, which containerd imports.
//
// Its rule: archives are reproducible: nothing in them depends on the clock or on the machine.
package oci

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Write writes the image as an OCI archive: a tar of an image layout with one manifest. ref is the image's name without
// its tag.
func Write(w io.Writer, img v1.Image, ref, tag string) error {
	parts, err := archiveParts(img, ref, tag)
	if err != nil {
		return err
	}
	t := tar.NewWriter(w)
	for _, p := range parts {
		if err := p.write(t); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return t.Close()
}

// part is one file of an OCI archive.
type part struct {
	name string
	size int64
	open func() (io.ReadCloser, error)
}

func (p part) write(t *tar.Writer) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: p.name, Size: p.size, Mode: 0o644, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	r, err := p.open()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // it was only read
	_, err = io.Copy(t, r)
	return err
}

// archiveParts lists the files of the archive: the layout's marker and index, the manifest, the configuration and the
// layers.
func archiveParts(img v1.Image, ref, tag string) ([]part, error) {
	manifest, err := img.RawManifest()
	if err != nil {
		return nil, err
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return nil, err
	}
	m, err := img.Manifest()
	if err != nil {
		return nil, err
	}
	digest, err := img.Digest()
	if err != nil {
		return nil, err
	}
	index, err := json.Marshal(v1.IndexManifest{
		SchemaVersion: 2, MediaType: types.OCIImageIndex,
		Manifests: []v1.Descriptor{{
			MediaType: m.MediaType, Digest: digest, Size: int64(len(manifest)),
			// containerd names the image by the first; the second is the image layout's.
			Annotations: map[string]string{"io.containerd.image.name": ref, "org.opencontainers.image.ref.name": tag},
		}},
	})
	if err != nil {
		return nil, err
	}
	parts := []part{
		memory("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)),
		memory("index.json", index),
		memory(blobName(digest), manifest),
		memory(blobName(m.Config.Digest), config),
	}
	seen := map[v1.Hash]bool{}
	for _, l := range m.Layers {
		if seen[l.Digest] {
			continue
		}
		seen[l.Digest] = true
		layer, err := img.LayerByDigest(l.Digest)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part{blobName(l.Digest), l.Size, layer.Compressed})
	}
	return parts, nil
}

func blobName(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }

func memory(name string, data []byte) part {
	return part{name, int64(len(data)), func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }}
}
