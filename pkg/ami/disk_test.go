package ami

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDigestIsText(t *testing.T) {
	want := digestOf("a")
	text, err := want.MarshalText()
	if err != nil || len(text) != 64 {
		t.Fatalf("%q, %v", text, err)
	}
	var got Digest
	if err := got.UnmarshalText(text); err != nil || got != want {
		t.Errorf("%q is read as %s, %v", text, got, err)
	}
	for _, wrong := range []string{"", "ab", string(text[:62]), string(text) + "0", string(text) + "00", "x" + string(text[1:])} {
		got := want
		if err := got.UnmarshalText([]byte(wrong)); err == nil || got != want {
			t.Errorf("%q is read as %s, %v", wrong, got, err)
		}
	}
}

// blocksOf are the entries of a scanned disk, as the text of disk.
func blocksOf(m Manifest) string {
	text := bytes.Repeat([]byte{'.'}, int(m.Size/BlockSize))
	for _, e := range m.Blocks {
		for _, letter := range []byte("abcd") {
			if Digest(sha256.Sum256(block(letter))) == e.Digest {
				text[e.Block] = letter
			}
		}
	}
	return string(text)
}

// ranges are the data of a disk, in blocks. Nobody has a reason to ask for what is behind its end.
func ranges(size int64, list ...[2]int64) func(int64) (int64, int64, bool, error) {
	return func(at int64) (int64, int64, bool, error) {
		if at >= size {
			return 0, 0, false, errBroken
		}
		for _, r := range list {
			if start, end := r[0], r[1]; at < end {
				return max(at, start), end, true, nil
			}
		}
		return 0, 0, false, nil
	}
}

// Each block that may hold something is read once, and no other; those of zeros are left out.
func TestScan(t *testing.T) {
	for _, c := range []struct {
		name, disk string
		data       [][2]int64
		read       int64
	}{
		{"all of it", "ab.c", [][2]int64{{0, 4 * BlockSize}}, 4},
		{"nothing", "....", nil, 0},
		{"a hole at both ends", ".ab.", [][2]int64{{BlockSize, 3 * BlockSize}}, 2},
		{"a byte", "a...", [][2]int64{{0, 1}}, 1},
		{"a byte of each", "aa..", [][2]int64{{BlockSize - 1, BlockSize + 1}}, 2},
		{"two in one block", "a..b", [][2]int64{{0, 1}, {9, 10}, {4*BlockSize - 1, 4 * BlockSize}}, 2},
		{"more than there is", "ab", [][2]int64{{0, 9 * BlockSize}}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := disk(c.disk)
			d.data = ranges(d.Size(), c.data...)
			var read int64
			d.read = func(int64) error { read++; return nil }
			p := &progress{}
			m, err := Scan(t.Context(), d, 1, p)
			if err != nil || m.Size != d.Size() || blocksOf(m) != c.disk {
				t.Errorf("it is %q of %d bytes, %v", blocksOf(m), m.Size, err)
			}
			if want := int64(len(c.disk)-strings.Count(c.disk, ".")) * BlockSize; m.Bytes() != want {
				t.Errorf("it has %d bytes of data, want %d", m.Bytes(), want)
			}
			if read != c.read || p.began != 1 || p.total != c.read*BlockSize || p.done != p.total {
				t.Errorf("%d blocks were read, and %d of %d bytes reported, %d times begun", read, p.done, p.total, p.began)
			}
		})
	}
}

// The last block of a disk is padded with zeros, whatever was in memory before.
func TestScanEndsWithinABlock(t *testing.T) {
	d := disk("ab")
	d.content = d.content[:BlockSize+1000]
	m, err := Scan(t.Context(), d, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	last := append(block('b')[:1000], make([]byte, BlockSize-1000)...)
	want := Manifest{BlockSize + 1000, []Entry{{0, sha256.Sum256(block('a'))}, {1, sha256.Sum256(last)}}}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Error(diff)
	}
}

// However late a block is read, it is listed where it is.
func TestScanIsInOrder(t *testing.T) {
	d, others := disk("abcd"), make(chan struct{})
	d.read = func(offset int64) error {
		switch offset / BlockSize {
		case 0:
			<-others
		case 3:
			close(others)
		}
		return nil
	}
	if m, err := Scan(t.Context(), d, 2, nil); err != nil || !slices.IsSortedFunc(m.Blocks, func(a, b Entry) int { return int(a.Block - b.Block) }) {
		t.Errorf("%v, %v", m, err)
	}
}

