package ami

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func digestOf(what string) Digest { return sha256.Sum256([]byte(what)) }

// manifest is of a disk with these blocks; "3a 7b" has a in block 3.
func manifest(size int64, text string) Manifest {
	m := Manifest{Size: size}
	for _, word := range strings.Fields(text) {
		m.Blocks = append(m.Blocks, Entry{int32(word[0] - '0'), digestOf(word[1:])})
	}
	return m
}

// shape writes a plan for people: "3disk 7zeros".
func shape(p Plan) string {
	var words []string
	for _, w := range p.Writes {
		words = append(words, string(rune('0'+w.Block))+string(w.Kind))
	}
	return strings.Join(words, " ")
}

func TestPlan(t *testing.T) {
	const size = 8 * BlockSize
	for _, c := range []struct {
		name          string
		disk, parent  Manifest
		want          string
		kept          int
		withoutParent bool
	}{
		{"no parent", manifest(size, "0a 3b"), Manifest{}, "0disk 3disk 8manifest", 0, true},
		{"an empty disk", manifest(size, ""), Manifest{}, "8manifest", 0, true},
		{"one has changed", manifest(size, "0a 3b 4c 5d"), manifest(size, "0a 3x 4c 5d"), "3disk 8manifest", 3, false},
		{"one is new", manifest(size, "0a 3b 4c"), manifest(size, "0a 3b"), "4disk 8manifest", 2, false},
		{"one is gone", manifest(size, "0a 3b 4c"), manifest(size, "0a 3b 4c 7d"), "7zeros 8manifest", 3, false},
		{"two have changed places", manifest(size, "0a 1b 2c 3d"), manifest(size, "0b 1a 2c 3d"), "0disk 1disk 8manifest", 2, false},
		{"the disk has grown over the manifest", manifest(size+BlockSize, "0a 1b 8c"), manifest(size, "0a 1b"), "8disk 9manifest", 2, false},
		{"the disk has grown, and has nothing there", manifest(size+BlockSize, "0a 1b 2c"), manifest(size, "0a 1b 2c"), "8zeros 9manifest", 3, false},
		{"the disk has shrunk", manifest(size, "0a 1b 2c"), manifest(size+BlockSize, "0a 1b 2c 8d"), "8manifest 9zeros", 3, false},
		{"as much as without it", manifest(size, "0a"), manifest(size, "0b"), "0disk 8manifest", 0, true},
		{"nothing in common", manifest(size, "0a"), manifest(size, "1a 2b"), "0disk 8manifest", 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var parent *Parent
			if c.parent.Size > 0 {
				parent = &Parent{Snapshot: "snap-1", Manifest: c.parent}
			}
			p := NewPlan(c.disk, 1, parent)
			if got := shape(p); got != c.want || p.Kept != c.kept || (p.Parent == "") != c.withoutParent {
				t.Errorf("got %q on %q with %d kept, want %q with %d", got, p.Parent, p.Kept, c.want, c.kept)
			}
		})
	}
}

