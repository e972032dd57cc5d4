package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

func (c *Cluster) noPlace() error {
	return fmt.Errorf("cluster %s names no place for backups: set etcd.backup.to in its document", c.Name)
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
