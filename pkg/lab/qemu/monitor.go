package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// monitor speaks QMP, QEMU's protocol of JSON lines: a greeting, then a response for each command, in order, with events
// in between. QEMU connects to us.
type monitor struct {
	mu     sync.Mutex
	conn   net.Conn
	reason string
	// asked has a channel for each command without a response yet.
	asked []chan error
	// deleted is called with the id of each device that the guest has given up.
	deleted func(id string)
	// ready is closed when QEMU accepts commands, ended when the machine has ended.
	ready chan struct{}
	ended <-chan struct{}
}

var errEnded = errors.New("the machine has ended")

// message is a line from QEMU; one of its fields is set.
type message struct {
	Greeting json.RawMessage `json:"QMP"`
	Return   json.RawMessage `json:"return"`
	Error    *struct {
		Class, Desc string
	} `json:"error"`
	Event string `json:"event"`
	Data  struct {
		Reason string `json:"reason"`
		// Device is a device's id; empty for one that has none.
		Device string `json:"device"`
	} `json:"data"`
}

// serve reads until QEMU closes the connection.
func (m *monitor) serve(conn net.Conn) {
	m.mu.Lock()
	m.conn = conn
	m.mu.Unlock()
	lines := json.NewDecoder(conn)
	for {
		var line message
		if err := lines.Decode(&line); err != nil {
			m.hangUp()
			return
		}
		switch {
		case line.Greeting != nil:
			// This must be the first command, and its response the first.
			m.mu.Lock()
			m.asked = append(m.asked, make(chan error, 1))
			m.mu.Unlock()
			_, _ = io.WriteString(conn, `{"execute":"qmp_capabilities"}`+"\n") // an error shows at the next read
			close(m.ready)
		case line.Event == "SHUTDOWN":
			m.mu.Lock()
			m.reason = line.Data.Reason
			m.mu.Unlock()
		case line.Event == "DEVICE_DELETED":
			m.deleted(line.Data.Device)
		case line.Error != nil:
			m.answered(fmt.Errorf("QEMU refuses: %s", line.Error.Desc))
		case line.Return != nil:
			m.answered(nil)
		}
	}
}

func (m *monitor) answered(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.asked) == 0 {
		return
	}
	m.asked[0] <- err
	m.asked = m.asked[1:]
}

func (m *monitor) hangUp() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.asked {
		a <- errEnded
	}
	m.asked, m.conn = nil, nil
}

// execute runs a command; arguments may be nil.
func (m *monitor) execute(ctx context.Context, command string, arguments map[string]any) error {
	text, err := json.Marshal(struct {
		Execute   string         `json:"execute"`
		Arguments map[string]any `json:"arguments,omitempty"`
	}{command, arguments})
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-m.ended:
		return errEnded
	case <-m.ready:
	}
	answer := make(chan error, 1)
	m.mu.Lock()
	if m.conn == nil {
		m.mu.Unlock()
		return errEnded
	}
	m.asked = append(m.asked, answer)
	_, err = m.conn.Write(append(text, '\n'))
	m.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-answer:
		return err
	}
}

// PowerDown presses the power button, which makes a guest shut down, and waits until it has ended. After grace the power
// is cut. The error is Stop's.
func (m *Machine) PowerDown(ctx context.Context, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if m.monitor.execute(ctx, "system_powerdown", nil) == nil {
		select {
		case <-m.ended:
		case <-ctx.Done():
		}
	}
	return m.Stop()
}

// Pause stops the machine's processors, like a host that hangs. Resume continues it.
func (m *Machine) Pause(ctx context.Context) error { return m.command(ctx, "stop") }

// Resume continues a paused machine.
func (m *Machine) Resume(ctx context.Context) error { return m.command(ctx, "cont") }

func (m *Machine) command(ctx context.Context, name string) error {
	if err := m.monitor.execute(ctx, name, nil); err != nil {
		return fmt.Errorf("asking the machine's monitor to %s: %w", name, err)
	}
	return nil
}

// Reason returns why the machine ended, in QEMU's terms: "guest-shutdown", "guest-reset", "guest-panic",
// "host-signal"; empty while it runs, or if it was killed.
func (m *Machine) Reason() string {
	m.monitor.mu.Lock()
	defer m.monitor.mu.Unlock()
	return m.monitor.reason
}
