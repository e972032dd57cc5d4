package volume

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
)

// Label is the label of a member's file system.
const Label = "hardtack-etcd"

// The exit statuses of blkid(8).
const (
	blkidNothing    = 2
	blkidAmbivalent = 8
)

// probe reads what a device contains, and the UUID of an ext4 file system.
func probe(ctx context.Context, device string) (etcd.On, string, error) {
	// Read first: blkid's exit status is the same for a device that it cannot read and for one without a signature.
	zero, err := zeroed(device)
	if err != nil {
		return etcd.OnUnknown, "", fmt.Errorf("reading %s: %w", device, err)
	}
	out, err := run.Output(ctx, "blkid", "-p", "-o", "export", device)
	switch exitStatus(err) {
	case 0:
		on, uuid := parse(out)
		return on, uuid, nil
	case blkidNothing:
		if zero {
			return etcd.OnBlank, "", nil
		}
		return etcd.OnScraps, "", nil
	case blkidAmbivalent:
		return etcd.OnOther, "", nil
	}
	return etcd.OnUnknown, "", fmt.Errorf("looking what %s contains: %w", device, err)
}

// parse reads blkid's lines of NAME=value.
func parse(out []byte) (etcd.On, string) {
	values := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "=")
		values[name] = value
	}
	if values["TYPE"] == "ext4" && values["PTTYPE"] == "" { // a partition table is another use of the disk
		return etcd.OnExt4, values["UUID"]
	}
	return etcd.OnOther, ""
}

// exitStatus is the exit status of a command that ran to its end; -1 if it did not.
func exitStatus(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

const mebibyte = 1 << 20

// blockSize is that of the file system, in bytes. firstBackup is where ext4 with such blocks has the first copy of its
// superblock: it outlives whatever overwrites the beginning of a disk.
const (
	blockSize   = 4096
	firstBackup = 8 * blockSize * blockSize // a bitmap of one block describes a group of blocks
)

// zeroed reports whether the beginning, the end and the place of a superblock's first copy are zero, a mebibyte each.
func zeroed(device string) (bool, error) {
	f, err := os.Open(device)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // only read
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return false, err
	}
	if size < mebibyte {
		return false, fmt.Errorf("it has %d bytes only", size)
	}
	block := make([]byte, mebibyte)
	zero := true
	for _, at := range []int64{0, firstBackup, size - mebibyte} {
		if at+mebibyte > size {
			continue
		}
		if _, err := f.ReadAt(block, at); err != nil {
			return false, err
		}
		zero = zero && len(bytes.Trim(block, "\x00")) == 0
	}
	return zero, nil
}

// format makes a file system; whatever the device contains is gone. mkfs refuses a device that is mounted or in use.
func format(ctx context.Context, device, uuid string) error {
	// errors=remount-ro: etcd must not go on writing to a damaged file system. It ends, and fsck repairs before it returns.
	err := run.Run(ctx, run.Command{Name: "mkfs.ext4", Args: []string{"-q", "-F", "-b", strconv.Itoa(blockSize), "-e", "remount-ro", "-U", uuid, "-L", Label, device}})
	if err != nil {
		return fmt.Errorf("formatting %s: %w", device, err)
	}
	return nil
}

// The exit status of fsck(8) is a sum. Below unrepaired the file system is in order, or is now. That fsck could not do its
// work (8) alone says nothing about the file system, which another process may have.
const unrepaired = 4

func damaged(status int) bool { return status >= 0 && status&unrepaired != 0 }

// check replays the journal, looks at all of the file system, since bits turn over where no crash is recorded, and repairs
// what needs no decision: 0.1 s for 20 GiB that are nearly empty. broken means that the rest needs a person; any error has
// fsck's words.
func check(ctx context.Context, device string) (broken bool, err error) {
	err = run.Run(ctx, run.Command{Name: "fsck.ext4", Args: []string{"-f", "-p", device}})
	status := exitStatus(err)
	if status >= 0 && status < unrepaired {
		return false, nil
	}
	return damaged(status), fmt.Errorf("checking the file system of %s: %w", device, err)
}

// stillDamaged returns the device if its file system still has errors, and "" once somebody has repaired it.
func stillDamaged(ctx context.Context, device string) (string, error) {
	err := run.Run(ctx, run.Command{Name: "fsck.ext4", Args: []string{"-f", "-n", device}})
	switch status := exitStatus(err); {
	case status == 0:
		return "", nil
	case damaged(status):
		return device, nil
	}
	return device, fmt.Errorf("checking the file system of %s: %w", device, err)
}

// grow extends a mounted file system to the size of its device. The kernel does that in its journal's transactions, and
// wants CAP_SYS_RESOURCE for it. Without a mount, resize2fs writes without a journal: of 25 that were killed, 2 left a file
// system for a person to repair.
func grow(ctx context.Context, device string) error {
	if err := run.Run(ctx, run.Command{Name: "resize2fs", Args: []string{device}}); err != nil {
		return fmt.Errorf("extending the file system of %s to its device: %w", device, err)
	}
	return nil
}
