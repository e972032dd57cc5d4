//go:build linux

package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/uki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/sealed"
)

// rootModules are the kernel modules that a sealed root is opened with; NVMe and ext4 are built into Debian's cloud kernel.
var rootModules = []string{"dm-verity", "erofs", "overlay"}

// hashModules compute dm-verity's hashes with the processor's own instructions, on amd64 and on arm64. dm-verity takes what is
// there when it is set up, for as long as the machine is up; the kernel's own SHA-256 uses none, and udev would load these later.
// One whose instructions the processor has not is not loaded.
var hashModules = []string{"sha256-ssse3", "sha256-arm64", "sha2-ce"}

// driverModules are those of other disks than NVMe, loaded only where the root is on none: virtio, SATA and Xen. One that the
// kernel has not is left out.
var driverModules = []string{"virtio_blk", "virtio_scsi", "sd_mod", "ahci", "xen-blkfront"}

// moduleFiles are the modules of an initial RAM disk, each before those that need it.
func moduleFiles(root, release string) ([]uki.File, error) {
	base := "usr/lib/modules/" + release
	text, err := file.ReadWithin(root, base+"/modules.dep")
	if err != nil {
		return nil, fmt.Errorf("modules of kernel %s: %w", release, err)
	}
	needs := parseDependencies(string(text))
	var files []uki.File
	for _, set := range []struct {
		dir      string
		names    []string
		optional bool
	}{{sealed.RootModules, hashModules, true}, {sealed.RootModules, rootModules, false}, {sealed.DriverModules, driverModules, true}} {
		ordered, err := inOrder(needs, set.names, set.optional)
		if err != nil {
			return nil, fmt.Errorf("modules of kernel %s: %w", release, err)
		}
		for n, name := range ordered {
			content, err := file.ReadWithin(root, base+"/"+name)
			if err != nil {
				return nil, fmt.Errorf("modules of kernel %s: %w", release, err)
			}
			at := fmt.Sprintf("%s/%02d-%s", strings.TrimPrefix(set.dir, "/"), n, path.Base(name))
			files = append(files, uki.File{Path: at, Mode: 0o644, Content: content})
		}
	}
	return files, nil
}

// dependency is a line of modules.dep: a module's file and those that it needs, the last of which is to be loaded first.
type dependency struct {
	file  string
	needs []string
}

// parseDependencies reads modules.dep (depmod(8)), by the modules' names.
func parseDependencies(text string) map[string]dependency {
	all := map[string]dependency{}
	for line := range strings.Lines(text) {
		name, needs, ok := strings.Cut(line, ":")
		if ok {
			all[moduleName(name)] = dependency{name, strings.Fields(needs)}
		}
	}
	return all
}

// moduleName is the name by which a module's file is known; hyphens and underlines are the same to the kernel.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".")
	return strings.ReplaceAll(name, "-", "_")
}

// inOrder lists the files of modules and of all that they need, each before those that need it.
func inOrder(all map[string]dependency, names []string, optional bool) ([]string, error) {
	var files []string
	var missing []error
	add := func(file string) {
		if !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	for _, name := range names {
		d, ok := all[moduleName(name)]
		if !ok && !optional {
			missing = append(missing, fmt.Errorf("there is no %s, without which no sealed root can be opened: %w", name, fs.ErrNotExist))
		}
		for _, needed := range slices.Backward(d.needs) {
			add(needed)
		}
		if ok {
			add(d.file)
		}
	}
	return files, errors.Join(missing...)
}
