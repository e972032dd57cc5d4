package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// Requested is a request for a backup.
type Requested struct {
	Epoch  int `json:"epoch"`
	Number int `json:"number"`
	// After is when the newest backup of the epoch was taken; zero if there was none.
	After time.Time `json:"after,omitzero"`
	// Made is the backup; nil if it was not waited for.
	Made *Object `json:"made,omitempty"`
}

// Backup asks the leader's machine for a backup. Two requests at once are two records, and one backup does for both.
func (c *Cluster) Backup(ctx context.Context) (*Requested, error) {
	all, err := c.epochs(ctx)
	if err != nil {
		return nil, err
	}
	e := newest(all)
	if e.formed() == nil {
		return nil, fmt.Errorf("epoch %d of cluster %s is not formed: nobody can take a backup of it (hardtack etcd status)", e.number, c.Name)
	}
	last, err := c.last(ctx, e.number)
	if err != nil {
		return nil, err
	}
	r := &Requested{Epoch: e.number}
	if last != nil {
		r.After = last.Taken
	}
	content := etcd.Encode(etcd.Request{At: c.Clock.Now().UTC(), After: r.After})
	for r.Number = 1; ; r.Number++ {
		err := c.Records.Create(ctx, etcd.RequestObject(r.Epoch, r.Number), content)
		if err == nil {
			return r, nil
		}
		if !errors.Is(err, pki.ErrExists) {
			return nil, fmt.Errorf("asking for a backup: %w", err)
		}
	}
}

// last returns the newest backup of an epoch; nil if there is none.
func (c *Cluster) last(ctx context.Context, epoch int) (*Object, error) {
	list, err := c.sorted(ctx)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(list, func(o Object) bool { return o.Epoch == epoch }); i >= 0 {
		return &list[i], nil
	}
	return nil, nil
}

// sorted returns all backups, the newest first.
func (c *Cluster) sorted(ctx context.Context) ([]Object, error) {
	if c.Backups == nil {
		return nil, fmt.Errorf("cluster %s names no place for backups: set etcd.backup.to in its document", c.Name)
	}
	list, err := c.Backups.List(ctx)
	slices.SortFunc(list, func(a, b Object) int {
		return cmp.Or(b.Taken.Compare(a.Taken), cmp.Compare(b.Revision, a.Revision), strings.Compare(a.Name, b.Name))
	})
	return list, err
}

// Await waits until there is a newer backup than when it was asked for.
func (c *Cluster) Await(ctx context.Context, r *Requested) (*Object, error) {
	for {
		last, err := c.last(ctx, r.Epoch)
		if err != nil {
			return nil, err
		}
		if last != nil && last.Taken.After(r.After) {
			return last, nil
		}
		if err := c.Clock.Sleep(ctx, followEvery); err != nil {
			return nil, fmt.Errorf("waiting for the backup: %w; the journal of the leader's machine (hardtack-member) says why there is none", context.Cause(ctx))
		}
	}
}

// Listed is a backup and whether it can be restored.
type Listed struct {
	Object
	// Verified is when it was restored for a trial: a backup is kept only if that succeeds.
	Verified time.Time `json:"verified"`
	// Foreign says why it is not of this cluster; empty if it is.
	Foreign string `json:"foreign,omitempty"`
}

// ListBackups returns all backups, the newest first.
func (c *Cluster) ListBackups(ctx context.Context) ([]Listed, error) {
	list, err := c.sorted(ctx)
	if err != nil {
		return nil, err
	}
	all, err := c.epochs(ctx)
	if err != nil {
		return nil, err
	}
	out := []Listed{}
	for _, o := range list {
		l := Listed{Object: o, Verified: o.Taken}
		if err := clusterOf(all, o); err != nil {
			l.Foreign = err.Error()
		}
		out = append(out, l)
	}
	return out, nil
}
