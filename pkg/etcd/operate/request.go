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
	// Made is the backup; nil if it was not waited for.
	Made *Object `json:"made,omitempty"`
}

// Backup asks the leader's machine for a backup. Two requests at once are two records, and one backup does for both.
func (c *Cluster) Backup(ctx context.Context) (*Requested, error) {
	if c.Backups == nil {
		return nil, c.noPlace()
	}
	all, err := c.epochs(ctx)
	if err != nil {
		return nil, err
	}
	e := newest(all)
	if e.formed() == nil {
		return nil, fmt.Errorf("epoch %d of cluster %s is not formed: nobody can take a backup of it (hardtack etcd status)", e.number, c.Name)
	}
	content := etcd.Encode(etcd.Request{At: c.Clock.Now().UTC()})
	for r := (&Requested{Epoch: e.number, Number: 1}); ; r.Number++ {
		err := c.Records.Create(ctx, etcd.RequestObject(r.Epoch, r.Number), content)
		if err == nil {
			return r, nil
		}
		if !errors.Is(err, pki.ErrExists) {
			return nil, fmt.Errorf("asking for a backup: %w", err)
		}
	}
}

func (c *Cluster) noPlace() error {
	return fmt.Errorf("cluster %s names no place for backups: set etcd.backup.to in its document", c.Name)
}

// Await waits until the leader's machine has answered a request, and returns its backup.
func (c *Cluster) Await(ctx context.Context, r *Requested) (*Object, error) {
	for {
		made, err := c.answer(ctx, r)
		if made != nil || err != nil {
			return made, err
		}
		if err := c.Clock.Sleep(ctx, followEvery); err != nil {
			return nil, fmt.Errorf("waiting for the backup: %w; the journal of the leader's machine (hardtack-member) says why there is none", context.Cause(ctx))
		}
	}
}

// answer returns the backup that answers a request; nil if there is none yet.
func (c *Cluster) answer(ctx context.Context, r *Requested) (*Object, error) {
	for _, name := range c.Members {
		status, err := read[etcd.Status](ctx, c.Records, etcd.StatusObject(name))
		if err != nil {
			return nil, err
		}
		if status == nil || status.Epoch != r.Epoch || status.Request < r.Number || status.Backup == nil {
			continue
		}
		list, err := c.sorted(ctx)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(list, func(o Object) bool { return o.Name == status.Backup.Object })
		if i < 0 {
			return nil, fmt.Errorf("member %s reports the backup %s, and %s does not have it: is that the place of the cluster's document?", name, status.Backup.Object, c.Backups)
		}
		return &list[i], nil
	}
	return nil, nil
}

// sorted returns all backups, the newest first.
func (c *Cluster) sorted(ctx context.Context) ([]Object, error) {
	if c.Backups == nil {
		return nil, c.noPlace()
	}
	list, err := c.Backups.List(ctx)
	slices.SortFunc(list, func(a, b Object) int {
		return cmp.Or(b.Taken.Compare(a.Taken), cmp.Compare(b.Revision, a.Revision), strings.Compare(a.Name, b.Name))
	})
	return list, err
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
