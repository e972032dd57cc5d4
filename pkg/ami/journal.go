package ami

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
)

// journal is the state of an unfinished publication: a file whose first line is the decision, written before any
// request, and then one line for each acknowledged request. A line is written after the fact: if a crash loses it or
// cuts it off, one block is sent a second time, which does no harm.
type journal struct {
	path string
	file *os.File

	mu   sync.Mutex
	done journalEntry
	sent map[int32]bool

	decision
}

// decision is the first line of a journal.
type decision struct {
	Schema int    `json:"schema"`
	Name   string `json:"name"`
	// Start is asked for in the same words when it is asked for again: it has the same token.
	Start StartRequest `json:"start"`
	Plan  Plan         `json:"plan"`
}

// journalEntry is one of the lines after the first.
type journalEntry struct {
	Snapshot string `json:"snapshot,omitempty"`
	Block    *int32 `json:"block,omitempty"`
	Complete bool   `json:"complete,omitempty"`
}

const journalSchema = 1

// errBusy is a journal that another process has locked.
var errBusy = errors.New("another process is publishing the same image")

// openJournal reads what a publication of that name left, or nil where none was begun. The name's lock is held until
// close, so that two processes on one machine do not publish the same.
func openJournal(dir, name string) (*lock, *journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("keeping a journal: %w", err)
	}
	l, err := takeLock(filepath.Join(dir, name+".lock"))
	if err != nil {
		return nil, nil, err
	}
	j, err := readJournal(filepath.Join(dir, name+".journal"))
	if err != nil {
		return nil, nil, errors.Join(err, l.release())
	}
	return l, j, nil
}

// lock is a file locked by one process.
type lock struct{ file *os.File }

func takeLock(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("keeping a journal: %w", err)
	}
	err = file.TryLock(f)
	if errors.Is(err, file.ErrLocked) {
		err = fmt.Errorf("%w (%s is locked)", errBusy, path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &lock{f}, nil
}

// release releases the lock. The file stays, since another process may be waiting for it.
func (l *lock) release() error { return l.file.Close() }

// readJournal returns nil for a file that is not there or is of no use, which is then removed.
func readJournal(path string) (*journal, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the journal: %w", err)
	}
	j := &journal{path: path, sent: map[int32]bool{}}
	r := bufio.NewReader(bytes.NewReader(text))
	first, err := r.ReadBytes('\n')
	if err != nil || json.Unmarshal(first, &j.decision) != nil || j.Schema != journalSchema {
		return nil, os.Remove(path)
	}
	whole := int64(len(first))
	for {
		line, err := r.ReadBytes('\n')
		var f journalEntry
		if err != nil || json.Unmarshal(line, &f) != nil {
			break // cut off by a crash
		}
		whole += int64(len(line))
		j.apply(f)
	}
	if j.file, err = os.OpenFile(path, os.O_WRONLY, 0o600); err != nil {
		return nil, fmt.Errorf("reading the journal: %w", err)
	}
	if err = j.file.Truncate(whole); err == nil {
		_, err = j.file.Seek(0, io.SeekEnd)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reading the journal: %w", err), j.file.Close())
	}
	return j, nil
}

// newJournal writes down a decision. Nothing is there until all of it is.
func newJournal(dir string, d decision) (*journal, error) {
	d.Schema = journalSchema
	j := &journal{path: filepath.Join(dir, d.Name+".journal"), sent: map[int32]bool{}, decision: d}
	line, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("keeping a journal: %w", err)
	}
	// The lock is held, so that no other process writes this file; a remainder of a crash is overwritten.
	part := j.path + ".part"
	if j.file, err = os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); err != nil {
		return nil, fmt.Errorf("keeping a journal: %w", err)
	}
	_, err = j.file.Write(append(line, '\n'))
	err = errors.Join(err, j.file.Sync())
	if err == nil {
		err = os.Rename(part, j.path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("keeping a journal: %w", err), j.file.Close(), os.Remove(part))
	}
	return j, nil
}

func (j *journal) apply(f journalEntry) {
	if f.Snapshot != "" {
		j.done.Snapshot = f.Snapshot
	}
	if f.Block != nil {
		j.sent[*f.Block] = true
	}
	j.done.Complete = j.done.Complete || f.Complete
}

// append adds an entry to the file.
func (j *journal) append(f journalEntry) error {
	line, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("keeping a journal: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.apply(f)
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("keeping a journal: %w", err)
	}
	return nil
}

// unsent lists the planned blocks that are not acknowledged yet.
func (j *journal) unsent() []int32 {
	j.mu.Lock()
	defer j.mu.Unlock()
	var blocks []int32
	for _, w := range j.Plan.Writes {
		if !j.sent[w.Block] {
			blocks = append(blocks, w.Block)
		}
	}
	return blocks
}

// close keeps the file; remove does not.
func (j *journal) close() error { return j.file.Close() }

func (j *journal) remove() error { return errors.Join(j.file.Close(), os.Remove(j.path)) }
