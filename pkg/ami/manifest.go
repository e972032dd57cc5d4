package ami

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// Entry is the digest of a block that is not all zeros.
type Entry struct {
	Block  int32
	Digest Digest
}

// Manifest is the content of a disk: the digests of its blocks, in order. Blocks that are not listed are all zeros.
type Manifest struct {
	// Size is the disk's, in bytes.
	Size   int64
	Blocks []Entry
}

// ManifestSchema is the version of the manifest's format in snapshots.
const ManifestSchema = 1

// header is the first line of a kept manifest; entries follow, each a block's number in four bytes, the highest
// first, and its digest.
type header struct {
	Kind   string `json:"hardtack"`
	Schema int    `json:"schema"`
	Size   int64  `json:"diskSize"`
	Blocks int    `json:"blocks"`
	SHA256 string `json:"sha256"`
}

const (
	manifestKind = "manifest"
	entrySize    = 4 + sha256.Size
	// headerSize is more than any header takes: about 180 bytes.
	headerSize = 256
)

// entries are the blocks as they are kept.
func (m Manifest) entries() []byte {
	b := make([]byte, 0, len(m.Blocks)*entrySize)
	for _, e := range m.Blocks {
		b = binary.BigEndian.AppendUint32(b, uint32(e.Block))
		b = append(b, e.Digest[:]...)
	}
	return b
}

// Digest is the digest of the disk's content and size.
func (m Manifest) Digest() Digest {
	h := sha256.New()
	_ = binary.Write(h, binary.BigEndian, m.Size) // a hash takes everything
	h.Write(m.entries())
	return Digest(h.Sum(nil))
}

// Encode returns the manifest as it is stored, in whole blocks.
func (m Manifest) Encode() []byte {
	entries, digest := m.entries(), m.Digest()
	line, err := json.Marshal(header{manifestKind, ManifestSchema, m.Size, len(m.Blocks), hex.EncodeToString(digest[:])})
	if err != nil {
		panic(err) // numbers and strings
	}
	// Blanks make every header as long as any: how many blocks there are then follows from the entries.
	line = append(append(line, bytes.Repeat([]byte(" "), headerSize-1-len(line))...), '\n')
	b := make([]byte, int(m.encodedBlocks())*BlockSize)
	copy(b[copy(b, line):], entries)
	return b
}

// parseHeader reads how a kept manifest begins.
func parseHeader(b []byte) (header, error) {
	var h header
	if len(b) < headerSize || json.Unmarshal(b[:headerSize], &h) != nil || h.Kind != manifestKind {
		return h, errors.New("reading a manifest: there is none")
	}
	if h.Schema != ManifestSchema {
		return h, fmt.Errorf("reading a manifest: schema %d, and this version knows %d", h.Schema, ManifestSchema)
	}
	if h.Blocks < 0 || h.Size <= 0 || int64(h.Blocks) > roundUp(h.Size, BlockSize)/BlockSize {
		return h, fmt.Errorf("reading a manifest: %d blocks of a disk of %d bytes", h.Blocks, h.Size)
	}
	return h, nil
}

// manifestBlocks is how many blocks a manifest takes of which b is the beginning.
func manifestBlocks(b []byte) (int, error) {
	h, err := parseHeader(b)
	return int(encodedBlocksOf(h.Blocks)), err
}

// DecodeManifest parses the result of Encode.
func DecodeManifest(b []byte) (Manifest, error) {
	h, err := parseHeader(b)
	if err != nil {
		return Manifest{}, err
	}
	rest := b[headerSize:]
	if len(rest)/entrySize < h.Blocks {
		return Manifest{}, fmt.Errorf("reading a manifest: it is cut off: %d bytes for %d blocks", len(rest), h.Blocks)
	}
	m := Manifest{Size: h.Size}
	for i := range h.Blocks {
		e := rest[i*entrySize:]
		m.Blocks = append(m.Blocks, Entry{int32(binary.BigEndian.Uint32(e)), Digest(e[4:entrySize])})
		if i > 0 && m.Blocks[i].Block <= m.Blocks[i-1].Block || m.Blocks[i].Block < 0 {
			return Manifest{}, fmt.Errorf("reading a manifest: block %d is out of order", m.Blocks[i].Block)
		}
	}
	if digest := m.Digest(); hex.EncodeToString(digest[:]) != h.SHA256 {
		return Manifest{}, fmt.Errorf("reading a manifest: its digest is %x, and it says %s", digest, h.SHA256)
	}
	return m, nil
}

// Bytes is the size of all listed blocks.
func (m Manifest) Bytes() int64 { return int64(len(m.Blocks)) * BlockSize }

// trailer is the first block behind the disk, where its manifest is kept.
func (m Manifest) trailer() int32 { return int32(roundUp(m.Size, BlockSize) / BlockSize) }

// encodedBlocks is how many blocks Encode takes.
func (m Manifest) encodedBlocks() int32 { return encodedBlocksOf(len(m.Blocks)) }

func encodedBlocksOf(entries int) int32 {
	return int32(roundUp(int64(headerSize+entries*entrySize), BlockSize) / BlockSize)
}

// Volume is the size in GiB of the smallest volume that holds the disk and its manifest.
func (m Manifest) Volume() int64 {
	return roundUp(int64(m.trailer()+m.encodedBlocks())*BlockSize, GiB) / GiB
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
