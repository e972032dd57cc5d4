package uki

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/cavaliergopher/cpio"
	"github.com/klauspost/compress/zstd"
)

// File is a file of an initial RAM disk.
type File struct {
	// Path has no slash in front.
	Path    string
	Mode    fs.FileMode
	Content []byte
}

// Archive is an initial RAM disk with the files, in their order, and the directories that they and the kernel need:
// a cpio archive of the format newc, compressed with zstd, whose times are all zero.
func Archive(files []File, dirs ...string) ([]byte, error) {
	var packed bytes.Buffer
	// One worker: with more the blocks would depend on their number.
	z, err := zstd.NewWriter(&packed, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("initial RAM disk: %w", err)
	}
	w := cpio.NewWriter(z)
	made := map[string]bool{".": true}
	var dir func(name string) error
	dir = func(name string) error {
		if made[name] {
			return nil
		}
		if err := dir(path.Dir(name)); err != nil {
			return err
		}
		made[name] = true
		return w.WriteHeader(&cpio.Header{Name: name, Mode: cpio.TypeDir | 0o755, Links: 2})
	}
	for _, name := range slices.Sorted(slices.Values(dirs)) {
		if err := dir(name); err != nil {
			return nil, fmt.Errorf("initial RAM disk: %s: %w", name, err)
		}
	}
	for _, f := range files {
		err := dir(path.Dir(f.Path))
		if err == nil {
			err = w.WriteHeader(&cpio.Header{Name: f.Path, Mode: cpio.TypeReg | cpio.FileMode(f.Mode.Perm()), Size: int64(len(f.Content)), Links: 1})
		}
		if err == nil {
			_, err = w.Write(f.Content)
		}
		if err != nil {
			return nil, fmt.Errorf("initial RAM disk: %s: %w", f.Path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("initial RAM disk: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("initial RAM disk: %w", err)
	}
	return packed.Bytes(), nil
}
