package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/member"
)

// Programs installs etcd, etcdctl and etcdutl of the images' lock below a directory, and returns the directory of the
// programs. It skips the test if they are not in the cache.
func Programs(tb testing.TB, root string) string {
	tb.Helper()
	l := programs.DefaultLock(tb)
	programs.NeedBuilt(tb, l, "etcd")
	programs.Install(tb, root, l, "etcd")
	return filepath.Join(root, programs.Bin)
}

// Address is an address of the loopback device, by a number up to 255. Those of one process are its own, so that tests at once
// do not meet.
func Address(number int) string {
	return fmt.Sprintf("127.%d.%d.%d", 64+os.Getpid()>>8&63, os.Getpid()&255, number)
}

// Pace is how much faster than etcd's a Clock goes that has to be no slower.
const Pace = 20

// Clock is a clock.Clock for agents whose waits are too long for a test. At Began it is what the system's is; from then on it
// goes Pace times as fast.
type Clock struct {
	Began time.Time
	Pace  time.Duration
}

// NewClock returns a clock that begins now.
func NewClock(pace int) Clock { return Clock{time.Now(), time.Duration(pace)} }

// Now returns the time.
func (c Clock) Now() time.Time { return c.Began.Add(c.Pace * time.Since(c.Began)) }

// Sleep waits, or until ctx ends.
func (c Clock) Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d / c.Pace):
		return nil
	}
}

// Hasty is a member whose locks last as long by the clock as they should by the system's.
func (c Clock) Hasty(p member.Peer) member.Peer { return hasty{p, c.Pace} }

type hasty struct {
	member.Peer
	pace time.Duration
}

// Lock implements member.Peer.
func (h hasty) Lock(ctx context.Context, holder string, ttl time.Duration) (member.Lease, error) {
	return h.Peer.Lock(ctx, holder, max(ttl/h.pace, 2*time.Second)) // etcd knows no shorter one
}

// Process is a member's etcd as a process of this machine, which speaks plain HTTP. It implements member.Service.
type Process struct {
	// Bin is the directory of etcd, and Name the member's name.
	Bin, Name string
	// Address is where it listens for clients and for members; Closed where it listens for clients before its epoch is formed.
	Address, Closed string
	// Environment is the file that Start reads, one variable a line. Flags are given besides; nil is none.
	Environment string
	Flags       []string
	// Log gets what etcd says, from the warnings on; nil discards it.
	Log io.Writer

	mu    sync.Mutex
	cmd   *exec.Cmd // nil if it was not started, or was ended
	ended chan struct{}
}

// ClientURL is where it listens for clients once its epoch is formed, PeerURL where for members, ClosedURL where for clients
// before.
func (p *Process) ClientURL() string { return "http://" + p.Address + ":2379" }

// PeerURL is where it listens for members.
func (p *Process) PeerURL() string { return "http://" + p.Address + ":2380" }

// ClosedURL is where it listens for clients before its epoch is formed.
func (p *Process) ClosedURL() string { return "http://" + p.Closed + ":2379" }

// Launch starts etcd with what a role file sets, and the variables that are given after it. It does not wait for it.
func (p *Process) Launch(environment ...string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		return errors.New("etcd runs already")
	}
	cmd := exec.Command(filepath.Join(p.Bin, "etcd"), p.Flags...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "ETCD_NAME=" + p.Name, "ETCD_LISTEN_PEER_URLS=" + p.PeerURL(), "ETCD_INITIAL_ADVERTISE_PEER_URLS=" + p.PeerURL(),
		"ETCD_LISTEN_CLIENT_URLS=" + p.ClientURL(), "ETCD_ADVERTISE_CLIENT_URLS=" + p.ClientURL(), "ETCD_LOG_LEVEL=warn"}, environment...)
	cmd.Stdout, cmd.Stderr = p.Log, p.Log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	p.cmd, p.ended = cmd, ended
	go func() {
		defer close(ended)
		_ = cmd.Wait() // how it ended is in its log
	}()
	return nil
}

// Ended is closed when the process that was started last has ended.
func (p *Process) Ended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// PID is the process's; 0 if none was started.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Kill ends it as a loss of power does, but for what the kernel holds.
func (p *Process) Kill() { p.end(syscall.SIGKILL) }

func (p *Process) end(signal os.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(signal) // it may have ended
		<-p.ended
	}
	p.cmd = nil
}

// State implements member.Service: who was started runs, as a unit does that systemd starts again.
func (p *Process) State(context.Context) (member.State, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return member.State{Running: p.cmd != nil}, nil
}

// Start implements member.Service.
func (p *Process) Start(context.Context) error {
	text, err := os.ReadFile(p.Environment)
	if err != nil {
		return err
	}
	return p.Launch(strings.Fields(strings.ReplaceAll(string(text), etcd.ClosedURL(), p.ClosedURL()))...)
}

// Stop implements member.Service.
func (p *Process) Stop(context.Context) error {
	p.end(syscall.SIGTERM)
	return nil
}
