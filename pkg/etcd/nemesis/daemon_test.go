package nemesis

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/member"
)

// timing is etcd's heartbeat and election timeout: less than half of the default, so that a schedule fits many elections.
// With a fifth, a machine with other work to do elects all the time.
var timing = []string{"ETCD_HEARTBEAT_INTERVAL=40", "ETCD_ELECTION_TIMEOUT=400"}

// daemon is etcd as a unit runs it: it is started again after it has failed.
type daemon struct {
	m    *machine
	env  []string
	mu   sync.Mutex
	cmd  *exec.Cmd
	log  bytes.Buffer
	stop bool
	// failing: it ended by itself, and waits for its next start.
	failing bool
	// ends is how often it has ended by itself, and panicked whether it did so last with a panic.
	ends     int
	panicked bool
	done     chan struct{}
}

// settings are the lines of the image's own settings that differ on each machine, with TLS as on a machine.
func (m *machine) settings(data string) []string {
	name := "etcd-" + m.seat + strings.TrimSuffix(suffix, ".")
	lines := []string{
		"ETCD_NAME=" + m.seat, "ETCD_DATA_DIR=" + data,
		"ETCD_LISTEN_PEER_URLS=https://" + m.address.String() + ":2380",
		"ETCD_INITIAL_ADVERTISE_PEER_URLS=https://" + name + ":2380",
		"ETCD_ADVERTISE_CLIENT_URLS=https://" + name + ":" + clientPort,
		"ETCD_CERT_FILE=" + m.w.tls.cert, "ETCD_KEY_FILE=" + m.w.tls.key, "ETCD_TRUSTED_CA_FILE=" + m.w.tls.cert, "ETCD_CLIENT_CERT_AUTH=true",
		"ETCD_PEER_CERT_FILE=" + m.w.tls.cert, "ETCD_PEER_KEY_FILE=" + m.w.tls.key, "ETCD_PEER_TRUSTED_CA_FILE=" + m.w.tls.cert, "ETCD_PEER_CLIENT_CERT_AUTH=true",
		"ETCD_LOG_LEVEL=warn",
	}
	return append(lines, timing...)
}

// startEtcd starts etcd with settings, of which the later of two with one name holds.
func (m *machine) startEtcd(env []string, flags ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost || m.off == nil {
		return fmt.Errorf("%s has no power", m.id)
	}
	if m.daemon != nil {
		return fmt.Errorf("etcd of %s runs already", m.id)
	}
	d := &daemon{m: m, env: env, done: make(chan struct{})}
	m.daemon = d
	go d.run(flags)
	return nil
}

// run keeps etcd running until it is stopped, as Restart=always does.
func (d *daemon) run(flags []string) {
	defer close(d.done)
	for {
		d.mu.Lock()
		if d.stop {
			d.mu.Unlock()
			return
		}
		args := []string{"--net=/run/netns/" + d.m.ns, filepath.Join(d.m.w.etcd, "etcd")}
		d.cmd = exec.Command("nsenter", append(args, flags...)...)
		d.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "GOMAXPROCS=2"}, d.env...)
		d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
		d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		err := d.cmd.Start()
		d.mu.Unlock()
		if err == nil {
			err = d.cmd.Wait()
			d.m.w.cpu.Add(int64(d.cmd.ProcessState.UserTime() + d.cmd.ProcessState.SystemTime()))
		}
		last := lastWords(d.log.String())
		d.judge()
		d.mu.Lock()
		stopped := d.stop
		d.mu.Unlock()
		if stopped {
			return
		}
		d.ended(d.cmd.ProcessState.ExitCode() == 2) // as the agent reads it of etcd's unit
		d.m.w.logf("etcd of %s ended: %v: %s", d.m.seat, err, last)
		time.Sleep(100 * time.Millisecond)
		d.again()
	}
}

func (d *daemon) ended(panicked bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failing, d.panicked = true, panicked
	d.ends++
}

func (d *daemon) again() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failing = false
}

// state is what a service manager says of etcd: failing while it is to be started again.
func (d *daemon) state() member.State {
	d.mu.Lock()
	defer d.mu.Unlock()
	return member.State{Running: true, Failing: d.failing, Ends: d.ends, Panicked: d.failing && d.panicked}
}

// signal sends a signal to etcd if it runs.
func (d *daemon) signal(s syscall.Signal) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cmd != nil && d.cmd.Process != nil {
		_ = d.cmd.Process.Signal(s)
	}
}

func (d *daemon) end(s syscall.Signal) {
	d.mu.Lock()
	d.stop = true
	d.mu.Unlock()
	if s != syscall.SIGKILL {
		d.signal(syscall.SIGCONT)
	}
	d.signal(s)
	<-d.done
}

// kill ends etcd as a loss of power does.
func (d *daemon) kill() { d.end(syscall.SIGKILL) }

// stopEtcd stops etcd as a unit is stopped.
func (m *machine) stopEtcd() {
	m.mu.Lock()
	d := m.daemon
	m.daemon = nil
	m.mu.Unlock()
	if d != nil {
		d.end(syscall.SIGTERM)
	}
}

// senseless are raft's words for a member that has less than it has acknowledged, or something else: it ends rather than go
// on. They are from raft's log.go and raft.go.
var senseless = []string{"Was the raft log corrupted, truncated, or lost?", "conflict with committed entry", "need non-empty snapshot"}

// judge looks at what etcd has said until it ended.
func (d *daemon) judge() {
	for _, words := range senseless {
		if strings.Contains(d.log.String(), words) {
			d.m.w.breach("etcd of %s finds that its log is not what it acknowledged: %s", d.m.seat, words)
		}
	}
	d.log.Reset()
}

// running is the machine's etcd, nil if it has none.
func (m *machine) running() *daemon {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.daemon
}

// lastWords are the end of a log, and what a program that panics says before its stack.
func lastWords(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	last := lines[max(0, len(lines)-2):]
	if i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "panic: ") || strings.Contains(l, `"level":"panic"`) }); i >= 0 {
		last = append([]string{lines[i]}, last...)
	}
	return strings.Join(last, " | ")
}

// environment is the last value of each setting.
func environment(lines []string) []string {
	var env []string
	for _, line := range lines {
		name, _, _ := strings.Cut(line, "=")
		env = slices.DeleteFunc(env, func(l string) bool { return strings.HasPrefix(l, name+"=") })
		env = append(env, line)
	}
	return env
}
