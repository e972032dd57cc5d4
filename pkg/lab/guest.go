package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

// The files in a machine's directory.
const (
	// ConsoleFile is the first serial line, byte for byte.
	ConsoleFile = "console.log"
	// JournalFile is what the machine's journal has said, a line an entry.
	JournalFile = "journal.log"
	// TimelineFile is what the agent says about the boot, as JSON.
	TimelineFile = "timeline.json"
	// OverlayFile is what the machine has written over the baked disk.
	OverlayFile = "disk.qcow2"
)

// guest is one machine from its launch on, and for as long as the lab lives.
type guest struct {
	id    string
	group Group
	addr  netip.Addr
	// machine is the account's word about it at its launch.
	machine awsfake.Machine
	// made is when the group launched it.
	made time.Time
	// volume is the etcd member's; empty where the group has none.
	volume string
	fault  Fault

	mu      sync.Mutex
	running Running
	scan    *scanner
	// stop is closed when the region wants the machine to end.
	stop func()
	// started is when the power came on, ended when it was over; zero before.
	started, ended time.Time
	// end is why: "killed", "terminated", or what QEMU said.
	end string
}

// power returns the running machine; nil while it does not run.
func (g *guest) power() Running {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended.IsZero() {
		return nil
	}
	return g.running
}

// over notes why the machine will have ended; the first word counts.
func (g *guest) over(why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.end == "" {
		g.end = why
	}
}

// logs are a machine's open files.
type logs struct {
	console, journal *os.File
}

func (h Home) openLogs(id string) (logs, error) {
	dir := h.machine(id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return logs{}, fmt.Errorf("making the machine's directory: %w", err)
	}
	var l logs
	var err error
	if l.console, err = os.Create(filepath.Join(dir, ConsoleFile)); err != nil {
		return logs{}, fmt.Errorf("making the console's file: %w", err)
	}
	if l.journal, err = os.Create(filepath.Join(dir, JournalFile)); err != nil {
		return logs{}, errors.Join(fmt.Errorf("making the journal's file: %w", err), l.console.Close())
	}
	return l, nil
}

func (l logs) close() error { return errors.Join(l.console.Close(), l.journal.Close()) }

// host is the region's hypervisor: it starts and ends machines as the account says, and tells the account what
// became of them.
type host struct {
	daemon *Daemon

	mu     sync.Mutex
	guests map[string]*guest
	order  []string
	// faults are of machines to come, by their group.
	faults map[string]Fault
	next   netip.Addr
	closed bool
	tasks  sync.WaitGroup
}

var _ awsfake.Hypervisor = (*host)(nil)

func newHost(d *Daemon) *host {
	// The first ten addresses of a VPC's subnet are not the machines'.
	return &host{daemon: d, guests: map[string]*guest{}, faults: map[string]Fault{}, next: netip.MustParseAddr("10.1.0.10")}
}

// lastAddr is the subnet's last usable address.
var lastAddr = netip.MustParseAddr("10.1.0.254")

// Place gives each machine the next address, and one that was used before only when all have been: a record that
// still names a dead machine then leads nowhere, and not to another one.
func (h *host) Place(awsfake.Machine) (awsfake.Addresses, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for range 245 {
		addr := h.next
		if h.next = addr.Next(); addr == lastAddr {
			h.next = netip.MustParseAddr("10.1.0.10")
		}
		if !h.taken(addr) {
			return awsfake.Addresses{Private: addr}, nil
		}
	}
	return awsfake.Addresses{}, errors.New("the lab's network has no free address")
}

func (h *host) taken(addr netip.Addr) bool {
	for _, g := range h.guests {
		g.mu.Lock()
		lives := g.addr == addr && g.ended.IsZero()
		g.mu.Unlock()
		if lives {
			return true
		}
	}
	return false
}

// MachineChanged starts a machine that is pending and ends one that is to end.
func (h *host) MachineChanged(m awsfake.Machine) {
	switch m.State {
	case awsfake.MachinePending:
		h.launch(m)
	case awsfake.MachineStopping, awsfake.MachineShuttingDown:
		h.end(m)
	}
	h.daemon.news()
}

// VolumeChanged has nothing to do: a machine is started with its volume, which stays with it until it ends.
func (h *host) VolumeChanged(awsfake.Volume) { h.daemon.news() }

// launch starts a machine in the background.
func (h *host) launch(m awsfake.Machine) {
	group, ok := h.daemon.plan.group(m.Tags["aws:autoscaling:groupName"])
	h.mu.Lock()
	defer h.mu.Unlock()
	if !ok || h.closed {
		h.daemon.log.Warn("a machine of no group is not started", "machine", m.ID)
		return
	}
	ctx, stop := context.WithCancel(h.daemon.ctx)
	g := &guest{id: m.ID, machine: m, group: group, addr: m.Private, made: m.Launched, fault: h.faults[group.Name], stop: stop}
	h.guests[m.ID] = g
	h.order = append(h.order, m.ID)
	h.tasks.Go(func() {
		defer stop()
		if err := h.run(ctx, g); err != nil {
			g.over(err.Error())
			h.daemon.log.Error("machine", "machine", g.id, "group", group.Name, "error", err)
		}
		h.gone(g)
	})
}

