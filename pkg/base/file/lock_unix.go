//go:build unix

package file

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lock is flock(2).
func lock(f *os.File, wait bool) error {
	how := unix.LOCK_EX
	if !wait {
		how |= unix.LOCK_NB
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return ErrLocked
		}
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func openDir(dir string) (*os.File, error) { return os.Open(dir) }
