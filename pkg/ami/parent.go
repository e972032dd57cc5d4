package ami

import (
	"context"
	"fmt"
	"slices"
	"strconv"
)

// parent finds the image whose snapshot the new one may be made on, with its manifest. Nil: there is none. One that
// was named must do; of the others, the newest that does is taken, and trouble with one is no trouble.
func (w *publication) parent(ctx context.Context) (*Parent, error) {
	if w.request.Parent == NoParent {
		return nil, nil
	}
	images, err := w.c.Images.Find(ctx, map[string]string{TagImage: w.request.Image})
	if err != nil {
		return nil, err
	}
	for _, i := range images {
		named := i.ID == w.request.Parent
		if w.request.Parent != NewestParent && !named {
			continue
		}
		p, err := w.inspect(ctx, i)
		switch {
		case err == nil:
			w.c.Log.Info("taking what has not changed from an older image", "image", i.ID, "snapshot", i.Snapshot)
			return p, nil
		case named || ctx.Err() != nil:
			return nil, fmt.Errorf("parent %s (%s): %w", i.ID, i.Name, err)
		}
		w.c.Log.Debug("an older image is no parent", "image", i.ID, "reason", err)
	}
	if w.request.Parent != NewestParent {
		return nil, fmt.Errorf("parent %s: there is no such image of the line %q", w.request.Parent, w.request.Image)
	}
	return nil, nil
}

// inspect reads an image's manifest and checks that the image can be a parent.
func (w *publication) inspect(ctx context.Context, i Image) (*Parent, error) {
	size, err := strconv.ParseInt(i.Tags[TagDisk], 10, 64)
	switch {
	case i.State != Available || i.Snapshot == "":
		return nil, fmt.Errorf("its state is %s", i.State)
	case err != nil || size <= 0:
		return nil, fmt.Errorf("its tag %s is %q", TagDisk, i.Tags[TagDisk])
	case i.Tags[TagKey] != w.request.Key:
		return nil, fmt.Errorf("it was encrypted with the key %q, and a snapshot has its parent's", i.Tags[TagKey])
	case i.Volume > w.request.volume(w.manifest):
		return nil, fmt.Errorf("its volume has %d GiB, more than the new one", i.Volume)
	}
	m, err := ReadManifest(ctx, w.c.Blocks, i.Snapshot, size)
	if err != nil {
		return nil, err
	}
	return &Parent{Snapshot: i.Snapshot, Manifest: m}, nil
}

// ReadManifest reads the manifest stored in a snapshot after a disk of size bytes, and checks it against the snapshot's
// list of blocks.
func ReadManifest(ctx context.Context, s Blocks, snapshot string, size int64) (Manifest, error) {
	listed, err := s.List(ctx, snapshot)
	if err != nil {
		return Manifest{}, err
	}
	first := Manifest{Size: size}.trailer()
	at, ok := slices.BinarySearchFunc(listed, first, func(l StoredBlock, block int32) int { return int(l.Block) - int(block) })
	if !ok {
		return Manifest{}, fmt.Errorf("snapshot %s: it has no block %d, where the manifest of its disk would be", snapshot, first)
	}
	var kept []byte
	buffer := make([]byte, BlockSize)
	for i := at; i < len(listed) && listed[i].Block == first+int32(i-at); i++ {
		if err := s.Get(ctx, snapshot, listed[i], buffer); err != nil {
			return Manifest{}, err
		}
		kept = append(kept, buffer...)
		if needed, err := manifestBlocks(kept); err != nil || len(kept) >= needed*BlockSize {
			break
		}
	}
	m, err := DecodeManifest(kept)
	if err != nil {
		return Manifest{}, fmt.Errorf("snapshot %s: %w", snapshot, err)
	}
	return m, checkBlocks(m, snapshot, listed)
}

// checkBlocks returns an error if the snapshot lacks a block that its manifest lists.
func checkBlocks(m Manifest, snapshot string, listed []StoredBlock) error {
	i := 0
	for _, e := range m.Blocks {
		for i < len(listed) && listed[i].Block < e.Block {
			i++
		}
		if i == len(listed) || listed[i].Block != e.Block {
			return fmt.Errorf("snapshot %s: its manifest lists block %d, which it does not have", snapshot, e.Block)
		}
	}
	return nil
}
