package nemesis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
)

// seats are the members of a first start, and spare those by which a cluster may grow.
var (
	seats = []string{"a", "b", "c"}
	spare = []string{"d", "e"}
)

// procedure brings up etcd on a machine, and looks after it until ctx ends. It returns an error only where it gives up.
type procedure func(ctx context.Context, m *machine) error

// schedule is one life of a cluster.
type schedule struct {
	*world
	t     *testing.T
	rng   *mrand.Rand
	conf  *tls.Config
	run   procedure
	ctx   context.Context     //nolint:containedctx // a schedule is one call, with faults as its closures
	at    map[string]*machine // the machine of each seat
	early *fault
	hunts bool // what is wrong is looked for: the schedule ends when it is found
	// wiped: a majority has lost its volumes, so that nobody may serve any more until an operator restores.
	wiped bool
	// healed: what a fault leaves for its end.
	later []func()
}

const clients = 4

// live runs a schedule and returns what was wrong.
func (s *schedule) live(faults []fault) (wrong []string) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	s.ctx = ctx
	for _, seat := range s.seats {
		s.blank(seat)
		s.launch(seat)
	}
	var h history
	if s.hunts {
		s.enough = func() bool { return h.enough(s.store) }
	}
	var group sync.WaitGroup
	working, stop := context.WithCancel(ctx)
	defer group.Wait()
	defer stop()
	for n := range clients { // from the start: who answers them then must keep what it has said
		rng := mrand.New(mrand.NewPCG(s.rng.Uint64(), uint64(n)))
		group.Go(func() { s.client(working, n, &h, s.conf, rng) })
	}
	if s.early != nil {
		s.logf("fault: %s", s.early.name)
		s.sleep(1, 2500)
		s.early.do(s)
	}
	if s.wiped {
		faults = nil
	} else if err := s.whole(ctx, s.seats, s.conf); err != nil {
		stop()
		group.Wait()
		return append(append(s.broken, "the cluster does not form: "+err.Error()), judge(h.ops, s.store.lives())...)
	}
	s.sleep(100, 300)
	for _, f := range faults {
		s.logf("fault: %s", f.name)
		f.do(s)
		s.sleep(100, 700)
	}
	s.heal()
	err := s.settle(ctx)
	stop()
	group.Wait()
	if err != nil && !errors.Is(err, errEnough) {
		wrong = append(wrong, "after all faults: "+err.Error())
	}
	s.lastReads(ctx, &h)
	s.mu.Lock()
	wrong = append(wrong, s.broken...)
	s.mu.Unlock()
	return append(wrong, judge(h.ops, s.store.lives())...)
}

// settle waits until the cluster is whole again. One whose majority is gone must stay away, which takes a while to see.
func (s *schedule) settle(ctx context.Context) error {
	if s.wiped {
		s.sleep(2000, 2001)
		return nil
	}
	err := s.whole(ctx, s.seats, s.conf)
	s.sleep(50, 100)
	return err
}

// lastReads reads every key once more, from whoever answers.
func (s *schedule) lastReads(ctx context.Context, h *history) {
	transport := &http.Transport{TLSClientConfig: s.conf, TLSHandshakeTimeout: time.Second}
	defer transport.CloseIdleConnections()
	c := &http.Client{Transport: transport, Timeout: 2 * time.Second}
	for n := range keys {
		for _, seat := range s.seats {
			o := operation{client: clients, key: fmt.Sprint("k", n)}
			if m := s.serving(seat); m != nil && s.do(ctx, c, m, &o) {
				h.add(o)
			}
		}
	}
}

// blank gives a seat a new volume, as the stack does.
func (s *schedule) blank(seat string) {
	if _, err := s.newVolume(seat); err != nil {
		s.t.Fatal(err)
	}
}

// launch gives a seat a new machine.
func (s *schedule) launch(seat string) {
	m := s.newMachine(s.t, seat)
	s.at[seat] = m
	s.logf("%s is %s at %s", seat, m.id, m.address)
	m.start(s.ctx, s.run)
}

// sleep waits between two numbers of milliseconds.
func (s *schedule) sleep(from, to int) {
	select {
	case <-s.ctx.Done():
	case <-time.After(time.Duration(from+s.rng.IntN(to-from)) * time.Millisecond):
	}
}

func (s *schedule) any() (string, *machine) {
	seat := s.seats[s.rng.IntN(len(s.seats))]
	return seat, s.at[seat]
}

// heal ends every fault: what is left is a cluster whose machines all run.
func (s *schedule) heal() {
	s.logf("all faults end")
	for _, end := range s.later {
		end()
	}
	s.later = nil
	s.store.set(storeWorks)
	for _, m := range s.at {
		for _, to := range s.at {
			if to != m {
				m.unblock(to)
			}
		}
		if d := m.running(); d != nil {
			d.signal(syscall.SIGCONT)
		}
		m.sees(nil)
		m.remembers(nil)
	}
}

// storeFault lets the store fail while something happens.
func (s *schedule) storeFault(f storeFault, happens func()) {
	s.store.set(f)
	happens()
	s.store.set(storeWorks)
}

func (s *schedule) reboot(m *machine) {
	m.crash()
	s.sleep(1, 600)
	m.start(s.ctx, s.run)
}

// cut drops what the others send to a machine, and what it sends to them.
func (s *schedule) cut(m *machine, both bool) {
	for _, other := range s.at {
		if other == m {
			continue
		}
		other.block(m)
		if both {
			m.block(other)
		}
	}
}

func (s *schedule) join(m *machine) {
	for _, other := range s.at {
		if other != m {
			other.unblock(m)
			m.unblock(other)
		}
	}
}

// lose ends a seat's machine, and deletes its volumes.
func (s *schedule) lose(seat string, m *machine) {
	m.powerOff()
	for _, v := range s.volumesOf(seat) {
		if err := v.remove(); err != nil {
			s.breach("deleting %s: %v", v.id, err)
		}
	}
}

// older takes a copy of a member's volume as it is, lets the cluster go on, and puts the copy in the place of the volume.
func (s *schedule) older(seat string, m *machine) {
	m.crash()
	var copied *ebs
	for _, v := range s.volumesOf(seat) {
		twin, err := v.copyOf()
		if err != nil {
			s.t.Fatal(err)
		}
		twin.setSeat("") // nobody's, as a snapshot is
		copied = twin
	}
	m.start(s.ctx, s.run)
	s.reports(m, etcd.SRuns, 5*time.Second)
	s.acknowledges(5, 5*time.Second, m)
	// What is acknowledged now, one of the two others may not have: they are the only ones to say so.
	others := s.others(seat)
	s.cut(others[0], true)
	s.logf("acknowledged without %s: %t", others[0].seat, s.acknowledges(10, 5*time.Second, m, others[1]))
	s.lose(seat, m)
	others[1].crash()
	s.join(others[0])
	copied.setSeat(seat)
	s.launch(seat)
	// It says that the volume is not its own; or it serves with what it has.
	s.within(5*time.Second, func() bool { return s.at[seat].writes.Load() > 3 || s.at[seat].isAt(etcd.F5Foreign) })
	others[1].start(s.ctx, s.run)
	// The operator sees the refusal, and gives a blank volume.
	s.later = append(s.later, func() {
		s.lose(seat, s.at[seat])
		s.blank(seat)
		s.launch(seat)
	})
}

func (s *schedule) others(seat string) (list []*machine) {
	for _, other := range s.seats {
		if other != seat {
			list = append(list, s.at[other])
		}
	}
	s.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}
