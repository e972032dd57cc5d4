package function

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
)

// twoZones reconciles a cluster's zone and the public zone with its API's name, side by side. Each reads the fleet for
// itself, after its own records, which is what makes its writes safe.
type twoZones struct{ own, public syncer }

// Sync returns the report of the cluster's own zone, with the problems and the calls of both. An error of the public zone
// does not keep the own from being right.
func (z twoZones) Sync(ctx context.Context, cluster string, triggers ...reconcile.Event) (reconcile.Report, error) {
	var public reconcile.Report
	var errPublic error
	var wait sync.WaitGroup
	wait.Go(func() { public, errPublic = z.public.Sync(ctx, cluster, triggers...) })
	r, err := z.own.Sync(ctx, cluster, triggers...)
	wait.Wait()
	if errPublic != nil {
		errPublic = fmt.Errorf("the public zone: %w", errPublic)
	}
	if at := public.CallAgainAt; !at.IsZero() && (r.CallAgainAt.IsZero() || at.Before(r.CallAgainAt)) {
		r.CallAgainAt = at
	}
	r.Changed = r.Changed || public.Changed
	r.Conflicts += public.Conflicts
	r.Throttled += public.Throttled
	r.Unknown += public.Unknown
	r.Calls.ZoneReads += public.Calls.ZoneReads
	r.Calls.ZoneWrites += public.Calls.ZoneWrites
	r.Calls.FleetReads += public.Calls.FleetReads
	r.Problems = append(r.Problems, public.Problems...)
	if r.Values == nil {
		r.Values = map[string]int{}
	}
	for name, n := range public.Values {
		r.Values[name] = n
	}
	return r, errors.Join(err, errPublic)
}
