//go:build linux

package sealed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/verity"
)

const (
	// patience is how long the disk may take to appear; EC2 attaches it before power-on.
	patience = time.Minute
	// alone is how long the drivers that the kernel has built in may take before all others are loaded, and a controller before it
	// is taken for one without a disk.
	alone = 2 * time.Second
	// pause is between two looks at the disks.
	pause = 20 * time.Millisecond
)

// Boot does it all as process 1, and returns only with an error.
func Boot(ctx context.Context, log *slog.Logger) error {
	if err := mountKernel(); err != nil {
		return err
	}
	text, err := readText("/proc/cmdline")
	if err != nil {
		return err
	}
	root, err := rootHash(text)
	if err != nil {
		return err
	}
	if err := loadModules(RootModules); err != nil {
		return err
	}
	disk, err := openRoot(ctx, root)
	if err != nil {
		return fmt.Errorf("opening the root of root hash %s: %w", root, err)
	}
	log.InfoContext(ctx, "the root is open", "roothash", root.String(), "disk", disk)
	if err := enterRoot(); err != nil {
		return fmt.Errorf("entering the root: %w", err)
	}
	if err := openState(ctx, log, disk); err != nil {
		return fmt.Errorf("opening the state partition on %s: %w", disk, err)
	}
	if err := coverEtc(); err != nil {
		return fmt.Errorf("laying memory over /etc: %w", err)
	}
	for _, k := range KeptFiles() {
		if err := k.bring(); err != nil {
			return fmt.Errorf("bringing %s: %w", k.Path, err)
		}
	}
	const systemd = "/sbin/init"
	return fmt.Errorf("starting %s: %w", systemd, syscall.Exec(systemd, append([]string{systemd}, os.Args[1:]...), os.Environ()))
}

// mountKernel mounts the kernel's own file systems, and /run, as systemd would.
func mountKernel() error {
	for _, m := range []struct {
		target, kind, data string
		flags              uintptr
	}{
		{"/dev", "devtmpfs", "mode=755", unix.MS_NOSUID | unix.MS_STRICTATIME},
		{"/proc", "proc", "", unix.MS_NOSUID | unix.MS_NOEXEC | unix.MS_NODEV},
		{"/sys", "sysfs", "", unix.MS_NOSUID | unix.MS_NOEXEC | unix.MS_NODEV},
		{"/run", "tmpfs", "mode=755,size=20%", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_STRICTATIME},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mounting %s: %w", m.target, err)
		}
	}
	// Whoever comes first makes these directories for itself alone: systemd-repart the one where it mounts a file system to fill
	// it, in which systemd then has the journal's socket, and no service of another user could log or start.
	for _, dir := range []string{"/run/systemd", "/run/hardtack"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// moduleCompressed is MODULE_INIT_COMPRESSED_FILE: the kernel unpacks the module itself.
const moduleCompressed = 4

// loadModules loads the modules in a directory in the order of their names. One that is loaded or built in already is no
// error, and neither is a driver whose hardware is not there.
func loadModules(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("modules of the initial RAM disk: %w", err)
	}
	for _, file := range files {
		f, err := os.Open(filepath.Join(dir, file.Name()))
		if err != nil {
			return err
		}
		flags := 0
		if !strings.HasSuffix(file.Name(), ".ko") {
			flags = moduleCompressed
		}
		err = unix.FinitModule(int(f.Fd()), "", flags)
		_ = f.Close() // only read
		if err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("loading module %s: %w", file.Name(), err)
		}
	}
	return nil
}

// openRoot waits for the disk with the partitions of the root hash, mounts the root on SystemRoot, and returns the disk's
// device.
func openRoot(ctx context.Context, root verity.Hash) (string, error) {
	data, tree, err := await(ctx, root)
	if err != nil {
		return "", err
	}
	f, err := os.Open("/dev/" + tree.name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // only read
	s, err := verity.ReadSuperblock(f)
	if err != nil {
		return "", fmt.Errorf("/dev/%s: %w", tree.name, err)
	}
	device, err := openVerity("root", s.Table(root, "/dev/"+data.name, "/dev/"+tree.name), s.Blocks*verity.BlockSize)
	if err != nil {
		return "", fmt.Errorf("device mapper, for /dev/%s and /dev/%s: %w", data.name, tree.name, err)
	}
	if err := os.MkdirAll(SystemRoot, 0o755); err != nil {
		return "", err
	}
	mapped := fmt.Sprintf("/dev/dm-%d", unix.Minor(device))
	if err := errors.Join(isWhole(mapped, s), setReadAhead(mapped)); err != nil {
		return "", err
	}
	if err := unix.Mount(mapped, SystemRoot, "erofs", unix.MS_RDONLY, ""); err != nil {
		return "", fmt.Errorf("mounting it: %w", err)
	}
	return "/dev/" + data.disk, nil
}

// isWhole returns an error unless the whole file system of a device is within its hash tree. The root hash does not vouch for the
// tree's number of blocks where the tree has as many levels with fewer: what is then behind its end cannot be read, and systemd
// would stand still for want of it, and not panic.
func isWhole(device string, s verity.Superblock) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	size, err := erofsSize(f)
	if err != nil {
		return fmt.Errorf("the file system of %s: %w", device, err)
	}
	if has := s.Blocks * verity.BlockSize; size > has {
		return fmt.Errorf("the file system of %s has %d bytes, and the hash tree is of %d of them: its superblock was changed", device, size, has)
	}
	return nil
}

