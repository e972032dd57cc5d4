package prepare

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// How long a call waits for a DNS service that asks to slow down: Route 53 takes five requests a second of a whole
// account, which the function, CloudFormation and others may be using up.
const (
	firstPatience, longestPatience = 500 * time.Millisecond, 5 * time.Second
	wholePatience                  = time.Minute
)

// patiently repeats what was refused for that reason, after which nothing has changed.
func patiently[T any](ctx context.Context, do func() (T, error)) (T, error) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = firstPatience, longestPatience
	return backoff.Retry(ctx, func() (T, error) {
		v, err := do()
		if err != nil && !errors.Is(err, reconcile.ErrThrottled) {
			return v, backoff.Permanent(err)
		}
		return v, err
	}, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(wholePatience))
}

// Patient has a zone's calls wait for a service that asks to slow down (reconcile.ErrThrottled), for up to a minute each. It
// is for callers that have nobody to try again for them, as the reconcile does for itself.
func Patient(z Zone) Zone {
	if p, ok := z.(patientZone); ok {
		return p
	}
	return patientZone{z}
}

type patientZone struct{ Zone }

func (z patientZone) Read(ctx context.Context, cluster string) ([]record.Set, error) {
	return patiently(ctx, func() ([]record.Set, error) { return z.Zone.Read(ctx, cluster) })
}

func (z patientZone) CompareAndSwap(ctx context.Context, cluster string, remove, create []record.Set) error {
	return patientlyDo(ctx, func() error { return z.Zone.CompareAndSwap(ctx, cluster, remove, create) })
}

func (z patientZone) NegativeTTL(ctx context.Context) (time.Duration, error) {
	return patiently(ctx, func() (time.Duration, error) { return z.Zone.NegativeTTL(ctx) })
}

func (z patientZone) LowerMinimum(ctx context.Context) error {
	return patientlyDo(ctx, func() error { return z.Zone.LowerMinimum(ctx) })
}

func patientlyDo(ctx context.Context, do func() error) error {
	_, err := patiently(ctx, func() (struct{}, error) { return struct{}{}, do() })
	return err
}
