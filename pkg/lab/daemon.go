package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
)

// Config configures a lab's daemon.
type Config struct {
	Home Home
	Plan Plan
	// Runner makes the runner of the machines, given the services they use; the daemon closes it.
	Runner func(ctx context.Context, s Surroundings) (Runner, error)
	// Image is the path of the baked disk from which machines start, unless the plan is Empty.
	Image string
	Log   *slog.Logger
}

// daemon is a running lab.
type daemon struct {
	Config
	since time.Time

	host    *host
	region  *region
	runner  Runner
	cluster *kubernetes
	board   *board
	// registry is of container images.
	registry http.Handler
	// down stops the lab.
	down func()
}

// Run is a lab's whole life: it takes the lab's lock, removes the rest of a killed daemon, starts the region, and
// serves until ctx ends or a client asks it to stop. Only logs are left then. ready is called once clients can
// connect.
func Run(ctx context.Context, c Config, ready func()) (err error) {
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
	d := &daemon{Config: c, since: time.Now(), down: down, board: newBoard()}
	err = d.live(ctx, ready)
	_, sweeping := c.Home.sweep()
	return errors.Join(err, sweeping, c.Home.removeTemporary())
}

// live starts everything in order, waits, and stops it in the reverse order.
func (d *daemon) live(ctx context.Context, ready func()) (err error) {
	if err := writeProcess(d.Home.path(daemonFile), os.Getpid()); err != nil {
		return err
	}
	d.host = newHost(ctx, d.Home, d.Plan, d.Log, d.board.bump)
	if d.region, err = newRegion(ctx, d.Home, d.Plan, d.host, d.Log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.region.close()) }()
	d.host.account = d.region.account
	if d.registry, err = newRegistry(d.Home); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.Home.path(registryDir))) }()
	images := d.registry
	if slices.Contains(d.Plan.RegistriesWithCredentials(), RegistryHost()) {
		images = private(images, d.region.secrets())
	}
	d.runner, err = d.Runner(ctx, Surroundings{Source: source{d.host}, AWS: d.region.account.Handler(), Registry: images, Log: d.Log})
	if err != nil {
		return fmt.Errorf("making the lab's network: %w", err)
	}
	defer func() { err = errors.Join(err, d.runner.Close()) }()
	d.host.runner = d.runner
	defer d.host.close()
	if d.cluster, err = newKubernetes(ctx, d.Plan, d.host, d.region.secrets(), d.Log); err != nil {
		return err
	}
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer d.down()
	tasks.Go(func() { _ = d.region.account.Run(ctx) }) // its error is ctx's
	tasks.Go(func() { d.region.invoke(ctx, d.board.bump) })
	if err := d.populate(ctx); err != nil {
		return err
	}
	tasks.Go(func() { d.cluster.watch(ctx, d.board.bump) })
	api, err := d.serve()
	if err != nil {
		return err
	}
	defer api.close()
	d.Log.Info("the lab is up", "name", d.Home.Name, "cluster", d.Plan.Cluster.Name)
	ready()
	<-ctx.Done()
	d.Log.Info("the lab goes down", "name", d.Home.Name)
	return nil
}

// populate does in the region, unless it is to be empty, the steps of a user on AWS: authorities, image, the keys of pods' tokens, and stack.
func (d *daemon) populate(ctx context.Context) error {
	if d.Plan.Empty {
		return nil
	}
	image, err := d.region.publish(ctx)
	if err != nil {
		return err
	}
	d.host.disks.add(image, Boot{Path: d.Image, Format: "qcow2"})
	if _, err := authority.Create(ctx, d.region.secrets(), d.Plan.Info(), time.Now()); err != nil {
		return err
	}
	if err := d.region.publishIssuer(ctx); err != nil {
		return err
	}
	return d.region.apply(ctx)
}

// board counts changes, and lets clients wait for the next one.
type board struct {
	mu       sync.Mutex
	revision uint64
	changed  chan struct{}
}

func newBoard() *board { return &board{revision: 1, changed: make(chan struct{})} }

func (b *board) bump() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.revision++
	close(b.changed)
	b.changed = make(chan struct{})
}

// after waits until the revision differs from seen, for at most d, or until ctx ends, and returns it.
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
