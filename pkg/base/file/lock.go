package file

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// LockDir takes an exclusive lock on a directory (flock), waiting while another process has it. unlock releases it; so
// does the end of the process. The directory must exist.
func LockDir(dir string) (unlock func() error, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}
