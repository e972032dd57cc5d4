package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/member"
)

// drillTime bounds a drill: a place that has stopped sending must not keep this machine from its next backup for good. A
// database at the image's quota of 4 GiB takes it at 2.4 MB/s.
const drillTime = 30 * time.Minute

// Drill implements member.Backups. The trial when a backup is taken is of what the member sent; this one is of what the place
// has, by the way that a restore takes.
func (k *Keeper) Drill(ctx context.Context, epoch int) (*etcd.Backup, error) {
	k.working.Lock()
	defer k.working.Unlock()
	ctx, cancel := context.WithTimeout(ctx, drillTime)
	defer cancel()
	o, err := k.Place.Newest(ctx, epoch)
	if err != nil || o == nil {
		return nil, err
	}
	err = k.drill(ctx, *o)
	if err = errors.Join(err, os.RemoveAll(k.Scratch)); err != nil {
		return nil, fmt.Errorf("taking the backup %s back: %w", o.Name, err)
	}
	b := o.Backup()
	b.Verified = k.Clock.Now().UTC()
	return b, nil
}

// drill takes a backup back and compares it with its description.
func (k *Keeper) drill(ctx context.Context, o Object) error {
	if err := k.room(2 * o.Size); err != nil {
		return err
	}
	file := filepath.Join(k.Scratch, "snapshot.db")
	// One that is larger than it should be is another one, and must not fill the member's disk.
	if err := k.download(ctx, o.Restore(), o.Size+1, file); err != nil {
		return err
	}
	found, err := k.try(ctx, file)
	if err != nil {
		return err
	}
	if found.Revision != o.Revision || found.TotalKey != o.Keys {
		return fmt.Errorf("restored, it has revision %d and %d keys, and its description says %d and %d: %w",
			found.Revision, found.TotalKey, o.Revision, o.Keys, member.ErrDamaged)
	}
	return nil
}
