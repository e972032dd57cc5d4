package backup

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// free is how many bytes a file in a directory may have.
func free(name string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(name, &s); err != nil {
		return 0, fmt.Errorf("asking for the free space of %s: %w", name, err)
	}
	return int64(s.Bavail) * s.Bsize, nil
}
