package qcow2

import (
	"compress/flate"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/lima-vm/go-qcow2reader/image/qcow2"
)

// register teaches the qcow2 reader zstd, which the bake compresses with, and mends what it does with decompressors.
// The reader keeps one table for the whole process, which must not be written to while images are read: hence once.
var register = sync.OnceFunc(func() {
	var flates, zstds sync.Pool
	qcow2.SetDecompressor(qcow2.CompressionTypeZlib, pooled(&flates, func() (resetter, error) {
		return deflate{flate.NewReader(nil)}, nil
	}))
	qcow2.SetDecompressor(qcow2.CompressionTypeZstd, pooled(&zstds, func() (resetter, error) {
		// Each cluster is small and read by whoever wants it: no goroutines of the decoder's own, which would
		// also read on behind the cluster's end.
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	}))
})

// resetter is a decoder that can be used again, as zstd's.
type resetter interface {
	io.Reader
	Reset(io.Reader) error
}

type deflate struct{ io.ReadCloser }

func (d deflate) Reset(r io.Reader) error { return d.ReadCloser.(flate.Resetter).Reset(r, nil) }

// pooled makes decoders that are used again: one for each cluster would take longer than the cluster.
func pooled(spare *sync.Pool, make func() (resetter, error)) qcow2.Decompressor {
	return func(r io.Reader) (_ io.ReadCloser, err error) {
		d, ok := spare.Get().(resetter)
		if !ok {
			if d, err = make(); err != nil {
				return nil, err
			}
		}
		if err := d.Reset(r); err != nil {
			return nil, err
		}
		return &cluster{d, spare}, nil
	}
}

// cluster is a compressed cluster that is read. It reads as much as it is asked for, where a decoder gives a part at
// a time: the qcow2 reader would begin the cluster again for each. And it keeps the end for the next call, where a
// decoder may tell it with the last data: the qcow2 reader would take that for an error.
type cluster struct {
	decoder resetter
	spare   *sync.Pool
}

// Read fills p as far as there is anything.
func (c *cluster) Read(p []byte) (int, error) {
	n, err := io.ReadFull(c.decoder, p)
	if errors.Is(err, io.ErrUnexpectedEOF) && n > 0 {
		err = nil
	}
	return n, err
}

// Close gives the decoder back.
func (c *cluster) Close() error {
	c.spare.Put(c.decoder)
	return nil
}
