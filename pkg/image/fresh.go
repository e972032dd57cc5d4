package image

import (
	"io/fs"
	"path"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit/layer"
)

// Now is what would be baked now.
type Now struct {
	// Assets holds the locks, rootfs/ and packages; Units the units at its root.
	Assets, Units fs.FS
	// Layers lie over Units.
	Layers []layer.Layer
	// Lock is nil for the lock in Assets that has the baked one's name.
	Lock *lock.Lock
	// Agent, Reader and Hello are the programs' entries, by the names of their files; nil is not compared.
	Agent, Reader, Hello *rootfs.Entry
}

// Changed says what of a baked image is not what would be baked now: "lock, units, files or packages", which one figure
// stands for, "agent", "reader", "hello". It is empty where the image is fresh.
func Changed(baked bake.Manifest, now Now) ([]string, error) {
	changed := []string{}
	inputs, err := now.fingerprint(baked.Lock.Name)
	if err != nil {
		return nil, err
	}
	if inputs != baked.Lock.Image {
		changed = append(changed, "lock, units, files or packages")
	}
	for _, program := range []struct {
		name  string
		entry *rootfs.Entry
	}{{"agent", now.Agent}, {"reader", now.Reader}, {"hello", now.Hello}} {
		if program.entry != nil && !holds(baked, *program.entry) {
			changed = append(changed, program.name)
		}
	}
	return changed, nil
}

// fingerprint stands for lock, units, plain files and packages together.
func (n Now) fingerprint(name string) (string, error) {
	plan := bake.Plan{Assets: n.Assets, Units: n.Units, Layers: n.Layers, Lock: n.Lock}
	if plan.Lock == nil {
		var err error
		if plan.Lock, err = bake.LoadLock(n.Assets, name); err != nil {
			return "", err
		}
	}
	return plan.Fingerprint()
}

// holds reports whether the image has the program as it would be now, in whatever directory.
func holds(baked bake.Manifest, e rootfs.Entry) bool {
	for _, f := range baked.Tree.Files {
		if f.From == e.Component && path.Base(f.Path) == path.Base(e.Path) && f.Digest == e.Digest {
			return true
		}
	}
	return false
}
