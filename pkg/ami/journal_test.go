package ami

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func someDecision() decision {
	return decision{Name: "test-1", Start: StartRequest{Token: "T", Volume: 1, Tags: map[string]string{"a": "b"}},
		Plan: NewPlan(manifest(8*BlockSize, "0a 3b 5c"), 1, nil)}
}

func reopened(t *testing.T, dir string) *journal {
	t.Helper()
	l, j, err := openJournal(dir, "test-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.release(); err != nil {
		t.Fatal(err)
	}
	return j
}

// What was written down is there again, wherever a crash has cut the file off.
func TestJournalAfterACrash(t *testing.T) {
	dir := t.TempDir()
	if j := reopened(t, dir); j != nil {
		t.Fatalf("a journal out of nothing: %+v", j)
	}
	j, err := newJournal(dir, someDecision())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []journalEntry{{Snapshot: "snap-1"}, {Block: new(int32(3))}, {Block: new(int32(0))}, {Complete: true}} {
		if err := j.append(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(j.path)
	if err != nil {
		t.Fatal(err)
	}
	last := -1
	for n := range len(whole) + 1 {
		if err := os.WriteFile(j.path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		got := reopened(t, dir)
		facts := -1
		if got != nil {
			if diff := cmp.Diff(someDecision().Plan, got.Plan); diff != "" || got.Start.Token != "T" {
				t.Fatalf("cut at %d: another decision:\n%s", n, diff)
			}
			facts = len(got.sent)
			if got.done.Snapshot != "" {
				facts++
			}
			if got.done.Complete {
				facts++
			}
			known := got.done
			// What is written behind the cut is read again.
			if err := errors.Join(got.append(journalEntry{Block: new(int32(5))}), got.close()); err != nil {
				t.Fatal(err)
			}
			if after := reopened(t, dir); !after.sent[5] || len(after.sent) != len(got.sent) || after.done != known {
				t.Fatalf("cut at %d: what was added is not there", n)
			}
		}
		if facts < last {
			t.Fatalf("cut at %d: %d facts, and %d before", n, facts, last)
		}
		last = facts
	}
	if last != 4 {
		t.Errorf("the whole journal has %d facts", last)
	}
}

// A beginning that a crash has cut off is no journal, and is gone.
func TestJournalIsWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "test-1.journal")
	for _, text := range []string{"", "{", `{"schema":1}`, `{"schema":99}` + "\n", "\x00\x00\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if j := reopened(t, dir); j != nil {
			t.Errorf("%q is a journal", text)
		}
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%q is left", text)
		}
	}
}

func TestJournalIsLocked(t *testing.T) {
	dir := t.TempDir()
	l, _, err := openJournal(dir, "test-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := openJournal(dir, "test-1"); !errors.Is(err, errBusy) {
		t.Errorf("opened twice: %v", err)
	}
	if _, _, err := openJournal(dir, "test-2"); err != nil {
		t.Errorf("another name: %v", err)
	}
	if err := l.release(); err != nil {
		t.Fatal(err)
	}
	reopened(t, dir)
}
