package image

import (
	"io/fs"

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
	// Agent, Reader and Hello are the programs' entries; nil is not compared.
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

// holds reports whether the image has the entry as it would be now.
func holds(baked bake.Manifest, e rootfs.Entry) bool {
	for _, f := range baked.Tree.Files {
		if f.Path == e.Path && f.Digest == e.Digest {
			return true
		}
	}
	return false
}
