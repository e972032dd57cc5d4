package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// CheckOwn returns an error if the file or directory belongs to another user, or if others may write to it: what is
// kept there is then not what this user has put there. The error has the command that mends it. A link counts as
// what it leads to. What is not there is an fs.ErrNotExist.
func CheckOwn(name string) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	return checkOwn(name, info)
}

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

// ReadOwn reads a file that CheckOwn finds no fault with.
func ReadOwn(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := checkOwn(name, info); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// OpenWithin opens a file below the directory dir for reading. Links are followed inside dir; one that leads out of
// it is an error, and so is all that is not a regular file. The caller must close it.
func OpenWithin(dir, name string) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // a handle on a directory
	// A named pipe would otherwise wait for a writer.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ReadWithin reads a file as OpenWithin opens it.
func ReadWithin(dir, name string) ([]byte, error) {
	f, err := OpenWithin(dir, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
