//go:build unix

package file

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// nonblocking opens a named pipe without waiting for its writer.
const nonblocking = syscall.O_NONBLOCK

func checkOwn(name string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: no owner known", name)
	}
	if uid := os.Geteuid(); int(stat.Uid) != uid {
		return fmt.Errorf("%s belongs to user %d and this is user %d: use another directory (with sudo: sudo -H),"+
			" or look what is in it and take it over (chown -R %d %[1]s)", name, stat.Uid, uid, uid)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("%s can be written by others (mode %04o): remove it if others may have written to it, and otherwise close it"+
			" (chmod -R go-w %[1]s)", name, mode)
	}
	return nil
}
