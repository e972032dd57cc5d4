// Package clock abstracts the time, so that tests can control it.
package clock

import (
	"context"
	"time"
)

// Clock returns the time, and waits.
type Clock interface {
	Now() time.Time
	// Sleep waits for d, or until ctx ends and returns its error.
	Sleep(ctx context.Context, d time.Duration) error
}
