package nemesis

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
)

// volumeSize is enough for the logs of 64 MB of two epochs and of a trial, each with its successor. The file has holes.
const volumeSize = 1 << 30

// ext4Shutdown is EXT4_IOC_SHUTDOWN, and noLogFlush its flag EXT4_GOING_FLAGS_NOLOGFLUSH (fs/ext4/ext4.h).
const (
	ext4Shutdown = 0x8004587d
	noLogFlush   = 2
)

// ebs is a disk of its own life: it has an id, and one machine at a time.
type ebs struct {
	w     *world
	id    string
	seat  string // its tag EtcdMember
	image string
	// origin is the id of what it is a copy of; "" of a new one.
	origin string

	mu     sync.Mutex
	holder *machine
	device string // of the holder
	open   *os.File
	mount  string // where it is mounted, if it is
	gone   bool   // deleted
	late   time.Time
	member etcd.ID  // whose data it has
	torn   []string // mounts of machines that it was taken from
}

// newVolume makes a blank volume with a member's tag.
func (w *world) newVolume(seat string) (*ebs, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := &ebs{w: w, seat: seat, id: fmt.Sprintf("vol-%08x%09x", w.number, len(w.volumes)+1)}
	v.image = filepath.Join(w.dir, v.id+".img")
	if err := makeImage(v.image); err != nil {
		return nil, err
	}
	w.volumes = append(w.volumes, v)
	return v, nil
}

func makeImage(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(volumeSize), f.Close())
}

// copyOf makes a volume of the same tag with what the volume's image has now, as one made from a snapshot.
func (v *ebs) copyOf() (*ebs, error) {
	twin, err := v.w.newVolume(v.seat)
	if err != nil {
		return nil, err
	}
	out, err := exec.Command("cp", "--sparse=always", v.image, twin.image).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("copying %s: %w: %s", v.id, err, out)
	}
	twin.origin = v.id
	return twin, nil
}

// of lists the volumes that carry a member's tag.
func (w *world) volumesOf(seat string) []*ebs {
	w.mu.Lock()
	list := slices.Clone(w.volumes)
	w.mu.Unlock()
	return slices.DeleteFunc(list, func(v *ebs) bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return v.seat != seat || v.gone
	})
}

// untilClosed opens a loop device that is gone when it is closed, and so when this process ends however it ends.
func untilClosed(device string) (*os.File, error) {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err == nil {
		info.Flags |= unix.LO_FLAGS_AUTOCLEAR
		err = unix.IoctlLoopSetStatus64(int(f.Fd()), info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// seen is the volume as a machine sees it.
func (v *ebs) seen(by *machine) etcd.Volume {
	v.mu.Lock()
	defer v.mu.Unlock()
	claim := etcd.Volume{ID: v.id, State: "available", Free: v.holder == nil && time.Now().After(v.late)}
	if v.holder != nil {
		claim.Holder, claim.State = v.holder.id, "running"
	}
	if v.holder == by {
		claim.Device = v.device
	}
	return claim
}

var errInUse = errors.New("VolumeInUse: the volume is attached to another instance")

// attach gives the volume to a machine, as a disk. One machine has it at a time: this is EBS's rule.
func (v *ebs) attach(m *machine) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.gone:
		return errors.New("InvalidVolume.NotFound: " + v.id)
	case v.holder == m:
		return nil
	case v.holder != nil:
		return errInUse
	case time.Now().Before(v.late):
		return errors.New("RequestLimitExceeded: attach it later")
	}
	out, err := exec.Command("losetup", "--find", "--show", v.image).Output()
	if err != nil {
		return fmt.Errorf("attaching %s: %w", v.id, err)
	}
	device := strings.TrimSpace(string(out))
	if v.open, err = untilClosed(device); err != nil {
		return fmt.Errorf("attaching %s: %w", v.id, err)
	}
	v.device, v.holder = device, m
	m.mu.Lock()
	m.held = v
	m.mu.Unlock()
	m.claim()
	return nil
}

// mounted mounts the volume's file system at a directory.
func (v *ebs) mounted(at string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.device == "" {
		return errors.New("no such device: " + v.id)
	}
	if v.mount == at {
		return nil
	}
	if v.mount != "" {
		v.w.breach("%s is mounted twice", v.id)
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(v.device, at, "ext4", unix.MS_NOATIME, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", v.id, err)
	}
	v.mount = at
	return nil
}

// cut stops the file system as a loss of power does: nothing more is written, and the journal is not flushed.
func (v *ebs) cut() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mount == "" {
		return
	}
	dir, err := os.Open(v.mount)
	if err == nil {
		flags := uint32(noLogFlush)
		err = errors.Join(ioctlPointer(dir, ext4Shutdown, &flags), dir.Close())
	}
	if err != nil {
		v.w.breach("cutting the power of %s: %v", v.id, err)
	}
}

// unmount takes the file system away, after its users have ended.
func (v *ebs) unmount() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mount == "" {
		return
	}
	var err error
	for range 200 { // a process that was killed may hold it for a moment
		if err = unix.Unmount(v.mount, 0); !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		v.w.breach("unmounting %s: %v", v.id, err)
	}
	v.mount = ""
}

// ioctlPointer calls an ioctl that takes a pointer.
func ioctlPointer(f *os.File, request uintptr, value *uint32) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(value))); errno != 0 {
		return errno
	}
	return nil
}

// detach frees the volume from its machine, which has ended.
func (v *ebs) detach(m *machine) {
	v.unmount()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.holder != m {
		return
	}
	if err := v.open.Close(); err != nil {
		v.w.breach("detaching %s: %v", v.id, err)
	}
	v.holder, v.device = nil, ""
	m.mu.Lock()
	m.held = nil
	m.mu.Unlock()
}

// free detaches the volume from whoever has it, or had.
func (v *ebs) free() {
	for _, at := range v.torn {
		_ = unix.Unmount(at, unix.MNT_DETACH)
	}
	v.mu.Lock()
	m := v.holder
	v.mu.Unlock()
	if m != nil {
		v.detach(m)
	}
}

// tear takes the volume from a machine that runs: what it has mounted stays mounted, as it does on a machine whose volume
// is detached by force.
func (v *ebs) tear(by *machine) {
	v.mu.Lock()
	m := v.holder
	if m == nil || m == by {
		v.mu.Unlock()
		return
	}
	if v.mount != "" {
		v.torn = append(v.torn, v.mount)
		v.w.breach("%s is taken from %s, which has it mounted", v.id, m.id)
	}
	v.holder, v.device, v.mount = nil, "", ""
	v.mu.Unlock()
	m.mu.Lock()
	m.held = nil
	m.mu.Unlock()
}

// remove deletes the volume, which nobody has.
func (v *ebs) remove() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.holder != nil {
		return errInUse
	}
	v.gone = true
	return os.Remove(v.image)
}

// delay makes the volume's next attachment wait.
func (v *ebs) delay(d time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.late = time.Now().Add(d)
}

// is records whose data the volume has.
func (v *ebs) is(id etcd.ID) {
	if v == nil {
		return // it was taken away
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.member = id
}

// hasData reports whether a volume has the data of a member.
func (w *world) hasData(id etcd.ID) bool {
	w.mu.Lock()
	list := slices.Clone(w.volumes)
	w.mu.Unlock()
	return slices.ContainsFunc(list, func(v *ebs) bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return v.member == id && !v.gone
	})
}

func (v *ebs) setSeat(seat string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seat = seat
}
