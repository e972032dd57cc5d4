package boot

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// staged is a written file that waits beside its place.
type staged struct{ temp, name string }

// write carries out every step: it writes all files beside their places, with their modes and owners, syncs them
// together, and then renames them in order. A reader sees the old file or the whole new one, also after a crash, and a
// full disk changes nothing. The renames are not synced, since syncing takes long during boot; the next boot repeats
// what a crash undoes, before any role unit starts.
func (a *agent) write(steps []step) (err error) {
	var files []staged
	defer func() {
		for _, f := range files {
			_ = os.Remove(f.temp) // those that did not get to their places; the first error is the one to tell
		}
	}()
	for _, s := range steps {
		if s.action == actionUnchanged {
			continue
		}
		f, err := a.stage(s)
		if f.temp != "" {
			files = append(files, f)
		}
		if err != nil {
			return fmt.Errorf("writing %s: %w", s.path, err)
		}
	}
	if err := syncAll(files); err != nil {
		return fmt.Errorf("syncing files to the disk: %w", err)
	}
	for len(files) > 0 {
		if err := os.Rename(files[0].temp, files[0].name); err != nil {
			return err
		}
		files = files[1:]
	}
	return nil
}

// stage writes one file beside its place. The result has a temp as soon as there is one, also with an
// error.
func (a *agent) stage(s step) (staged, error) {
	out := staged{name: a.path(s.place)}
	dir := filepath.Dir(out.name)
	if err := makeDirs(dir, s.uid, s.gid); err != nil {
		return out, err
	}
	// The name follows from the path, so that the next run reuses the files that a killed run left behind.
	sum := sha256.Sum256([]byte(s.path))
	temp := filepath.Join(dir, fmt.Sprintf(".hardtack-%x", sum[:8]))
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return out, err
	}
	out.temp = temp
	return out, errors.Join(fillFile(f, s), f.Close())
}

// makeDirs makes the directories that are missing, for the file's owner as cloud-init does: a daemon that owns a file in a
// directory of its own replaces it there.
func makeDirs(dir string, uid, gid int) error {
	var missing []string
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); !errors.Is(err, fs.ErrNotExist) {
			break // there, or MkdirAll's error
		}
		missing = append(missing, d)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil || uid == keepOwner && gid == keepOwner {
		return err
	}
	for _, d := range missing {
		if err := os.Lchown(d, uid, gid); err != nil {
			return err
		}
	}
	return nil
}

func fillFile(f *os.File, s step) error {
	if _, err := f.Write(s.content); err != nil {
		return err
	}
	if s.uid != keepOwner || s.gid != keepOwner {
		if err := f.Chown(s.uid, s.gid); err != nil {
			return err
		}
	}
	// After the change of owner, which clears the set-id bits; and by number, since os.FileMode has its
	// own bits for those.
	if err := unix.Fchmod(int(f.Fd()), uint32(s.mode)); err != nil {
		return fmt.Errorf("setting mode %04o: %w", s.mode, err)
	}
	return nil
}

// syncWorkers is how many files are synced in parallel: enough for a journal to commit them in one
// go. (syncfs would be one call, and waits for everything else that the boot has written so far.)
const syncWorkers = 32

func syncAll(files []staged) error {
	var group errgroup.Group
	group.SetLimit(syncWorkers)
	for _, file := range files {
		group.Go(func() error {
			f, err := os.OpenFile(file.temp, os.O_RDONLY, 0)
			if err != nil {
				return err
			}
			return errors.Join(f.Sync(), f.Close())
		})
	}
	return group.Wait()
}

// removeRoles removes role files, and whatever stands in their place: any kind of file of that name
// makes a unit's ConditionPathExists true.
func (a *agent) removeRoles(roles []role.Role) error {
	for _, r := range roles {
		if err := os.RemoveAll(a.path(r.File())); err != nil {
			return fmt.Errorf("removing a role file that must not be there, so its units may start: %w", err)
		}
	}
	return nil
}
