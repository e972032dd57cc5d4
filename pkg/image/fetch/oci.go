package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/version"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/cache"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/oci"
)

const ociScheme = "oci://"

// image fetches an oci:// download as an OCI archive. The manifest is requested by the lock's digest; the tag is only
// the name in the archive. Of an index, the image for the fetcher's architecture is used.
func (f *Fetcher) image(ctx context.Context, d lock.Download) (cache.Blob, error) {
	sum := sha256.Sum256([]byte(d.URL + " " + d.Digest + " " + f.arch))
	name := "oci-" + hex.EncodeToString(sum[:])
	unlock, err := f.cache.Lock(ctx, name)
	if err != nil {
		return cache.Blob{}, err
	}
	defer unlock()
	if known, ok := f.cache.Lookup(name); ok && f.cache.Intact(ctx, known.Blob) {
		return known.Blob, nil
	}
	ref := strings.TrimPrefix(d.URL, ociScheme)
	var b cache.Blob
	err = f.client.retry(ctx, "https://"+ref, func() (err error) {
		b, err = f.pull(ctx, ref, d)
		return registryError(err)
	})
	if err != nil {
		return cache.Blob{}, f.explain(err)
	}
	return b, f.cache.Remember(name, cache.Record{Blob: b})
}

// registryError converts the registry library's errors to those that retry handles. All others, such as content that
// does not match its digest, are final.
func registryError(err error) error {
	var (
		answer *transport.Error
		noway  *url.Error
	)
	switch {
	case errors.As(err, &answer) && answer.StatusCode >= http.StatusBadRequest:
		return refused(answer.StatusCode, 0)
	case errors.As(err, &noway):
		return unanswered(noway.Err, false)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return lost(err, 0)
	}
	return err
}

// pull fetches the image and stores it as an archive.
func (f *Fetcher) pull(ctx context.Context, ref string, d lock.Download) (cache.Blob, error) {
	tag, err := name.NewTag(ref)
	if err != nil {
		return cache.Blob{}, err
	}
	pinned := tag.Context().Digest(d.Digest)
	// The library's retries are off: ours decide by the kind of error.
	desc, err := remote.Get(pinned, remote.WithContext(ctx), remote.WithTransport(f.client.http.Transport),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: f.arch}),
		remote.WithUserAgent("hardtack/"+version.String()), remote.WithRetryBackoff(remote.Backoff{Steps: 1}))
	if err != nil {
		return cache.Blob{}, err
	}
	if d.Size > 0 && desc.Size != d.Size {
		return cache.Blob{}, &RejectedError{URL: d.URL, What: "size",
			Want: fmt.Sprintf("a manifest of %d bytes", d.Size), Got: fmt.Sprintf("%d", desc.Size)}
	}
	img, err := desc.Image()
	if err != nil {
		return cache.Blob{}, err
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(oci.Write(w, img, ref, tag.TagStr())) }()
	defer func() { _ = r.Close() }() // unblocks the writer if storing failed
	return f.cache.Store(ctx, r)
}
