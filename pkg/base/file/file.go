// Package file writes files atomically, programs so that they run at once, and reads files that others may have laid out.
//
// Its rule: a reader sees the old file or the new one, never a part; and a failed write leaves no file behind. What
// another could have changed, or a link leads to, is an error and not content.
package file

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace writes a file atomically by renaming, and reports whether its content changed. A file that has the content
// already is left alone, whatever its mode. The directory must exist.
func Replace(name string, content []byte, mode fs.FileMode) (changed bool, err error) {
	have, err := os.ReadFile(name)
	if err == nil && bytes.Equal(have, content) {
		return false, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	// Programs that read every *.conf of a directory skip this name, since it ends differently.
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return false, err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return false, errors.Join(err, os.Remove(f.Name()))
	}
	return true, nil
}

// ReadUpTo reads a file of at most limit bytes. A larger one is an error, before more of it is read: a device may be without end.
func ReadUpTo(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("it is larger than %d bytes", limit)}
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

// SHA256 returns the sha256 of a file's content in hex.
func SHA256(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
