package systemd

import (
	"context"
	"fmt"
)

// Reload makes systemd reload all unit files. Queued jobs stay queued.
func (m *Manager) Reload(ctx context.Context) error {
	if err := m.conn.ReloadContext(ctx); err != nil {
		return fmt.Errorf("reloading systemd: %w", err)
	}
	return nil
}

// Stop stops a unit, and returns when it has ended or the manager gives up.
func (m *Manager) Stop(ctx context.Context, name string) error {
	done := make(chan string, 1)
	if _, err := m.conn.StopUnitContext(ctx, name, "replace", done); err != nil {
		return fmt.Errorf("stopping %s: %w", name, err)
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("stopping %s: the job's result is %s", name, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stopping %s: %w", name, ctx.Err())
	}
}

// Start queues a start job for each unit, in order, and does not wait for them.
func (m *Manager) Start(ctx context.Context, names ...string) error {
	for _, name := range names {
		if _, err := m.conn.StartUnitContext(ctx, name, "replace", nil); err != nil {
			return fmt.Errorf("queueing a start of %s: %w", name, err)
		}
	}
	return nil
}

// Restart queues a restart of a unit if it runs; with wait it returns when the unit is ready.
func (m *Manager) Restart(ctx context.Context, name string, wait bool) error {
	var ended chan string
	if wait {
		ended = make(chan string, 1)
	}
	if _, err := m.conn.TryRestartUnitContext(ctx, name, "replace", ended); err != nil {
		return fmt.Errorf("queueing a restart of %s: %w", name, err)
	}
	if !wait {
		return nil
	}
	select {
	case result := <-ended:
		if result != "done" {
			return fmt.Errorf("restarting %s: systemd says %q", name, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting until %s has restarted: %w", name, ctx.Err())
	}
}
