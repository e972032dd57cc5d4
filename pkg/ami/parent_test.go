package ami

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// holding is an account with one snapshot of these blocks.
func holding(blocks map[int32][]byte) *account {
	a := newAccount()
	a.snapshots["snap-1"] = &stored{state: Available, blocks: blocks}
	return a
}

// kept are the blocks of a disk and its manifest.
func kept(m Manifest) map[int32][]byte {
	blocks := map[int32][]byte{}
	for _, e := range m.Blocks {
		blocks[e.Block] = nil
	}
	for i, content := range slices.Collect(slices.Chunk(m.Encode(), BlockSize)) {
		blocks[int32(m.Size/BlockSize)+int32(i)] = content
	}
	return blocks
}

// filled is a disk of so many blocks, of which each has something.
func filled(blocks int) Manifest {
	m := Manifest{Size: int64(blocks) * BlockSize}
	for b := range int32(blocks) {
		m.Blocks = append(m.Blocks, Entry{b, digestOf("a")})
	}
	return m
}

// fit is how many entries a manifest of one block has.
const fit = (BlockSize - headerSize) / entrySize

// Of a snapshot, its manifest is read, however many blocks it has, and nothing else.
func TestReadManifest(t *testing.T) {
	for _, c := range []struct {
		name   string
		disk   Manifest
		change func(map[int32][]byte)
		reads  int
	}{
		{"small", manifest(4*BlockSize, "0a 2b"), func(map[int32][]byte) {}, 1},
		{"an empty disk", Manifest{Size: BlockSize}, func(map[int32][]byte) {}, 1},
		{"a disk that ends within a block", manifest(4*BlockSize-1, "0a 3b"), func(b map[int32][]byte) { b[4] = b[3]; b[3] = nil }, 1},
		{"as long as a block", filled(fit), func(map[int32][]byte) {}, 1},
		{"longer", filled(fit + 1), func(map[int32][]byte) {}, 2},
		{"with something behind it", manifest(4*BlockSize, "0a 2b"), func(b map[int32][]byte) { b[5], b[9] = block('x'), block('y') }, 1},
		{"with blocks of zeros", manifest(4*BlockSize, "1a 3b"), func(b map[int32][]byte) { b[0], b[2] = block('.'), block('.') }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			blocks := kept(c.disk)
			c.change(blocks)
			a := holding(blocks)
			got, err := ReadManifest(t.Context(), a, "snap-1", c.disk.Size)
			if diff := cmp.Diff(c.disk, got); diff != "" || err != nil {
				t.Errorf("%v\n%s", err, diff)
			}
			if reads := len(a.calls) - 1; reads != c.reads {
				t.Errorf("%d blocks were read", reads)
			}
		})
	}
}

func TestReadManifestRefuses(t *testing.T) {
	const size = 4 * BlockSize
	small, long := manifest(size, "0a 2b"), filled(2*fit)
	for _, c := range []struct {
		name   string
		disk   Manifest
		size   int64
		change func(map[int32][]byte)
	}{
		{"there is none", small, size, func(b map[int32][]byte) { delete(b, 4) }},
		{"there is none, and something behind", small, size, func(b map[int32][]byte) { b[5] = b[4]; delete(b, 4) }},
		{"it is elsewhere", small, size + BlockSize, func(map[int32][]byte) {}},
		{"it is zeros", small, size, func(b map[int32][]byte) { b[4] = block('.') }},
		{"its end is missing", long, long.Size, func(b map[int32][]byte) { delete(b, 2*fit+1) }},
		{"its end is elsewhere", long, long.Size, func(b map[int32][]byte) { b[2*fit+2] = b[2*fit+1]; delete(b, 2*fit+1) }},
		{"its first block is missing", small, size, func(b map[int32][]byte) { delete(b, 0) }},
		{"its last block is missing", small, size, func(b map[int32][]byte) { delete(b, 2) }},
		{"a block behind the end", manifest(size, "0a 9b"), size, func(b map[int32][]byte) { delete(b, 9) }},
	} {
		blocks := kept(c.disk)
		c.change(blocks)
		if m, err := ReadManifest(t.Context(), holding(blocks), "snap-1", c.size); err == nil {
			t.Errorf("%s: %d blocks were read", c.name, len(m.Blocks))
		}
	}
	// What this version does not know is not read on.
	blocks := kept(long)
	blocks[2*fit] = bytes.Replace(blocks[2*fit], []byte(`"schema":1`), []byte(`"schema":2`), 1)
	a := holding(blocks)
	if _, err := ReadManifest(t.Context(), a, "snap-1", long.Size); err == nil || len(a.calls) != 2 {
		t.Errorf("another schema: %v, by %q", err, a.calls)
	}
	for _, call := range []string{"List", "Get 4"} {
		a := holding(kept(small))
		a.before = breaks(call, 1)
		if _, err := ReadManifest(t.Context(), a, "snap-1", size); !errors.Is(err, errBroken) {
			t.Errorf("%s fails: %v", call, err)
		}
	}
}

