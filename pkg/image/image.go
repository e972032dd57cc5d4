// Package image says what an image is to be before anything of it is made: the tree that a bake writes, what a lock and the
// plain files put into it, and whether a baked image still is what would be baked now.
//
// Its rule: it fetches and computes, and writes no image; everyone who wants to know the tree composes it here.
package image

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/cache"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/containerd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/fetch"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/oci"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// Plan is an image that is to be composed.
type Plan struct {
	bake.Plan
	// Fetch says where components come from. Assets and Arch are those of the plan.
	Fetch fetch.Options
	// ContainerImages are references of container images with their digests (fetch.ParseContainer), ContainerArchives files with such
	// images (oci.Read). Both are added to Containers.
	ContainerImages, ContainerArchives []string
	// OnFallback is told of each component that does not come from the source that it should; nil: nobody is.
	OnFallback func(fetch.Result)
	// OnArchive is told of each archive of container images that is not unpacked, and why: each minion imports it at its boot. nil: nobody is.
	OnArchive func(archive, why string)
}

// OptionsError is a Fetch that asks for what there is not.
type OptionsError struct{ Err error }

func (e *OptionsError) Error() string { return e.Err.Error() }

func (e *OptionsError) Unwrap() error { return e.Err }

// Compose fetches the components of the lock, and composes the tree and what describes it. Progress and Log of the job are
// the caller's to set.
func (p Plan) Compose(ctx context.Context) (bake.Job, error) {
	o := p.Fetch
	o.Assets, o.Arch = p.Assets, p.Architecture
	fetcher, err := fetch.New(o)
	if err != nil {
		return bake.Job{}, &OptionsError{err}
	}
	results, err := fetcher.All(ctx, p.Lock)
	if err != nil {
		return bake.Job{}, err
	}
	components := make([]bake.Fetched, 0, len(results))
	for _, r := range results {
		if r.Fallback != "" && p.OnFallback != nil {
			p.OnFallback(r)
		}
		made, err := p.materials(r)
		if err != nil {
			return bake.Job{}, err
		}
		components = append(components, bake.Fetched{Entries: r.Entries,
			Source: bake.Source{Component: r.Component, Kind: string(r.Source), Origin: r.Origin, Materials: made}})
	}
	if err := p.addContainers(ctx, fetcher); err != nil {
		return bake.Job{}, err
	}
	if err := p.unpack(ctx, components); err != nil {
		return bake.Job{}, err
	}
	return p.Job(components)
}

// unpack puts the files of container images in the place of their archives: of the lock's, of the hello image and of Containers. An archive that the
// template puts there as a file is left as it is.
func (p *Plan) unpack(ctx context.Context, components []bake.Fetched) error {
	isArchive := func(e rootfs.Entry) bool {
		return path.Dir(e.Path) == oci.Dir && path.Ext(e.Path) == ".tar" && e.Component != rootfs.FromExtra
	}
	containers, err := bake.ContainerEntries(p.Containers)
	if err != nil {
		return err
	}
	var archives []rootfs.Entry
	for _, list := range append([][]rootfs.Entry{p.Extra, containers}, entriesOf(components)...) {
		for _, e := range list {
			if isArchive(e) {
				archives = append(archives, e)
			}
		}
	}
	c, err := cache.Open(p.Fetch.Cache)
	if err != nil {
		return err
	}
	r, err := containerd.Unpack(ctx, archives, p.Architecture, c)
	if err != nil {
		return err
	}
	for _, archive := range slices.Sorted(maps.Keys(r.Left)) {
		if p.OnArchive != nil {
			p.OnArchive(archive, r.Left[archive])
		}
	}
	gone := func(e rootfs.Entry) bool { return isArchive(e) && r.Unpacked[e.Path] != "" }
	for i := range components {
		components[i].Entries = slices.DeleteFunc(slices.Clone(components[i].Entries), gone)
	}
	p.Extra = append(slices.DeleteFunc(slices.Clone(p.Extra), gone), r.Entries...)
	for i, image := range p.Containers {
		if dir := r.Unpacked[image.Path]; dir != "" {
			p.Containers[i].Path, p.Containers[i].Entry = dir, rootfs.Entry{}
		}
	}
	return nil
}

func entriesOf(components []bake.Fetched) (lists [][]rootfs.Entry) {
	for _, c := range components {
		lists = append(lists, c.Entries)
	}
	return lists
}

func (p *Plan) addContainers(ctx context.Context, fetcher *fetch.Fetcher) error {
	p.Containers = slices.Clone(p.Containers)
	for _, text := range p.ContainerImages {
		c, err := fetcher.Container(ctx, text)
		if err != nil {
			return err
		}
		p.Containers = append(p.Containers, c)
	}
	for _, name := range p.ContainerArchives {
		list, err := Archive(name)
		if err != nil {
			return err
		}
		p.Containers = append(p.Containers, list...)
	}
	names := map[string]string{}
	for _, c := range p.Containers {
		if other, twice := names[c.Name]; twice {
			return fmt.Errorf("the container image %s is there twice, in %s and in %s: leave one out", c.Name, other, c.Path)
		}
		names[c.Name] = c.Path
	}
	return nil
}

// Archive reads a local OCI archive with container images for the nodes.
func Archive(name string) ([]bake.Container, error) {
	in, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	found, err := oci.Read(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	entry, err := rootfs.Local(bake.FromContainers, name, 0o644, name)
	if err != nil {
		return nil, err
	}
	// With the digest: archives in two directories may have one name.
	file := fmt.Sprintf("%s-%.12s.tar", strings.TrimSuffix(filepath.Base(name), ".tar"), entry.Digest)
	entry.Path = path.Join(oci.Dir, file)
	var list []bake.Container
	for _, i := range found {
		list = append(list, bake.Container{Name: i.Name, Digest: i.Digest, Path: entry.Path, Origin: "file", Entry: entry})
	}
	return list, nil
}
