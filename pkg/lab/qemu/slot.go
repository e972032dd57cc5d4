package qemu

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// mostSlots is the most slots that a machine can have; EC2 has many more.
const mostSlots = 4

func slotName(n int) string { return "slot" + strconv.Itoa(n) }

// slots are the empty PCIe ports of a machine.
type slots struct {
	// changing is held by the one Attach or Detach that fills or empties a slot, and guards files.
	changing sync.Mutex
	// files counts the files that were opened.
	files int

	mu    sync.Mutex
	drive []*drive
}

// drive is a drive in a slot.
type drive struct {
	serial string
	// node is the name of its file in QEMU.
	node string
	// gone is closed when the guest has given it up.
	gone chan struct{}
	once sync.Once
}

// next returns a drive with a file name that QEMU does not know: QEMU 7.2 never closes the file of a drive that it has
// refused, but does not lock it either.
func (s *slots) next(serial string) *drive {
	s.files++
	return &drive{serial: serial, node: fmt.Sprintf("file%d", s.files), gone: make(chan struct{})}
}

// find returns the slot of a drive, an empty one for the empty serial; -1 if there is none.
func (s *slots) find(serial string) (int, *drive) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, d := range s.drive {
		if d == nil && serial == "" || d != nil && d.serial == serial {
			return n, d
		}
	}
	return -1, nil
}

func (s *slots) set(n int, d *drive) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drive[n] = d
}

// deleted is called for each device that is gone; QEMU names devices by the ids that Attach gave them.
func (s *slots) deleted(id string) {
	if _, d := s.find(id); id != "" && d != nil {
		d.once.Do(func() { close(d.gone) })
	}
}

// pluggable matches serial numbers that can be ids of QEMU's devices too.
var pluggable = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9]{0,` + strconv.Itoa(serialLimit-1) + `}$`)

// Attach plugs a raw disk image into a running machine as an NVMe drive with this serial number, and returns when QEMU has
// it; the guest sees it a moment later. QEMU locks the file: it is an error if another machine has it, or if the machine
// has no free slot. Writes go to the file.
func (m *Machine) Attach(ctx context.Context, path, serial string) error {
	m.slots.changing.Lock()
	defer m.slots.changing.Unlock()
	if !pluggable.MatchString(serial) {
		return fmt.Errorf("plugging in %s: the serial number %q is not a letter and up to %d letters and digits", path, serial, serialLimit-1)
	}
	if _, d := m.slots.find(serial); d != nil {
		return fmt.Errorf("plugging in %s: the machine has a drive %s", path, serial)
	}
	slot, _ := m.slots.find("")
	if slot < 0 {
		return fmt.Errorf("plugging in %s: all %d slots of the machine are in use", path, len(m.slots.drive))
	}
	d := m.slots.next(serial)
	err := m.monitor.execute(ctx, "blockdev-add", map[string]any{
		"driver": "raw", "node-name": d.node, "file": map[string]any{"driver": "file", "filename": path},
	})
	if err != nil {
		return fmt.Errorf("plugging in %s: opening it: %w", path, err)
	}
	m.slots.set(slot, d)
	err = m.monitor.execute(ctx, "device_add", map[string]any{"driver": "nvme", "id": serial, "serial": serial, "drive": d.node, "bus": slotName(slot)})
	if err != nil && ctx.Err() == nil { // without an answer the machine may have the drive
		m.slots.set(slot, nil)
		_ = m.monitor.execute(ctx, "blockdev-del", map[string]any{"node-name": d.node}) // see next; the first error says why
	}
	if err != nil {
		return fmt.Errorf("plugging in %s: %w", path, err)
	}
	return nil
}

// Detach asks the guest to give up a drive that Attach has plugged in, waits until it has, and closes the file. A guest
// that hangs never does: then it ends with ctx, the machine keeps the drive, and Detach can be called again.
func (m *Machine) Detach(ctx context.Context, serial string) error {
	_, d := m.slots.find(serial)
	if serial == "" || d == nil {
		return fmt.Errorf("unplugging %s: the machine has no such drive", serial)
	}
	select {
	case <-d.gone: // after a Detach that did not wait for it
	default:
		err := m.monitor.execute(ctx, "device_del", map[string]any{"id": serial})
		if err != nil && !strings.Contains(err.Error(), "already in the process of unplug") {
			return fmt.Errorf("unplugging %s: %w", serial, err)
		}
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("unplugging %s: the guest has not given it up: %w", serial, ctx.Err())
	case <-m.ended:
		return fmt.Errorf("unplugging %s: %w", serial, errEnded)
	case <-d.gone:
	}
	m.slots.changing.Lock()
	defer m.slots.changing.Unlock()
	slot, still := m.slots.find(serial)
	if still != d {
		return nil // another Detach was first
	}
	if err := m.monitor.execute(ctx, "blockdev-del", map[string]any{"node-name": d.node}); err != nil {
		return fmt.Errorf("unplugging %s: closing its file: %w", serial, err)
	}
	m.slots.set(slot, nil)
	return nil
}
