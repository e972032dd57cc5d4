// Package rootfs composes the Tree: every file, directory and link that a bake adds to a machine.
//
// Its rule: a Tree is a value. Path, mode, size and digest of everything are known before anything is written, sorted
// and without a clock, so that the same inputs result in the same digest.
package rootfs

import (
	"io"
	"io/fs"
	"strconv"
)

// Entry is one path of a Tree.
type Entry struct {
	// Path is absolute and clean.
	Path string `json:"path"`
	// Mode holds the permission bits and the type: a regular file, fs.ModeDir or fs.ModeSymlink. Files of container images may have
	// fs.ModeSetuid, fs.ModeSetgid and fs.ModeSticky too.
	Mode fs.FileMode `json:"mode"`
	// UID and GID are root's but in container images.
	UID int `json:"uid,omitempty"`
	GID int `json:"gid,omitempty"`
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

// Owner is "uid:gid".
func (e Entry) Owner() string { return strconv.Itoa(e.UID) + ":" + strconv.Itoa(e.GID) }

// UnixMode are the permissions as chmod takes them, with the bits for setuid, setgid and sticky (inode(7)).
func (e Entry) UnixMode() fs.FileMode {
	mode := e.Mode.Perm()
	for bit, unix := range map[fs.FileMode]fs.FileMode{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if e.Mode&bit != 0 {
			mode |= unix
		}
	}
	return mode
}
