package fetch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/oci"
)

// ParseContainer parses the reference of a container image with its digest: "registry.example/shop/web:1.2@sha256:…". The tag is what
// pods name it by, and the digest what is fetched. The download's Digest is that of the image's manifest, or of an index.
func ParseContainer(text string) (lock.Download, error) {
	const form = "registry/repository:tag@sha256:…: pods name the image by the tag, and the digest says what is fetched (crane digest NAME prints it)"
	tagged, digest, _ := strings.Cut(text, "@")
	tag, err := name.NewTag(tagged, name.StrictValidation)
	if err != nil {
		return lock.Download{}, fmt.Errorf("container image %q is not of the form %s: %w", text, form, err)
	}
	if digest == "" {
		return lock.Download{}, fmt.Errorf("container image %q has no digest: write it as %s", text, form)
	}
	pinned, err := name.NewDigest(tag.Context().Name() + "@" + digest)
	if err != nil || !strings.HasPrefix(pinned.DigestStr(), "sha256:") {
		return lock.Download{}, fmt.Errorf("container image %q has a digest that is none: write it as %s", text, form)
	}
	return lock.Download{URL: ociScheme + tagged, Digest: digest}, nil
}

// Container fetches the container image of a reference, as ParseContainer has it: from its registry, or from the cache, which vouches
// for it by its digest. Of an index it is the image for the fetcher's architecture.
func (f *Fetcher) Container(ctx context.Context, text string) (bake.Container, error) {
	d, err := ParseContainer(text)
	if err != nil {
		return bake.Container{}, err
	}
	blob, err := f.image(ctx, d)
	if err != nil {
		return bake.Container{}, fmt.Errorf("fetching the container image %s: %w", text, err)
	}
	ref := strings.TrimPrefix(d.URL, ociScheme)
	repository, _, _ := strings.Cut(path.Base(ref), ":")
	// By the whole reference: of one digest there may be archives with other names, by other tags and from other registries.
	sum := sha256.Sum256([]byte(text))
	file := fmt.Sprintf("%s-%x.tar", repository, sum[:6])
	entry := f.cache.Entry(bake.FromContainers, lock.File{Path: path.Join(oci.Dir, file), Mode: 0o644}, blob)
	return bake.Container{Name: ref, Digest: d.Digest, Path: entry.Path, Origin: "registry", Entry: entry}, nil
}
