package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// write makes every step true that is not yet.
func (a *agent) write(steps []step) error {
	for _, s := range steps {
		if s.action == actionUnchanged {
			continue
		}
		if err := a.writeFile(s); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes a file beside its place and moves it there when it is whole and on disk, with its
// mode and owner: whoever looks finds the old file or the new one, also after a crash.
func (a *agent) writeFile(s step) (err error) {
	name := a.path(s.path)
	dir := filepath.Dir(name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the directory of %s: %w", s.path, err)
	}
	f, err := os.CreateTemp(dir, ".hardtack-*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", s.path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // the first error is the one to tell
		}
	}()
	err = fill(f, s)
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", s.path, err)
	}
	return nil
}

func fill(f *os.File, s step) error {
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
	return f.Sync()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// removeRoles removes role files, and whatever stands in their place: any kind of file of that name
// makes a unit's ConditionPathExists true.
func (a *agent) removeRoles(roles []role.Role) error {
	for _, r := range roles {
		if err := os.RemoveAll(a.path(r.File())); err != nil {
			return fmt.Errorf("removing a role file that must not be there, so its units may start: %w", err)
		}
	}
	if len(roles) == 0 {
		return nil
	}
	if err := syncDir(a.path(role.Dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing role files: %w", err)
	}
	return nil
}
