package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/member"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

const (
	uuid    = "11111111-2222-4333-8444-555555555555"
	another = "99999999-2222-4333-8444-555555555555"
	size    = 256 << 20
)

// disk is a block device of the kernel: a loop device of a file with holes.
type disk struct {
	t            *testing.T
	file, device string
}

// byHand mounts as systemd's mount unit does.
type byHand struct{ mounts int }

func (b *byHand) Mount(_ context.Context, what, where, kind, _ string) error {
	b.mounts++
	return errors.Join(os.MkdirAll(where, 0o755), unix.Mount(what, where, kind, unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NOATIME, ""))
}

func newDisk(t *testing.T) (*Disk, *disk) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loop devices and mounts need root")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("there are no loop devices:", err)
	}
	d := &disk{t: t, file: filepath.Join(t.TempDir(), "volume")}
	if err := errors.Join(os.WriteFile(d.file, nil, 0o600), os.Truncate(d.file, size)); err != nil {
		t.Fatal(err)
	}
	out, err := run.Output(t.Context(), "losetup", "--find", "--show", d.file)
	if err != nil {
		t.Fatal(err)
	}
	d.device = strings.TrimSpace(string(out))
	where := filepath.Join(t.TempDir(), "etcd")
	t.Cleanup(func() { // the test's context has ended when this runs
		if err := unix.Unmount(where, 0); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			t.Error(err)
		}
		if err := run.Run(context.Background(), run.Command{Name: "losetup", Args: []string{"--detach", d.device}}); err != nil {
			t.Error(err)
		}
	})
	return &Disk{Mounter: &byHand{}, Where: where}, d
}

func (d *disk) command(name string, args ...string) {
	d.t.Helper()
	if err := run.Run(d.t.Context(), run.Command{Name: name, Args: args}); err != nil {
		d.t.Fatal(err)
	}
}

