package e2e

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/qcow2"
)

// earlierVariable names a sealed disk of the same lock and the same state of Debian's archive, of another version of Hardtack.
const earlierVariable = "HARDTACK_SEALED_EARLIER"

// TestSealedKeepsBlocks: a new version of Hardtack publishes at most a tenth of a sealed disk's blocks; the others are the parent's.
func TestSealedKeepsBlocks(t *testing.T) {
	earlier, now := os.Getenv(earlierVariable), os.Getenv(sealedVariable)
	if earlier == "" || now == "" {
		t.Skipf("compares two disks: set %s and %s, the one by make sealed VERSION=0.1.1", earlierVariable, sealedVariable)
	}
	old, data, changed := openDisk(t, earlier), 0, 0
	disk := openDisk(t, now)
	before, block, zero := make([]byte, ami.BlockSize), make([]byte, ami.BlockSize), make([]byte, ami.BlockSize)
	for at := int64(0); at < disk.Size(); at += ami.BlockSize {
		if read(t, disk, block, at); bytes.Equal(block, zero) {
			continue
		}
		data++
		if read(t, old, before, at); !bytes.Equal(block, before) {
			changed++
		}
	}
	t.Logf("%d of %d blocks are other ones", changed, data)
	if data == 0 || changed == 0 || 10*changed > data {
		t.Errorf("%d of %d blocks are other ones: want some, and at most a tenth", changed, data)
	}
}

// read fills data from an offset; behind the end of the disk there are zeros.
func read(t *testing.T, disk io.ReaderAt, data []byte, at int64) {
	t.Helper()
	n, err := disk.ReadAt(data, at)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	clear(data[n:])
}

func openDisk(t *testing.T, name string) *qcow2.File {
	t.Helper()
	disk, err := qcow2.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = disk.Close() })
	return disk
}
