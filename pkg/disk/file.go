//go:build linux

package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// Format is the format of a disk image.
type Format string

// The formats.
const (
	Raw   Format = "raw"
	QCOW2 Format = "qcow2"
)

// Convert writes the raw disk as a compressed qcow2. Blocks are written in order, which costs little
// and makes the file the same every time.
func Convert(ctx context.Context, raw, out string, compress bool) error {
	args := []string{"convert", "-f", "raw", "-O", "qcow2", "-m", strconv.Itoa(converters)}
	if compress {
		args = append(args, "-c", "-o", "compression_type=zstd,cluster_size="+cluster)
	}
	if err := run.Run(ctx, run.Command{Name: "qemu-img", Args: append(args, raw, out)}); err != nil {
		return fmt.Errorf("converting to qcow2: %w", err)
	}
	return nil
}

// cluster is the unit of compression. A full image took 206 MB with the default of 64k, 195 MB with this, and 194 MB
// with 1M, of which a reader would have to decompress all for any byte.
const cluster = "256k"

// converters is how many blocks qemu-img works on at a time; its limit is 16.
const converters = 16

// sparse makes a new file of that size without any content.
func sparse(name string, size int64) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("making %s: %w", name, err)
	}
	return errors.Join(f.Truncate(size), f.Close())
}

// bootCode writes the BIOS boot code into the first sector, which the partition table leaves free.
func bootCode(disk string) error {
	code, err := os.ReadFile(gptBootCode)
	if err != nil {
		return fmt.Errorf("boot code for BIOS (Debian package syslinux-common): %w", err)
	}
	if len(code) > bootCodeSize {
		return fmt.Errorf("boot code for BIOS %s: %d bytes, at most %d fit", gptBootCode, len(code), bootCodeSize)
	}
	return firstBytes(disk, code)
}

// firstBytes writes a disk's first bytes.
func firstBytes(disk string, code []byte) error {
	f, err := os.OpenFile(disk, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("writing boot code: %w", err)
	}
	_, err = f.WriteAt(code, 0)
	return errors.Join(err, f.Close())
}

// copySparse copies the file from into the file to at offset, leaving holes where from has only zeros.
func copySparse(from, to string, offset int64) error {
	source, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("placing partition: %w", err)
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("placing partition: %w", err)
	}
	buf := make([]byte, mib)
	zero := make([]byte, mib)
	for err == nil {
		var n int
		n, err = io.ReadFull(source, buf)
		if n > 0 && !bytes.Equal(buf[:n], zero[:n]) {
			if _, werr := target.WriteAt(buf[:n], offset); werr != nil {
				err = werr
			}
		}
		offset += int64(n)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	if err = errors.Join(err, target.Close()); err != nil {
		return fmt.Errorf("placing partition: %w", err)
	}
	return nil
}

// CheckSpace returns an error unless the file system of dir has need bytes free.
func CheckSpace(dir string, need int64) error {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	if free := int64(stat.Bavail) * stat.Bsize; free < need {
		return fmt.Errorf("no space in %s: %d MiB are free and about %d MiB are needed (free some, or choose another output directory)",
			dir, free/mib, (need+mib-1)/mib)
	}
	return nil
}
