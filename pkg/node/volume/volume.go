package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/member"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

// Mounter mounts file systems, and returns once they are mounted.
type Mounter interface {
	Mount(ctx context.Context, what, where, kind, options string) error
}

// Disk is the place of a member's disk on this machine. Its methods are not safe for concurrent use.
type Disk struct {
	Mounter Mounter
	// Where is the directory that the file system is mounted at, an absolute path.
	Where string
	// damaged is the device whose file system fsck could not repair; empty if it is in order.
	damaged string
	// device and uuid are what was mounted when Look last read the device: a mounted file system keeps its UUID.
	device, uuid string
}

// Look reads what is on a device and, if it is mounted, in its file system. It changes nothing. It fails where something
// else is mounted in the disk's place.
func (d *Disk) Look(ctx context.Context, device string) (etcd.Disk, error) {
	var out etcd.Disk
	is, err := mounted(device, d.Where)
	if err != nil {
		return out, with(err)
	}
	if is {
		if out, err = member.ReadDir(d.Where); err != nil {
			return out, with(err)
		}
	}
	if is && d.device == device {
		out.On, out.UUID = etcd.OnExt4, d.uuid
		return out, nil
	}
	if out.On, out.UUID, err = probe(ctx, device); err != nil {
		return etcd.Disk{}, with(err)
	}
	if is {
		d.device, d.uuid = device, out.UUID
		return out, nil
	}
	d.device = ""
	if d.damaged == device {
		if d.damaged, err = stillDamaged(ctx, device); err != nil {
			return etcd.Disk{}, with(err)
		}
	}
	out.Damaged = d.damaged == device
	return out, nil
}

// Format makes a file system with this UUID; whatever is on the device is gone. mkfs refuses a device that is in use.
func (d *Disk) Format(ctx context.Context, device, uuid string) error {
	return with(format(ctx, device, uuid))
}

// Mount checks the file system of a device, which must have this UUID, repairs what needs no decision, and mounts it.
// After an error because of damage that needs a person, Look says so too.
func (d *Disk) Mount(ctx context.Context, device, uuid string) error {
	on, have, err := probe(ctx, device)
	if err != nil {
		return with(err)
	}
	if on != etcd.OnExt4 || have != uuid {
		return with(fmt.Errorf("mounting %s: it does not have the file system %s", device, uuid))
	}
	broken, err := check(ctx, device)
	if broken {
		d.damaged = device
	}
	if err != nil {
		return with(err)
	}
	// By the device that was looked at, and not by the UUID: a copy of the volume has the same.
	if err := d.Mounter.Mount(ctx, device, d.Where, "ext4", mountOptions); err != nil {
		return with(err)
	}
	is, err := mounted(device, d.Where)
	if err == nil && !is {
		err = fmt.Errorf("mounting %s at %s: it is not there, although systemd has mounted it", device, d.Where)
	}
	return with(err)
}

// Grow extends the mounted file system to the size of its device, which somebody may have enlarged. A member whose file
// system could not be extended works as before.
func (d *Disk) Grow(ctx context.Context, device string) error { return with(grow(ctx, device)) }

// mountOptions: nothing on a member's disk is a program or a device, and nobody reads when a file was last read.
const mountOptions = "nodev,nosuid,noexec,noatime"

// mounted reports whether the device is mounted at where. It fails if anything else is.
func mounted(device, where string) (bool, error) {
	var d, at, above unix.Stat_t
	if err := unix.Stat(device, &d); err != nil {
		return false, fmt.Errorf("looking at %s: %w", device, err)
	}
	if err := unix.Stat(where, &at); errors.Is(err, unix.ENOENT) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("looking at %s: %w", where, err)
	}
	if at.Dev == d.Rdev {
		return true, nil
	}
	if err := unix.Stat(filepath.Dir(where), &above); err != nil {
		return false, fmt.Errorf("looking at %s: %w", filepath.Dir(where), err)
	}
	if at.Dev != above.Dev {
		return false, fmt.Errorf("another file system than that of %s is mounted at %s: umount %[2]s", device, where)
	}
	return false, nil
}

// with adds this package's reason, and an error of a service that has its own keeps it.
func with(err error) error { return reason.With(reason.Volume, err) }

// controllers has a directory for each NVMe controller, with its serial number and its namespaces.
const controllers = "sys/class/nvme"

var namespace = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^nvme[0-9]+n[0-9]+$`) })

// bySerial finds the namespace of the NVMe controller whose serial number is the volume's id without its dash, which is how
// EC2's Nitro shows a volume; empty while there is none. Letters and numbers of devices are in the order in which disks
// answer. root is / but in tests.
func bySerial(root, id string) (string, error) {
	serial := strings.ReplaceAll(id, "-", "")
	entries, err := os.ReadDir(filepath.Join(root, controllers))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil // no driver yet, or no NVMe disk
	}
	if err != nil {
		return "", fmt.Errorf("looking for the disk of %s: %w", id, err)
	}
	var found []string
	for _, e := range entries {
		dir := filepath.Join(root, controllers, e.Name())
		// A fresh controller has no serial yet, or "(efault)"; a leaving one has no file any more.
		if have, err := os.ReadFile(filepath.Join(dir, "serial")); err != nil || strings.TrimSpace(string(have)) != serial {
			continue
		}
		inside, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("looking for the disk of %s: %w", id, err)
		}
		for _, n := range inside {
			if namespace().MatchString(n.Name()) {
				found = append(found, filepath.Join("/dev", n.Name()))
			}
		}
	}
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("looking for the disk of %s: %s have its serial number", id, strings.Join(found, " and "))
}

// Local is a disk of the machine that its configuration names: it is always this machine's.
type Local struct {
	// Name is the disk's name in /dev/disk/by-id, Instance the machine's.
	Name, Instance string
}

// byID is where udev links disks by model and serial number.
const byID = "/dev/disk/by-id"

// Find returns the disk, without a device while there is none.
func (l Local) Find(context.Context) ([]etcd.Volume, error) {
	claim := etcd.Volume{ID: l.Name, Holder: l.Instance, State: "running"}
	device, err := filepath.EvalSymlinks(filepath.Join(byID, l.Name))
	switch {
	case err == nil:
		claim.Device = device
	case !errors.Is(err, os.ErrNotExist):
		return nil, with(fmt.Errorf("looking for the disk %s: %w", l.Name, err))
	}
	return []etcd.Volume{claim}, nil
}

// Attach fails: the disk is the machine's own, and there is nothing to attach.
func (l Local) Attach(context.Context, string) error {
	return with(fmt.Errorf("attaching %s: it is a disk of this machine", l.Name))
}