// A manifest may take several blocks. What of a parent's is not overwritten goes.
func TestPlanOfLongManifests(t *testing.T) {
	long, behind := filled(fit+1), int32(fit+1)
	changed := Manifest{long.Size, slices.Clone(long.Blocks)}
	changed.Blocks[3].Digest = digestOf("b")
	short := Manifest{long.Size, long.Blocks[1:]}
	for name, c := range map[string]struct {
		disk, parent Manifest
		want         map[int32]Kind
	}{
		"both":         {changed, long, map[int32]Kind{3: FromDisk, behind: FromManifest, behind + 1: FromManifest}},
		"the parent's": {short, long, map[int32]Kind{0: Zeros, behind: FromManifest, behind + 1: Zeros}},
		"the disk's":   {long, short, map[int32]Kind{0: FromDisk, behind: FromManifest, behind + 1: FromManifest}},
	} {
		got := map[int32]Kind{}
		for _, w := range NewPlan(c.disk, 8, &Parent{"snap-1", c.parent}).Writes {
			got[w.Block] = w.Kind
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// Whatever the disks, a parent with the writes of a plan laid over it is the new disk with its manifest.
func TestPlanMakesTheDisk(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	one := func() Manifest {
		m := Manifest{Size: int64(1+random.IntN(40)) * BlockSize}
		for b := range int32(m.Size / BlockSize) {
			if random.IntN(3) > 0 {
				m.Blocks = append(m.Blocks, Entry{b, digestOf(string(rune('a' + random.IntN(3))))})
			}
		}
		return m
	}
	nothing := Digest(sha256.Sum256(zeros[:]))
	for range 60 {
		disk, old := one(), one()
		snapshot := map[int32]Digest{}
		lay := func(p Plan) {
			if p.Parent == "" {
				clear(snapshot)
			}
			for _, w := range p.Writes {
				if w.Digest == nothing {
					delete(snapshot, w.Block)
					continue
				}
				snapshot[w.Block] = w.Digest
			}
		}
		lay(NewPlan(old, 1, nil))
		p := NewPlan(disk, 1, &Parent{"snap-1", old})
		lay(p)
		want := map[int32]Digest{}
		for _, w := range NewPlan(disk, 1, nil).Writes {
			want[w.Block] = w.Digest
		}
		if diff := cmp.Diff(want, snapshot); diff != "" {
			t.Fatalf("%v over %v by %q:\n%s", disk, old, shape(p), diff)
		}
		if !slices.IsSortedFunc(p.Writes, func(a, b Write) int { return int(a.Block - b.Block) }) {
			t.Fatalf("out of order: %s", shape(p))
		}
	}
}

func TestManifestIsReadBack(t *testing.T) {
	large := Manifest{Size: 64 << 40}
	for b := range int32(40_000) {
		var d Digest
		binary.BigEndian.PutUint32(d[:], uint32(b))
		large.Blocks = append(large.Blocks, Entry{b * 3000, d})
	}
	for name, m := range map[string]Manifest{"empty": {Size: 1}, "small": manifest(100, "0a"), "large": large} {
		b := m.Encode()
		if len(b) != int(m.encodedBlocks())*BlockSize {
			t.Errorf("%s: %d bytes, %d blocks were said", name, len(b), m.encodedBlocks())
		}
		got, err := DecodeManifest(b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got.Digest() != m.Digest() {
			t.Errorf("%s: it is not what it was", name)
		}
		if !bytes.Equal(b, got.Encode()) {
			t.Errorf("%s: written again, it differs", name)
		}
	}
}

func TestManifestRefusesWhatIsDamaged(t *testing.T) {
	good := manifest(4*BlockSize, "0a 1b 2c").Encode()
	for name, damage := range map[string]func(b []byte) []byte{
		"nothing":            func([]byte) []byte { return nil },
		"zeros":              func(b []byte) []byte { return make([]byte, len(b)) },
		"another file":       func(b []byte) []byte { return bytes.Repeat([]byte("x"), len(b)) },
		"a digest":           func(b []byte) []byte { b[headerSize+10] ^= 1; return b },
		"the order":          func(b []byte) []byte { b[headerSize+3] = 9; return b },
		"cut off":            func(b []byte) []byte { return b[:headerSize+40] },
		"another schema":     func(b []byte) []byte { return bytes.Replace(b, []byte(`"schema":1`), []byte(`"schema":2`), 1) },
		"another size":       func(b []byte) []byte { return bytes.Replace(b, []byte(`"diskSize":2`), []byte(`"diskSize":3`), 1) },
		"more than fit":      func(b []byte) []byte { return bytes.Replace(b, []byte(`"blocks":3`), []byte(`"blocks":9`), 1) },
		"another kind":       func(b []byte) []byte { return bytes.Replace(b, []byte(`:"manifest"`), []byte(`:"manifold"`), 1) },
		"fewer than nothing": func(b []byte) []byte { return bytes.Replace(b, []byte(`"blocks":3,`), []byte(`"blocks":-3,`), 1) },
	} {
		if m, err := DecodeManifest(damage(bytes.Clone(good))); err == nil {
			t.Errorf("%s: %d blocks were read", name, len(m.Blocks))
		}
	}
}

// What is written as a manifest and cannot be one of a disk is refused, though its digest is right.
func TestManifestRefusesWhatIsNoDisk(t *testing.T) {
	empty := Manifest{Size: BlockSize}.Encode()
	for name, b := range map[string][]byte{
		"no bytes":           Manifest{}.Encode(),
		"fewer bytes":        Manifest{Size: -BlockSize}.Encode(),
		"more than fit":      Manifest{BlockSize, []Entry{{0, digestOf("a")}, {1, digestOf("b")}}}.Encode(),
		"a block twice":      Manifest{4 * BlockSize, []Entry{{1, digestOf("a")}, {1, digestOf("a")}}}.Encode(),
		"out of order":       Manifest{4 * BlockSize, []Entry{{2, digestOf("a")}, {1, digestOf("b")}}}.Encode(),
		"before the disk":    Manifest{4 * BlockSize, []Entry{{-1, digestOf("a")}, {1, digestOf("b")}}}.Encode(),
		"fewer than nothing": bytes.Replace(empty, []byte(`"blocks":0`), []byte(`"blocks":-1`), 1),
		"no number":          bytes.Replace(empty, []byte(`"blocks":0`), []byte(`"blocks":[]`), 1),
	} {
		if m, err := DecodeManifest(b); err == nil {
			t.Errorf("%s: %+v was read", name, m)
		}
	}
	// Of an empty disk nothing follows the first line.
	if m, err := DecodeManifest(empty[:headerSize]); err != nil || m.Size != BlockSize || len(m.Blocks) > 0 {
		t.Errorf("the first line alone: %+v, %v", m, err)
	}
}

func TestVolume(t *testing.T) {
	for _, c := range []struct {
		size, blocks, want int64
	}{{1, 1, 1}, {GiB - 2*BlockSize, 2046, 1}, {GiB - BlockSize, 2047, 1}, {GiB, 1, 2}, {8 * GiB, 16384, 9}, {8*GiB - BlockSize, 16383, 9}, {8*GiB - 2*BlockSize, 16382, 8}, {8*GiB - 3*BlockSize, 100, 8}} {
		m := Manifest{Size: c.size, Blocks: make([]Entry, c.blocks)}
		if got := m.Volume(); got != c.want {
			t.Errorf("a disk of %d bytes with %d blocks needs %d GiB, want %d", c.size, c.blocks, got, c.want)
		}
	}
}