func (d *disk) write(at int64, data []byte) {
	t := d.t
	t.Helper()
	f, err := os.OpenFile(d.device, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(data, at)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func unmount(t *testing.T, d *Disk) {
	t.Helper()
	if err := unix.Unmount(d.Where, 0); err != nil {
		t.Fatal(err)
	}
}

// What is on a disk is told apart by real tools. Only zeros are blank.
func TestContent(t *testing.T) {
	mkfs := func(d *disk, uuid string) {
		d.command("mkfs.ext4", "-q", "-b", strconv.Itoa(blockSize), "-U", uuid, d.device)
	}
	for name, tt := range map[string]struct {
		make func(d *disk)
		want etcd.Disk
	}{
		"new":          {func(*disk) {}, etcd.Disk{On: etcd.OnBlank}},
		"ours":         {func(d *disk) { mkfs(d, uuid) }, etcd.Disk{On: etcd.OnExt4, UUID: uuid}},
		"foreign ext4": {func(d *disk) { mkfs(d, another) }, etcd.Disk{On: etcd.OnExt4, UUID: another}},
		"ext3":         {func(d *disk) { d.command("mkfs.ext3", "-q", "-U", uuid, d.device) }, etcd.Disk{On: etcd.OnOther}},
		"swap":         {func(d *disk) { d.command("mkswap", "-U", uuid, d.device) }, etcd.Disk{On: etcd.OnOther}},
		"XFS":          {func(d *disk) { d.write(0, xfs()) }, etcd.Disk{On: etcd.OnOther}},
		"LUKS":         {func(d *disk) { d.write(0, luks()) }, etcd.Disk{On: etcd.OnOther}},
		"a partition table": {func(d *disk) {
			table := run.Command{Name: "sfdisk", Args: []string{"-q", "--no-reread", "--no-tell-kernel", d.device}, Stdin: strings.NewReader("label: gpt\n,\n")}
			if err := run.Run(d.t.Context(), table); err != nil {
				d.t.Fatal(err)
			}
		}, etcd.Disk{On: etcd.OnOther}},
		"two signatures": {func(d *disk) {
			mkfs(d, uuid)
			d.write(0, xfs())
		}, etcd.Disk{On: etcd.OnOther}},
		"data without a signature": {func(d *disk) { d.write(70_000, []byte("mine")) }, etcd.Disk{On: etcd.OnScraps}},
		// What mkfs leaves when the power fails before its last write, the superblock.
		"half made": {func(d *disk) {
			mkfs(d, uuid)
			d.write(1024, make([]byte, 1024))
		}, etcd.Disk{On: etcd.OnScraps}},
		// Somebody has begun to overwrite a disk, and nothing has its signature any more.
		"a file system without its beginning": {func(d *disk) {
			mkfs(d, another)
			d.write(0, make([]byte, mebibyte))
		}, etcd.Disk{On: etcd.OnScraps}},
		"data at the end": {func(d *disk) { d.write(size-512, []byte("mine")) }, etcd.Disk{On: etcd.OnScraps}},
	} {
		t.Run(name, func(t *testing.T) {
			v, d := newDisk(t)
			tt.make(d)
			got, err := v.Look(t.Context(), d.device)
			if err != nil || got != tt.want {
				t.Errorf("%+v, %v; want %+v", got, err, tt.want)
			}
			if got.UUID == uuid {
				return
			}
			if err := v.Mount(t.Context(), d.device, uuid); err == nil || reason.Of(err) != reason.Volume || v.Mounter.(*byHand).mounts > 0 {
				t.Errorf("mounting it: %v", err)
			}
		})
	}
}

// luks is the beginning of a LUKS header, version 1.
func luks() []byte {
	b := make([]byte, 592)
	copy(b, "LUKS\xba\xbe\x00\x01")
	copy(b[168:], another)
	return b
}

// xfs is as much of a superblock of XFS as blkid looks at.
func xfs() []byte {
	b := make([]byte, 512)
	copy(b, "XFSB")
	copy(b[4:], "\x00\x00\x10\x00")                 // blocks of 4096 bytes
	copy(b[8:], "\x00\x00\x00\x00\x00\x01\x00\x00") // 65536 of them
	copy(b[32:], "\x99\x99\x99\x99\x22\x22\x43\x33\x84\x44\x55\x55\x55\x55\x55\x55")
	copy(b[80:], "\x00\x00\x00\x01")
	copy(b[84:], "\x00\x00\x40\x00\x00\x00\x00\x04")  // groups of 16384 blocks, 4 of them
	copy(b[100:], "\xb4\xa5\x02\x00\x02\x00\x00\x08") // version, sectors of 512 bytes, inodes of 512, 8 in a block
	copy(b[120:], "\x0c\x09\x09\x03\x0e")             // their logarithms
	copy(b[127:], "\x19")                             // percent of the space for inodes
	return b
}

// A device that cannot be read is not a blank one, although blkid's exit status is the same.
func TestUnreadable(t *testing.T) {
	none := filepath.Join(t.TempDir(), "nvme9n1")
	if on, _, err := probe(t.Context(), none); err == nil || on != etcd.OnUnknown {
		t.Errorf("%v, %v", on, err)
	}
	small := filepath.Join(t.TempDir(), "small")
	if err := os.WriteFile(small, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	if on, _, err := probe(t.Context(), small); err == nil || on != etcd.OnUnknown {
		t.Errorf("%v, %v", on, err)
	}
}

func made(t *testing.T) (*Disk, *disk) {
	t.Helper()
	v, d := newDisk(t)
	if err := v.Format(t.Context(), d.device, uuid); err != nil {
		t.Fatal(err)
	}
	return v, d
}

func (d *disk) mount(v *Disk) {
	t := d.t
	t.Helper()
	if err := v.Mount(t.Context(), d.device, uuid); err != nil {
		t.Fatal(err)
	}
}

func (d *disk) look(v *Disk) etcd.Disk {
	t := d.t
	t.Helper()
	out, err := v.Look(t.Context(), d.device)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func marker(epoch int) etcd.Marker {
	return etcd.Marker{Cluster: "demo", Member: "a", Epoch: epoch, Volume: "vol-0123456789abcdef0", MemberID: 1, ClusterID: 2}
}

func TestFormatMountMark(t *testing.T) {
	v, d := made(t)
	d.mount(v)
	if got, want := d.look(v), (etcd.Disk{On: etcd.OnExt4, UUID: uuid, Mounted: true}); got != want {
		t.Errorf("%+v", got)
	}
	for epoch := 1; epoch <= 2; epoch++ {
		if err := member.WriteMarker(v.Where, marker(epoch)); err != nil {
			t.Fatal(err)
		}
		if got := d.look(v); got.Marker == nil || *got.Marker != marker(epoch) || got.MarkerBroken || got.WAL || got.Restored {
			t.Errorf("%+v", got)
		}
	}
	for name, attempt := range map[string]error{"format": v.Format(t.Context(), d.device, another), "mount again": v.Mount(t.Context(), d.device, uuid)} {
		if attempt == nil {
			t.Errorf("%s of a mounted device", name)
		}
	}
	if got := d.look(v); got.Marker == nil || got.UUID != uuid || got.Damaged {
		t.Errorf("afterwards: %+v", got)
	}
}

// A loss of power takes what was not synced, and never the marker.
func TestMarkerOutlivesPowerLoss(t *testing.T) {
	v, d := made(t)
	d.mount(v)
	if err := member.WriteMarker(v.Where, marker(1)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(v.Where, "unsynced"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	shutdown(t, v.Where)
	unmount(t, v)
	d.mount(v)
	if got := d.look(v); got.Marker == nil || *got.Marker != marker(1) {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(filepath.Join(v.Where, "unsynced")); err == nil {
		t.Error("the power was not cut: what was not synced is there")
	}
}

// shutdown stops a file system as a loss of power does: EXT4_IOC_SHUTDOWN without a flush of the journal.
func shutdown(t *testing.T, where string) {
	t.Helper()
	f, err := os.Open(where)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	const request, noFlush = 0x8004587d, 2
	if err := unix.IoctlSetPointerInt(int(f.Fd()), request, noFlush); err != nil {
		t.Fatal(err)
	}
}

// Bits that have turned over stop the mount, although the file system was left in order: what needs a decision is a person's.
func TestDamaged(t *testing.T) {
	v, d := made(t)
	// The inode table of the first group: the root directory is the second inode.
	out, err := run.Output(t.Context(), "debugfs", "-R", "imap <2>", d.device)
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`located at block (\d+), offset (0x[0-9a-f]+)`).FindSubmatch(out)
	if match == nil {
		t.Fatalf("%s", out)
	}
	block, err1 := strconv.ParseInt(string(match[1]), 10, 64)
	offset, err2 := strconv.ParseInt(string(match[2]), 0, 64)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	d.write(block*blockSize+offset, []byte{0xff, 0xff}) // the mode: neither a directory nor anything else
	for range 2 {
		if err := v.Mount(t.Context(), d.device, uuid); err == nil || reason.Of(err) != reason.Volume || v.Mounter.(*byHand).mounts > 0 {
			t.Errorf("%v", err)
		}
		if got := d.look(v); !got.Damaged || got.Mounted {
			t.Errorf("%+v", got)
		}
	}
	repair := run.Run(t.Context(), run.Command{Name: "fsck.ext4", Args: []string{"-f", "-y", d.device}})
	if status := exitStatus(repair); status != 1 {
		t.Fatal(repair)
	}
	if got := d.look(v); got.Damaged || got.Mounted {
		t.Errorf("repaired: %+v", got)
	}
	d.mount(v)
}

// A device that another process has is not damaged: fsck could not look.
func TestBusy(t *testing.T) {
	v, d := made(t)
	fd, err := unix.Open(d.device, unix.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Mount(t.Context(), d.device, uuid); err == nil {
		t.Error("it is mounted")
	}
	if got := d.look(v); got.Damaged {
		t.Errorf("%+v", got)
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	d.mount(v)
}

// A volume that was made larger has a larger file system at the next boot, with its data.
func TestGrown(t *testing.T) {
	v, d := made(t)
	blocks := func() uint64 {
		var s unix.Statfs_t
		if err := unix.Statfs(v.Where, &s); err != nil {
			t.Fatal(err)
		}
		return s.Blocks * uint64(s.Bsize)
	}
	d.mount(v)
	if err := v.Grow(t.Context(), d.device); err != nil {
		t.Errorf("nothing to extend: %v", err)
	}
	before := blocks()
	if err := member.WriteMarker(v.Where, marker(1)); err != nil {
		t.Fatal(err)
	}
	unmount(t, v)
	if err := os.Truncate(d.file, 2*size); err != nil {
		t.Fatal(err)
	}
	d.command("losetup", "--set-capacity", d.device)
	d.mount(v)
	err := v.Grow(t.Context(), d.device)
	switch after := blocks(); {
	case !resourceful(t):
		if err == nil || after != before {
			t.Errorf("%v, without the capability; %d bytes before, %d after", err, before, after)
		}
	case err != nil || after < before*18/10:
		t.Errorf("%v; %d bytes before, %d after", err, before, after)
	}
	if got := d.look(v); got.Marker == nil {
		t.Errorf("%+v", got)
	}
}

// resourceful reports whether this process may extend a mounted file system, which root in some containers may not.
func resourceful(t *testing.T) bool {
	t.Helper()
	var data [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0]); err != nil {
		t.Fatal(err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// Another file system in the member's place is not taken for its own.
func TestAnotherIsMounted(t *testing.T) {
	v, d := made(t)
	if err := errors.Join(os.MkdirAll(v.Where, 0o755), unix.Mount("tmpfs", v.Where, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	if got, err := v.Look(t.Context(), d.device); err == nil || !strings.Contains(err.Error(), "another file system") {
		t.Errorf("%+v, %v", got, err)
	}
}

// The device is found by its serial number, whatever its letter; a fresh controller has none yet.
func TestBySerial(t *testing.T) {
	root := t.TempDir()
	const id, serial = "vol-0123456789abcdef0", "vol0123456789abcdef0"
	controller := func(n int, serial string, namespaces ...string) {
		dir := filepath.Join(root, controllers, "nvme"+strconv.Itoa(n))
		err := os.MkdirAll(dir, 0o755)
		if serial != "" {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, "serial"), []byte(serial+"\n"), 0o644))
		}
		for _, name := range append(namespaces, "power", "hwmon"+strconv.Itoa(n), "ng1n1") {
			err = errors.Join(err, os.MkdirAll(filepath.Join(dir, name), 0o755))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(device string) {
		t.Helper()
		if got, err := bySerial(root, id); got != device || err != nil {
			t.Errorf("%q, %v; want %q", got, err, device)
		}
	}
	want("") // no controller at all
	controller(0, "vol0fedcba9876543210", "nvme0n1")
	controller(1, "(efault)", "nvme1n1")
	controller(3, "")
	want("")
	controller(2, serial+"        ") // the serial is padded, and the namespace comes later
	want("")
	controller(2, serial+"        ", "nvme2n1", "nvme2n1p1")
	want("/dev/nvme2n1")
	controller(1, serial, "nvme1n1")
	if got, err := bySerial(root, id); err == nil || got != "" {
		t.Errorf("two: %q, %v", got, err)
	}
}

// A disk of the machine's own is found by its name in /dev/disk/by-id.
func TestLocal(t *testing.T) {
	_, d := newDisk(t)
	l := Local{Name: "hardtack-test-" + strconv.Itoa(os.Getpid()), Instance: "node-a"}
	want := func(device string) {
		t.Helper()
		found, err := l.Find(t.Context())
		if err != nil || len(found) != 1 || found[0] != (etcd.Volume{ID: l.Name, Holder: "node-a", State: "running", Device: device}) {
			t.Errorf("%+v, %v", found, err)
		}
	}
	want("")
	link := filepath.Join(byID, l.Name)
	if err := errors.Join(os.MkdirAll(byID, 0o755), os.Symlink("../../"+filepath.Base(d.device), link)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(link); err != nil {
			t.Error(err)
		}
	})
	want(d.device)
}
