package prepare

import (
	"context"
	"errors"
	"fmt"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// Placeholders gives a cluster that has no records yet its placeholders, and reports whether it did. That
// another process was faster is no error.
func Placeholders(ctx context.Context, z reconcile.Zone, cluster string, p record.Policy, generation string) (bool, error) {
	have, err := z.Read(ctx, cluster)
	if err != nil {
		return false, err
	}
	if len(have) > 0 {
		return false, nil
	}
	c := record.Diff(nil, record.Placeholders(cluster, p), generation)
	err = z.CompareAndSwap(ctx, cluster, c.Remove, c.Create)
	switch {
	case errors.Is(err, reconcile.ErrConflict):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("creating the placeholders of %s: %w", cluster, err)
	}
	return true, nil
}
