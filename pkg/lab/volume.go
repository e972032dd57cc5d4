package lab

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/fleet"
)

// volumeGiB is the size of an etcd member's volume: etcd's own quota is 2 GiB by default, and the file is a hole
// until something is written.
const volumeGiB = 8

// volumeDevice is the name that the attachment has; the machine finds the disk by its serial.
const volumeDevice = "/dev/sdf"

// volumes are the etcd members' disks. Each belongs to one member and outlives its machines.
type volumes struct {
	daemon *Daemon
	// ids are the volumes' by member.
	ids map[string]string
}

// newVolumes makes a volume for each member of the plan.
func newVolumes(d *Daemon) (*volumes, error) {
	v := &volumes{daemon: d, ids: map[string]string{}}
	if err := os.MkdirAll(d.home.path(volumesDir), 0o700); err != nil {
		return nil, fmt.Errorf("making the volumes' directory: %w", err)
	}
	for _, g := range d.plan.Groups {
		if g.Member == "" || d.plan.Empty {
			continue
		}
		made := d.region.account.EC2().CreateVolume(zoneName, volumeGiB, map[string]string{
			fleet.TagCluster: d.plan.Cluster, fleet.TagEtcdMember: g.Member, "Name": d.plan.Cluster + "-etcd-" + g.Member,
		})
		if err := hole(v.file(made.ID), volumeGiB<<30); err != nil {
			return nil, err
		}
		v.ids[g.Member] = made.ID
	}
	return v, nil
}

func (v *volumes) file(id string) string { return v.daemon.home.path(volumesDir, id+".raw") }

// hole makes a file of that size without content.
func hole(file string, size int64) error {
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

// of waits until the volume of a machine's member is free, and returns it as a disk.
func (v *volumes) of(ctx context.Context, g *guest) ([]DataDisk, error) {
	id, ok := v.ids[g.group.Member]
	if !ok {
		return nil, nil
	}
	for v.holder(id) != "" {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	g.mu.Lock()
	g.volume = id
	g.mu.Unlock()
	return []DataDisk{{Path: v.file(id), Serial: strings.ReplaceAll(id, "-", "")}}, nil
}

// holder is the instance that has the volume.
func (v *volumes) holder(id string) string {
	for _, g := range v.daemon.host.list() {
		g.mu.Lock()
		has := g.volume == id && g.ended.IsZero()
		g.mu.Unlock()
		if has {
			return g.id
		}
	}
	return ""
}

// attach says in the account that a machine has its volume, by which the member's name follows it.
func (v *volumes) attach(g *guest) {
	if g.volume == "" {
		return
	}
	if _, err := v.daemon.region.account.EC2().AttachVolume(g.volume, g.id, volumeDevice); err != nil {
		v.daemon.log.Error("attaching a volume", "volume", g.volume, "machine", g.id, "error", err)
	}
}
