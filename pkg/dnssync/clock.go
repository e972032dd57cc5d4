package dnssync

import (
	"context"
	"time"
)

// System is the machine's own clock.
type System struct{}

// Now is the present time.
func (System) Now() time.Time { return time.Now() }

// Sleep waits for d or until ctx ends, whose error it then returns.
func (System) Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
