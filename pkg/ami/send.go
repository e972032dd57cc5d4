package ami

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync/atomic"
)

// maxResends is how often a block is sent again that did not arrive as it was sent: memory and wires fail seldom, and
// what fails every time is not chance.
const maxResends = 3

// sendBlocks sends every block that is not acknowledged yet.
func (w *publication) sendBlocks(ctx context.Context) error {
	j, left := w.journal, w.journal.unsent()
	writes := make(map[int32]Write, len(j.Plan.Writes))
	for _, write := range j.Plan.Writes {
		writes[write.Block] = write
	}
	kept := w.manifest.Encode()
	w.c.Progress.Begin("sending", int64(len(left))*BlockSize)
	var sent atomic.Int64
	err := parallel(ctx, left, w.c.Workers, func(ctx context.Context, block int32, buffer []byte) error {
		if err := w.sendBlock(ctx, writes[block], kept, buffer); err != nil {
			return err
		}
		sent.Add(1)
		w.c.Progress.Add(BlockSize)
		return j.append(journalEntry{Block: &block})
	})
	w.result.SentBlocks += int(sent.Load())
	w.result.SentBytes += sent.Load() * BlockSize
	return err
}

// sendBlock sends one block, and resends it if it was damaged in transit.
func (w *publication) sendBlock(ctx context.Context, write Write, kept, buffer []byte) (err error) {
	for range 1 + maxResends {
		if err := w.readPlanned(write, kept, buffer); err != nil {
			return err
		}
		err = w.c.Blocks.Put(ctx, w.journal.done.Snapshot, write.Block, buffer, write.Digest)
		if !errors.Is(err, ErrDamaged) {
			return err
		}
		w.c.Log.Warn("a block was damaged on its way: sending it again", "block", write.Block)
	}
	return fmt.Errorf("%w (sent %d times; does something between here and AWS change the data?)", err, 1+maxResends)
}

// readPlanned reads the content of a block and verifies that it is the planned one.
func (w *publication) readPlanned(write Write, kept, buffer []byte) error {
	switch write.Kind {
	case FromDisk:
		if err := readBlock(w.request.Disk, write.Block, buffer); err != nil {
			return err
		}
	case FromManifest:
		copy(buffer, kept[int(write.Block-w.manifest.trailer())*BlockSize:])
	case Zeros:
		clear(buffer)
	default:
		return fmt.Errorf("block %d: written with %q, which this version does not know", write.Block, write.Kind)
	}
	if sha256.Sum256(buffer) != write.Digest {
		return fmt.Errorf("block %d of the disk has changed since it was read (does something write to the disk image?)", write.Block)
	}
	return nil
}
