// Package verity computes dm-verity hash trees: the tree of a partition, its superblock, and the root hash that stands
// for every byte of the partition.
//
// Its rule: the format is the one that veritysetup writes and the kernel reads (version 1, SHA-256, blocks of 4096
// bytes, the superblock in front of the tree), and nothing else.
package verity

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

// BlockSize is the size of a block of data and of a block of the tree, in bytes.
const BlockSize = 4096

// perBlock is how many digests a block of the tree holds.
const perBlock = BlockSize / sha256.Size

// Hash is a root hash.
type Hash [sha256.Size]byte

// ParseHash reads a root hash as a kernel's command line has it: 64 hexadecimal digits.
func ParseHash(text string) (Hash, error) {
	var h Hash
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(h) {
		return h, fmt.Errorf("root hash %q: is not %d hexadecimal digits", text, 2*len(h))
	}
	return Hash(raw), nil
}

// String returns the hash in hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Data and Tree are the partitions' identifiers that the discoverable partitions specification derives from a root hash:
// its first half names the partition with the data, its second half the one with the tree. So a root hash alone finds both.
func (h Hash) Data() uuid.UUID { return uuid.UUID(h[:16]) }

// Tree is the identifier of the tree's partition, see Data.
func (h Hash) Tree() uuid.UUID { return uuid.UUID(h[16:]) }

// Superblock describes a tree. It lies in front of the tree, and nothing vouches for it but the root hash, which is another
// one with any other Salt. With fewer Blocks the kernel finds the same one, if the tree has as many levels for them.
type Superblock struct {
	// ID is the tree's identifier, which nothing depends on.
	ID uuid.UUID
	// Blocks is the number of blocks of data.
	Blocks uint64
	// Salt goes into each digest before the block; at most 256 bytes.
	Salt []byte
}

// onDisk is the superblock as cryptsetup defines it (lib/verity/verity.c), little endian.
type onDisk struct {
	Signature     [8]byte
	Version       uint32
	HashType      uint32
	ID            uuid.UUID
	Algorithm     [32]byte
	DataBlockSize uint32
	HashBlockSize uint32
	Blocks        uint64
	SaltSize      uint16
	_             [6]byte
	Salt          [256]byte
	_             [168]byte
}

// The constants of a superblock.
var (
	signature = [8]byte{'v', 'e', 'r', 'i', 't', 'y'}
	algorithm = [32]byte{'s', 'h', 'a', '2', '5', '6'}
)

// Encode returns the block that begins a tree's partition.
func (s Superblock) Encode() ([]byte, error) {
	d := onDisk{Signature: signature, Version: 1, HashType: 1, ID: s.ID, Algorithm: algorithm, DataBlockSize: BlockSize, HashBlockSize: BlockSize, Blocks: s.Blocks, SaltSize: uint16(len(s.Salt))}
	if copy(d.Salt[:], s.Salt) < len(s.Salt) {
		return nil, fmt.Errorf("verity superblock: a salt of %d bytes, at most %d fit", len(s.Salt), len(d.Salt))
	}
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, d); err != nil {
		return nil, fmt.Errorf("verity superblock: %w", err)
	}
	return append(b.Bytes(), make([]byte, BlockSize-b.Len())...), nil
}

