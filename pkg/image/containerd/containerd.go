// Package containerd lays container images out as containerd has them once it has unpacked them, so that a machine starts with them and
// imports none.
//
// Its rule: containerd's own packages write its databases, and no clock is in them: the same images give the same bytes.
package containerd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/cache"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/oci"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

const (
	// Seed is what containerd's root directory begins with: databases, manifests and configurations of the unpacked images, and links to
	// their files. units/containerd.service copies it.
	Seed = rootfs.Home + "/containerd"
	// Mark is the file of Seed, and then of containerd's root directory, that names the images: it is copied last.
	Mark = "hardtack-images"
	// snapshotter is containerd's default, and images are unpacked for it alone.
	snapshotter = "overlayfs"
)

// Result is what a bake has instead of archives.
type Result struct {
	// Entries are the files of the unpacked images, and Seed. None if there is no image.
	Entries []rootfs.Entry
	// Unpacked are the paths of the archives that Entries take the place of, with where the files are.
	Unpacked map[string]string
	// Left says why an archive is not unpacked, by its path: it is imported at boot.
	Left map[string]string
}

// Unpack unpacks the images of archives (oci.Read) for an architecture, as far as the tree of a bake can have their files. Content of files is kept
// in the cache. Layers are not kept: containerd knows the images by what was in them, as it does with discard_unpacked_layers.
func Unpack(ctx context.Context, archives []rootfs.Entry, arch string, c *cache.Cache) (Result, error) {
	r := Result{Unpacked: map[string]string{}, Left: map[string]string{}}
	var images []unpacked
	for _, a := range archives {
		list, err := oci.Images(a.Open, arch)
		if err != nil {
			return Result{}, fmt.Errorf("unpacking the container images of %s: %w", a.Path, err)
		}
		var these []unpacked
		for _, image := range list {
			u, why, err := unpack(ctx, image, a.Component, c)
			if err != nil {
				return Result{}, fmt.Errorf("unpacking the container image %s of %s: %w", image.Name, a.Path, err)
			}
			if why != "" {
				r.Left[a.Path] = image.Name + ": " + why
				break
			}
			these = append(these, u)
		}
		if r.Left[a.Path] == "" {
			images = append(images, these...)
			r.Unpacked[a.Path] = these[0].dir
		}
	}
	if len(images) == 0 {
		return r, nil
	}
	seen := map[string]bool{}
	for _, u := range images {
		if !seen[u.dir] { // two names may stand for the same files
			r.Entries = append(r.Entries, u.files...)
		}
		seen[u.dir] = true
	}
	seed, err := seed(ctx, images)
	if err != nil {
		return Result{}, fmt.Errorf("writing containerd's databases: %w", err)
	}
	r.Entries = append(r.Entries, seed...)
	return r, nil
}

// unpacked is an image with its files.
type unpacked struct {
	oci.Image
	// chain is by what containerd knows the files of all layers together.
	chain digest.Digest
	// dir has the files.
	dir   string
	files []rootfs.Entry
}

// unpack reads the files of an image. why says what of it a tree cannot have.
func unpack(ctx context.Context, image oci.Image, component string, c *cache.Cache) (u unpacked, why string, err error) {
	config, err := image.ConfigFile()
	if err != nil {
		return unpacked{}, "", err
	}
	layers, err := image.Layers()
	if err != nil {
		return unpacked{}, "", err
	}
	diffs := config.RootFS.DiffIDs
	if len(layers) != len(diffs) {
		return unpacked{}, "", fmt.Errorf("its configuration has %d layers, and its manifest %d: it is broken or forged, build it again", len(diffs), len(layers))
	}
	u = unpacked{Image: image, chain: chainID(diffs)}
	if u.chain == "" {
		return unpacked{}, "it has no layers", nil
	}
	// The directory above keeps others than root away from programs that are setuid, as containerd's own does.
	above := path.Join(oci.Dir, u.chain.Encoded())
	u.dir = path.Join(above, "rootfs")
	files, why, err := flatten(ctx, layers, diffs, c)
	if err != nil || why != "" {
		return unpacked{}, why, err
	}
	u.files = append(u.files, rootfs.Entry{Path: above, Mode: fs.ModeDir | 0o700, Component: component})
	for _, f := range files {
		f.Path, f.Component = path.Join(u.dir, f.Path), component
		u.files = append(u.files, f)
	}
	return u, "", nil
}

func chainID(diffs []v1.Hash) digest.Digest {
	layers := make([]digest.Digest, 0, len(diffs))
	for _, d := range diffs {
		layers = append(layers, digest.Digest(d.String()))
	}
	return identity.ChainID(layers)
}

// seed returns what containerd's root directory begins with.
func seed(ctx context.Context, images []unpacked) ([]rootfs.Entry, error) {
	dir, err := os.MkdirTemp("", "hardtack-containerd-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	// In one order, whatever the order of the archives.
	slices.SortFunc(images, func(a, b unpacked) int { return strings.Compare(a.Name, b.Name) })
	links, err := write(ctx, dir, images)
	if err != nil {
		return nil, err
	}
	entries := []rootfs.Entry{{Path: Seed, Mode: fs.ModeDir | 0o700, Component: bake.FromContainers}}
	sum := sha256.New()
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		at := path.Join(Seed, strings.TrimPrefix(name, dir))
		if d.IsDir() {
			entries = append(entries, rootfs.Entry{Path: at, Mode: fs.ModeDir | 0o700, Component: bake.FromContainers})
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s %x\n", at, sha256.Sum256(content))
		entries = append(entries, rootfs.Bytes(bake.FromContainers, at, 0o600, content))
		return nil
	})
	if err != nil {
		return nil, err
	}
	for at, to := range links {
		entries = append(entries, rootfs.Entry{Path: path.Join(Seed, at), Mode: fs.ModeSymlink | 0o777, Link: to, Component: bake.FromContainers})
	}
	mark := hex.EncodeToString(sum.Sum(nil)) + "\n"
	return append(entries, rootfs.Bytes(bake.FromContainers, path.Join(Seed, Mark), 0o600, []byte(mark))), nil
}
