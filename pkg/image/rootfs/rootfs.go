// Package rootfs composes the Tree: every file, directory and link that a bake adds to a machine.
//
// Its rule: a Tree is a value. Path, mode, size and digest of everything are known before anything is written, sorted
// and without a clock, so that the same inputs result in the same digest.
package rootfs

import (
	"io"
	"io/fs"
)

// Entry is one path of a Tree. All entries belong to root.
type Entry struct {
	// Path is absolute and clean.
	Path string `json:"path"`
	// Mode holds the permission bits and the type: a regular file, fs.ModeDir or fs.ModeSymlink.
	Mode fs.FileMode `json:"mode"`
	// Link is the target of a symbolic link.
	Link string `json:"link,omitempty"`
	// Size is in bytes, Digest is the sha256 in hex; both for regular files only.
	Size   int64  `json:"size,omitempty"`
	Digest string `json:"digest,omitempty"`
	// Component is the name in the lock, "units", "rootfs", "agent" or "extra".
	Component string `json:"component"`
	// Open returns the content of a regular file. It may be called more than once; the caller closes.
	Open func() (io.ReadCloser, error) `json:"-"`
}
