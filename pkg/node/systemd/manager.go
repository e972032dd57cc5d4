package systemd

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/coreos/go-systemd/v22/dbus"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
)

// Manager is a connection to the service manager over its private socket, which exists before D-Bus does and which
// only root may use. It is safe for concurrent use. The caller must Close it.
type Manager struct{ conn *dbus.Conn }

// NewManager connects to the service manager.
func NewManager(ctx context.Context) (*Manager, error) {
	conn, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting to systemd (as root, on a machine that it runs): %w", err)
	}
	return &Manager{conn}, nil
}

// Close closes the connection.
func (m *Manager) Close() { m.conn.Close() }

// Boot reads when the phases of the boot began.
func (m *Manager) Boot(context.Context) (timeline.Boot, error) {
	var b timeline.Boot
	for name, value := range map[string]*uint64{
		"FirmwareTimestampMonotonic": &b.Firmware, "LoaderTimestampMonotonic": &b.Loader, "UserspaceTimestampMonotonic": &b.Userspace,
	} {
		text, err := m.conn.GetManagerProperty(name)
		if err == nil {
			// A variant is printed after its type: "@t 123".
			*value, err = strconv.ParseUint(strings.TrimPrefix(text, "@t "), 10, 64)
		}
		if err != nil {
			return timeline.Boot{}, fmt.Errorf("reading %s of systemd: %w", name, err)
		}
	}
	return b, nil
}

// States reads the names and states of units.
func (m *Manager) States(ctx context.Context, names ...string) ([]timeline.Unit, error) {
	found, err := m.conn.ListUnitsByNamesContext(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("reading the states of %s: %w", strings.Join(names, ", "), err)
	}
	var units []timeline.Unit
	for _, name := range names {
		u := timeline.Unit{Name: name, Load: "not-found", Active: "inactive", Sub: "dead"}
		for _, f := range found {
			if f.Name == name {
				u.Load, u.Active, u.Sub, u.Job = f.LoadState, f.ActiveState, f.SubState, f.JobId
			}
		}
		units = append(units, u)
	}
	return units, nil
}

// Unit reads the state of a unit and the properties that explain it; a unit has several hundred in all.
func (m *Manager) Unit(ctx context.Context, name string) (timeline.Unit, error) {
	units, err := m.States(ctx, name)
	if err != nil {
		return timeline.Unit{}, err
	}
	properties := map[string]any{"LoadState": units[0].Load, "ActiveState": units[0].Active, "SubState": units[0].Sub}
	for _, q := range []struct{ kind, property string }{
		{"Service", "StatusText"}, {"Service", "Result"}, {"Service", "NRestarts"}, {"Service", "ExecMainStatus"}, {"Unit", "AssertResult"}, {"Unit", "AssertTimestampMonotonic"},
		{"Unit", "ConditionResult"}, {"Unit", "ConditionTimestampMonotonic"},
	} {
		// Other unit types lack some of these properties, and are reported with fewer.
		if p, err := m.conn.GetUnitTypePropertyContext(ctx, name, q.kind, q.property); err == nil {
			properties[q.property] = p.Value.Value()
		}
	}
	u := unitFrom(name, properties)
	u.Job = units[0].Job
	return u, nil
}

// Units reads units by name. A unit that does not exist has Load "not-found".
func (m *Manager) Units(ctx context.Context, names ...string) ([]timeline.Unit, error) {
	var units []timeline.Unit
	for _, name := range names {
		properties, err := m.conn.GetAllPropertiesContext(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("reading unit %s: %w", name, err)
		}
		units = append(units, unitFrom(name, properties))
	}
	return units, nil
}

// unitFrom converts the properties of a unit (org.freedesktop.systemd1(5)). A missing property is one that this type of
// unit does not have.
func unitFrom(name string, p map[string]any) timeline.Unit {
	u := timeline.Unit{
		Name: name, Load: get[string](p, "LoadState"), Active: get[string](p, "ActiveState"), Sub: get[string](p, "SubState"),
		Result: get[string](p, "Result"), Status: get[string](p, "StatusText"),
		Begin: get[uint64](p, "InactiveExitTimestampMonotonic"), ActiveEnter: get[uint64](p, "ActiveEnterTimestampMonotonic"),
		ExecStart: get[uint64](p, "ExecMainStartTimestampMonotonic"), ExecExit: get[uint64](p, "ExecMainExitTimestampMonotonic"),
		CPU: get[uint64](p, "CPUUsageNSec"), Restarts: get[uint32](p, "NRestarts"), Exit: get[int32](p, "ExecMainStatus"),
	}
	asserted, known := p["AssertResult"].(bool)
	u.Refused = known && !asserted && get[uint64](p, "AssertTimestampMonotonic") != 0
	met, known := p["ConditionResult"].(bool)
	u.Skipped = known && !met && get[uint64](p, "ConditionTimestampMonotonic") != 0
	const unknown = ^uint64(0) // systemd's value without accounting
	if u.CPU == unknown {
		u.CPU = 0
	}
	for _, line := range []string{"ExecStartPre", "ExecStart"} {
		for _, fields := range get[[][]any](p, line) {
			if c, ok := command(fields); ok {
				c.Main = line == "ExecStart"
				u.Commands = append(u.Commands, c)
			}
		}
	}
	return u
}

// command converts the last run of one ExecStart= line: path, arguments, ignore, begin by wall clock and monotonic
// clock, end by both, process, code, status.
func command(fields []any) (timeline.Command, bool) {
	if len(fields) < 7 {
		return timeline.Command{}, false
	}
	args, ok := fields[1].([]string)
	start, ok2 := fields[4].(uint64)
	stop, ok3 := fields[6].(uint64)
	return timeline.Command{Args: args, Start: start, Stop: stop}, ok && ok2 && ok3
}

func get[T any](p map[string]any, name string) T {
	value, _ := p[name].(T)
	return value
}
