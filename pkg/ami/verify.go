package ami

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
)

// errForeign is an image that says that it is of a disk, and is not.
var errForeign = errors.New("its tags and name are those of this disk, and its content is not")

// content is what an image of a disk must be. Tags and names do not show it: whoever may tag images can give them to any.
type content struct {
	manifest     Manifest
	architecture string
	volume       int64
}

// verify reads the whole snapshot of an image that was found, and compares it with the disk: each block of the disk, its
// manifest, and nothing but zeros elsewhere. The progress may be nil.
func (c *content) verify(ctx context.Context, s SnapshotReader, i Image, workers int, progress Progress) error {
	if progress == nil {
		progress = noProgress{}
	}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("image %s (%s): %w: %s\nfind out who made or tagged it (CloudTrail: RegisterImage, CreateTags), remove it, and publish again",
			i.ID, i.Name, errForeign, fmt.Sprintf(format, args...))
	}
	if i.Architecture != c.architecture || i.Volume != c.volume || i.Disks != 1 {
		return wrong("it is for %s with %d disks and a root volume of %d GiB, not for %s with one of %d GiB", i.Architecture, i.Disks, i.Volume, c.architecture, c.volume)
	}
	listed, err := s.List(ctx, i.Snapshot)
	if err != nil {
		return err
	}
	want := c.digests()
	var missing, blocks []int32
	tokens := make(map[int32]StoredBlock, len(listed))
	for _, b := range listed {
		tokens[b.Block] = b
		blocks = append(blocks, b.Block)
	}
	for block := range want {
		if _, ok := tokens[block]; !ok {
			missing = append(missing, block)
		}
	}
	if len(missing) > 0 {
		return wrong("snapshot %s lacks %d blocks of it", i.Snapshot, len(missing))
	}
	progress.Begin("checking the image that is there", int64(len(blocks))*BlockSize)
	return parallel(ctx, blocks, workers, func(ctx context.Context, block int32, buffer []byte) error {
		if err := s.Get(ctx, i.Snapshot, tokens[block], buffer); err != nil {
			return err
		}
		progress.Add(BlockSize)
		digest, ok := want[block]
		if ok && sha256.Sum256(buffer) != digest || !ok && !bytes.Equal(buffer, zeros[:]) {
			return wrong("block %d of snapshot %s differs", block, i.Snapshot)
		}
		return nil
	})
}

// digests are those of the blocks that are not zeros.
func (c *content) digests() map[int32]Digest {
	want := map[int32]Digest{}
	for _, w := range NewPlan(c.manifest, c.volume, nil).Writes {
		want[w.Block] = w.Digest
	}
	return want
}

// settle waits for an image that was found, and reads it again if it was pending: its snapshot may not have been there.
func settle(ctx context.Context, at interface {
	Find(ctx context.Context, tags map[string]string) ([]Image, error)
	WaitImage(ctx context.Context, image string) error
}, i Image) (Image, error) {
	if err := at.WaitImage(ctx, i.ID); err != nil || i.State == Available {
		return i, err
	}
	again, err := at.Find(ctx, map[string]string{TagDigest: i.Tags[TagDigest]})
	if err != nil {
		return i, err
	}
	for _, a := range again {
		if a.ID == i.ID {
			return a, nil
		}
	}
	return i, fmt.Errorf("image %s (%s): it has gone", i.ID, i.Name)
}
