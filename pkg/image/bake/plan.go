package bake

import (
	"fmt"
	"io/fs"
	"slices"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit/layer"
)

// Plan is the input of an image. The fields after Architecture may be empty.
type Plan struct {
	// Assets holds rootfs/ and packages, Units the units at its root.
	Assets, Units fs.FS
	// Layers lie over Units, the first lowest; Units may be nil then.
	Layers []layer.Layer
	Lock   *lock.Lock
	// Architecture as Go writes it: "amd64".
	Architecture string
	// Extra are the entries of the agent and of additional files and units.
	Extra           []rootfs.Entry
	KernelArguments []string
	Sysctls         map[string]string
	Packages        []string
	// Containers are further container images for the nodes.
	Containers []Container
}

// Fetched is one component that has been fetched.
type Fetched struct {
	Source  Source
	Entries []rootfs.Entry
}

// Job composes the tree and its description. The caller sets Progress and Log of the job.
func (p Plan) Job(components []Fetched) (Job, error) {
	plain, err := fs.Sub(p.Assets, "rootfs")
	if err != nil {
		return Job{}, err
	}
	packages, err := Packages(p.Assets)
	if err != nil {
		return Job{}, err
	}
	layered, units, problems := p.LoadUnits()
	if err := problems.Err(); err != nil {
		return Job{}, fmt.Errorf("reading the units:\n%w", err)
	}
	image := Image{Lock: p.Lock, Roles: unit.NewTable(units), KernelArguments: p.KernelArguments, Containers: p.Containers}
	for _, u := range units {
		image.Units = append(image.Units, u.Name)
	}
	if image.Fingerprint, err = p.Fingerprint(); err != nil {
		return Job{}, err
	}
	containers, err := ContainerEntries(p.Containers)
	if err != nil {
		return Job{}, err
	}
	files := slices.Concat(p.Extra, containers)
	for _, c := range components {
		files = append(files, c.Entries...)
		image.Sources = append(image.Sources, c.Source)
	}
	tree, err := rootfs.Compose(rootfs.Inputs{Files: files, Units: layered.FS, Rootfs: plain,
		KernelArguments: p.KernelArguments, Sysctls: p.Sysctls})
	if err != nil {
		return Job{}, err
	}
	findings := unit.Lint(units, p.WithDebian(tree))
	layered.Locate(findings)
	if err := findings.Err(); err != nil {
		return Job{}, fmt.Errorf("the units do not fit the image:\n%w", err)
	}
	return Job{Tree: tree, Architecture: p.Architecture, Packages: slices.Concat(packages, p.Packages), Image: image}, nil
}

// LoadUnits merges and reads the units. The list has what is wrong with the layers or cannot be read as a unit.
func (p Plan) LoadUnits() (layer.Merged, []unit.Unit, problem.List) {
	layers := p.Layers
	if p.Units != nil {
		layers = append([]layer.Layer{{Name: "units/", FS: p.Units}}, layers...)
	}
	layered, problems := layer.Merge(layers...)
	units, unread := unit.Load(layered.FS)
	layered.Locate(unread)
	return layered, units, append(problems, unread...)
}

// WithDebian returns the tree together with Debian's files below it. With Packages, it has whatever packages may put into
// the image: which of that they do is seen on the target.
func (p Plan) WithDebian(tree unit.Tree) unit.Tree {
	if len(p.Packages) > 0 {
		return unit.OnDebianWithMore(tree)
	}
	return unit.OnDebian(tree)
}

// Fingerprint returns the Fingerprint of the plan, without the packages that a template adds: they are Debian's, and in the
// manifest by version.
func (p Plan) Fingerprint() (string, error) {
	packages, err := Packages(p.Assets)
	if err != nil {
		return "", err
	}
	plain, err := fs.Sub(p.Assets, "rootfs")
	if err != nil {
		return "", err
	}
	layered, _, problems := p.LoadUnits()
	if err := problems.Err(); err != nil {
		return "", fmt.Errorf("reading the units:\n%w", err)
	}
	return Fingerprint(p.Lock.Fingerprint(), packages, layered.FS, plain)
}
