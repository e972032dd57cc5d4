package certs

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

// The wait between two tries: short at first, since a boot waits for it. Parameter Store gives an account 40 reads a
// second by default: with five seconds, two hundred minions may wait for their first master together, and what
// is throttled beyond that waits longer in the SDK.
const (
	waitMin = 250 * time.Millisecond
	waitMax = 5 * time.Second
)

// temporaryError is an error that may pass.
type temporaryError struct{ error }

func (p temporaryError) Unwrap() error { return p.error }

// waiter retries temporary errors, and reports what it waits for.
type waiter struct {
	patience time.Duration
	status   func(string)
	log      *slog.Logger
	last     string
}

func newWaiter(patience time.Duration, status func(string), log *slog.Logger) *waiter {
	if status == nil {
		status = func(string) {}
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &waiter{patience: patience, status: status, log: log}
}

// retry calls try until it succeeds, fails with another error, or the patience or ctx ends; then it returns the last error.
func (w *waiter) retry(ctx context.Context, try func() error) error {
	var last error
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		last = try()
		var may temporaryError
		if last != nil && !errors.As(last, &may) {
			return struct{}{}, backoff.Permanent(last)
		}
		if last != nil {
			w.report(ctx, last)
		}
		return struct{}{}, last
	}, backoff.WithBackOff(&backoff.ExponentialBackOff{
		InitialInterval: waitMin, Multiplier: 1.5, MaxInterval: waitMax, RandomizationFactor: 0.5,
	}), backoff.WithMaxElapsedTime(max(w.patience, 1)))
	if err == nil {
		return nil
	}
	if last == nil {
		last = err
	}
	return last
}

// report reports what is missing, once for each reason.
func (w *waiter) report(ctx context.Context, err error) {
	if text := err.Error(); text != w.last {
		w.last = text
		w.status(reason.Status(err))
		w.log.WarnContext(ctx, "waiting", "reason", text)
	}
}
