package awsfake

import (
	"context"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
)

// Clock is the account's time. Rates and timeouts are measured with it.
type Clock = clock.Clock

// VirtualClock moves only when Advance is called. Several goroutines may use it.
type VirtualClock struct {
	mu       sync.Mutex
	now      time.Time
	sleepers map[*sleeper]struct{}
}

type sleeper struct {
	until time.Time
	woken chan struct{}
}

// NewVirtualClock returns a clock that shows start.
func NewVirtualClock(start time.Time) *VirtualClock {
	return &VirtualClock{now: start, sleepers: map[*sleeper]struct{}{}}
}

// Now returns the time that the clock shows.
func (c *VirtualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock by d and wakes the sleepers whose time has come.
func (c *VirtualClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for s := range c.sleepers {
		if !s.until.After(c.now) {
			close(s.woken)
			delete(c.sleepers, s)
		}
	}
}

// Next returns when the first sleeper wakes; false if no goroutine sleeps.
func (c *VirtualClock) Next() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var first time.Time
	for s := range c.sleepers {
		if first.IsZero() || s.until.Before(first) {
			first = s.until
		}
	}
	return first, !first.IsZero()
}

// Sleep waits until the clock has moved by d. Its error is that of ctx, if ctx ends first.
func (c *VirtualClock) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	c.mu.Lock()
	s := &sleeper{until: c.now.Add(d), woken: make(chan struct{})}
	c.sleepers[s] = struct{}{}
	c.mu.Unlock()
	select {
	case <-s.woken:
		return nil
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.sleepers, s)
		c.mu.Unlock()
		return ctx.Err()
	}
}
