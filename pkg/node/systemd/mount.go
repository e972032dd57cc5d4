package systemd

import (
	"context"
	"errors"
	"fmt"

	"github.com/coreos/go-systemd/v22/dbus"
	"github.com/coreos/go-systemd/v22/unit"
	godbus "github.com/godbus/dbus/v5"
)

// Mount mounts a file system at a directory, which it makes, and returns once it is mounted. systemd mounts it, by a
// transient unit with the directory's name: the machine unmounts it when it is switched off, after the units that need the
// directory have ended, and this process needs no permission to mount. It waits, as long as ctx lasts, until udev knows a
// device. Where that unit exists already, mounted or not, it is an error.
func (m *Manager) Mount(ctx context.Context, what, where, kind, options string) error {
	name := unit.UnitNamePathEscape(where) + ".mount"
	property := func(name, value string) dbus.Property {
		return dbus.Property{Name: name, Value: godbus.MakeVariant(value)}
	}
	done := make(chan string, 1)
	_, err := m.conn.StartTransientUnitContext(ctx, name, "replace", []dbus.Property{
		dbus.PropDescription("The disk of a member of etcd"), property("What", what), property("Where", where), property("Type", kind), property("Options", options),
		property("CollectMode", "inactive-or-failed"), // so that a mount that failed can be tried again
	}, done)
	if err == nil {
		select {
		case result := <-done:
			if result != "done" {
				err = fmt.Errorf("the job of %s is %s: journalctl -u %[1]s", name, result)
			}
		case <-ctx.Done():
			err = errors.Join(fmt.Errorf("the job of %s has not ended: systemctl list-jobs", name), ctx.Err())
		}
	}
	if err != nil {
		return fmt.Errorf("mounting %s at %s: %w", what, where, err)
	}
	return nil
}
