package certs

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The wait between two tries: short at first, since a boot waits for it.
const (
	waitMin = 250 * time.Millisecond
	waitMax = 5 * time.Second
)

// The wait after the store has refused a read because too many machines ask: Parameter Store gives an account 40 reads a
// second by default, whoever reads. It is drawn from zero to twice an interval that grows by half with each refusal, so that the
// machines spread over about as long as they have waited already, and the last one is served within about twice the time that
// the quota takes for all. Masters and members of etcd keep asking often: all others need what they make, and few are they.
//
// The SDK's adaptive mode does not help here: it slows one client down to one call in two seconds at the slowest
// (aws/retry, adaptive_ratelimit.go), and these are thousands of clients with one call each.
const (
	busyMin      = 500 * time.Millisecond
	busyMax      = 1500 * time.Millisecond
	busyMaxYield = 30 * time.Second
)

// temporaryError is an error that may pass.
type temporaryError struct{ error }

func (p temporaryError) Unwrap() error { return p.error }

// waiter retries temporary errors, and reports what it waits for.
type waiter struct {
	patience time.Duration
	// yields lets others go first when the store is busy.
	yields bool
	status func(string)
	log    *slog.Logger
	last   string
}

// yields reports whether a machine of these roles lets others go first.
func yields(roles role.Set) bool { return !roles.Has(role.Masters) && !roles.Has(role.Etcd) }

func newWaiter(patience time.Duration, yields bool, status func(string), log *slog.Logger) *waiter {
	if status == nil {
		status = func(string) {}
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &waiter{patience: patience, yields: yields, status: status, log: log}
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
	}, backoff.WithBackOff(newPauses(w.yields, &last)), backoff.WithMaxElapsedTime(max(w.patience, 1)))
	if err == nil {
		return nil
	}
	if last == nil {
		last = err
	}
	return last
}

// pauses are the waits between tries, by what the last one came to.
type pauses struct {
	last        *error
	usual, busy *backoff.ExponentialBackOff
}

func newPauses(yields bool, last *error) *pauses {
	longest := busyMax
	if yields {
		longest = busyMaxYield
	}
	return &pauses{last: last,
		usual: &backoff.ExponentialBackOff{InitialInterval: waitMin, Multiplier: 1.5, MaxInterval: waitMax, RandomizationFactor: 0.5},
		busy:  &backoff.ExponentialBackOff{InitialInterval: busyMin, Multiplier: 1.5, MaxInterval: longest, RandomizationFactor: 1}}
}

// Reset begins anew.
func (p *pauses) Reset() {
	p.usual.Reset()
	p.busy.Reset()
}

// NextBackOff returns the next wait.
func (p *pauses) NextBackOff() time.Duration {
	if errors.Is(*p.last, pki.ErrBusy) {
		return p.busy.NextBackOff()
	}
	p.busy.Reset()
	return p.usual.NextBackOff()
}

// report reports what is missing, once for each reason.
func (w *waiter) report(ctx context.Context, err error) {
	if text := err.Error(); text != w.last {
		w.last = text
		w.status(reason.Status(err))
		w.log.WarnContext(ctx, "waiting", "reason", text)
	}
}
