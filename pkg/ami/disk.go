package ami

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// BlockSize is what snapshots are written in, in bytes ("Write Amazon EBS snapshots", PutSnapshotBlock: 512 KiB is
// the only size).
const BlockSize = 512 << 10

// GiB is the unit of volume sizes, in bytes.
const GiB = 1 << 30

// Digest is a SHA-256 digest.
type Digest [sha256.Size]byte

// String returns the digest in hex.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText returns the digest in hex.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText parses a digest in hex.
func (d *Digest) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(d) {
		return fmt.Errorf("%q is no SHA-256 digest", text)
	}
	*d = Digest(b)
	return nil
}

// Disk is a disk image that can be read in any order, by several goroutines at once.
type Disk interface {
	io.ReaderAt
	// Size is the size of the disk as a machine sees it, in bytes.
	Size() int64
	// Data returns the first range at or after offset that may hold something other than zeros; ok is false if there is
	// none. The range ends at the end of the disk at the latest.
	Data(offset int64) (start, end int64, ok bool, err error)
}

// Progress receives the progress of long operations. Its methods must be safe for concurrent use.
type Progress interface {
	// Begin starts an operation on total bytes.
	Begin(what string, total int64)
	// Add reports that n more bytes are done.
	Add(n int64)
}

type noProgress struct{}

func (noProgress) Begin(string, int64) {}
func (noProgress) Add(int64)           {}

// zeros is a block of zeros.
var zeros [BlockSize]byte

// candidates lists the blocks that may hold data, in order.
func candidates(d Disk) ([]int32, error) {
	var blocks []int32
	for at := int64(0); at < d.Size(); {
		start, end, ok, err := d.Data(at)
		if err != nil {
			return nil, fmt.Errorf("looking for data from byte %d of the disk: %w", at, err)
		}
		if !ok {
			break
		}
		if end <= start || start < at {
			return nil, fmt.Errorf("looking for data from byte %d of the disk: a range from %d to %d", at, start, end)
		}
		last := int32((min(end, d.Size()) - 1) / BlockSize)
		for b := int32(start / BlockSize); b <= last; b++ {
			blocks = append(blocks, b)
		}
		at = (int64(last) + 1) * BlockSize
	}
	return blocks, nil
}

// readBlock reads a block into buffer, padded with zeros at the end of the disk.
func readBlock(d Disk, block int32, buffer []byte) error {
	offset := int64(block) * BlockSize
	n := int(min(BlockSize, d.Size()-offset))
	clear(buffer[n:])
	got, err := d.ReadAt(buffer[:n], offset)
	if got == n {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("reading block %d of the disk: %w", block, err)
}

// Scan reads the disk once and returns the digests of the blocks that are not all zeros. It holds at most workers
// blocks in memory. The progress may be nil.
func Scan(ctx context.Context, d Disk, workers int, p Progress) (Manifest, error) {
	if p == nil {
		p = noProgress{}
	}
	blocks, err := candidates(d)
	if err != nil {
		return Manifest{}, err
	}
	p.Begin("reading the disk", int64(len(blocks))*BlockSize)
	m := Manifest{Size: d.Size()}
	var mu sync.Mutex
	err = parallel(ctx, blocks, workers, func(_ context.Context, block int32, buffer []byte) error {
		if err := readBlock(d, block, buffer); err != nil {
			return err
		}
		p.Add(BlockSize)
		if bytes.Equal(buffer, zeros[:]) {
			return nil
		}
		digest := Digest(sha256.Sum256(buffer))
		mu.Lock()
		defer mu.Unlock()
		m.Blocks = append(m.Blocks, Entry{block, digest})
		return nil
	})
	if err != nil {
		return Manifest{}, err
	}
	slices.SortFunc(m.Blocks, func(a, b Entry) int { return int(a.Block) - int(b.Block) })
	return m, nil
}

// parallel calls do for each block on a number of workers, each with its own buffer, and stops at the first error.
func parallel(ctx context.Context, blocks []int32, workers int, do func(ctx context.Context, block int32, buffer []byte) error) error {
	group, ctx := errgroup.WithContext(ctx)
	next := make(chan int32)
	group.Go(func() error {
		defer close(next)
		for _, b := range blocks {
			select {
			case next <- b:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range min(workers, len(blocks)) {
		group.Go(func() error {
			buffer := make([]byte, BlockSize)
			for b := range next {
				if err := do(ctx, b, buffer); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}
