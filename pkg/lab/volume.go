package lab

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// volumeGiB is the size of an etcd member's volume: etcd's default quota is 2 GiB, and the file is sparse.
const volumeGiB = 8

// volumeDevice is the device name of the attachment; the machine finds the disk by its serial.
const volumeDevice = "/dev/sdf"

// volumes are the etcd members' disks. Each is made for the first machine of its member and outlives it.
type volumes struct {
	home    Home
	cluster string

	mu sync.Mutex
	// ids are the volumes' ids by member.
	ids map[string]string
}

// volumeOf returns the id of a member's volume, which it makes at the first call.
func (v *volumes) volumeOf(ec2 *awsfake.EC2, member string) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if id, ok := v.ids[member]; ok {
		return id, nil
	}
	if err := os.MkdirAll(v.home.path(volumesDir), 0o700); err != nil {
		return "", fmt.Errorf("making the volumes' directory: %w", err)
	}
	made := ec2.CreateVolume(zoneName, volumeGiB, map[string]string{
		role.TagCluster: v.cluster, role.TagEtcdMember: member, "Name": v.cluster + "-etcd-" + member,
	})
	if err := sparseFile(v.file(made.ID), volumeGiB<<30); err != nil {
		return "", err
	}
	v.ids[member] = made.ID
	return made.ID, nil
}

func (v *volumes) file(id string) string { return v.home.path(volumesDir, id+".raw") }

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

// dataDisks waits until no other machine has the volume of g's member, and returns it as a disk.
func (h *host) dataDisks(ctx context.Context, g *guest) ([]DataDisk, error) {
	if g.group.Member == "" {
		return nil, nil
	}
	id, err := h.volumes.volumeOf(h.account.EC2(), g.group.Member)
	if err != nil {
		return nil, err
	}
	for h.holder(id) != "" {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	g.mu.Lock()
	g.volume = id
	g.mu.Unlock()
	return []DataDisk{{Path: h.volumes.file(id), Serial: strings.ReplaceAll(id, "-", "")}}, nil
}

// holder returns the id of the machine that has the volume; empty if none has.
func (h *host) holder(id string) string {
	for _, g := range h.list() {
		g.mu.Lock()
		has := g.volume == id && g.ended.IsZero()
		g.mu.Unlock()
		if has {
			return g.id
		}
	}
	return ""
}

// attach records in the account that a machine has its volume. The DNS function finds the member's machine by it.
func (h *host) attach(g *guest) {
	if g.volume == "" {
		return
	}
	if _, err := h.account.EC2().AttachVolume(g.volume, g.id, volumeDevice); err != nil {
		h.log.Error("attaching a volume", "volume", g.volume, "machine", g.id, "error", err)
	}
}
