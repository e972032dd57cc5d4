package awsfake

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ebs"
	"github.com/aws/smithy-go"
)

// unreliable has two of nine calls fail, before or after they are carried out.
type unreliable struct {
	mu     sync.Mutex
	chance *rand.Rand
}

func (u *unreliable) Fault(Call) Fault {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch u.chance.IntN(9) {
	case 0:
		return Fault{Refuse: Throttled()}
	case 1:
		return Fault{LoseReply: true}
	}
	return Fault{}
}

// insist puts a block until the answer is right.
func (s *shop) insist(t *testing.T, id string, index int, data []byte) {
	t.Helper()
	for range 100 {
		out, err := s.ebs.PutSnapshotBlock(t.Context(), putOf(id, index, data))
		var api smithy.APIError
		if errors.As(err, &api) && api.ErrorCode() != "RequestThrottledException" {
			t.Errorf("block %d: %v", index, err)
			return
		}
		if err == nil && *out.Checksum == *sha(data) {
			return
		}
	}
	t.Errorf("block %d could not be put in 100 attempts", index)
}

// TestWhatWasPutIsRead: random blocks, put in any order by several at once with retries over a chain of snapshots,
// are read back as the last state of each, from the API and from the raw file.
func TestWhatWasPutIsRead(t *testing.T) {
	for seed := range uint64(3) {
		chance := rand.New(rand.NewPCG(seed, 7))                      //nolint:gosec // a test's chance is repeatable
		faults := &unreliable{chance: rand.New(rand.NewPCG(seed, 8))} //nolint:gosec // likewise
		directory := ""
		if seed%2 == 0 {
			directory = t.TempDir()
		}
		s := newShop(t, Options{EBS: EBSOptions{Directory: directory}})
		var parent *string
		disk := map[int][]byte{}
		for range 3 {
			id := s.start(t, &ebs.StartSnapshotInput{VolumeSize: aws.Int64(1), ParentSnapshotId: parent})
			change := map[int][]byte{}
			for range 1 + chance.IntN(14) {
				change[chance.IntN(2048)] = blockOf(string(rune('a' + chance.IntN(8))))
			}
			s.account.SetFaults(faults)
			s.putAll(t, id, change, chance)
			s.account.SetFaults(nil)
			if _, err := s.ebs.CompleteSnapshot(t.Context(), completion(id, change)); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			maps.Copy(disk, change)
			if got := s.read(t, id); !maps.EqualFunc(got, disk, bytes.Equal) {
				t.Errorf("seed %d: the snapshot has the blocks %v, want %v", seed, sortedKeys(got), sortedKeys(disk))
			}
			s.checkRaw(t, id, disk)
			parent = &id
		}
		s.forgetAll(t)
		if err := s.account.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// putAll puts blocks in a random order, four at a time, and some of them twice.
func (s *shop) putAll(t *testing.T, id string, blocks map[int][]byte, chance *rand.Rand) {
	t.Helper()
	order := append(sortedKeys(blocks), sortedKeys(blocks)[:len(blocks)/2]...)
	chance.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	var group sync.WaitGroup
	work := make(chan int)
	for range 4 {
		group.Go(func() {
			for index := range work {
				s.insist(t, id, index, blocks[index])
			}
		})
	}
	for _, index := range order {
		work <- index
	}
	close(work)
	group.Wait()
}

// checkRaw compares the raw file of a snapshot with its blocks, and that it has holes.
func (s *shop) checkRaw(t *testing.T, id string, disk map[int][]byte) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "disk.raw"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if err := s.account.Images().WriteRaw(id, file); err != nil {
		t.Fatal(err)
	}
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	taken := info.Sys().(*syscall.Stat_t).Blocks * 512
	if info.Size() != 1<<30 || taken > int64(len(disk)+1)*BlockSize {
		t.Errorf("the raw file has %d bytes and takes %d for %d blocks", info.Size(), taken, len(disk))
	}
	data := make([]byte, BlockSize)
	for index, want := range disk {
		if _, err := file.ReadAt(data, int64(index)*BlockSize); err != nil && !errors.Is(err, io.EOF) || !bytes.Equal(data, want) {
			t.Errorf("block %d of the raw file is not what was put (%v)", index, err)
		}
	}
}

// forgetAll deletes every snapshot, the oldest first, so that blocks of parents are still used by children.
func (s *shop) forgetAll(t *testing.T) {
	t.Helper()
	images := s.account.Images()
	for list := images.Snapshots(); len(list) > 0; list = images.Snapshots() {
		last := list[len(list)-1].ID
		want := list[len(list)-1].Blocks
		var err error
		images.account.locked(func() { err = images.deleteSnapshot(list[0].ID) })
		if err != nil {
			t.Fatal(err)
		}
		if len(list) > 1 {
			if got := s.read(t, last); len(got) != want {
				t.Errorf("without its parent a snapshot has %d blocks, want %d", len(got), want)
			}
		}
	}
	if n, _ := s.account.Kept(); n != 0 {
		t.Errorf("%d blocks are kept by nobody", n)
	}
}

// TestBlocksAreOnDisk: with a directory, blocks are in an unlinked file, free room in it is used again, and equal
// blocks are kept once.
func TestBlocksAreOnDisk(t *testing.T) {
	directory := t.TempDir()
	s := newShop(t, Options{EBS: EBSOptions{Directory: directory}})
	id := s.start(t, &ebs.StartSnapshotInput{VolumeSize: aws.Int64(1)})
	for index := range 40 {
		s.put(t, id, index, blockOf(string(rune('a'+index%20))))
	}
	if n, size := s.account.Kept(); n != 20 || size != 20*BlockSize {
		t.Errorf("%d blocks take %d bytes", n, size)
	}
	for n := range 40 {
		index := n/2 + n%2*20 // both blocks of a kind after each other
		s.put(t, id, index, blockOf(string(rune('A'+index%20))))
	}
	if n, size := s.account.Kept(); n != 20 || size > 22*BlockSize {
		t.Errorf("after they were all replaced, %d blocks take %d bytes", n, size)
	}
	entries, err := os.ReadDir(directory)
	if err != nil || len(entries) != 0 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
	raw, err := os.Create(filepath.Join(t.TempDir(), "disk.raw"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	if err := s.account.Images().WriteRaw(id, raw); err == nil || !slices.Contains([]string{"InvalidSnapshot.NotFound"}, refusal(err).Code) {
		t.Errorf("writing a pending snapshot: %v", err)
	}
}
