package fetch

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/component"
	"github.com/hardtack/packer-plugin-hardtack/pkg/version"
)

const ociScheme = "oci://"

// image brings an oci:// download as an OCI archive. The manifest is asked for by the lock's digest;
// the tag only becomes the name in the archive. Of an index, the image for the fetcher's architecture
// is taken.
func (f *Fetcher) image(ctx context.Context, d component.Download) (blob, error) {
	sum := sha256.Sum256([]byte(d.URL + " " + d.Digest + " " + f.arch))
	name := "oci-" + hex.EncodeToString(sum[:])
	unlock, err := f.cache.lock(ctx, name)
	if err != nil {
		return blob{}, err
	}
	defer unlock()
	if known, ok := f.cache.lookup(name); ok && f.cache.intact(ctx, known.blob) {
		return known.blob, nil
	}
	ref := strings.TrimPrefix(d.URL, ociScheme)
	var b blob
	err = f.client.retry(ctx, "https://"+ref, func() (err error) {
		b, err = f.pull(ctx, ref, d)
		return registryError(err)
	})
	if err != nil {
		return blob{}, f.explain(err)
	}
	return b, f.cache.remember(name, record{blob: b})
}

// registryError puts what the registry library returns into the kinds that retry knows. What is none
// of them, such as content that is not what its digest says, is final.
func registryError(err error) error {
	var (
		answer *transport.Error
		noway  *url.Error
	)
	switch {
	case errors.As(err, &answer) && answer.StatusCode >= http.StatusBadRequest:
		return &statusError{code: answer.StatusCode}
	case errors.As(err, &noway):
		return &connectError{err: noway.Err}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &cutError{err: err}
	}
	return err
}

// pull gets the image and stores it as an archive.
func (f *Fetcher) pull(ctx context.Context, ref string, d component.Download) (blob, error) {
	tag, err := name.NewTag(ref)
	if err != nil {
		return blob{}, err
	}
	pinned := tag.Context().Digest(d.Digest)
	// The library's own retries are off: ours know what can be repeated.
	desc, err := remote.Get(pinned, remote.WithContext(ctx), remote.WithTransport(f.client.http.Transport),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: f.arch}),
		remote.WithUserAgent("hardtack/"+version.String()), remote.WithRetryBackoff(remote.Backoff{Steps: 1}))
	if err != nil {
		return blob{}, err
	}
	if d.Size > 0 && desc.Size != d.Size {
		return blob{}, &rejectedError{url: d.URL, what: "size",
			want: fmt.Sprintf("a manifest of %d bytes", d.Size), got: fmt.Sprintf("%d", desc.Size)}
	}
	img, err := desc.Image()
	if err != nil {
		return blob{}, err
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(writeOCI(w, img, ref, tag.TagStr())) }()
	defer func() { _ = r.Close() }() // ends the writer where the store has failed
	return f.cache.store(ctx, r)
}

// writeOCI writes the image as an OCI archive: a tar of an image layout with one manifest. Nothing in
// it depends on the clock or on who writes.
func writeOCI(w io.Writer, img v1.Image, ref, tag string) error {
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
	defer func() { _ = r.Close() }() // ends the writer where the store has failed
	_, err = io.Copy(t, r)
	return err
}

// archiveParts lists the files of the archive: the layout's marker and index, the manifest, the configuration
// and the layers.
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
			// containerd imports under the first; the second is the layout's own.
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
