package main

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dnssync"
	"github.com/hardtack/packer-plugin-hardtack/pkg/record"
)

// How long a command waits for a DNS service that asks to slow down: Route 53 takes five requests a second of a whole
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
		if err != nil && !errors.Is(err, dnssync.ErrThrottled) {
			return v, backoff.Permanent(err)
		}
		return v, err
	}, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(wholePatience))
}

// patientZone is a zone for a command that has nobody to try again for it, as the reconcile does for itself.
type patientZone struct{ dnssync.Zone }

func (z patientZone) Read(ctx context.Context, cluster string) ([]record.Set, error) {
	return patiently(ctx, func() ([]record.Set, error) { return z.Zone.Read(ctx, cluster) })
}

func (z patientZone) CompareAndSwap(ctx context.Context, cluster string, remove, create []record.Set) error {
	_, err := patiently(ctx, func() (struct{}, error) { return struct{}{}, z.Zone.CompareAndSwap(ctx, cluster, remove, create) })
	return err
}

// patient has the target's calls wait for a busy service.
func (t *dnsTarget) patient() {
	negative, lower := t.negative, t.lower
	t.zone = patientZone{t.zone}
	t.negative = func(ctx context.Context) (time.Duration, error) {
		return patiently(ctx, func() (time.Duration, error) { return negative(ctx) })
	}
	t.lower = func(ctx context.Context) error {
		_, err := patiently(ctx, func() (struct{}, error) { return struct{}{}, lower(ctx) })
		return err
	}
}
