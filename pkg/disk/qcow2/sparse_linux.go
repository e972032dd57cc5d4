package qcow2

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// sparse finds data as the file system knows it.
func sparse(f *os.File, size int64) func(int64) (int64, int64, bool, error) {
	return func(offset int64) (int64, int64, bool, error) {
		start, err := unix.Seek(int(f.Fd()), offset, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return 0, 0, false, nil // only a hole is left
		}
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
			return offset, size, offset < size, nil // a file system that knows no holes
		}
		if err != nil {
			return 0, 0, false, fmt.Errorf("looking for data: %w", err)
		}
		end, err := unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return 0, 0, false, fmt.Errorf("looking for the end of data: %w", err)
		}
		return start, end, true, nil
	}
}
