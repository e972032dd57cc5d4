package reason

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
)

// Reporter reports each failure once. Dir has a file for each unit with its last failure of this boot; all units share
// it.
type Reporter struct{ Dir string }

// Report writes the failure's line, unless a unit has an unresolved failure that is identical. If Dir is
// unusable every failure is written: twice is better than never. written is false if the line was left out.
func (r Reporter) Report(w io.Writer, f Failure) (written bool, err error) {
	unlock, err := r.lock()
	if err != nil {
		return true, f.Write(w)
	}
	defer func() { _ = unlock() }() // the file was only locked
	known := r.reported(f)
	text, err := json.Marshal(f)
	if err == nil {
		_, err = file.Replace(filepath.Join(r.Dir, f.Unit), text, 0o644)
	}
	if known && err == nil {
		return false, nil
	}
	return true, f.Write(w)
}

// Clear deletes the recorded failures of units that work now, so that a new failure is reported again.
func (r Reporter) Clear(units ...string) {
	for _, unit := range units {
		if unit != "" {
			_ = os.Remove(filepath.Join(r.Dir, unit)) // usually there is none; if it stays, one report is left out
		}
	}
}

// reported reports whether a unit has the same failure already.
func (r Reporter) reported(f Failure) bool {
	entries, err := os.ReadDir(r.Dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(r.Dir, e.Name()))
		var other Failure
		if err == nil && json.Unmarshal(text, &other) == nil && other.Reason == f.Reason && other.Cause == f.Cause && other.Next == f.Next {
			return true
		}
	}
	return false
}

// lock takes the lock of Dir: units with the same cause fail at the same moment.
func (r Reporter) lock() (unlock func() error, err error) {
	if err := os.Mkdir(r.Dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return file.LockDir(r.Dir)
}
