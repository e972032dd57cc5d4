package image

import (
	"cmp"
	"errors"
	"io/fs"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
)

// ErrNoArchitecture means that nothing says which machines a disk is for.
var ErrNoArchitecture = errors.New("neither the request nor an image.json says the disk's architecture")

// Describe completes a request to publish a disk with what the disk's image.json says: its facts, its firmware with the certificate
// of its signature, and its architecture unless the request has one. Without such a file the request must have one, or the error
// matches ErrNoArchitecture.
func Describe(r *ami.Request, manifest string) error {
	baked, err := bake.ReadManifest(manifest)
	if errors.Is(err, fs.ErrNotExist) {
		if r.Architecture == "" {
			return ErrNoArchitecture
		}
		return nil
	}
	if err != nil {
		return err
	}
	r.Facts, r.UEFI, r.SecureBoot, r.Architecture = baked.Facts(), baked.Sealed(), baked.SecureBoot, cmp.Or(r.Architecture, baked.Architecture)
	return nil
}
