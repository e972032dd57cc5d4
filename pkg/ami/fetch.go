package ami

import (
	"context"
	"fmt"
	"io"
)

// Fetch writes the blocks that a completed snapshot holds to where they are on its volume. What it does not hold is zeros and is
// not written. Each block is compared with the checksum that AWS has of it. workers blocks are held in memory; the progress may be
// nil.
func Fetch(ctx context.Context, s SnapshotReader, snapshot string, to io.WriterAt, workers int, progress Progress) error {
	if progress == nil {
		progress = noProgress{}
	}
	listed, err := s.List(ctx, snapshot)
	if err != nil {
		return err
	}
	blocks := make([]int32, len(listed))
	tokens := make(map[int32]StoredBlock, len(listed))
	for i, b := range listed {
		blocks[i], tokens[b.Block] = b.Block, b
	}
	progress.Begin("reading snapshot "+snapshot, int64(len(blocks))*BlockSize)
	return parallel(ctx, blocks, workers, func(ctx context.Context, block int32, buffer []byte) error {
		if err := s.Get(ctx, snapshot, tokens[block], buffer); err != nil {
			return err
		}
		if _, err := to.WriteAt(buffer, int64(block)*BlockSize); err != nil {
			return fmt.Errorf("keeping block %d of snapshot %s: %w", block, snapshot, err)
		}
		progress.Add(BlockSize)
		return nil
	})
}
