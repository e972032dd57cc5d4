package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Config is what a lab is started with.
type Config struct {
	Home Home
	Plan Plan
	// Runner runs the machines; the daemon closes it.
	Runner func(ctx context.Context, d *Daemon) (Runner, error)
	// Image is the baked disk, for status only.
	Image string
	Log   *slog.Logger
}

// Daemon is a lab that runs.
type Daemon struct {
	config Config
	home   Home
	plan   Plan
	log    *slog.Logger
	ctx    context.Context //nolint:containedctx // the lifetime of machines, which are launched by the account's own calls
	since  time.Time

	host    *host
	volumes *volumes
	disks   *disks
	region  *region
	runner  Runner
	cluster *cluster
	board   *board
	// down is closed when somebody has asked the lab to end.
	down func()
}

// Run is a lab's whole life: it holds the lab's lock, clears what a killed daemon has left, brings the region up, and
// serves until ctx ends or a client asks it to go down. Nothing of it is left then but logs. ready is called once
// clients can connect.
func Run(ctx context.Context, c Config, ready func()) (err error) {
	if err := c.Plan.check(); err != nil {
		return fmt.Errorf("planning the lab: %w", err)
	}
	if err := c.Home.make(); err != nil {
		return err
	}
	lock, err := c.Home.lock()
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if _, err := c.Home.sweep(); err != nil {
		return err
	}
	if err := os.RemoveAll(c.Home.path(machinesDir)); err != nil {
		return fmt.Errorf("removing the last lab's consoles: %w", err)
	}
	ctx, down := context.WithCancel(ctx)
	defer down()
	d := &Daemon{config: c, home: c.Home, plan: c.Plan, log: c.Log, ctx: ctx, since: time.Now(), down: down, board: newBoard()}
	err = d.live(ctx, ready)
	_, sweeping := c.Home.sweep()
	return errors.Join(err, sweeping, c.Home.removeTemporary())
}

// live brings everything up in order, waits, and takes it down in the opposite one.
func (d *Daemon) live(ctx context.Context, ready func()) (err error) {
	if err := writeProcess(d.home.path(daemonFile), os.Getpid()); err != nil {
		return err
	}
	d.host, d.disks = newHost(d), &disks{daemon: d, made: map[string]Boot{}}
	if d.region, err = newRegion(ctx, d); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.region.close()) }()
	if d.volumes, err = newVolumes(d); err != nil {
		return err
	}
	if d.runner, err = d.config.Runner(ctx, d); err != nil {
		return fmt.Errorf("making the lab's network: %w", err)
	}
	defer func() { err = errors.Join(err, d.runner.Close()) }()
	defer d.host.close()
	if d.cluster, err = newCluster(ctx, d, d.region.secrets()); err != nil {
		return err
	}
	api, err := d.serve()
	if err != nil {
		return err
	}
	defer api.close()
	var tasks sync.WaitGroup
	defer tasks.Wait()
	tasks.Go(func() { _ = d.region.account.Run(ctx) }) // its error is ctx's
	tasks.Go(func() { d.region.invoke(ctx, d) })
	tasks.Go(func() { d.cluster.watch(ctx) })
	if err := d.populate(ctx); err != nil {
		d.down()
		return err
	}
	d.log.Info("the lab is up", "name", d.home.Name, "cluster", d.plan.Cluster)
	ready()
	<-ctx.Done()
	d.log.Info("the lab goes down", "name", d.home.Name)
	return nil
}

// populate makes what is in a region from its beginning, where it is not to be empty.
func (d *Daemon) populate(ctx context.Context) error {
	if d.plan.Empty {
		return nil
	}
	ca, _, err := d.cluster.trust(ctx)
	if err != nil {
		return err
	}
	return d.region.makeGroups(ca)
}

// news tells whoever waits for a change of the status.
func (d *Daemon) news() { d.board.poke() }

// board counts changes and lets others wait for the next.
type board struct {
	mu       sync.Mutex
	revision uint64
	changed  chan struct{}
}

func newBoard() *board { return &board{revision: 1, changed: make(chan struct{})} }

func (b *board) poke() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.revision++
	close(b.changed)
	b.changed = make(chan struct{})
}

// after waits until the revision is another than seen, for at most d, or until ctx ends.
func (b *board) after(ctx context.Context, seen uint64, d time.Duration) uint64 {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		b.mu.Lock()
		revision, changed := b.revision, b.changed
		b.mu.Unlock()
		if revision != seen {
			return revision
		}
		select {
		case <-changed:
		case <-timer.C:
			return revision
		case <-ctx.Done():
			return revision
		}
	}
}
