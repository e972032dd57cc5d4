package qemu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// Machine is a virtual machine that runs or has ended.
type Machine struct {
	started          time.Time
	console, channel Log
	typing           line
	monitor          monitor
	slots            slots
	pid              int
	cancel           context.CancelFunc
	activity         chan struct{}
	ended            chan struct{}
	emulated         bool
	// Valid after ended is closed: why it ended, and what could not be removed.
	err, left error
}

// Start powers a machine on. It ends when its guest powers off or reboots, with ctx, or by Stop. The caller must call
// Stop in any case, which waits until all its processes and files are gone.
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
	m := &Machine{started: time.Now(), emulated: c.accelerator(h) == TCG, activity: make(chan struct{}, 1), ended: make(chan struct{})}
	m.console.arrived, m.channel.arrived = m.poke, m.poke
	m.slots.drive = make([]*drive, c.Slots)
	m.monitor.ready, m.monitor.ended, m.monitor.deleted = make(chan struct{}), m.ended, m.slots.deleted
	lines, err := listen(dir, map[string]func(net.Conn){
		// They end with QEMU; their errors add nothing.
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
			Name:    h.programs[c.arch()],
			Args:    c.args(h, dir, m.started),
			Env:     append(os.Environ(), "TMPDIR="+dir), // for snapshot=on
			Started: func(pid int) { running <- pid },
		})
		lines.close()
		m.err, m.left = err, os.RemoveAll(dir)
	}()
	select {
	case m.pid = <-running:
	case <-m.ended: // it failed to start, which Stop and Wait report
	}
	return m, nil
}

// writeFiles writes the files that the arguments name.
func writeFiles(c Config, h Host, dir string) error {
	for _, name := range c.credentialNames() {
		if err := os.WriteFile(credentialFile(dir, name), smbios(name, c.Credentials[name]), 0o600); err != nil {
			return fmt.Errorf("writing credential %s: %w", name, err)
		}
	}
	f, ok := h.firmwares[c.arch()][c.Firmware]
	if !ok {
		return nil
	}
	vars, err := os.ReadFile(cmp.Or(c.Variables, f.vars))
	if err != nil {
		return fmt.Errorf("reading UEFI variables: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, varsFile), vars, 0o600); err != nil {
		return fmt.Errorf("writing UEFI variables: %w", err)
	}
	return nil
}

// lines are the listening sockets of a machine's serial lines and monitor.
type lines struct {
	listeners []net.Listener
	readers   sync.WaitGroup
}

// listen creates the sockets before QEMU starts, so that no console output is lost. Each accepts the one connection that
// QEMU makes.
func listen(dir string, serve map[string]func(net.Conn)) (*lines, error) {
	l := &lines{}
	for name, serve := range serve {
		// A local address is bound at once: there is nothing to cancel.
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

// close drains and closes the sockets. It must be called after QEMU has ended.
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

// Console returns the first serial line (ttyS0), the console of the kernel and systemd.
func (m *Machine) Console() *Log { return &m.console }

// Channel returns the second serial line (ttyS1), which is unused unless the guest is configured for it.
func (m *Machine) Channel() *Log { return &m.channel }

// PID returns the process id of QEMU, which leads a process group; 0 if it could not be started.
func (m *Machine) PID() int { return m.pid }

// Started returns when the machine was powered on.
func (m *Machine) Started() time.Time { return m.started }

// Ended is closed when the machine has ended and its files are removed.
func (m *Machine) Ended() <-chan struct{} { return m.ended }

// Stop cuts the power, waits until the machine's files are removed, and returns why it had ended: nil for a machine
// that powered itself off or was stopped here. It may be called more than once.
func (m *Machine) Stop() error {
	m.cancel()
	<-m.ended
	if errors.Is(m.err, context.Canceled) {
		return m.left
	}
	return errors.Join(m.err, m.left)
}

// StalledError means that a machine printed nothing for too long.
type StalledError struct {
	Quiet   time.Duration // time without output on a serial line
	Console string        // its last lines
}

func (e *StalledError) Error() string {
	return fmt.Sprintf("machine printed nothing for %s; its console ends with:\n%s", e.Quiet, e.Console)
}

// Await waits until done returns true. Its timeout is for progress: how long a boot takes depends on the computer, but a
// machine that prints nothing for the duration quiet is stuck, which is a *StalledError. done is called whenever there
// is output. If the machine ends first it is an error, unless done returns true.
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
			err := fmt.Errorf("machine ended too early; its console ends with:\n%s", m.console.Tail(consoleLines))
			if m.EmulatorCrash() {
				err = fmt.Errorf("%w\n%s", err, emulatorCrash)
			}
			return errors.Join(err, m.err)
		case <-m.activity:
			timer.Reset(quiet)
		case <-timer.C:
			return &StalledError{Quiet: quiet, Console: m.console.Tail(consoleLines)}
		}
	}
	return nil
}

const emulatorCrash = "this is a defect of QEMU's emulator before 8.1, and not of the machine: power it on again, or use KVM or a later QEMU"

// EmulatorCrash reports whether the guest's kernel has died of a defect of QEMU's emulator. Before 8.1 a processor may run
// a stale translation of code that another processor is patching, and trap at a breakpoint that is no longer there
// (https://github.com/multipath-tcp/mptcp_net-next/issues/471). One of some dozens of boots with two processors has it.
func (m *Machine) EmulatorCrash() bool { return m.emulated && m.console.Contains("Oops: int3: ") }

// consoleLines is the number of console lines in an error: enough for a kernel panic with its stack.
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
