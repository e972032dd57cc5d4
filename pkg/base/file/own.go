package file

import (
	"errors"
	"fmt"
	"io"
	"os"
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
	f, err := root.OpenFile(name, os.O_RDONLY|nonblocking, 0)
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
