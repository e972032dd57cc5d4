//go:build linux

package builder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
)

// workPrefix begins the name of every working directory.
const workPrefix = ".hardtack-disk-"

// enter sweeps parent and claims a working directory in it. The builds of a template begin together, and each would take the
// directory that another one has made and not locked yet for one that a killed build has left: they enter one after another.
func enter(parent string) (dir string, lock *os.File, swept []string, err error) {
	unlock, err := file.LockDir(parent)
	if err != nil {
		return "", nil, nil, fmt.Errorf("locking %s, while a working directory is made in it: %w", parent, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if swept, err = sweep(parent); err != nil {
		return "", nil, swept, err
	}
	dir, lock, err = claim(parent)
	return dir, lock, swept, err
}

// claim makes a working directory in parent, so that a rename into the output finishes the work. The directory is
// locked while lock is open; the kernel releases the lock of a killed process.
func claim(parent string) (dir string, lock *os.File, err error) {
	dir, err = os.MkdirTemp(parent, workPrefix)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err == nil {
		lock, err = os.Open(dir)
	}
	if err == nil {
		err = file.TryLock(lock)
	}
	if err != nil {
		return "", nil, fmt.Errorf("working directory: %w", err)
	}
	return dir, lock, nil
}

// sweep removes the unlocked working directories in parent, which killed builds left, and returns their names.
func sweep(parent string) ([]string, error) {
	left, err := filepath.Glob(filepath.Join(parent, workPrefix+"*"))
	if err != nil {
		return nil, fmt.Errorf("looking for directories of killed builds: %w", err)
	}
	var swept []string
	for _, dir := range left {
		removed, err := removeUnheld(dir)
		if err != nil {
			return swept, fmt.Errorf("removing the directory of a killed build (remove %s by hand): %w", dir, err)
		}
		if removed {
			swept = append(swept, dir)
		}
	}
	return swept, nil
}

func removeUnheld(dir string) (bool, error) {
	f, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // its build has just ended
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = file.TryLock(f)
	if errors.Is(err, file.ErrLocked) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, os.RemoveAll(dir)
}
