// Package qcow2 reads disk images, raw and qcow2, as the disk that a machine sees.
//
// Its rule: an image is never held in memory or unpacked into another file, whatever its size, and parts that the file
// marks as empty are not read.
package qcow2

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/lima-vm/go-qcow2reader/image"
	"github.com/lima-vm/go-qcow2reader/image/qcow2"
)

// File is an open disk image. It may be read by several goroutines at once.
type File struct {
	from io.ReaderAt
	size int64
	data func(offset int64) (start, end int64, ok bool, err error)
	file *os.File
	// Format is "raw" or "qcow2".
	Format string
}

// Open opens a disk image. What begins as a qcow2 does is one, anything else is raw.
func Open(name string) (*File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("opening the disk image: %w", err)
	}
	d, err := open(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the disk image %s: %w", name, err), f.Close())
	}
	return d, nil
}

func open(f *os.File) (*File, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no plain file")
	}
	register()
	q, err := qcow2.Open(f, nothingBelow)
	if errors.Is(err, image.ErrWrongType) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &File{from: f, size: info.Size(), data: sparse(f, info.Size()), file: f, Format: "raw"}, nil
	}
	if err == nil {
		err = q.Readable()
	}
	if err != nil {
		return nil, err
	}
	return &File{from: q, size: q.Size(), data: allocated(q), file: f, Format: "qcow2"}, nil
}

// nothingBelow refuses an image that is only the difference to another: the other is not what was named.
func nothingBelow(_ io.ReaderAt, _ image.Type) (image.Image, error) {
	return noImage{}, errors.New("an image with a backing file is not whole (qemu-img convert makes it so)")
}

// noImage is what the reader closes when there is nothing below.
type noImage struct{ image.Image }

func (noImage) Close() error { return nil }

// Size is the disk's in bytes.
func (f *File) Size() int64 { return f.size }

// ReadAt reads as io.ReaderAt says. The qcow2 reader alone would go on into what follows the disk's end in its last
// cluster.
func (f *File) ReadAt(p []byte, offset int64) (int, error) {
	if offset < 0 || offset >= f.size {
		return 0, io.EOF
	}
	whole := len(p)
	p = p[:min(int64(whole), f.size-offset)]
	n, err := f.from.ReadAt(p, offset)
	switch {
	case n == whole && errors.Is(err, io.EOF):
		return n, nil
	case n == len(p) && n < whole && err == nil:
		return n, io.EOF
	}
	return n, err
}

// Data is the first range at or behind offset that may hold something other than zeros; false: there is none.
func (f *File) Data(offset int64) (start, end int64, ok bool, err error) { return f.data(offset) }

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// stride is how many bytes of a qcow2's clusters are searched for one answer.
const stride = 1 << 30

// allocated finds data as the image's tables know it.
func allocated(q *qcow2.Qcow2) func(int64) (int64, int64, bool, error) {
	return func(offset int64) (int64, int64, bool, error) {
		for offset < q.Size() {
			e, err := q.Extent(offset, min(stride, q.Size()-offset))
			if err != nil {
				return 0, 0, false, fmt.Errorf("looking for data: %w", err)
			}
			if e.Length <= 0 {
				return 0, 0, false, fmt.Errorf("looking for data: nothing is known of byte %d", offset)
			}
			if e.Allocated && !e.Zero {
				return e.Start, e.Start + e.Length, true, nil
			}
			offset = e.Start + e.Length
		}
		return 0, 0, false, nil
	}
}
