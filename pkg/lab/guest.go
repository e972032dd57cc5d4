package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// The files in a machine's directory.
const (
	// ConsoleFile is the first serial line, byte for byte.
	ConsoleFile = "console.log"
	// JournalFile is the machine's journal, one line per entry.
	JournalFile = "journal.log"
	// TimelineFile is the agent's timeline of the boot, as JSON.
	TimelineFile = "timeline.json"
	// OverlayFile holds the machine's writes over the baked disk.
	OverlayFile = "disk.qcow2"
)

// guest is a machine that was launched. It is kept until the lab ends.
type guest struct {
	id    string
	group spec.Group
	// scaling is the name of its AutoScaling group.
	scaling string
	addr    netip.Addr
	// machine is the account's description of it at its launch.
	machine awsfake.Machine
	// made is when the group launched it.
	made  time.Time
	fault Fault

	mu      sync.Mutex
	running Running
	scan    *scanner
	// stop asks the machine to end; the region calls it.
	stop func()
	// started is the time of power-on, ended that of its end; zero before.
	started, ended time.Time
	// end is why it has ended: "killed", "terminated", or QEMU's error.
	end string
	// interrupted ends the wait for a spot instance's interruption; nil is none. The host's lock guards it.
	interrupted context.CancelFunc
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

// setEnd sets the reason why the machine ends; the first call counts.
func (g *guest) setEnd(why string) {
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

// kept scans a machine's output, and keeps it in a file as well as it can: on a full disk the lab still sees its machines.
type kept struct {
	*stream
	file io.Writer
	// failed is called with the file's first error.
	failed func(error)
	once   sync.Once
}

// Write never fails, since what writes to it would give up for ever. The next bytes are written again where these could not be.
func (k *kept) Write(p []byte) (int, error) {
	if _, err := k.file.Write(p); err != nil {
		k.once.Do(func() { k.failed(err) })
	}
	return k.stream.Write(p)
}

// host is the region's hypervisor: it starts and ends machines as the account demands, and reports their end to the
// account.
type host struct {
	home Home
	plan Plan
	log  *slog.Logger
	// news is called after every change of a machine.
	news func()
	// life makes the context of one machine; it ends with the lab's.
	life    func() (context.Context, context.CancelFunc)
	disks   *disks
	volumes *volumes
	// account and runner are set before the first machine is launched. They cannot be parameters of newHost: the
	// account needs the host when it is made.
	account *awsfake.Account
	runner  Runner

	mu     sync.Mutex
	guests map[string]*guest
	order  []string
	// faults are the faults of future machines, by group.
	faults map[string]Fault
	next   netip.Addr
	closed bool
	tasks  sync.WaitGroup
}

var _ awsfake.Hypervisor = (*host)(nil)

// newHost makes a host whose machines end with ctx.
func newHost(ctx context.Context, h Home, plan Plan, log *slog.Logger, news func()) *host {
	return &host{
		home: h, plan: plan, log: log, news: news,
		life:    func() (context.Context, context.CancelFunc) { return context.WithCancel(ctx) },
		disks:   &disks{home: h, made: map[string]Boot{}},
		volumes: &volumes{home: h, sockets: map[string]*socket{}},
		guests:  map[string]*guest{}, faults: map[string]Fault{},
		// EC2 reserves the first four addresses of a subnet; the lab gives machines those from the tenth on.
		next: netip.MustParseAddr("10.1.0.10"),
	}
}

// lastAddr is the subnet's last usable address.
var lastAddr = netip.MustParseAddr("10.1.0.254")

// Place gives each machine the next address, and a used one only when all have been used: a record that still lists a
// dead machine then leads nowhere, and not to another machine.
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

// MachineChanged starts a pending machine, and ends a machine that is shutting down.
func (h *host) MachineChanged(m awsfake.Machine) {
	switch m.State {
	case awsfake.MachinePending:
		h.launch(m)
	case awsfake.MachineStopping, awsfake.MachineShuttingDown:
		h.end(m)
	}
	h.news()
}

// launch starts a machine in the background.
func (h *host) launch(m awsfake.Machine) {
	scaling := m.Tags[role.TagGroup]
	group, ok := h.plan.group(scaling)
	if !ok {
		group, ok = h.plan.tagged(scaling, m.Tags)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !ok || h.closed {
		h.log.Warn("a machine of no group is not started", "machine", m.ID)
		return
	}
	ctx, stop := h.life()
	g := &guest{id: m.ID, machine: m, group: group, scaling: scaling, addr: m.Private, made: m.Launched, fault: h.faults[group.Name], stop: stop}
	h.guests[m.ID] = g
	h.order = append(h.order, m.ID)
	h.tasks.Go(func() {
		defer stop()
		if err := h.run(ctx, g); err != nil {
			g.setEnd(err.Error())
			h.log.Error("machine", "machine", g.id, "group", group.Name, "error", err)
		}
		h.reportEnd(g)
	})
}

// reportEnd reports to the account that a machine has ended, and why if the account did not ask for it.
func (h *host) reportEnd(g *guest) {
	g.mu.Lock()
	g.ended = time.Now()
	if g.end == "" {
		g.end = "switched itself off"
	}
	end := g.end
	g.mu.Unlock()
	h.log.Info("machine has ended", "machine", g.id, "group", g.group.Name, "why", end)
	h.account.EC2().Ended(g.id)
	h.news()
}

// keep returns the writer of one source of a machine's output.
func (h *host) keep(g *guest, file *os.File) io.Writer {
	return &kept{stream: &stream{scanner: g.scan}, file: file, failed: func(err error) {
		h.log.Error("a machine's log has gaps from here on", "machine", g.id, "group", g.group.Name, "error", err)
	}}
}

// run runs a machine until it has ended.
func (h *host) run(ctx context.Context, g *guest) (err error) {
	boot, err := h.disks.bootOf(h.account.Images(), g.machine)
	if err != nil {
		return err
	}
	files, err := h.home.openLogs(g.id)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.close(), h.home.forget(g)) }()
	g.mu.Lock()
	g.scan = newScanner(time.Now, h.news)
	g.started = g.scan.started
	g.mu.Unlock()
	running, err := h.runner.Start(ctx, Launch{
		ID: g.id, Type: g.machine.Type, Group: g.group.Name, Addr: g.addr, Boot: boot, Memory: g.group.Memory, CPUs: g.group.CPUs, Fault: g.fault, Volumes: volumesAt(g.group),
		Dir: h.home.machine(g.id), Console: h.keep(g, files.console), Journal: h.keep(g, files.journal),
	})
	if err != nil {
		return fmt.Errorf("starting machine %s: %w", g.id, err)
	}
	return h.supervise(ctx, g, running)
}

// supervise watches a running machine until it has ended.
func (h *host) supervise(ctx context.Context, g *guest, running Running) error {
	err := writeProcess(filepath.Join(h.home.machine(g.id), processFile), running.PID())
	if err != nil {
		return errors.Join(err, running.Stop())
	}
	g.mu.Lock()
	g.running = running
	g.mu.Unlock()
	h.account.EC2().Started(g.id)
	h.log.Info("machine has power", "machine", g.id, "group", g.group.Name, "address", g.addr, "pid", running.PID())
	h.news()
	select {
	case <-running.Ended():
	case <-ctx.Done():
		g.setEnd("terminated")
	}
	return running.Stop()
}

// end ends a machine at the account's request.
func (h *host) end(m awsfake.Machine) {
	h.mu.Lock()
	g := h.guests[m.ID]
	h.mu.Unlock()
	if g == nil {
		h.account.EC2().Ended(m.ID)
		return
	}
	g.setEnd("terminated")
	g.stop()
}

// kill cuts a machine's power, as a failure of its host would.
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
	g.setEnd("killed")
	return running.Stop()
}

// list returns the machines in the order of their launch.
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

// forget removes the files of an ended machine that have no further use, and keeps its logs.
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

// shell opens a machine's second serial line.
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
