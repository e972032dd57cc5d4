//go:build linux

package disk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// block is the size of a block of the root file system, in bytes.
const block = 4096

// Content is a summary of a root directory.
type Content struct {
	// Bytes is the size of the files in whole blocks; Files is the number of files, directories and links.
	Bytes, Files int64
	// Digest covers every path with its type, mode, owner, capabilities, and content or target, but no
	// time: sha256.
	Digest [32]byte
}

// item is one path of a root directory.
type item struct {
	path string // relative to the root directory
	info fs.FileInfo

	mode, uid, gid uint32
	capability     []byte
	content        string // a digest, a target or a device's numbers
}

// facts are what Digest covers of a path.
func (it item) facts() string {
	return fmt.Sprintf("%o %d:%d %x %q", it.mode, it.uid, it.gid, it.capability, it.content)
}

// Measure reads the whole directory.
func Measure(ctx context.Context, dir string) (Content, error) {
	items, err := readAll(ctx, dir)
	if err != nil {
		return Content{}, fmt.Errorf("reading root directory: %w", err)
	}
	var c Content
	sum := sha256.New()
	for _, it := range items {
		_, _ = fmt.Fprintf(sum, "%q %s\n", it.path, it.facts()) // a hash never fails
		c.Bytes += (it.info.Size() + block - 1) / block * block
		c.Files++
	}
	sum.Sum(c.Digest[:0])
	return c, nil
}

// readAll returns every path below dir, sorted and described.
func readAll(ctx context.Context, dir string) ([]item, error) {
	items, err := list(ctx, dir)
	if err != nil {
		return nil, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.NumCPU())
	for n := range items {
		group.Go(func() error { return items[n].describe(ctx, dir) })
	}
	return items, group.Wait()
}

// list returns every path below dir, sorted.
func list(ctx context.Context, dir string) ([]item, error) {
	var items []item
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		items = append(items, item{path: name, info: info})
		return ctx.Err()
	})
	slices.SortFunc(items, func(a, b item) int {
		if a.path < b.path {
			return -1
		}
		return 1
	})
	return items, err
}

func (it *item) describe(ctx context.Context, dir string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	stat, ok := it.info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: no owner known", it.path)
	}
	path := filepath.Join(dir, it.path)
	it.mode, it.uid, it.gid = stat.Mode, stat.Uid, stat.Gid
	var err error
	switch {
	case it.info.Mode().IsRegular():
		it.content, err = fileDigest(path)
	case it.info.Mode()&fs.ModeSymlink != 0:
		it.content, err = os.Readlink(path)
	case it.info.Mode()&fs.ModeDevice != 0:
		it.content = fmt.Sprintf("%d:%d", unix.Major(stat.Rdev), unix.Minor(stat.Rdev))
	}
	if err != nil {
		return err
	}
	it.capability, err = capabilities(path)
	return err
}

func fileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// capabilities returns the raw file capabilities, empty for a file without.
func capabilities(path string) ([]byte, error) {
	var value [64]byte // VFS_CAP_REVISION_3 is 24 bytes long
	n, err := unix.Lgetxattr(path, "security.capability", value[:])
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP):
		return nil, nil
	case err != nil:
		return nil, &fs.PathError{Op: "getxattr", Path: path, Err: err}
	}
	return value[:n], nil
}

// clampTimes gives every path a time that does not depend on when this was built: times later than epoch become epoch,
// and the time of last access becomes that of the last change.
func clampTimes(ctx context.Context, dir string, epoch int64) error {
	items, err := list(ctx, dir)
	if err != nil {
		return fmt.Errorf("reading root directory: %w", err)
	}
	limit := time.Unix(epoch, 0)
	for _, it := range slices.Backward(items) { // directories after their content
		changed := it.info.ModTime()
		if changed.After(limit) {
			changed = limit
		}
		at := unix.NsecToTimespec(changed.UnixNano())
		path := filepath.Join(dir, it.path)
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return &fs.PathError{Op: "setting time of", Path: path, Err: err}
		}
	}
	return nil
}
