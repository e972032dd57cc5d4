package boot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// readMounted reads a NoCloud file system through a mount that is not attached to any directory tree: no other process
// sees it, and it disappears when its descriptor is closed or the process ends, however it ends. (These calls need
// Linux 5.2, and the mark against symbolic links 5.14.)
func readMounted(device, kind string) (f foundData, err error) {
	dir, err := mountDetached(device, kind)
	if err != nil {
		return foundData{}, fmt.Errorf("mounting %s as %s: %w", device, kind, err)
	}
	defer func() { err = errors.Join(err, unix.Close(dir)) }()
	read := func(name string) ([]byte, error) { return readAt(dir, device, name) }
	return readNoCloud(read, device)
}

// mountDetached returns the descriptor of a read-only mount of the device.
func mountDetached(device, kind string) (int, error) {
	fsfd, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("the kernel has no %s: %w", kind, err)
	}
	defer func() { _ = unix.Close(fsfd) }() // the mount does not need its configuration
	if err := unix.FsconfigSetFlag(fsfd, "ro"); err != nil {
		return -1, err
	}
	if err := unix.FsconfigSetString(fsfd, "source", device); err != nil {
		return -1, err
	}
	if err := unix.FsconfigCreate(fsfd); err != nil {
		return -1, err
	}
	return unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC,
		unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC|unix.MOUNT_ATTR_NOSYMFOLLOW)
}

// readAt reads a regular file of the mount.
func readAt(dir int, device, name string) ([]byte, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: device + ":" + name, Err: err}
	}
	f := os.NewFile(uintptr(fd), device+":"+name)
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", f.Name())
	}
	return readBounded(f, f.Name())
}
