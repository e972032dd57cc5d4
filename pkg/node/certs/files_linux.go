package certs

import (
	"fmt"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

// requireTmpfs reports a directory that is on a disk.
func requireTmpfs(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fmt.Errorf("looking at the file system of %s: %w", dir, err)
	}
	if s.Type != unix.TMPFS_MAGIC && s.Type != unix.RAMFS_MAGIC {
		return &reason.Error{Reason: reason.Certificates, Next: "mount a tmpfs on /run",
			Err: fmt.Errorf("%s is not on a tmpfs: private keys would reach a disk", dir)}
	}
	return nil
}

// groupOf is the group of a file, or -1.
func groupOf(info fs.FileInfo) int {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Gid)
	}
	return -1
}
