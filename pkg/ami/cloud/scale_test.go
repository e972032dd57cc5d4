package cloud_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
)

// version writes the files of a version of a package, which do not compress, into a directory of its own.
func version(t *testing.T, name string, n byte) (files map[string]string) {
	t.Helper()
	dir, seed := t.TempDir(), sha256.Sum256(append([]byte(name), n))
	random := rand.NewChaCha8(seed)
	files = map[string]string{}
	for f := range 8 {
		data := make([]byte, 100<<10+random.Uint64()%(400<<10))
		_, _ = random.Read(data)
		base := fmt.Sprint("file-", f)
		files[base] = filepath.Join(dir, base)
		if err := os.WriteFile(files[base], data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// fileSystem is a sparse disk with a file system of packages.
func fileSystem(t *testing.T, size int64, packages int) string {
	t.Helper()
	root := t.TempDir()
	for p := range packages {
		name := fmt.Sprintf("package-%02d", p)
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
		for base, file := range version(t, name, 1) {
			if err := os.Rename(file, filepath.Join(root, name, base)); err != nil {
				t.Fatal(err)
			}
		}
	}
	name := makeDisk(t, size, "")
	e2fsprogs(t, "mke2fs", "-q", "-F", "-t", "ext4", "-E", "nodiscard", "-d", root, name)
	return name
}

func e2fsprogs(t *testing.T, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/sbin/"+program, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// upgraded is a copy of a file system in which a package has been replaced by another version, as a package manager
// does it.
func upgraded(t *testing.T, disk, name string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "upgraded.raw")
	if msg, err := exec.CommandContext(t.Context(), "cp", "--sparse=always", disk, out).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, msg)
	}
	var commands strings.Builder
	for base, file := range version(t, name, 2) {
		fmt.Fprintf(&commands, "rm /%s/%s\nwrite %s /%s/%s\n", name, base, file, name, base)
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte(commands.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	e2fsprogs(t, "debugfs", "-w", "-f", script, out)
	e2fsprogs(t, "e2fsck", "-f", "-n", out)
	return out
}

// floor counts, by comparing two disks, the blocks of the second that are not zero, and those that are not as on the
// first.
func floor(t *testing.T, first, second string) (data, differ int) {
	t.Helper()
	blocks := map[int64]bool{}
	one, two := request(t, first).Disk, request(t, second).Disk
	for _, d := range []ami.Disk{one, two} {
		eachRange(t, d, func(start, end int64) {
			for b := start / ami.BlockSize; b*ami.BlockSize < end; b++ {
				blocks[b] = true
			}
		})
	}
	a, b, zero := make([]byte, ami.BlockSize), make([]byte, ami.BlockSize), make([]byte, ami.BlockSize)
	for block := range blocks {
		_, err1 := one.ReadAt(a, block*ami.BlockSize)
		_, err2 := two.ReadAt(b, block*ami.BlockSize)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if !bytes.Equal(b, zero) {
			data++
		}
		if !bytes.Equal(a, b) {
			differ++
		}
	}
	return data, differ
}

// A disk of 4 GiB: everything that is not zero is sent once, then only the blocks in which another version of one
// package differs, then nothing, which is checked. Above the floor is the manifest, which is one block.
func TestFourGiB(t *testing.T) {
	const size = 4 << 30
	before := fileSystem(t, size, 24)
	after := upgraded(t, before, "package-11")
	all, _ := floor(t, before, before)
	_, changed := floor(t, before, after)
	w := newWorld(t, slow())
	var last struct {
		calls map[string]int
		bytes int64
	}
	spent := func(what string, blocks int) (calls int) {
		now, bytes := w.account.Calls(), w.account.Traffic()["ebs:PutSnapshotBlock"].Received
		for name, n := range now {
			calls += n - last.calls[name]
		}
		puts, sent := now["ebs:PutSnapshotBlock"]-last.calls["ebs:PutSnapshotBlock"], bytes-last.bytes
		t.Logf("%s: %d blocks (%.1f MB) sent, the floor is %d (%.1f MB); %d calls in all", what, puts, float64(sent)/1e6, blocks, float64(blocks)*ami.BlockSize/1e6, calls)
		manifest := 1
		if blocks == 0 {
			manifest = 0
		}
		if puts != blocks+manifest || sent != int64(puts)*ami.BlockSize {
			t.Errorf("%s: %d blocks and %d bytes were sent, the floor is %d blocks", what, puts, sent, blocks)
		}
		last.calls, last.bytes = now, bytes
		return calls
	}
	first := w.publish(t, before)
	spent("everything", all)
	second := w.publish(t, after)
	spent("one package", changed)
	if changed*4 > all {
		t.Errorf("%d of %d blocks have changed: that is not one package", changed, all)
	}
	third := w.publish(t, after)
	// The image is found, and each of its blocks is read once: tags alone do not show what it is.
	if calls := spent("nothing", 0); calls != 2+second.DiskBlocks+1 || third.Image != second.Image || !third.Found {
		t.Errorf("the same again: %+v, with %d calls", third, calls)
	}
	if second.Parent != first.Snapshot || first.Volume != 5 {
		t.Errorf("%+v, %+v", first, second)
	}
	w.holds(t, first.Snapshot, before)
	w.holds(t, second.Snapshot, after)
	w.only(t, first.Image, second.Image)
}

// spy stands before a client and sees which memory is on its way.
type spy struct {
	ami.Blocks
	mu        sync.Mutex
	buffers   map[*byte]bool
	now, most int
}

func (s *spy) Put(ctx context.Context, snapshot string, block int32, content []byte, digest ami.Digest) error {
	s.mu.Lock()
	s.buffers[&content[0]] = true
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now--
	}()
	return s.Blocks.Put(ctx, snapshot, block, content, digest)
}

// How much of a disk is in memory does not depend on the disk: as many blocks as are sent at once, whether it has
// ten times or fifty times as many. Of the disk's size not even time depends: this one has 2 TiB.
func TestMemoryIsBounded(t *testing.T) {
	const workers = 4
	for _, blocks := range []int{40, 200} {
		var at []int
		for i := range blocks {
			at = append(at, i*20_000)
		}
		file := makeDisk(t, 2<<40, "one", at...)
		w := newWorld(t, slow())
		c := w.client(home)
		s := &spy{Blocks: c, buffers: map[*byte]bool{}}
		p, err := ami.New(ami.Config{Blocks: s, Snapshots: c, Images: c, State: w.state, Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := p.Publish(t.Context(), request(t, file))
		if err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if r.SentBlocks != blocks+1 {
			t.Errorf("%d blocks were sent, want %d", r.SentBlocks, blocks+1)
		}
		if len(s.buffers) > workers || s.most > workers {
			t.Errorf("%d blocks: %d buffers, and %d blocks on their way at once", blocks, len(s.buffers), s.most)
		}
		t.Logf("%d blocks: %d buffers of 512 KiB, %d blocks on their way at most, %.1f MB allocated in all by both sides",
			blocks, len(s.buffers), s.most, float64(after.TotalAlloc-before.TotalAlloc)/1e6)
	}
}

// The image that the bake made: published, read back block by block through the API, and the same.
func TestBakedImage(t *testing.T) {
	file := os.Getenv("HARDTACK_IMAGE")
	if file == "" {
		t.Skip("HARDTACK_IMAGE names no baked image (make e2e sets it)")
	}
	w := newWorld(t, slow())
	r := w.publish(t, file)
	disk, c := request(t, file).Disk, w.client(home)
	listed, err := c.List(t.Context(), r.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	want, got := make([]byte, ami.BlockSize), make([]byte, ami.BlockSize)
	there := map[int32]bool{}
	for _, l := range listed {
		there[l.Block] = true
		at := int64(l.Block) * ami.BlockSize
		if at >= disk.Size() {
			continue // the manifest
		}
		if _, err := disk.ReadAt(want, at); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), r.Snapshot, l, got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, got) {
			t.Fatalf("block %d differs", l.Block)
		}
	}
	m, err := ami.Scan(t.Context(), disk, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range m.Blocks {
		if !there[e.Block] {
			t.Errorf("block %d is not there", e.Block)
		}
	}
	t.Logf("%d blocks (%.1f MB) of a disk of %.1f GB, volume of %d GiB", r.SentBlocks, float64(r.SentBytes)/1e6, float64(disk.Size())/1e9, r.Volume)
}
