package ami

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Where no journal can be kept, nothing is begun of which nobody would know.
func TestJournalCannotBeKept(t *testing.T) {
	d := disk("abc.")
	m, err := Scan(t.Context(), d, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	name := requestOf(d).Name(m)
	directory := func(at string) func(string) error {
		return func(state string) error { return os.MkdirAll(filepath.Join(state, name+at, "x"), 0o700) }
	}
	var other *lock // held until the end: one that nobody has any more is closed with the rest
	defer func() {
		if err := other.release(); err != nil {
			t.Error(err)
		}
	}()
	for what, prepare := range map[string]func(state string) error{
		"its directory is a file":  func(state string) error { return os.WriteFile(state, nil, 0o600) },
		"its lock is a directory":  directory(".lock"),
		"it is a directory":        directory(".journal"),
		"its draft is a directory": directory(".journal.part"),
		"there is no room for it": func(state string) error {
			return errors.Join(os.Mkdir(state, 0o700), os.Symlink("/dev/full", filepath.Join(state, name+".journal.part")))
		},
		"another process is at work": func(state string) (err error) { other, _, err = openJournal(state, name); return err },
	} {
		s := situation{account: newAccount(), state: filepath.Join(t.TempDir(), "state")}
		if err := prepare(s.state); err != nil {
			t.Fatal(err)
		}
		if r, err := s.publish(t, d); err == nil || slices.Contains(s.calls, "Start") || len(s.snapshots) > 0 {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
	}
}

// fill leaves no room on the disk for what is written to an open file.
func fill(t *testing.T, pattern string) {
	t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		to, _ := os.Readlink("/proc/self/fd/" + f.Name())
		if match, _ := filepath.Match(pattern, to); !match {
			continue
		}
		fd, err := strconv.Atoi(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Dup3(int(full.Fd()), fd, syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
	}
}

// What cannot be written down any more ends the publication, and nothing is left of it.
func TestJournalHasNoRoom(t *testing.T) {
	for _, call := range []string{"Start", "Put 1", "Complete"} {
		s := situation{account: newAccount(), state: t.TempDir()}
		s.before = once(call, func() error {
			fill(t, filepath.Join(s.state, "*.journal*"))
			return nil
		})
		if r, err := s.publish(t, disk("abc.")); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("at %s: %+v, %v", call, r, err)
		}
		// A snapshot that the journal does not name gets no block.
		if call == "Start" && slices.ContainsFunc(s.calls, func(c string) bool { return strings.HasPrefix(c, "Put") }) {
			t.Errorf("after %s: %q", call, s.calls)
		}
		s.clean(t, call, false)
	}
}

// A publication that could not open its journal does not keep others from it.
func TestLockIsReleased(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "test-1.journal")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openJournal(dir, "test-1"); err == nil || errors.Is(err, errBusy) {
		t.Fatalf("a directory is a journal: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openJournal(dir, "test-1"); err != nil {
		t.Errorf("and afterwards: %v", err)
	}
}

// A decision is written down as a whole, or not at all.
func TestNewJournalFails(t *testing.T) {
	for what, prepare := range map[string]func(path string) error{
		"there is no room":  func(path string) error { return os.Symlink("/dev/full", path+".part") },
		"it is a directory": func(path string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) },
		"no directory":      func(path string) error { return os.Remove(filepath.Dir(path)) },
	} {
		path := filepath.Join(t.TempDir(), "dir", "test-1.journal")
		if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), prepare(path)); err != nil {
			t.Fatal(err)
		}
		if j, err := newJournal(filepath.Dir(path), someDecision()); err == nil || j != nil {
			t.Errorf("%s: %v, %v", what, j, err)
		}
		if _, err := os.Lstat(path + ".part"); err == nil {
			t.Errorf("%s: a draft is left", what)
		}
	}
}

// A draft that a crash has left is no hindrance, however long it is.
func TestDraftIsLeft(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "test-1.journal.part"), make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := newJournal(dir, someDecision())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.append(journalEntry{Block: new(int32(3))}), j.close()); err != nil {
		t.Fatal(err)
	}
	if got := reopened(t, dir); got == nil || !got.sent[3] || slices.Contains(got.unsent(), 3) || len(got.unsent()) != len(got.Plan.Writes)-1 {
		t.Errorf("it is read as %+v", got)
	}
	if err := j.append(journalEntry{Complete: true}); err == nil {
		t.Error("what is written to a closed journal is lost in silence")
	}
	if err := j.close(); err == nil {
		t.Error("it is closed twice")
	}
	// The file is gone, or it is said.
	j = reopened(t, dir)
	if err := j.remove(); err != nil {
		t.Error(err)
	}
	if err := j.remove(); err == nil {
		t.Error("it is removed twice")
	}
}
