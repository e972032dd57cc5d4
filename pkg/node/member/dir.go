package member

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
)

// ReadDir reads what is in a member's directory: the mounted file system's top, or the machine's own where it has no disk.
// Restored is left out: it depends on the epoch.
func ReadDir(dir string) (etcd.Disk, error) {
	out := etcd.Disk{Mounted: true}
	text, err := os.ReadFile(filepath.Join(dir, etcd.MarkerFile))
	switch {
	case err == nil:
		marker, err := etcd.Parse[etcd.Marker](text)
		if out.MarkerBroken = err != nil; !out.MarkerBroken {
			out.Marker = &marker
		}
	case !errors.Is(err, fs.ErrNotExist):
		return etcd.Disk{}, err
	}
	wal, err := os.ReadDir(filepath.Join(dir, etcd.DataDir, "member", "wal"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return etcd.Disk{}, err
	}
	out.WAL = len(wal) > 0
	return out, nil
}

// restoreDir is where the backup of an epoch is restored, complete if it is there.
func (m *Member) restoreDir(epoch int) string {
	return filepath.Join(m.Dir, etcd.RestoreDir, strconv.Itoa(epoch))
}

func (m *Member) dataDir() string { return filepath.Join(m.Dir, etcd.DataDir) }

// WriteMarker writes the marker of a member's directory. Once it returns, neither a crash nor a loss of power takes the
// marker back.
func WriteMarker(dir string, marker etcd.Marker) error {
	// Not a secret, and below a directory of etcd's user: who looks for it before etcd starts.
	_, err := file.Replace(filepath.Join(dir, etcd.MarkerFile), etcd.Encode(marker), 0o644)
	if err == nil {
		err = syncDir(dir) // the name is durable with its directory only
	}
	if err != nil {
		return fmt.Errorf("writing the marker of %s: %w", dir, err)
	}
	return nil
}

// syncDatabase puts the name of the database on stable storage. A learner has exchanged its empty one for the leader's, and etcd
// leaves that to the file system: until then a loss of power takes the exchange back, and etcd cannot run on what is left. A
// learner's data may be given up for that, a voter's may not.
func (m *Member) syncDatabase() error {
	dir := filepath.Join(m.dataDir(), "member", "snap")
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("syncing %s before the member gets a vote: %w", dir, err)
	}
	return nil
}

// empty makes a new data directory: of one without a log nothing is worth keeping, and etcd must not find parts of it.
func (m *Member) empty() error {
	dir := m.dataDir()
	err := os.RemoveAll(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil && m.Owner != (Owner{}) {
		err = os.Chown(dir, m.Owner.UID, m.Owner.GID)
	}
	if err == nil {
		err = syncDir(m.Dir)
	}
	if err != nil {
		return fmt.Errorf("making an empty data directory for etcd: %w", err)
	}
	return nil
}

// adopt moves what was restored for an epoch into the place of the data.
func (m *Member) adopt(epoch int) error {
	from := m.restoreDir(epoch)
	err := m.give(from)
	if err == nil {
		err = os.RemoveAll(m.dataDir())
	}
	if err == nil {
		err = os.Rename(from, m.dataDir())
	}
	if err == nil {
		err = errors.Join(syncDir(filepath.Dir(from)), syncDir(m.Dir))
	}
	if err != nil {
		return fmt.Errorf("moving the restored data of epoch %d in place: %w", epoch, err)
	}
	return nil
}

// give gives a tree to etcd's user.
func (m *Member) give(dir string) error {
	if m.Owner == (Owner{}) {
		return nil
	}
	return filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, m.Owner.UID, m.Owner.GID)
	})
}

// keep is how many directories of data that were left are kept.
const keep = 2

// discard moves the data away, and forgets all but the newest that were moved before.
func (m *Member) discard(epoch int) error {
	trash := filepath.Join(m.Dir, etcd.TrashDir)
	if err := os.MkdirAll(trash, 0o700); err != nil {
		return fmt.Errorf("moving the data of epoch %d away: %w", epoch, err)
	}
	old, err := os.ReadDir(trash)
	if err != nil {
		return fmt.Errorf("moving the data of epoch %d away: %w", epoch, err)
	}
	numbers := make([]int, 0, len(old)+1)
	for _, e := range old {
		n, _, _ := strings.Cut(e.Name(), "-")
		if number, err := strconv.Atoi(n); err == nil {
			numbers = append(numbers, number)
		}
	}
	last := 0
	if len(numbers) > 0 {
		last = slices.Max(numbers)
	}
	to := filepath.Join(trash, fmt.Sprintf("%d-epoch-%d", last+1, epoch))
	if err := errors.Join(os.Rename(m.dataDir(), to), syncDir(trash), syncDir(m.Dir)); err != nil {
		return fmt.Errorf("moving the data of epoch %d away: %w", epoch, err)
	}
	return m.prune(trash)
}

func (m *Member) prune(trash string) error {
	entries, err := os.ReadDir(trash)
	if err != nil {
		return fmt.Errorf("removing old data: %w", err)
	}
	number := func(e fs.DirEntry) int {
		text, _, _ := strings.Cut(e.Name(), "-")
		n, _ := strconv.Atoi(text) // what is not ours counts as the oldest
		return n
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(number(b), number(a)) })
	var errs []error
	for _, e := range entries[min(keep, len(entries)):] {
		errs = append(errs, os.RemoveAll(filepath.Join(trash, e.Name())))
	}
	return errors.Join(errs...)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
