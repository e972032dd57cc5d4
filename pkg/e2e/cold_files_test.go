package e2e

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/gpt"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/qcow2"
)

// coldFiles has the blocks that machines have read until they were ready, by disk and roles.
type coldFiles map[[2]string]map[int64]*block

func (f *coldFiles) add(disk, roles string, blocks map[int64]*block) {
	if *f == nil {
		*f = coldFiles{}
	}
	(*f)[[2]string{disk, roles}] = blocks
}

// write writes how many bytes of each file of the disk's root the machines have read cold, the most first.
func (f *coldFiles) write(t *testing.T, disk, image, to string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Logf("no %s: where a file is on the disk says a mount of it, which needs root", to)
		return
	}
	extents := extentsOf(t, image)
	read := map[string][2]int64{}
	for i, roles := range []string{masterRoles, minionRoles} {
		for path, n := range coldBytesOf(extents, (*f)[[2]string{disk, roles}]) {
			both := read[path]
			both[i] = n
			read[path] = both
		}
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "bytes of files of the %s disk that were read cold until ready, as they are on the disk\n", disk)
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\t%s\tfile\n", masterRoles, minionRoles)
	order := func(a, b string) int {
		return cmp.Or(cmp.Compare(read[b][0]+read[b][1], read[a][0]+read[a][1]), cmp.Compare(a, b))
	}
	for _, path := range slices.SortedFunc(maps.Keys(read), order) {
		fmt.Fprintf(w, "%d\t%d\t%s\n", read[path][0], read[path][1], path)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	// What every machine starts was read by both.
	if systemd := read["usr/lib/systemd/systemd"]; systemd[0] == 0 || systemd[1] == 0 {
		t.Errorf("of systemd %v bytes were read: these are not the places of the files (%s)", systemd, to)
	}
}

// placed is a part of a file on a disk, in bytes.
type placed struct {
	path         string
	offset, size int64
}

// coldBytesOf are the bytes of each file that were read cold.
func coldBytesOf(extents []placed, blocks map[int64]*block) map[string]int64 {
	read := map[string]int64{}
	for _, e := range extents {
		for sector := e.offset / gpt.Sector; sector*gpt.Sector < e.offset+e.size; sector++ {
			b, within := blocks[sector*gpt.Sector/ami.BlockSize], sector%(ami.BlockSize/gpt.Sector)
			if b != nil && b.read[within/64]&(1<<(within%64)) != 0 {
				read[e.path] += gpt.Sector
			}
		}
	}
	return read
}

// TestColdFiles counts of each file the sectors that were read: not what is behind it, and of a file in two places both.
func TestColdFiles(t *testing.T) {
	t.Parallel()
	at := time.Unix(100, 0)
	_, blocks := countReads([]access{
		{at, false, 4096, 2048}, {at, false, ami.BlockSize - 512, 1024}, {at, true, 8192, 512}, {at, false, 8192, 1024}, {at.Add(time.Hour), false, 12288, 512},
	}, at, nil)
	got := coldBytesOf([]placed{{"a", 4096, 1024}, {"b", 5120, 4096}, {"a", ami.BlockSize, 4096}, {"late", 12288, 512}, {"elsewhere", 8 * ami.BlockSize, 512}}, blocks)
	assert.DeepEqual(t, got, map[string]int64{"a": 1024 + 512, "b": 1024 + 512})
}

// extentsOf are the places of all files of a disk's root file system, by offset.
func extentsOf(t *testing.T, image string) []placed {
	t.Helper()
	disk, err := qcow2.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = disk.Close() }() // only read
	root := partition(t, disk, 2)
	file, dir := filepath.Join(t.TempDir(), "root"), t.TempDir()
	f, err := os.Create(file)
	if err == nil {
		_, err = io.Copy(f, io.NewSectionReader(disk, root.Start, root.Size))
	}
	if err != nil || f.Close() != nil {
		t.Fatalf("copying the root file system: %v", err)
	}
	if out, err := exec.CommandContext(t.Context(), "mount", "-o", "loop,ro", file, dir).CombinedOutput(); err != nil {
		t.Fatalf("mounting the root file system: %v: %s", err, out)
	}
	defer func() {
		if out, err := exec.CommandContext(interrupted, "umount", dir).CombinedOutput(); err != nil {
			t.Errorf("unmounting the root file system: %v: %s", err, out)
		}
	}()
	var all []placed
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		extents, err := fiemap(path)
		for _, e := range extents {
			all = append(all, placed{strings.TrimPrefix(path, dir+"/"), root.Start + int64(e.physical), int64(e.length)})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b placed) int { return cmp.Compare(a.offset, b.offset) })
	// The kernel says how long a compressed extent is unpacked: on the disk it ends where the next one begins.
	for i := range all[:max(0, len(all)-1)] {
		all[i].size = min(all[i].size, all[i+1].offset-all[i].offset)
	}
	return all
}

// extent is struct fiemap_extent of linux/fiemap.h.
type extent struct {
	logical, physical, length uint64
	_                         [2]uint64
	flags                     uint32
	_                         [3]uint32
}

const (
	fsIocFiemap  = 0xc020660b // FS_IOC_FIEMAP of linux/fs.h, as filefrag calls it
	extentLast   = 0x1        // FIEMAP_EXTENT_LAST
	extentInline = 0x200      // FIEMAP_EXTENT_DATA_INLINE: with the file's metadata
)

// fiemap asks the kernel where a file is.
func fiemap(path string) (all []extent, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	for start := uint64(0); ; {
		// struct fiemap, and room for extents behind it.
		ask := struct {
			start, length                   uint64
			flags, mapped, extents, reserve uint32
			room                            [512]extent
		}{start: start, length: ^uint64(0) - start, extents: 512}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fsIocFiemap, uintptr(unsafe.Pointer(&ask))); errno != 0 {
			return nil, fmt.Errorf("asking where %s is: %w", path, errno)
		}
		for _, e := range ask.room[:ask.mapped] {
			if e.flags&extentInline == 0 {
				all = append(all, e)
			}
			if e.flags&extentLast != 0 {
				return all, nil
			}
			start = e.logical + e.length
		}
		if ask.mapped == 0 {
			return all, nil
		}
	}
}