// ReadSuperblock reads the beginning of a tree's partition. What this package would not have written is an error.
func ReadSuperblock(r io.Reader) (Superblock, error) {
	var d onDisk
	if err := binary.Read(r, binary.LittleEndian, &d); err != nil {
		return Superblock{}, fmt.Errorf("verity superblock: %w", err)
	}
	switch {
	case d.Signature != signature:
		return Superblock{}, errors.New("verity superblock: there is none (another signature)")
	case d.Version != 1 || d.HashType != 1 || d.Algorithm != algorithm || d.DataBlockSize != BlockSize || d.HashBlockSize != BlockSize:
		return Superblock{}, fmt.Errorf("verity superblock: version %d, type %d, %s, blocks of %d and %d bytes: only version 1, type 1, sha256 and blocks of %d bytes are read",
			d.Version, d.HashType, bytes.TrimRight(d.Algorithm[:], "\x00"), d.DataBlockSize, d.HashBlockSize, BlockSize)
	case int(d.SaltSize) > len(d.Salt):
		return Superblock{}, fmt.Errorf("verity superblock: a salt of %d bytes", d.SaltSize)
	case d.Blocks == 0 || d.Blocks > math.MaxInt64/BlockSize:
		return Superblock{}, fmt.Errorf("verity superblock: it is for %d blocks of data", d.Blocks)
	}
	return Superblock{ID: d.ID, Blocks: d.Blocks, Salt: bytes.Clone(d.Salt[:d.SaltSize])}, nil
}

// TreeBlocks is the number of blocks of a tree over that many blocks of data, the superblock included.
func TreeBlocks(blocks uint64) uint64 {
	total := uint64(1)
	for blocks > 1 {
		blocks = (blocks + perBlock - 1) / perBlock
		total += blocks
	}
	return total
}

// Build reads the data, of s.Blocks blocks, and returns its root hash, and the tree with its superblock as the tree's
// partition holds it: about an 127th of the data.
func Build(ctx context.Context, s Superblock, data io.ReaderAt) (Hash, []byte, error) {
	if s.Blocks == 0 {
		return Hash{}, nil, errors.New("verity tree: there is no data")
	}
	head, err := s.Encode()
	if err != nil {
		return Hash{}, nil, err
	}
	level, err := s.leaves(ctx, data)
	if err != nil {
		return Hash{}, nil, fmt.Errorf("verity tree: %w", err)
	}
	var levels [][]byte // the leaves' first
	for len(level) > sha256.Size {
		padded := append(level, make([]byte, (BlockSize-len(level)%BlockSize)%BlockSize)...)
		levels = append(levels, padded)
		level = nil
		for at := 0; at < len(padded); at += BlockSize {
			level = append(level, s.digest(padded[at:at+BlockSize])...)
		}
	}
	tree := head
	for i := len(levels) - 1; i >= 0; i-- { // the root's first
		tree = append(tree, levels[i]...)
	}
	return Hash(level), tree, nil
}

// atOnce is how much data one worker hashes at a time, in blocks.
const atOnce = 256

// leaves returns the digests of the blocks of data.
func (s Superblock) leaves(ctx context.Context, data io.ReaderAt) ([]byte, error) {
	digests := make([]byte, s.Blocks*sha256.Size)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.NumCPU())
	for from := uint64(0); from < s.Blocks; from += atOnce {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(atOnce, s.Blocks-from)
			buf := make([]byte, n*BlockSize)
			if got, err := data.ReadAt(buf, int64(from*BlockSize)); got < len(buf) {
				return fmt.Errorf("reading data at byte %d: %w", from*BlockSize, err)
			}
			for i := range n {
				copy(digests[(from+i)*sha256.Size:], s.digest(buf[i*BlockSize:(i+1)*BlockSize]))
			}
			return nil
		})
	}
	return digests, group.Wait()
}

// digest is that of one block.
func (s Superblock) digest(block []byte) []byte {
	sum := sha256.New()
	sum.Write(s.Salt)
	sum.Write(block)
	return sum.Sum(nil)
}

// Table is the kernel's table line for a device of the data (target "verity"), from the numbers or names of the two
// devices. A block whose digest is another than the tree's panics: a machine that reads what nobody has baked must not go
// on with it, and its reason is on the console; with restart_on_corruption it would start again without a word.
func (s Superblock) Table(root Hash, data, tree string) string {
	salt := "-"
	if len(s.Salt) > 0 {
		salt = hex.EncodeToString(s.Salt)
	}
	return fmt.Sprintf("1 %s %s %d %d %d 1 sha256 %s %s 1 panic_on_corruption", data, tree, BlockSize, BlockSize, s.Blocks, root, salt)
}
