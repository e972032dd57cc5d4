package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// volumes keeps the content of the account's volumes: a sparse file each, which outlives the machines that have it.
type volumes struct {
	home Home

	mu sync.Mutex
	// sockets have the machine that each volume is plugged into.
	sockets map[string]*socket
}

// socket is where a volume is; guest is nil while it is in no machine. The lock is held while it moves.
type socket struct {
	mu    sync.Mutex
	guest *guest
}

func (v *volumes) socket(id string) *socket {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.sockets[id] == nil {
		v.sockets[id] = &socket{}
	}
	return v.sockets[id]
}

func (v *volumes) file(id string) string { return v.home.path(volumesDir, id+".raw") }

// serial is a volume's id as its drive has it on EC2: without the hyphen.
func serial(id string) string { return strings.ReplaceAll(id, "-", "") }

// follow makes, grows or removes a volume's file as the account says. A machine sees a new size when it gets the volume
// the next time.
func (v *volumes) follow(now awsfake.Volume) error {
	if now.State == awsfake.VolumeDeleted {
		return removeFile(v.file(now.ID))
	}
	if err := os.MkdirAll(v.home.path(volumesDir), 0o700); err != nil {
		return fmt.Errorf("making the volumes' directory: %w", err)
	}
	size := int64(now.Size) << 30
	info, err := os.Stat(v.file(now.ID))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return sparseFile(v.file(now.ID), size)
	case err != nil:
		return fmt.Errorf("looking for a volume: %w", err)
	case info.Size() < size:
		return os.Truncate(v.file(now.ID), size)
	}
	return nil
}

// sparseFile makes a sparse file of size bytes.
func sparseFile(file string, size int64) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("making a volume: %w", err)
	}
	err = f.Truncate(size)
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return fmt.Errorf("making a volume: %w", err)
	}
	return nil
}

// VolumeChanged keeps a volume's file, and plugs the volume in or out in the background: a guest that hangs does not let
// go of it.
func (h *host) VolumeChanged(v awsfake.Volume) {
	if err := h.volumes.follow(v); err != nil {
		h.log.Error("a volume's file", "volume", v.ID, "error", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.tasks.Go(func() { h.settle(v.ID) })
	}
	h.news()
}

// settleEvery is how long settle waits after an error.
const settleEvery = time.Second

// settle brings a volume to where the account says that it is, and tries again while it cannot.
func (h *host) settle(id string) {
	ctx, stop := h.life()
	defer stop()
	for {
		err := h.move(ctx, id)
		if err == nil || ctx.Err() != nil {
			return
		}
		h.log.Error("moving a volume", "volume", id, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(settleEvery):
		}
	}
}

// move plugs a volume out of the machine that has it, and into the one that is to have it, and tells the account.
func (h *host) move(ctx context.Context, id string) error {
	s := h.volumes.socket(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	v, _ := h.account.EC2().Volume(id) // none: it was deleted
	at := v.Attachment
	if g := s.guest; g != nil && (at.Instance != g.id || at.State == awsfake.Detaching || at.State == awsfake.AttachmentBusy) {
		if running := g.power(); running != nil { // a machine that has ended has let go
			if err := running.Detach(ctx, serial(id)); err != nil && g.power() != nil {
				return fmt.Errorf("unplugging it from %s: %w", g.id, err)
			}
		}
		s.guest = nil
		h.account.EC2().Detached(id, g.id)
	}
	if s.guest != nil || at.State != awsfake.Attaching {
		return nil
	}
	g, running := h.powered(at.Instance)
	if running == nil {
		return nil // it has ended, and the account frees the volume
	}
	if err := running.Attach(ctx, h.volumes.file(id), serial(id)); err != nil {
		return fmt.Errorf("plugging it into %s: %w", g.id, err)
	}
	s.guest = g
	h.account.EC2().Attached(id, g.id)
	return nil
}

// powered finds a machine that has power; nil if there is none of this id.
func (h *host) powered(id string) (*guest, Running) {
	h.mu.Lock()
	g := h.guests[id]
	h.mu.Unlock()
	if g == nil {
		return nil, nil
	}
	return g, g.power()
}

// wipe makes a volume blank that no machine has.
func (h *host) wipe(id string) error {
	s := h.volumes.socket(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := h.account.EC2().Volume(id)
	switch {
	case !ok:
		return fmt.Errorf("there is no volume %s (hardtack lab volume list)", id)
	case v.Attachment.Instance != "":
		return fmt.Errorf("volume %s is attached to %s: only a volume that no machine has can be wiped (scale its group to 0 first)", id, v.Attachment.Instance)
	}
	// The blocks of a file that is cut off are gone; what it is extended by is zeros.
	if err := os.Truncate(h.volumes.file(id), 0); err != nil {
		return fmt.Errorf("wiping volume %s: %w", id, err)
	}
	return h.volumes.follow(v)
}

// lose loses a volume with its content, as a failure of its storage or a person on AWS would: its machine gets errors.
func (h *host) lose(id string) error {
	if !h.account.EC2().LoseVolume(id) {
		return fmt.Errorf("there is no volume %s (hardtack lab volume list)", id)
	}
	return nil
}

// VolumeStatus is the state of one volume.
type VolumeStatus struct {
	ID   string `json:"id"`
	Zone string `json:"zone"`
	// Member is the etcd member that its tag names.
	Member string `json:"etcd_member,omitempty"`
	// State is EC2's, Attachment that of the attachment, Machine the holder; the last two are empty while it is free.
	State      string `json:"state"`
	Attachment string `json:"attachment,omitempty"`
	Machine    string `json:"machine,omitempty"`
	Device     string `json:"device,omitempty"`
	// Bytes is its size, Used what its file takes on this computer.
	Bytes int64     `json:"bytes"`
	Used  int64     `json:"used_bytes"`
	Made  time.Time `json:"made"`
}

// volumeStates lists the account's volumes, in the order in which they were made.
func (h *host) volumeStates() []VolumeStatus {
	list := []VolumeStatus{}
	for _, v := range h.account.EC2().Volumes() {
		s := VolumeStatus{
			ID: v.ID, Zone: v.Zone, Member: v.Tags[role.TagEtcdMember], State: v.State, Bytes: int64(v.Size) << 30, Made: v.Created,
			Attachment: v.Attachment.State, Machine: v.Attachment.Instance, Device: v.Attachment.Device,
		}
		if info, err := os.Stat(h.volumes.file(v.ID)); err == nil { // its file may be a moment later
			if blocks, ok := info.Sys().(*syscall.Stat_t); ok {
				s.Used = blocks.Blocks * 512
			}
		}
		list = append(list, s)
	}
	return list
}

// volumesAt is how many volumes a machine of the group may have at once: an etcd member has one, and for a moment two while
// it moves to another.
func volumesAt(g spec.Group) int {
	if g.Roles.Has(role.Etcd) {
		return 2
	}
	return 0
}
