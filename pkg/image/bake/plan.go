package bake

import (
	"fmt"
	"io/fs"
	"slices"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
)

// Plan is the input of an image. The fields after Architecture may be empty.
type Plan struct {
	// Assets holds rootfs/ and packages, Units the units at its root.
	Assets, Units fs.FS
	Lock          *lock.Lock
	// Architecture as Go writes it: "amd64".
	Architecture string
	// Extra are the entries of the agent and of additional files and units.
	Extra           []rootfs.Entry
	KernelArguments []string
	Sysctls         map[string]string
	Packages        []string
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
	units, problems := unit.Load(p.Units)
	if err := problems.Err(); err != nil {
		return Job{}, fmt.Errorf("reading the units:\n%w", err)
	}
	image := Image{Lock: p.Lock, Roles: unit.NewTable(units), KernelArguments: p.KernelArguments}
	for _, u := range units {
		image.Units = append(image.Units, u.Name)
	}
	// Without the packages that a template adds: they are Debian's, and in the manifest by version.
	if image.Fingerprint, err = Fingerprint(p.Lock.Fingerprint(), packages, p.Units, plain); err != nil {
		return Job{}, err
	}
	files := slices.Clone(p.Extra)
	for _, c := range components {
		files = append(files, c.Entries...)
		image.Sources = append(image.Sources, c.Source)
	}
	tree, err := rootfs.Compose(rootfs.Inputs{Files: files, Units: p.Units, Rootfs: plain,
		KernelArguments: p.KernelArguments, Sysctls: p.Sysctls})
	if err != nil {
		return Job{}, err
	}
	findings := unit.Lint(units, unit.OnDebian(tree))
	if err := findings.Err(); err != nil {
		return Job{}, fmt.Errorf("the units do not fit the image:\n%w", err)
	}
	return Job{Tree: tree, Architecture: p.Architecture, Packages: slices.Concat(packages, p.Packages), Image: image}, nil
}
