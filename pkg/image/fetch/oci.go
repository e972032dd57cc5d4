package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/version"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/cache"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/oci"
)

const ociScheme = "oci://"

// image fetches an oci:// download as an OCI archive. The manifest is requested by the lock's digest; the tag is only
// the name in the archive. Of an index, the image for the fetcher's architecture is used. The cache has the image's parts
// by their digests, and each names the next, so that the lock's digest vouches for all of the archive.
func (f *Fetcher) image(ctx context.Context, d lock.Download) (cache.Blob, error) {
	unlock, err := f.cache.Lock(ctx, "oci-"+cache.Key(d.Digest)+"-"+f.arch, f.waits(d))
	if err != nil {
		return cache.Blob{}, err
	}
	defer unlock()
	ref := strings.TrimPrefix(d.URL, ociScheme)
	if img, err := f.cachedImage(ctx, d); err == nil {
		return f.archive(ctx, ref, img)
	}
	var img v1.Image
	err = f.client.retry(ctx, "https://"+ref, func() error {
		if err := f.pull(ctx, ref, d); err != nil {
			return registryError(err)
		}
		img, err = f.cachedImage(ctx, d)
		return err
	})
	if err != nil {
		return cache.Blob{}, f.explain(err)
	}
	return f.archive(ctx, ref, img)
}

// archive stores the image as an archive.
func (f *Fetcher) archive(ctx context.Context, ref string, img v1.Image) (cache.Blob, error) {
	tag, err := name.NewTag(ref)
	if err != nil {
		return cache.Blob{}, err
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(oci.Write(w, img, ref, tag.TagStr())) }()
	defer func() { _ = r.Close() }() // unblocks the writer if storing failed
	return f.cache.Store(ctx, r)
}

// registryError converts the registry library's errors to those that retry handles. All others, such as content that
// does not match its digest, are final.
func registryError(err error) error {
	var (
		answer *transport.Error
		broken *brokenError
		noway  *url.Error
	)
	switch {
	case errors.As(err, &broken):
		return lost(broken, 0)
	case errors.As(err, &answer) && answer.StatusCode >= http.StatusBadRequest:
		return refused(answer.StatusCode, 0)
	case errors.As(err, &noway):
		return unanswered(noway.Err, false)
	}
	return err
}

// pull fetches the parts of the image into the cache.
func (f *Fetcher) pull(ctx context.Context, ref string, d lock.Download) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return err
	}
	pinned := tag.Context().Digest(d.Digest)
	// The library's retries are off: ours decide by the kind of error.
	desc, err := remote.Get(pinned, remote.WithContext(ctx), remote.WithTransport(f.client.http.Transport),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: f.arch}),
		remote.WithUserAgent("hardtack/"+version.String()), remote.WithRetryBackoff(remote.Backoff{Steps: 1}))
	if err != nil {
		return err
	}
	if d.Size > 0 && desc.Size != d.Size {
		return &RejectedError{URL: d.URL, What: "size",
			Want: fmt.Sprintf("a manifest of %d bytes", d.Size), Got: fmt.Sprintf("%d", desc.Size)}
	}
	img, err := desc.Image()
	if err != nil {
		return err
	}
	manifest, err := img.RawManifest()
	if err != nil {
		return err
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return err
	}
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	for _, l := range layers {
		if err := f.storeLayer(ctx, l); err != nil {
			return err
		}
	}
	for _, part := range [][]byte{config, manifest, desc.Manifest} {
		if _, err := f.cache.Store(ctx, bytes.NewReader(part)); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fetcher) storeLayer(ctx context.Context, l v1.Layer) error {
	r, err := l.Compressed()
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = f.cache.Store(ctx, r)
	return err
}

// cachedImage returns the image of the lock's digest from the cache. An error means that it has to be pulled.
func (f *Fetcher) cachedImage(ctx context.Context, d lock.Download) (v1.Image, error) {
	raw, err := f.part(ctx, d.Digest)
	if err != nil {
		return nil, err
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
	if err == nil && len(index.Manifests) > 0 {
		at := slices.IndexFunc(index.Manifests, func(m v1.Descriptor) bool {
			return m.Platform != nil && m.Platform.OS == "linux" && m.Platform.Architecture == f.arch
		})
		if at < 0 {
			return nil, fmt.Errorf("%s has no image for linux/%s", d.URL, f.arch)
		}
		if raw, err = f.part(ctx, index.Manifests[at].Digest.String()); err != nil {
			return nil, err
		}
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.URL, err)
	}
	stored := &storedImage{cache: f.cache, manifest: raw, mediaType: manifest.MediaType}
	if stored.config, err = f.part(ctx, manifest.Config.Digest.String()); err != nil {
		return nil, err
	}
	for _, l := range manifest.Layers {
		if _, ok := f.cache.Find(ctx, l.Digest.String()); !ok {
			return nil, fmt.Errorf("the cache has no layer %s", l.Digest)
		}
	}
	return partial.CompressedToImage(stored)
}

// part reads a manifest or configuration from the cache.
func (f *Fetcher) part(ctx context.Context, digest string) ([]byte, error) {
	b, ok := f.cache.Find(ctx, digest)
	if !ok || b.Size > maxManifest {
		return nil, fmt.Errorf("the cache has no manifest or configuration %s", digest)
	}
	return os.ReadFile(f.cache.Path(b))
}

// storedImage is an image whose layers the cache has. It implements partial.CompressedImageCore.
type storedImage struct {
	cache            *cache.Cache
	manifest, config []byte
	mediaType        types.MediaType
}

func (s *storedImage) RawManifest() ([]byte, error)        { return s.manifest, nil }
func (s *storedImage) RawConfigFile() ([]byte, error)      { return s.config, nil }
func (s *storedImage) MediaType() (types.MediaType, error) { return s.mediaType, nil }

// LayerByDigest returns a layer of the manifest.
func (s *storedImage) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	m, err := partial.Manifest(s)
	if err != nil {
		return nil, err
	}
	for _, l := range m.Layers {
		if l.Digest == h {
			return &storedLayer{s.cache, l}, nil
		}
	}
	return nil, fmt.Errorf("the image has no layer %s", h)
}

// storedLayer is a layer of a storedImage.
type storedLayer struct {
	cache *cache.Cache
	desc  v1.Descriptor
}

func (s *storedLayer) Digest() (v1.Hash, error)            { return s.desc.Digest, nil }
func (s *storedLayer) Size() (int64, error)                { return s.desc.Size, nil }
func (s *storedLayer) MediaType() (types.MediaType, error) { return s.desc.MediaType, nil }
func (s *storedLayer) Compressed() (io.ReadCloser, error) {
	return s.cache.Open(cache.Blob{Digest: s.desc.Digest.Hex, Size: s.desc.Size})
}