// readAhead is how much the kernel reads of the root around what a program touches, in sectors of 512 bytes: one page, with which
// comes the whole of its cluster (pkg/disk). The kernel's own 128 KiB are of what is unpacked, and bring two or three clusters.
const readAhead = 8

// setReadAhead sets it for a block device, before a file of it is opened.
func setReadAhead(device string) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written
	if err := unix.IoctlSetInt(int(f.Fd()), unix.BLKRASET, readAhead); err != nil {
		return fmt.Errorf("setting the readahead of %s: %w", device, err)
	}
	return nil
}

// await waits for the partitions of a root hash.
func await(ctx context.Context, root verity.Hash) (data, tree partition, err error) {
	began := time.Now()
	for loaded := false; ; {
		disks, all, err := look("/sys", "/dev")
		if err != nil {
			return data, tree, err
		}
		if found := copies(disks, root); len(found) > 1 {
			return data, tree, fmt.Errorf("the disks %s have it: one is the machine's own, and another a copy of a root, which could bring a state of its own; detach that, and start the machine again", strings.Join(found, ", "))
		}
		waited := time.Since(began)
		var ok bool
		if data, tree, ok = pair(all, root); ok && (len(unseen("/sys")) == 0 || waited > alone) {
			return data, tree, nil
		}
		if waited > patience {
			return data, tree, fmt.Errorf("no disk has the partitions %s and %s after %s; partitions there are: %v", root.Data(), root.Tree(), patience, all)
		}
		if waited > alone && !loaded {
			if err := loadModules(DriverModules); err != nil {
				return data, tree, err
			}
			loaded = true
		}
		select {
		case <-ctx.Done():
			return data, tree, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// enterRoot makes SystemRoot the root, takes the kernel's file systems along, and frees what the initial RAM disk held.
func enterRoot() error {
	for _, name := range []string{"/init", "/modules"} {
		if err := os.RemoveAll(name); err != nil {
			return err
		}
	}
	for _, name := range []string{"/dev", "/proc", "/sys", "/run"} {
		if err := unix.Mount(name, SystemRoot+name, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("moving %s: %w", name, err)
		}
	}
	return errors.Join(os.Chdir(SystemRoot), unix.Mount(".", "/", "", unix.MS_MOVE, ""), unix.Chroot("."), os.Chdir("/"))
}

// formatState is systemd-repart's variable with further options of mkfs.ext4, of which the last -E replaces systemd-repart's. The
// journal is written with zeros once: 64 MB, as of a disk of 8 GB, and not the 512 MB of one of 100 GB, which take 4 s at what
// gp3 transfers.
const formatState = "SYSTEMD_REPART_MKFS_OPTIONS_EXT4=-J size=64 -E nodiscard,lazy_itable_init=1," + OrphanFile

// openState has systemd-repart make the state partition at the first boot, filled with what the image has in /var, and grow
// it later, and mounts it. systemd-repart makes the file system before it writes the partition table: a boot that is cut off
// leaves no half of one.
func openState(ctx context.Context, log *slog.Logger, disk string) error {
	fstab, err := readText("/etc/fstab")
	if err != nil {
		return err
	}
	id, err := stateID(fstab)
	if err != nil {
		return err
	}
	_, existed, err := stateDevice(disk, id)
	if err != nil {
		return err
	}
	// Without the loop device it would copy the file system through memory.
	if err := execute(ctx, "/usr/sbin/modprobe", "loop"); err != nil {
		return err
	}
	// Through the loop device a discard is a write of zeros to the whole partition (blkdev_fallocate in the kernel), where the
	// disk has that command: 8 GB of a lab's machine, and nothing of it is for anybody to read.
	if err := execute(ctx, "/usr/bin/systemd-repart", "--dry-run=no", "--no-pager", "--discard=no", "--definitions="+Repart, disk); err != nil {
		return err
	}
	device, ok, err := stateDevice(disk, id)
	if err == nil && !ok {
		err = fmt.Errorf("systemd-repart has made no partition %s", id)
	}
	if err != nil {
		return err
	}
	if existed {
		if err := check(ctx, device); err != nil {
			return err
		}
	}
	log.InfoContext(ctx, "the state partition is there", "device", device, "new", !existed)
	return unix.Mount(device, "/var", "ext4", unix.MS_RELATIME, "")
}

// stateDevice finds the device of the state partition on a disk.
func stateDevice(disk, id string) (string, bool, error) {
	_, all, err := look("/sys", "/dev")
	if err != nil {
		return "", false, err
	}
	for _, p := range all {
		if p.id == id && "/dev/"+p.disk == disk {
			return "/dev/" + p.name, true, nil
		}
	}
	return "", false, nil
}

// check repairs a file system that was not unmounted, where that needs nobody's decision.
func check(ctx context.Context, device string) error {
	err := execute(ctx, "/usr/sbin/e2fsck", "-p", device)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() < 4 { // 1 and 2: errors were corrected
		return nil
	}
	return err
}

// execute runs a program of the root.
func execute(ctx context.Context, name string, args ...string) error {
	return run.Run(ctx, run.Command{Name: name, Args: args, Env: []string{"PATH=/usr/sbin:/usr/bin", "TMPDIR=/run", "LC_ALL=C", formatState}})
}

// coverEtc lets /etc be written to, for as long as the machine is up.
func coverEtc() error {
	const upper, work = "/run/hardtack/etc/upper", "/run/hardtack/etc/work"
	if err := os.MkdirAll(filepath.Dir(upper), 0o700); err != nil {
		return err
	}
	for _, dir := range []string{upper, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	return unix.Mount("overlay", "/etc", "overlay", 0, "lowerdir=/etc,upperdir="+upper+",workdir="+work)
}
