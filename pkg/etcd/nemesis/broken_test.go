package nemesis

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// full are faults of a volume without space.
var full = []fault{
	{"a volume is full for a while", func(s *schedule) {
		_, m := s.any()
		s.fills(m, func() { s.sleep(500, 3000) })
	}},
	{"a volume is full while its machine boots", func(s *schedule) {
		_, m := s.any()
		s.fills(m, func() {
			s.reboot(m)
			s.sleep(500, 3000)
		})
	}},
}

// filler is the file that fills a volume.
const filler = "filler"

// fills lets something happen while the volume of a machine has no space. If it is not mounted, it just happens.
func (s *schedule) fills(m *machine, happens func()) {
	v := m.volume()
	filled := false
	if v != nil {
		var err error
		if filled, err = v.fill(); err != nil {
			s.breach("filling %s: %v", v.id, err)
		}
	}
	happens()
	if filled && !s.until(v.empty) {
		s.breach("%s stays full", v.id)
	}
}

// fill takes all space of a volume that is mounted, its reserve too, and reports whether it is: one that is refused never was.
func (v *ebs) fill() (mounted bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mount == "" {
		return false, nil
	}
	f, err := os.OpenFile(filepath.Join(v.mount, filler), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return true, err
	}
	at := int64(0)
	for step := int64(volumeSize); step >= 4096; {
		if err = unix.Fallocate(int(f.Fd()), 0, at, step); err == nil {
			at += step
			continue
		}
		if !errors.Is(err, unix.ENOSPC) {
			return true, errors.Join(err, f.Close())
		}
		step /= 2
	}
	return true, errors.Join(f.Sync(), f.Close())
}

// empty gives the space back, and reports whether it did: what is not mounted cannot.
func (v *ebs) empty() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mount == "" {
		return false
	}
	if err := os.Remove(filepath.Join(v.mount, filler)); err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	// A loss of power that comes next does not bring it back.
	dir, err := os.Open(v.mount)
	if err != nil {
		return false
	}
	return errors.Join(dir.Sync(), dir.Close()) == nil
}

// loopSetCapacity is LOOP_SET_CAPACITY of linux/loop.h: the device gets the size of its file.
const loopSetCapacity = 0x4c07

// wear takes most of the volume away under its file system: what is there fails with EIO, as far as it is not in memory.
func (v *ebs) wear() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.holder == nil {
		return
	}
	err := os.Truncate(v.image, 1<<20)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, v.open.Fd(), loopSetCapacity, 0); errno != 0 {
		err = errors.Join(err, errno)
	}
	if err != nil {
		v.w.breach("breaking %s: %v", v.id, err)
	}
}