type cutDisk struct {
	*memory
	n   int
	err error
}

func (d cutDisk) ReadAt(p []byte, _ int64) (int, error) { return min(d.n, len(p)), d.err }

func TestScanFails(t *testing.T) {
	broken := disk("abcd")
	broken.read = func(offset int64) error {
		if offset > 0 {
			return errBroken
		}
		return nil
	}
	unknown, backwards, empty := disk("abcd"), disk("abcd"), disk("abcd")
	unknown.data = func(int64) (int64, int64, bool, error) { return 0, 0, false, errBroken }
	backwards.data = func(at int64) (int64, int64, bool, error) { return 0, BlockSize, at < 3*BlockSize, nil }
	empty.data = func(at int64) (int64, int64, bool, error) { return at, at, at == 0, nil }
	for name, c := range map[string]struct {
		disk Disk
		want error
	}{
		"it cannot be read":             {broken, errBroken},
		"its data are not known":        {unknown, errBroken},
		"data before what was asked":    {backwards, nil},
		"a range without bytes":         {empty, nil},
		"it is shorter than it says":    {cutDisk{disk("a"), 5, io.EOF}, io.ErrUnexpectedEOF},
		"it gives less, without reason": {cutDisk{disk("a"), 5, nil}, io.ErrUnexpectedEOF},
		"it gives less, with another":   {cutDisk{disk("a"), 5, errBroken}, errBroken},
	} {
		if m, err := Scan(t.Context(), c.disk, 1, nil); err == nil || c.want != nil && !errors.Is(err, c.want) || c.want == nil && errors.Is(err, errBroken) || len(m.Blocks) > 0 {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
	// What is all there is good, whatever is said with it.
	if _, err := Scan(t.Context(), cutDisk{disk("a"), BlockSize, io.EOF}, 1, nil); err != nil {
		t.Errorf("a whole disk: %v", err)
	}
}

// After an error no more is read than what is under way.
func TestScanStops(t *testing.T) {
	d, read := disk("abcdabcd"), 0
	d.read = func(int64) error { read++; return errBroken }
	if _, err := Scan(t.Context(), d, 1, nil); !errors.Is(err, errBroken) || read != 1 {
		t.Errorf("%d blocks were read: %v", read, err)
	}
}

// Interrupted, what was read until then is not taken for the disk.
func TestScanIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := disk("abcdabcd")
	d.read = func(int64) error { cancel(); return nil }
	if m, err := Scan(ctx, d, 1, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", m, err)
	}
}

// target is where a snapshot is written to.
type target struct {
	content []byte
	err     error
}

func (w *target) WriteAt(p []byte, offset int64) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	return copy(w.content[offset:], p), nil
}

func TestFetch(t *testing.T) {
	a := newAccount()
	r, err := a.publisher(t, t.TempDir()).Publish(t.Context(), requestOf(disk("a.bc")))
	if err != nil {
		t.Fatal(err)
	}
	to, p := &target{content: make([]byte, 5*BlockSize)}, &progress{}
	if err := Fetch(t.Context(), a, r.Snapshot, to, 2, p); err != nil {
		t.Fatal(err)
	}
	want := disk("a.bc").content
	if !bytes.Equal(to.content[:len(want)], want) || !bytes.HasPrefix(to.content[len(want):], []byte("{")) {
		t.Error("it is neither the disk nor its manifest")
	}
	if p.began != 1 || p.total != 4*BlockSize || p.done != p.total {
		t.Errorf("the progress is %+v", p)
	}
	if err := Fetch(t.Context(), a, r.Snapshot, &target{content: make([]byte, 5*BlockSize)}, 1, nil); err != nil {
		t.Errorf("unobserved: %v", err)
	}
	to.err = errBroken
	if err := Fetch(t.Context(), a, r.Snapshot, to, 1, nil); !errors.Is(err, errBroken) {
		t.Errorf("it cannot be written: %v", err)
	}
	to.err = nil
	for _, call := range []string{"List", "Get 2"} {
		a.before = breaks(call, 1)
		if err := Fetch(t.Context(), a, r.Snapshot, to, 1, nil); !errors.Is(err, errBroken) {
			t.Errorf("%s fails: %v", call, err)
		}
	}
}
