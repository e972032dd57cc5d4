//go:build unix

package member

import (
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// isMount reports whether a file system is mounted at a directory.
func isMount(dir string) (bool, error) {
	var at, above unix.Stat_t
	if err := errors.Join(unix.Stat(dir, &at), unix.Stat(filepath.Dir(dir), &above)); err != nil {
		return false, err
	}
	return at.Dev != above.Dev, nil
}
