package zone

import (
	"context"
	"errors"
	"fmt"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dnssync"
	"github.com/hardtack/packer-plugin-hardtack/pkg/record"
)

// Prepare gives a cluster that has no records yet its placeholders, and reports whether it did. That
// another process was faster is no error.
func Prepare(ctx context.Context, z dnssync.Zone, cluster string, p record.Policy, generation string) (bool, error) {
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
	case errors.Is(err, dnssync.ErrConflict):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("creating the placeholders of %s: %w", cluster, err)
	}
	return true, nil
}
