package file

import (
	"errors"
	"os"
)

// ErrLocked means that another process has the lock.
var ErrLocked = errors.New("another process has locked it")

// TryLock takes an exclusive lock on an open file, or on Unix a directory; ErrLocked if another has it. Closing the file
// releases it, and so does the end of the process.
func TryLock(f *os.File) error { return lock(f, false) }

// LockDir takes an exclusive lock on a directory, waiting while another process has it. unlock releases it; so does the end
// of the process. The directory must exist.
func LockDir(dir string) (unlock func() error, err error) {
	f, err := openDir(dir)
	if err != nil {
		return nil, err
	}
	if err := lock(f, true); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}
