package lab

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/oci"
)

// archived is an image of an archive, or an index of the images of several architectures.
type archived struct {
	tag     name.Tag
	content remote.Taggable
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
			images = append(images, archived{tag, image})
		}
	}
	return images, func() {}, nil
}

// readLayout unpacks an image layout whose images are whole and have names.
func readLayout(archive string) (images []archived, done func(), err error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	named, err := oci.Read(f)
	if err != nil {
		return nil, nil, err
	}
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
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, nil, err
	}
	if err := untar(f, dir); err != nil {
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
	for i, d := range manifest.Manifests {
		a := archived{}
		if a.tag, err = name.NewTag(named[i].Name); err != nil {
			return nil, nil, err
		}
		if d.MediaType.IsIndex() {
			a.content, err = index.ImageIndex(d.Digest)
		} else {
			a.content, err = index.Image(d.Digest)
		}
		if err != nil {
			return nil, nil, err
		}
		images = append(images, a)
	}
	return images, remove, nil
}
