package publish

import (
	"crypto/sha256"
	"slices"
)

// Kind says what a block is written with.
type Kind string

// The kinds.
const (
	FromDisk     Kind = "disk"
	FromManifest Kind = "manifest"
	Zeros        Kind = "zeros" // the parent has something there, and the disk has not
)

// Write is a block that is sent.
type Write struct {
	Block  int32  `json:"block"`
	Kind   Kind   `json:"kind"`
	Digest Digest `json:"digest"`
}

// Parent is an older snapshot from which what has not changed is taken.
type Parent struct {
	Snapshot string
	// Manifest is what its disk held. Behind that it has the manifest itself, and otherwise zeros.
	Manifest Manifest
}

// Plan says what a new snapshot is made of.
type Plan struct {
	// Volume is the size of volumes made of the snapshot, in GiB.
	Volume int64 `json:"volume"`
	// Parent is the snapshot of which the new one takes what is not written; empty is none.
	Parent string `json:"parent,omitempty"`
	// Writes are in the order of their blocks.
	Writes []Write `json:"writes"`
	// Kept counts the blocks that are taken from the parent.
	Kept int `json:"kept"`
}

// NewPlan is the smaller of what a snapshot without a parent and one with it takes. A nil parent is none.
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
		for i := range parent.Manifest.kept() {
			there[parent.Manifest.trailer()+i] = Digest{} // of no content: whatever is wanted there differs
		}
	}
	var writes []Write
	want := func(block int32, kind Kind, digest Digest) {
		if old, ok := there[block]; !ok || old != digest {
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

// Bytes is what is sent.
func (p Plan) Bytes() int64 { return int64(len(p.Writes)) * BlockSize }

// Checksum is the LINEAR aggregate of what is written: the digest of the blocks' digests, in the blocks' order
// (API reference, CompleteSnapshot).
func (p Plan) Checksum() Digest {
	h := sha256.New()
	for _, w := range p.Writes {
		h.Write(w.Digest[:])
	}
	return Digest(h.Sum(nil))
}