// What cannot be a parent is passed over for an older one that can; where it was named, nothing is begun.
func TestWhatIsAParent(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(a *account, i *Image)
		good   bool
	}{
		{"it can", func(*account, *Image) {}, true},
		{"in the making", func(_ *account, i *Image) { i.State = Pending }, false},
		{"without a snapshot", func(_ *account, i *Image) { i.Snapshot = "" }, false},
		{"without the disk's size", func(_ *account, i *Image) { delete(i.Tags, TagDisk) }, false},
		{"of a disk of words", func(_ *account, i *Image) { i.Tags[TagDisk] = "four" }, false},
		{"of no disk, with a manifest in the first block", func(a *account, i *Image) {
			i.Tags[TagDisk] = "0"
			blocks := a.snapshots[i.Snapshot].blocks
			blocks[0] = blocks[4]
		}, false},
		{"encrypted otherwise", func(_ *account, i *Image) { i.Tags[TagKey] = aKey }, false},
		{"as large as the new one", func(_ *account, i *Image) { i.Volume = 2 }, true},
		{"larger than the new one", func(_ *account, i *Image) { i.Volume = 3 }, false},
		{"without its manifest", func(a *account, i *Image) { delete(a.snapshots[i.Snapshot].blocks, 4) }, false},
		{"of another line", func(_ *account, i *Image) { i.Tags[TagImage] = "other" }, false},
	} {
		for _, named := range []bool{false, true} {
			s := situation{account: newAccount(), state: t.TempDir()}
			s.must(t, disk("abcd"))
			older, newer := s.must(t, disk("abd.")), s.must(t, disk("ab.d"))
			s.images[0].Tags = maps.Clone(s.images[0].Tags)
			c.change(s.account, &s.images[0])
			s.calls = nil
			r, err := s.publish(t, disk("abc."), func(r *Request) {
				if r.Volume = 2; named {
					r.Parent = newer.Image
				}
			})
			want := newer.Snapshot
			if !c.good {
				want = older.Snapshot
			}
			if named && !c.good {
				if err == nil || slices.Contains(s.calls, "Start") {
					t.Errorf("%s, and named: %+v, %v", c.name, r, err)
				}
				continue
			}
			if err != nil || r.Parent != want {
				t.Errorf("%s, named %v: the parent is %s, want %s: %v", c.name, named, r.Parent, want, err)
			}
		}
	}
}

// None is looked for where none is wanted, and where there is none everything is sent.
func TestWithoutAParent(t *testing.T) {
	s := situation{account: newAccount(), state: t.TempDir()}
	s.must(t, disk("abcd"))
	s.calls = nil
	r, err := s.publish(t, disk("abc."), func(r *Request) { r.Parent = NoParent })
	if err != nil || r.Parent != "" || r.SentBlocks != 4 || slices.Contains(s.calls, "List") {
		t.Errorf("none is wanted: %+v, %v, by %q", r, err, s.calls)
	}
	s.calls = nil
	if _, err := s.publish(t, disk("ab.."), func(r *Request) { r.Parent = "ami-none" }); err == nil || !strings.Contains(err.Error(), "ami-none") || slices.Contains(s.calls, "Start") {
		t.Errorf("one that is not there: %v", err)
	}
	s.clean(t, "one that is not there", false)
}

// Interrupted while a parent is looked for, nothing is begun without one.
func TestParentIsInterrupted(t *testing.T) {
	s := situation{account: newAccount(), state: t.TempDir()}
	s.must(t, disk("abcd"))
	ctx, cancel := context.WithCancel(t.Context())
	s.calls, s.before = nil, func(call string) error {
		if call == "List" {
			cancel()
			return ctx.Err()
		}
		return nil
	}
	if r, err := s.publisher(t, s.state).Publish(ctx, requestOf(disk("abc."))); !errors.Is(err, context.Canceled) || slices.Contains(s.calls, "Start") {
		t.Errorf("%+v, %v", r, err)
	}
}
