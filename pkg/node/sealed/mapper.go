//go:build linux

package sealed

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The device mapper's ioctls (linux/dm-ioctl.h): _IOWR(0xfd, number, 312 bytes).
const (
	mapperCreate = 0xC138FD03
	mapperResume = 0xC138FD06 // DM_DEV_SUSPEND without its flag
	mapperLoad   = 0xC138FD09

	mapperReadOnly = 1 << 0 // DM_READONLY_FLAG
	mapperControl  = "/dev/mapper/control"
)

// mapperHeader is struct dm_ioctl.
type mapperHeader struct {
	Version     [3]uint32
	DataSize    uint32
	DataStart   uint32
	TargetCount uint32
	OpenCount   int32
	Flags       uint32
	EventNumber uint32
	_           uint32
	Device      uint64
	Name        [128]byte
	UUID        [129]byte
	_           [7]byte
}

// mapperTarget is struct dm_target_spec, which the target's table line follows.
type mapperTarget struct {
	Start, Length uint64
	Status        int32
	Next          uint32
	Type          [16]byte
}

// mapperMessage is the buffer of an ioctl about a device; a target without a type is none.
func mapperMessage(name string, target mapperTarget, line string) ([]byte, error) {
	head := mapperHeader{Version: [3]uint32{4, 0, 0}, Flags: mapperReadOnly}
	head.DataStart = uint32(binary.Size(head))
	head.DataSize = head.DataStart
	copy(head.Name[:], name)
	var spec bytes.Buffer
	if target.Type != [16]byte{} {
		if err := binary.Write(&spec, binary.NativeEndian, target); err != nil {
			return nil, err
		}
		spec.WriteString(line + "\x00")
		spec.Write(make([]byte, (8-spec.Len()%8)%8))
		head.TargetCount = 1
		head.DataSize += uint32(spec.Len())
	}
	var b bytes.Buffer
	if err := binary.Write(&b, binary.NativeEndian, head); err != nil {
		return nil, err
	}
	return append(b.Bytes(), spec.Bytes()...), nil
}

// openVerity makes a read-only device of a verity table line over that many bytes, and returns its number.
func openVerity(name, line string, size uint64) (uint64, error) {
	control, err := os.OpenFile(mapperControl, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = control.Close() }() // nothing is written to it
	target := mapperTarget{Length: size / 512}
	copy(target.Type[:], "verity")
	var device uint64
	for _, step := range []struct {
		what   string
		number uintptr
		target mapperTarget
	}{{"making the device", mapperCreate, mapperTarget{}}, {"loading its table", mapperLoad, target}, {"starting it", mapperResume, mapperTarget{}}} {
		message, err := mapperMessage(name, step.target, line)
		if err != nil {
			return 0, err
		}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, control.Fd(), step.number, uintptr(unsafe.Pointer(&message[0])))
		if errno != 0 {
			return 0, fmt.Errorf("%s: %w", step.what, errno)
		}
		var head mapperHeader
		if err := binary.Read(bytes.NewReader(message), binary.NativeEndian, &head); err != nil {
			return 0, err
		}
		device = head.Device
	}
	return device, nil
}
