package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/run"
)

// Machine is a running virtual machine, or one that has ended.
type Machine struct {
	started          time.Time
	console, channel Log
	typing           line
	monitor          monitor
	pid              int
	cancel           context.CancelFunc
	activity         chan struct{}
	ended            chan struct{}
	// Both are read after ended is closed: why it ended, and what could not be removed.
	err, left error
}

// Start powers a machine on. It ends when its guest powers off or reboots, with ctx, or by Stop; the
// caller calls Stop in any case, which waits until nothing of it is left.
func Start(ctx context.Context, c Config) (*Machine, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	h, err := Detect()
	if err != nil {
		return nil, err
	}
	c = c.withDefaults()
	if err := h.check(c); err != nil {
		return nil, err
	}
	if err := makeOverlays(ctx, c.Disks); err != nil {
		return nil, err
	}
	// Short and not below the caller's directories: a socket's path has at most 107 bytes.
	dir, err := os.MkdirTemp("", "hardtack-qemu-")
	if err != nil {
		return nil, fmt.Errorf("making the machine's directory: %w", err)
	}
	m, err := start(ctx, c, h, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return m, nil
}

// start starts QEMU with its files in dir, which is removed when QEMU has ended.
func start(ctx context.Context, c Config, h Host, dir string) (*Machine, error) {
	if err := writeFiles(c, h, dir); err != nil {
		return nil, err
	}
	m := &Machine{started: time.Now(), activity: make(chan struct{}, 1), ended: make(chan struct{})}
	m.console.arrived, m.channel.arrived = m.poke, m.poke
	m.monitor.ready, m.monitor.ended = make(chan struct{}), m.ended
	lines, err := listen(dir, map[string]func(net.Conn){
		// They end with QEMU; a reset says no more than that.
		consoleSocket: func(conn net.Conn) { _, _ = io.Copy(&m.console, conn) },
		channelSocket: func(conn net.Conn) {
			m.typing.connected(conn)
			_, _ = io.Copy(&m.channel, conn)
		},
		monitorSocket: m.monitor.serve,
	})
	if err != nil {
		return nil, err
	}
	ctx, m.cancel = context.WithCancel(ctx)
	running := make(chan int, 1)
	go func() {
		defer close(m.ended)
		defer m.cancel()
		err := run.Run(ctx, run.Command{
			Name:    h.Program,
			Args:    c.args(h, dir, m.started),
			Env:     append(os.Environ(), "TMPDIR="+dir), // where snapshot=on writes
			Started: func(pid int) { running <- pid },
		})
		lines.close()
		m.err, m.left = err, os.RemoveAll(dir)
	}()
	select {
	case m.pid = <-running:
	case <-m.ended: // it did not start, which Stop and Wait say
	}
	return m, nil
}

// writeFiles puts in place what the arguments name.
func writeFiles(c Config, h Host, dir string) error {
	for _, name := range c.credentialNames() {
		if err := os.WriteFile(credentialFile(dir, name), smbios(name, c.Credentials[name]), 0o600); err != nil {
			return fmt.Errorf("writing credential %s: %w", name, err)
		}
	}
	if c.Firmware != UEFI {
		return nil
	}
	vars, err := os.ReadFile(h.Vars)
	if err != nil {
		return fmt.Errorf("reading UEFI variables: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, varsFile), vars, 0o600); err != nil {
		return fmt.Errorf("writing UEFI variables: %w", err)
	}
	return nil
}

// lines are the listening ends of a machine's serial lines and monitor.
type lines struct {
	listeners []net.Listener
	readers   sync.WaitGroup
}

// listen makes the sockets before QEMU starts, so that not a byte of the console is lost. Each serves the one
// connection that QEMU makes.
func listen(dir string, serve map[string]func(net.Conn)) (*lines, error) {
	l := &lines{}
	for name, serve := range serve {
		// The address is local to this computer and bound at once: there is nothing to cancel.
		s, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unix"})
		if err != nil {
			l.close()
			return nil, fmt.Errorf("listening for the machine's serial line: %w", err)
		}
		l.listeners = append(l.listeners, s)
		l.readers.Go(func() {
			conn, err := s.Accept()
			if err != nil {
				return // closed: QEMU ended before it connected
			}
			defer func() { _ = conn.Close() }()
			serve(conn)
		})
	}
	return l, nil
}

// close waits for what is still in the sockets. It must be called after QEMU has ended.
func (l *lines) close() {
	for _, s := range l.listeners {
		_ = s.Close()
	}
	l.readers.Wait()
}

func (m *Machine) poke() {
	select {
	case m.activity <- struct{}{}:
	default:
	}
}

// Console is the first serial line (ttyS0), where the kernel and systemd talk.
func (m *Machine) Console() *Log { return &m.console }

// Channel is the second serial line (ttyS1), which nobody uses but who is told to.
func (m *Machine) Channel() *Log { return &m.channel }

// PID is the machine's process, and the group that it leads; 0 when it could not be started.
func (m *Machine) PID() int { return m.pid }

// Started is when the machine was powered on.
func (m *Machine) Started() time.Time { return m.started }

// Ended is closed when the machine has ended and nothing of it is left.
func (m *Machine) Ended() <-chan struct{} { return m.ended }

// Stop cuts the power, waits until nothing of the machine is left, and returns why it had ended: nil for a
// machine that powered itself off or was stopped here. It may be called more than once.
func (m *Machine) Stop() error {
	m.cancel()
	<-m.ended
	if errors.Is(m.err, context.Canceled) {
		return m.left
	}
	return errors.Join(m.err, m.left)
}

// StalledError is a machine that went quiet.
type StalledError struct {
	Quiet   time.Duration // for how long nothing arrived on a serial line
	Console string        // its last lines
}

func (e *StalledError) Error() string {
	return fmt.Sprintf("machine printed nothing for %s; its console ends with:\n%s", e.Quiet, e.Console)
}

// Await waits until done says so. It watches progress instead of a clock: how long a boot takes depends on the
// computer, but a machine that printed nothing for the time quiet is stuck, and that is a *StalledError. done is
// asked whenever something arrived. A machine that ends first is an error, unless done is content with that.
func (m *Machine) Await(ctx context.Context, quiet time.Duration, done func() bool) error {
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-m.ended:
			if done() {
				return nil
			}
			return errors.Join(fmt.Errorf("machine ended too early; its console ends with:\n%s", m.console.Tail(consoleLines)), m.err)
		case <-m.activity:
			timer.Reset(quiet)
		case <-timer.C:
			return &StalledError{Quiet: quiet, Console: m.console.Tail(consoleLines)}
		}
	}
	return nil
}

// consoleLines is how much of the console an error carries: a kernel panic with its stack fits.
const consoleLines = 40

// Wait waits until the machine has powered itself off.
func (m *Machine) Wait(ctx context.Context, quiet time.Duration) error {
	err := m.Await(ctx, quiet, func() bool {
		select {
		case <-m.ended:
			return true
		default:
			return false
		}
	})
	if err != nil {
		return err
	}
	return errors.Join(m.err, m.left)
}
