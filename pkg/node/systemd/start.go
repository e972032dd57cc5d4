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

// Start queues a start job for each unit, in order, and does not wait for them.
func (m *Manager) Start(ctx context.Context, names ...string) error {
	for _, name := range names {
		if _, err := m.conn.StartUnitContext(ctx, name, "replace", nil); err != nil {
			return fmt.Errorf("queueing a start of %s: %w", name, err)
		}
	}
	return nil
}
