package lab

import (
	"archive/tar"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// archived is an image of an archive, or an index of the images of several architectures.
type archived struct {
	tag   name.Tag
	write func(to name.Tag, options ...remote.Option) error
}

func archivedImage(tag name.Tag, image v1.Image) archived {
	return archived{tag, func(to name.Tag, options ...remote.Option) error { return remote.Write(to, image, options...) }}
}

// readArchive reads the images of an archive in docker save's form, or of an image layout of OCI in a tar. done ends their use.
func readArchive(archive string) (images []archived, done func(), err error) {
	open := func() (io.ReadCloser, error) { return os.Open(archive) }
	manifest, err := tarball.LoadManifest(open)
	if err != nil {
		images, done, ociErr := readLayout(archive)
		if ociErr != nil {
			return nil, nil, fmt.Errorf("reading the images of %s: %w; as a layout of OCI: %w; next: give an archive as docker save or crane pull write it", archive, err, ociErr)
		}
		return images, done, nil
	}
	for _, d := range manifest {
		for _, tagged := range d.RepoTags {
			tag, err := name.NewTag(tagged)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", archive, err)
			}
			image, err := tarball.Image(open, &tag)
			if err != nil {
				return nil, nil, fmt.Errorf("reading %s of %s: %w", tagged, archive, err)
			}
			images = append(images, archivedImage(tag, image))
		}
	}
	return images, func() {}, nil
}

// The annotations with an image's name: containerd's is all of it, OCI's all or the tag alone.
const (
	nameAnnotation = "io.containerd.image.name"
	tagAnnotation  = "org.opencontainers.image.ref.name"
)

// readLayout unpacks an image layout, and reads the images that have names.
func readLayout(archive string) (images []archived, done func(), err error) {
	dir, err := os.MkdirTemp("", "hardtack-images-")
	if err != nil {
		return nil, nil, err
	}
	remove := func() { _ = os.RemoveAll(dir) } // the system's temporary directory is cleaned anyway
	defer func() {
		if err != nil {
			remove()
		}
	}()
	if err := unpackLayout(archive, dir); err != nil {
		return nil, nil, err
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, nil, err
	}
	for _, d := range manifest.Manifests {
		named := cmp.Or(d.Annotations[nameAnnotation], d.Annotations[tagAnnotation])
		if named == "" {
			continue
		}
		tag, err := name.NewTag(named)
		if err != nil {
			return nil, nil, err
		}
		if d.MediaType.IsIndex() {
			several, err := index.ImageIndex(d.Digest)
			if err != nil {
				return nil, nil, err
			}
			images = append(images, archived{tag, func(to name.Tag, options ...remote.Option) error { return remote.WriteIndex(to, several, options...) }})
			continue
		}
		image, err := index.Image(d.Digest)
		if err != nil {
			return nil, nil, err
		}
		images = append(images, archivedImage(tag, image))
	}
	return images, remove, nil
}

// unpackLayout writes the files of a layout to a directory: its index and its blobs.
func unpackLayout(archive, dir string) (err error) {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for t := tar.NewReader(f); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.FromSlash(strings.TrimPrefix(h.Name, "./"))
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(path) {
			continue
		}
		if err := unpackFile(filepath.Join(dir, path), t); err != nil {
			return err
		}
	}
}

func unpackFile(to string, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(0o600))
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}
