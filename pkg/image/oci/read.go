package oci

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// Dir is where a node's archives of container images are: those that are there when a minion boots are imported into containerd.
const Dir = rootfs.ImagesDir

// maxIndex bounds what is read into memory of an archive: an index or a manifest.
const maxIndex = 4 << 20

// Named is an image of an archive: the name by which pods find it, and the digest of its manifest, or of an index.
type Named struct{ Name, Digest string }

// Read reads an OCI archive, a tar of an image layout, and returns its images. It compares every blob with the digest in its name, and
// looks for all that manifests name. An image without a name is an error, since no pod would find it.
func Read(r io.Reader) ([]Named, error) {
	return archive{small: map[string][]byte{}, have: map[string]bool{}}.images(r)
}

// images reads an archive as Read does. They are in the order of its index.
func (a archive) images(r io.Reader) ([]Named, error) {
	if err := a.read(tar.NewReader(r)); err != nil {
		return nil, err
	}
	if a.small["oci-layout"] == nil || a.small["index.json"] == nil {
		return nil, errors.New("it is no OCI archive: it lacks oci-layout or index.json (skopeo copy … oci-archive:FILE and crane pull --format=oci, packed with tar, make one)")
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(a.small["index.json"]))
	if err != nil {
		return nil, fmt.Errorf("reading its index.json: %w", err)
	}
	var images []Named
	for _, m := range index.Manifests {
		called := m.Annotations["io.containerd.image.name"]
		if reference := m.Annotations["org.opencontainers.image.ref.name"]; called == "" && strings.Contains(reference, "/") {
			called = reference
		}
		if called == "" {
			return nil, fmt.Errorf("the image %s of it has no name with a registry: annotate it with io.containerd.image.name", m.Digest)
		}
		if err := a.complete(m.Digest); err != nil {
			return nil, fmt.Errorf("%s: %w", called, err)
		}
		images = append(images, Named{called, m.Digest.String()})
	}
	if len(images) == 0 {
		return nil, errors.New("it has no images")
	}
	return images, nil
}

// archive is what was read of one: small files by their names, and the names of all.
type archive struct {
	small map[string][]byte
	have  map[string]bool
}

func (a archive) read(t *tar.Reader) error {
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading it as a tar: %w", err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		file, sum := path.Clean(h.Name), sha256.New()
		var kept bytes.Buffer
		to := io.Writer(sum)
		if h.Size <= maxIndex {
			to = io.MultiWriter(sum, &kept)
		}
		if _, err := io.Copy(to, t); err != nil {
			return fmt.Errorf("reading %s of it: %w", file, err)
		}
		if digest, blob := strings.CutPrefix(file, "blobs/sha256/"); blob && digest != hex.EncodeToString(sum.Sum(nil)) {
			return fmt.Errorf("its blob %s has another content than its name says", file)
		}
		a.have[file] = true
		if h.Size <= maxIndex {
			a.small[file] = kept.Bytes()
		}
	}
}

// complete looks for a manifest and all that it names. Of an index, a manifest for another platform may be missing, but not all.
func (a archive) complete(digest v1.Hash) error {
	text, ok := a.small[blobName(digest)]
	if !ok {
		return fmt.Errorf("the archive lacks the manifest %s", digest)
	}
	var m struct {
		v1.Manifest
		Manifests []v1.Descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("reading the manifest %s: %w", digest, err)
	}
	if len(m.Manifests) > 0 {
		there := 0
		for _, child := range m.Manifests {
			if !a.have[blobName(child.Digest)] {
				continue
			}
			if err := a.complete(child.Digest); err != nil {
				return err
			}
			there++
		}
		if there == 0 {
			return fmt.Errorf("the archive lacks all manifests of the index %s", digest)
		}
		return nil
	}
	for _, part := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if !a.have[blobName(part.Digest)] {
			return fmt.Errorf("the archive lacks %s", part.Digest)
		}
	}
	return nil
}
