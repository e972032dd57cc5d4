package awsfake

import (
	"crypto/sha256"
	"fmt"
	"os"
	"sync"
)

type digest = [sha256.Size]byte

// blockStore keeps blocks by their digest, each once, and counts their users. It has a separate lock, so that a
// snapshot can be written out while the account goes on.
type blockStore struct {
	directory string

	mu   sync.Mutex
	file *os.File
	// memory holds the blocks where there is no directory.
	memory map[digest][]byte
	at     map[digest]int64
	keeps  map[digest]int
	free   []int64
	end    int64
}

func newBlockStore(directory string) *blockStore {
	return &blockStore{directory: directory, memory: map[digest][]byte{}, at: map[digest]int64{}, keeps: map[digest]int{}}
}

// put stores a block; the caller may change data afterwards.
func (s *blockStore) put(sum digest, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keeps[sum] == 0 {
		if err := s.add(sum, data); err != nil {
			return err
		}
	}
	s.keeps[sum]++
	return nil
}

func (s *blockStore) add(sum digest, data []byte) error {
	if s.directory == "" {
		s.memory[sum] = append([]byte(nil), data...)
		return nil
	}
	if s.file == nil {
		if err := s.open(); err != nil {
			return err
		}
	}
	offset := s.end
	if n := len(s.free); n > 0 {
		offset, s.free = s.free[n-1], s.free[:n-1]
	} else {
		s.end += BlockSize
	}
	if _, err := s.file.WriteAt(data, offset); err != nil {
		s.free = append(s.free, offset)
		return fmt.Errorf("keeping a block: %w", err)
	}
	s.at[sum] = offset
	return nil
}

// open makes the file and unlinks it, so that a crash leaves nothing behind.
func (s *blockStore) open() error {
	file, err := os.CreateTemp(s.directory, "awsfake-blocks-*")
	if err != nil {
		return fmt.Errorf("making the file for blocks: %w", err)
	}
	if err := os.Remove(file.Name()); err != nil {
		_ = file.Close()
		return fmt.Errorf("taking the name of the file for blocks away: %w", err)
	}
	s.file = file
	return nil
}

// keep adds a user of a block.
func (s *blockStore) keep(sum digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keeps[sum]++
}

// release removes a user of a block; the last one's release deletes the block.
func (s *blockStore) release(sum digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keeps[sum]--; s.keeps[sum] > 0 {
		return
	}
	delete(s.keeps, sum)
	delete(s.memory, sum)
	if offset, ok := s.at[sum]; ok {
		s.free = append(s.free, offset)
		delete(s.at, sum)
	}
}

// read copies a block to into.
func (s *blockStore) read(sum digest, into []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if data, ok := s.memory[sum]; ok {
		copy(into, data)
		return nil
	}
	offset, ok := s.at[sum]
	if !ok {
		return fmt.Errorf("no block %x is kept", sum[:8])
	}
	if _, err := s.file.ReadAt(into, offset); err != nil {
		return fmt.Errorf("reading a block: %w", err)
	}
	return nil
}

// size is how many blocks are kept, and how many bytes they take in memory or in the file.
func (s *blockStore) size() (blocks int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.keeps), max(s.end, int64(len(s.memory))*BlockSize)
}

func (s *blockStore) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory, s.at, s.keeps = map[digest][]byte{}, map[digest]int64{}, map[digest]int{}
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	return err
}

// Close closes the file that holds the account's blocks. No call may be made afterwards.
func (a *Account) Close() error { return a.regional.blocks.close() }

// Kept returns how many different blocks the account's snapshots have, and how many bytes they take in memory or in
// EBSOptions.Directory.
func (a *Account) Kept() (blocks int, bytes int64) { return a.regional.blocks.size() }

// WriteRaw writes a completed snapshot as a sparse raw disk to w, which must be empty. It fails if the snapshot is not
// completed or does not exist.
func (m *Images) WriteRaw(id string, w *os.File) error {
	var size int64
	var blocks map[int]digest
	m.account.locked(func() {
		if s, ok := m.snapshot(id); ok && s.State == SnapshotCompleted {
			size, blocks = int64(s.Size)<<30, m.hold(id)
		}
	})
	if blocks == nil {
		return fmt.Errorf("writing snapshot %s: %w", id, noSnapshot(id))
	}
	if err := m.account.regional.blocks.write(w, size, blocks); err != nil {
		return fmt.Errorf("writing snapshot %s: %w", id, err)
	}
	return nil
}

// write writes blocks that are held as a sparse disk, and releases them.
func (s *blockStore) write(w *os.File, size int64, blocks map[int]digest) error {
	defer func() {
		for _, sum := range blocks {
			s.release(sum)
		}
	}()
	if err := w.Truncate(size); err != nil {
		return err
	}
	data := make([]byte, BlockSize)
	for _, index := range sortedKeys(blocks) {
		if err := s.read(blocks[index], data); err != nil {
			return err
		}
		if _, err := w.WriteAt(data, int64(index)*BlockSize); err != nil {
			return fmt.Errorf("block %d: %w", index, err)
		}
	}
	return nil
}

// hold keeps all of a snapshot's blocks until each is released.
func (m *Images) hold(id string) map[int]digest {
	held := map[int]digest{}
	for index, b := range m.contents[id].blocks {
		m.account.regional.blocks.keep(b.sum)
		held[index] = b.sum
	}
	return held
}
