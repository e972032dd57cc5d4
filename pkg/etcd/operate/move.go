package operate

import (
	"context"
	"fmt"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
)

// Moved is how far a member is on its way to another zone.
type Moved struct {
	Member string `json:"member"`
	// From is the zone of the volume that it has had, To where it goes.
	From string `json:"from,omitempty"`
	To   string `json:"to"`
	// Volume is the volume that it has had. It is kept, with all that is on it.
	Volume string `json:"volume"`
	// Removed: etcd has removed the member. Released: the volume has lost the tag by which machines find it.
	Removed  bool `json:"removed"`
	Released bool `json:"released"`
	// Made is the volume that was made in the zone; empty if none was by this call.
	Made string `json:"made,omitempty"`
	// There: the member has a volume in the zone already.
	There bool `json:"there"`
	// Order is the order of the removal; nil if none was given by this call.
	Order *Asked `json:"order,omitempty"`
}

// Move takes a member out of its zone: etcd removes it, its volume loses the tag by which machines find it, and it gets another in
// v's zone, with which a machine of its group joins once the group has a subnet there. It deletes and detaches nothing. Each step
// is taken once, however often it is called; told, which may be nil, hears of what the leader's machine does. A dry run reports
// what is done already.
func (c *Cluster) Move(ctx context.Context, v NewVolume, dryRun bool, told func(string)) (*Moved, error) {
	if err := c.replaceable(v.Member); err != nil {
		return nil, err
	}
	out := &Moved{Member: v.Member, To: v.Zone}
	if err := c.moving(ctx, out); err != nil || out.There {
		return out, err
	}
	if !out.Removed {
		if err := c.removeToMove(ctx, out, dryRun, told); err != nil {
			return out, err
		}
	}
	if dryRun {
		return out, nil
	}
	if !out.Released {
		if err := c.Cloud.Release(ctx, out.Volume); err != nil {
			return out, err
		}
		out.Released = true
	}
	var err error
	out.Made, err = c.makeAfter(ctx, v, out.Volume)
	return out, err
}

// moving looks how far a member is.
func (c *Cluster) moving(ctx context.Context, out *Moved) error {
	volumes, _, err := c.look(ctx)
	if err != nil {
		return err
	}
	var own []Volume
	for _, v := range volumes {
		if v.Member == out.Member {
			own = append(own, v)
		}
	}
	switch {
	case len(own) > 1:
		return fmt.Errorf("volumes %s and %s both claim member %s: take the tag EtcdMember off the one that is not its own (hardtack etcd status)", own[0].ID, own[1].ID, out.Member)
	case len(own) == 0:
		return c.released(ctx, out)
	}
	removed, err := read[etcd.Removed](ctx, c.Records, etcd.RemovedObject(own[0].ID))
	out.Volume, out.From, out.Removed = own[0].ID, own[0].Zone, removed != nil
	out.There = !out.Removed && out.From == out.To
	if out.Removed && out.From == out.To {
		return fmt.Errorf("member %s was removed, and its volume %s is in %s: to have it back there, hardtack etcd replace %[1]s says what to do", out.Member, out.Volume, out.To)
	}
	return err
}

// released looks which volume a member without one has had: that of the last order by which it was removed.
func (c *Cluster) released(ctx context.Context, out *Moved) error {
	all, err := c.epochs(ctx)
	if err != nil {
		return err
	}
	e := newest(all)
	for n := 1; ; n++ {
		order, err := read[etcd.Order](ctx, c.Records, etcd.OrderObject(e.number, n))
		if err != nil {
			return err
		}
		if order == nil {
			break
		}
		if order.Verb != etcd.AskRemove || order.Member != out.Member {
			continue
		}
		removed, err := read[etcd.Removed](ctx, c.Records, etcd.RemovedObject(order.Place))
		if err != nil {
			return err
		}
		if removed != nil {
			out.Volume, out.Removed, out.Released = order.Place, true, true
		}
	}
	if !out.Released {
		return fmt.Errorf("member %s has no volume, and was not removed: hardtack etcd replace %[1]s makes one where its machine is", out.Member)
	}
	return nil
}

// removeToMove has the leader's machine remove the member, of a cluster that is well without it and has a recent backup.
func (c *Cluster) removeToMove(ctx context.Context, out *Moved, dryRun bool, told func(string)) error {
	r, err := c.Status(ctx)
	if err != nil {
		return err
	}
	var unwell []string
	for _, m := range r.Members {
		if m.Name != out.Member && (!m.Healthy || m.Role == Learner) {
			unwell = append(unwell, m.Name)
		}
	}
	if len(unwell) > 0 {
		return fmt.Errorf("moving member %s: by their reports the members %s are not healthy voters, and without it none may fail: hardtack etcd status says what is wrong", out.Member, strings.Join(unwell, ", "))
	}
	if c.Backups != nil {
		if r.Backup == nil {
			return fmt.Errorf("moving member %s: no member reports a backup: hardtack etcd backup --wait takes one", out.Member)
		}
		if age := c.Clock.Now().Sub(r.Backup.At); age > etcd.BackupWithin {
			return fmt.Errorf("moving member %s: the newest backup is %d minutes old: hardtack etcd backup --wait takes another", out.Member, int(age.Minutes()))
		}
	}
	if out.Order, err = c.Remove(ctx, out.Member, dryRun); err != nil || dryRun {
		return err
	}
	if err := c.AwaitOrder(ctx, out.Order, told); err != nil {
		return err
	}
	out.Removed = true
	return nil
}
