package boot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxLinks is how many links the kernel follows on the way to a file (path_resolution(7)).
const maxLinks = 40

// directory follows the links on the way to a directory, and returns its path on the machine without any. Debian has such links
// (/var/run), and all are root's. One of another user is an error: a daemon that owns a directory could lead what root writes
// below it at the next boot to wherever it likes, such as the units' drop-ins. What is not there yet is kept as it is named.
func (a *agent) directory(name string) (string, error) {
	at, rest := "/", strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		next := path.Join(at, rest[0]) // "" and "." stay, ".." goes up
		rest = rest[1:]
		info, err := os.Lstat(a.path(next))
		if errors.Is(err, fs.ErrNotExist) {
			return path.Join(next, path.Join(rest...)), nil
		}
		if err != nil {
			return "", err
		}
		if info.Mode().Type() != fs.ModeSymlink {
			at = next
			continue
		}
		target, err := os.Readlink(a.path(next))
		if err != nil {
			return "", err
		}
		if !isRoots(info) {
			return "", fmt.Errorf("%s is a symbolic link to %s and not root's: nothing is written through it; name the place itself", next, target)
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s: %w", next, unix.ELOOP)
		}
		if path.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, nil
}

// isRoots reports whether a file is root's, or the user's that runs the reader elsewhere than on a machine.
func isRoots(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid())
}