// gone tells the account that a machine is no more, and why it is not what the account believes.
func (h *host) gone(g *guest) {
	g.mu.Lock()
	g.ended = time.Now()
	if g.end == "" {
		g.end = "switched itself off"
	}
	end := g.end
	g.mu.Unlock()
	h.daemon.log.Info("machine has ended", "machine", g.id, "group", g.group.Name, "why", end)
	h.daemon.region.account.EC2().Ended(g.id)
	h.daemon.news()
}

// run runs a machine until it has ended.
func (h *host) run(ctx context.Context, g *guest) (err error) {
	boot, err := h.daemon.disks.of(g.machine)
	if err != nil {
		return err
	}
	disks, err := h.daemon.volumes.of(ctx, g)
	if err != nil {
		return err
	}
	files, err := h.daemon.home.openLogs(g.id)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.close(), h.daemon.home.forget(g)) }()
	g.mu.Lock()
	g.scan = newScanner(time.Now, h.daemon.news)
	g.started = g.scan.started
	g.mu.Unlock()
	running, err := h.daemon.runner.Start(ctx, Launch{
		ID: g.id, Group: g.group.Name, Addr: g.addr, Boot: boot, Memory: g.group.Memory, CPUs: g.group.CPUs, Fault: g.fault,
		Dir: h.daemon.home.machine(g.id), Console: io.MultiWriter(files.console, &stream{scanner: g.scan}), Journal: io.MultiWriter(files.journal, &stream{scanner: g.scan}), Disks: disks,
	})
	if err != nil {
		return fmt.Errorf("starting machine %s: %w", g.id, err)
	}
	return h.attend(ctx, g, running)
}

// attend watches over a machine that runs.
func (h *host) attend(ctx context.Context, g *guest, running Running) error {
	err := writeProcess(filepath.Join(h.daemon.home.machine(g.id), processFile), running.PID())
	if err != nil {
		return errors.Join(err, running.Stop())
	}
	g.mu.Lock()
	g.running = running
	g.mu.Unlock()
	h.daemon.region.account.EC2().Started(g.id)
	h.daemon.volumes.attach(g)
	h.daemon.log.Info("machine has power", "machine", g.id, "group", g.group.Name, "address", g.addr, "pid", running.PID())
	h.daemon.news()
	select {
	case <-running.Ended():
	case <-ctx.Done():
		g.over("terminated")
	}
	return running.Stop()
}

// end ends a machine that the account wants ended.
func (h *host) end(m awsfake.Machine) {
	h.mu.Lock()
	g := h.guests[m.ID]
	h.mu.Unlock()
	if g == nil {
		h.daemon.region.account.EC2().Ended(m.ID)
		return
	}
	g.over("terminated")
	g.stop()
}

// kill pulls a machine's plug, as a failure of its host would.
func (h *host) kill(id string) error {
	h.mu.Lock()
	g := h.guests[id]
	h.mu.Unlock()
	if g == nil {
		return fmt.Errorf("there is no machine %s", id)
	}
	running := g.power()
	if running == nil {
		return fmt.Errorf("machine %s does not run", id)
	}
	g.over("killed")
	return running.Stop()
}

// list are the machines in the order of their launch.
func (h *host) list() []*guest {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]*guest, 0, len(h.order))
	for _, id := range h.order {
		list = append(list, h.guests[id])
	}
	return list
}

// close ends all machines and waits for them.
func (h *host) close() {
	h.mu.Lock()
	h.closed = true
	for _, g := range h.guests {
		g.stop()
	}
	h.mu.Unlock()
	h.tasks.Wait()
}

// forget removes what is of no use once a machine has ended, and keeps what it has said.
func (h Home) forget(g *guest) error {
	var errs []error
	for _, name := range []string{processFile, OverlayFile} {
		errs = append(errs, removeFile(filepath.Join(h.machine(g.id), name)))
	}
	if g.scan != nil {
		if raw := g.scan.state().Timeline; raw != nil {
			errs = append(errs, writeFile(filepath.Join(h.machine(g.id), TimelineFile), append(raw, '\n')))
		}
	}
	return errors.Join(errs...)
}

// shell is a machine's second serial line.
func (h *host) shell(id string) (io.ReadWriteCloser, error) {
	h.mu.Lock()
	g := h.guests[id]
	h.mu.Unlock()
	if g == nil {
		return nil, fmt.Errorf("there is no machine %s", id)
	}
	running := g.power()
	if running == nil {
		return nil, fmt.Errorf("machine %s does not run", id)
	}
	return running.Shell()
}
