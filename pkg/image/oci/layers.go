package oci

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image is an image of an archive, for one platform.
type Image struct {
	// Name is what pods name it by.
	Name string
	// Target is what the name stands for: the manifest, or an index of which Manifest is a part.
	Target v1.Descriptor
	// Blobs are the content of the index, if there is one, of the manifest and of the configuration, by their digests.
	Blobs map[v1.Hash][]byte
	v1.Image
}

// Images returns the images of an archive that Read takes, of an index the one for Linux on the architecture (a GOARCH). The content of layers is
// read from the archive when it is asked for, each time anew.
func Images(open func() (io.ReadCloser, error), arch string) ([]Image, error) {
	r, err := open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // it was only read
	a := archive{small: map[string][]byte{}, have: map[string]bool{}}
	named, err := a.images(r)
	if err != nil {
		return nil, err
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(a.small["index.json"]))
	if err != nil {
		return nil, err
	}
	images := make([]Image, 0, len(named))
	for i, n := range named {
		image := Image{Name: n.Name, Target: index.Manifests[i], Blobs: map[v1.Hash][]byte{}}
		manifest, err := a.platform(image.Target, arch, image.Blobs)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n.Name, err)
		}
		config := manifest.Config.Digest
		image.Blobs[config] = a.small[blobName(config)]
		if image.Blobs[config] == nil {
			return nil, fmt.Errorf("%s: its configuration has more than %d bytes", n.Name, maxIndex)
		}
		if image.Image, err = partial.CompressedToImage(core{open: open, raw: image.Blobs, manifest: manifest}); err != nil {
			return nil, fmt.Errorf("%s: %w", n.Name, err)
		}
		images = append(images, image)
	}
	return images, nil
}

// manifestOf is a manifest, with its own descriptor.
type manifestOf struct {
	v1.Manifest
	own v1.Descriptor
}

// platform finds the manifest for the architecture, and keeps what leads to it.
func (a archive) platform(d v1.Descriptor, arch string, kept map[v1.Hash][]byte) (manifestOf, error) {
	text := a.small[blobName(d.Digest)]
	if text == nil {
		return manifestOf{}, fmt.Errorf("the archive lacks the manifest %s", d.Digest)
	}
	kept[d.Digest] = text
	if !d.MediaType.IsIndex() {
		m := manifestOf{own: d}
		return m, json.Unmarshal(text, &m.Manifest)
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(text))
	if err != nil {
		return manifestOf{}, fmt.Errorf("reading the index %s: %w", d.Digest, err)
	}
	for _, child := range index.Manifests {
		if p := child.Platform; p != nil && p.OS == "linux" && p.Architecture == arch && a.have[blobName(child.Digest)] {
			return a.platform(child, arch, kept)
		}
	}
	return manifestOf{}, fmt.Errorf("the index %s has no manifest for linux/%s", d.Digest, arch)
}

// core is an image whose layers are in an archive.
type core struct {
	open     func() (io.ReadCloser, error)
	raw      map[v1.Hash][]byte
	manifest manifestOf
}

var _ partial.CompressedImageCore = core{}

func (c core) RawManifest() ([]byte, error) { return c.raw[c.manifest.own.Digest], nil }

func (c core) RawConfigFile() ([]byte, error) { return c.raw[c.manifest.Config.Digest], nil }

func (c core) MediaType() (types.MediaType, error) { return c.manifest.own.MediaType, nil }

func (c core) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	for _, l := range c.manifest.Layers {
		if l.Digest == h {
			return layer{l, c.open}, nil
		}
	}
	return nil, fmt.Errorf("the image has no layer %s", h)
}

// layer is a layer in an archive.
type layer struct {
	descriptor v1.Descriptor
	open       func() (io.ReadCloser, error)
}

func (l layer) Digest() (v1.Hash, error) { return l.descriptor.Digest, nil }

func (l layer) Size() (int64, error) { return l.descriptor.Size, nil }

func (l layer) MediaType() (types.MediaType, error) { return l.descriptor.MediaType, nil }

// Compressed returns the layer's blob. The caller closes it.
func (l layer) Compressed() (io.ReadCloser, error) {
	r, err := l.open()
	if err != nil {
		return nil, err
	}
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("looking for the layer %s: %w", l.descriptor.Digest, err), r.Close())
		}
		if path.Clean(h.Name) == blobName(l.descriptor.Digest) {
			return struct {
				io.Reader
				io.Closer
			}{t, r}, nil
		}
	}
}
