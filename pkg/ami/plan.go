package ami

import (
	"crypto/sha256"
	"slices"
)

// Kind is the source of a block that is sent.
type Kind string

// The kinds.
const (
	FromDisk     Kind = "disk"
	FromManifest Kind = "manifest"
	Zeros        Kind = "zeros" // zeros over a block of the parent
)

// Write is one block to send.
type Write struct {
	Block  int32  `json:"block"`
	Kind   Kind   `json:"kind"`
	Digest Digest `json:"digest"`
}

// Parent is an older snapshot that provides the unchanged blocks.
type Parent struct {
	Snapshot string
	// Manifest is the content of its disk. The snapshot holds the manifest after the disk, and zeros otherwise.
	Manifest Manifest
}

// Plan lists the blocks to send for a new snapshot.
type Plan struct {
	// Volume is the size of volumes made of the snapshot, in GiB.
	Volume int64 `json:"volume"`
	// Parent is the snapshot that provides the blocks that are not sent; empty is none.
	Parent string `json:"parent,omitempty"`
	// Writes are in the order of their blocks.
	Writes []Write `json:"writes"`
	// Kept is the number of blocks that the parent provides.
	Kept int `json:"kept"`
}

// NewPlan returns the smaller of the plans with and without the parent, which may be nil.
func NewPlan(m Manifest, volume int64, parent *Parent) Plan {
	p := Plan{Volume: volume, Writes: differing(m, nil)}
	if parent == nil {
		return p
	}
	if writes := differing(m, parent); len(writes) < len(p.Writes) {
		data := 0
		for _, w := range writes {
			if w.Kind == FromDisk {
				data++
			}
		}
		p.Parent, p.Writes, p.Kept = parent.Snapshot, writes, len(m.Blocks)-data
	}
	return p
}

// differing lists what of the disk and its manifest is not in the parent, and what the parent must lose.
func differing(m Manifest, parent *Parent) []Write {
	there := map[int32]Digest{}
	if parent != nil {
		for _, e := range parent.Manifest.Blocks {
			there[e.Block] = e.Digest
		}
		for i := range parent.Manifest.encodedBlocks() {
			there[parent.Manifest.trailer()+i] = Digest{} // of no content: whatever is wanted there differs
		}
	}
	var writes []Write
	want := func(block int32, kind Kind, digest Digest) {
		if there[block] != digest { // what is not there is of no content either
			writes = append(writes, Write{block, kind, digest})
		}
		delete(there, block)
	}
	for _, e := range m.Blocks {
		want(e.Block, FromDisk, e.Digest)
	}
	for i, content := range slices.Collect(slices.Chunk(m.Encode(), BlockSize)) {
		want(m.trailer()+int32(i), FromManifest, sha256.Sum256(content))
	}
	nothing := Digest(sha256.Sum256(zeros[:]))
	for block := range there {
		writes = append(writes, Write{block, Zeros, nothing})
	}
	slices.SortFunc(writes, func(a, b Write) int { return int(a.Block) - int(b.Block) })
	return writes
}

// Checksum is the LINEAR aggregate of the sent blocks: the digest of the blocks' digests, in the blocks' order (API
// reference, CompleteSnapshot).
func (p Plan) Checksum() Digest {
	h := sha256.New()
	for _, w := range p.Writes {
		h.Write(w.Digest[:])
	}
	return Digest(h.Sum(nil))
}
