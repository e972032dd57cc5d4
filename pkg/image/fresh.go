package image

import (
	"io/fs"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// Now is what would be baked now.
type Now struct {
	// Assets holds the locks, rootfs/ and packages; Units the units at its root.
	Assets, Units fs.FS
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
func (n Now) fingerprint(lock string) (string, error) {
	l, err := bake.LoadLock(n.Assets, lock)
	if err != nil {
		return "", err
	}
	packages, err := bake.Packages(n.Assets)
	if err != nil {
		return "", err
	}
	plain, err := fs.Sub(n.Assets, "rootfs")
	if err != nil {
		return "", err
	}
	return bake.Fingerprint(l.Fingerprint(), packages, n.Units, plain)
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
