package publish

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync/atomic"
)

// resends is how often a block is sent again that did not arrive as it was sent: memory and wires fail seldom, and
// what fails every time is not chance.
const resends = 3

// put sends every block that nobody has acknowledged.
func (w *work) put(ctx context.Context) error {
	j, left := w.journal, w.journal.left()
	writes := make(map[int32]Write, len(j.Plan.Writes))
	for _, write := range j.Plan.Writes {
		writes[write.Block] = write
	}
	kept := w.manifest.Encode()
	w.c.Progress.Begin("sending", int64(len(left))*BlockSize)
	var sent atomic.Int64
	err := parallel(ctx, left, w.c.Workers, func(ctx context.Context, block int32, buffer []byte) error {
		if err := w.putOne(ctx, writes[block], kept, buffer); err != nil {
			return err
		}
		sent.Add(1)
		w.c.Progress.Add(BlockSize)
		return j.note(fact{Block: &block})
	})
	w.result.SentBlocks += int(sent.Load())
	w.result.SentBytes += sent.Load() * BlockSize
	return err
}

// putOne sends one block, and again where it was damaged on the way.
func (w *work) putOne(ctx context.Context, write Write, kept, buffer []byte) (err error) {
	for range 1 + resends {
		if err := w.fill(write, kept, buffer); err != nil {
			return err
		}
		err = w.c.Snapshots.Put(ctx, w.journal.done.Snapshot, write.Block, buffer, write.Digest)
		if !errors.Is(err, ErrDamaged) {
			return err
		}
		w.c.Log.Warn("a block was damaged on its way: sending it again", "block", write.Block)
	}
	return fmt.Errorf("%w (sent %d times; does something between here and AWS change what is sent?)", err, 1+resends)
}

// fill reads what a block is to hold, and proves that it is what was planned.
func (w *work) fill(write Write, kept, buffer []byte) error {
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
