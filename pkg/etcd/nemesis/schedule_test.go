package nemesis

import (
	"context"
	"crypto/tls"
	"fmt"
	mrand "math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var seats = []string{"a", "b", "c"}

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
	// wiped: a majority has lost its volumes, so that nobody may serve any more until an operator restores.
	wiped bool
	// healed: what a fault leaves for its end.
	later []func()
}

const (
	clients     = 4
	wholeWithin = time.Minute
)

// live runs a schedule and returns what was wrong.
func (s *schedule) live(faults []fault) (wrong []string) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	s.ctx = ctx
	for _, seat := range seats {
		s.blank(seat)
		s.launch(seat)
	}
	var h history
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
	if err := s.whole(ctx, seats, s.conf, wholeWithin); err != nil {
		stop()
		group.Wait()
		return append(append(s.broken, "the cluster does not form: "+err.Error()), judge(h.ops)...)
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
	if err != nil {
		wrong = append(wrong, "after all faults: "+err.Error())
	}
	s.lastReads(ctx, &h)
	s.mu.Lock()
	wrong = append(wrong, s.broken...)
	s.mu.Unlock()
	return append(wrong, judge(h.ops)...)
}

// settle waits until the cluster is whole again. One whose majority is gone must stay away, which takes a while to see.
func (s *schedule) settle(ctx context.Context) error {
	if s.wiped {
		s.sleep(2000, 2001)
		return nil
	}
	err := s.whole(ctx, seats, s.conf, wholeWithin)
	s.sleep(50, 100)
	return err
}

// lastReads reads every key once more, from whoever answers.
func (s *schedule) lastReads(ctx context.Context, h *history) {
	transport := &http.Transport{TLSClientConfig: s.conf}
	defer transport.CloseIdleConnections()
	c := &http.Client{Transport: transport, Timeout: 2 * time.Second}
	for n := range keys {
		for _, seat := range seats {
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
	seat := seats[s.rng.IntN(len(seats))]
	return seat, s.at[seat]
}

// heal ends every fault: what is left is a cluster whose machines all run.
func (s *schedule) heal() {
	s.logf("all faults end")
	for _, end := range s.later {
		end()
	}
	s.later = nil
	for _, m := range s.at {
		for _, to := range s.at {
			if to != m {
				m.unblock(to)
			}
		}
		if d := m.running(); d != nil {
			d.signal(syscall.SIGCONT)
		}
		m.mu.Lock()
		m.view = nil
		m.mu.Unlock()
	}
}

// fault is something that happens to a cluster.
type fault struct {
	name string
	do   func(*schedule)
}

// faults are those that a cluster outlives without a hand, or with the one command that replaces a lost volume.
var faults = []fault{
	{"a machine loses power, and boots", func(s *schedule) {
		_, m := s.any()
		s.reboot(m)
	}},
	{"all machines lose power, and boot", func(s *schedule) {
		var group sync.WaitGroup
		for _, m := range s.at {
			group.Go(m.crash)
		}
		group.Wait()
		for _, m := range s.at {
			m.start(s.ctx, s.run)
		}
	}},
	{"etcd hangs", func(s *schedule) {
		_, m := s.any()
		if d := m.running(); d != nil {
			d.signal(syscall.SIGSTOP)
			s.sleep(100, 2500)
			d.signal(syscall.SIGCONT)
		}
	}},
	{"a machine is cut off", func(s *schedule) {
		_, m := s.any()
		s.cut(m, true)
		s.sleep(300, 2000)
		s.join(m)
	}},
	{"a machine is heard, and hears nothing", func(s *schedule) {
		_, m := s.any()
		s.cut(m, false)
		s.sleep(300, 2000)
		s.join(m)
	}},
	{"a machine is replaced", func(s *schedule) {
		seat, m := s.any()
		m.powerOff()
		s.launch(seat)
	}},
	{"all machines are replaced", func(s *schedule) {
		for _, seat := range seats {
			s.at[seat].powerOff()
		}
		for _, seat := range seats {
			s.launch(seat)
		}
	}},
	{"a second machine comes for a seat, and the first goes", func(s *schedule) {
		seat, m := s.any()
		s.launch(seat)
		s.sleep(200, 900)
		m.powerOff()
	}},
	{"names are old while a machine is replaced", func(s *schedule) {
		seat, m := s.any()
		s.mu.Lock()
		old := map[string]netip.Addr{}
		for name, ip := range s.names {
			old[name] = ip
		}
		s.mu.Unlock()
		for _, other := range s.at {
			other.mu.Lock()
			other.view = old
			other.mu.Unlock()
		}
		m.powerOff()
		s.launch(seat)
		s.sleep(300, 1500)
		for _, other := range s.at {
			other.mu.Lock()
			other.view = nil
			other.mu.Unlock()
		}
	}},
	{"the store is away while all machines lose power", func(s *schedule) {
		s.storeFault(storeDown, func() {
			for _, m := range s.at {
				m.crash()
				m.start(s.ctx, s.run)
			}
			s.sleep(300, 1500)
		})
	}},
	{"the store is old while a machine is replaced", func(s *schedule) {
		s.storeFault(storeIsOld, func() {
			seat, m := s.any()
			m.powerOff()
			s.launch(seat)
			s.sleep(300, 1500)
		})
	}},
	{"a volume is attached late", func(s *schedule) {
		seat, m := s.any()
		for _, v := range s.volumesOf(seat) {
			v.delay(time.Duration(300+s.rng.IntN(1500)) * time.Millisecond)
		}
		m.powerOff()
		s.launch(seat)
	}},
}

// rare are faults that take seconds to mend: a schedule has one of them at most.
var rare = []fault{
	{"a volume is lost, and the operator gives a new one", func(s *schedule) {
		seat, m := s.any()
		s.lose(seat, m)
		s.sleep(10, 300)
		s.blank(seat)
		s.launch(seat)
	}},
	{"a volume is lost, and the machine that joins in its place loses power", func(s *schedule) {
		seat, m := s.any()
		s.lose(seat, m)
		s.blank(seat)
		s.launch(seat)
		s.sleep(500, 9000)
		s.reboot(s.at[seat])
	}},
	{"a volume is lost, and its successor too, while it joins", func(s *schedule) {
		seat, m := s.any()
		for range 2 {
			s.lose(seat, m)
			s.blank(seat)
			s.launch(seat)
			m = s.at[seat]
			s.sleep(500, 9000)
		}
	}},
	{"a volume is lost, and an older copy of it comes in its place", func(s *schedule) {
		seat, m := s.any()
		s.older(seat, m)
	}},
}

// early are faults during the first start.
var early = []fault{
	{"a machine loses power during the first start", func(s *schedule) {
		_, m := s.any()
		s.reboot(m)
	}},
	{"all machines lose power during the first start", func(s *schedule) {
		for _, m := range s.at {
			s.reboot(m)
		}
	}},
	{"a volume is lost during the first start", func(s *schedule) {
		seat, m := s.any()
		s.lose(seat, m)
		s.blank(seat)
		s.launch(seat)
	}},
	{"two volumes are lost during the first start, while the third is off", func(s *schedule) {
		off := s.rng.IntN(len(seats))
		third := s.at[seats[off]]
		third.crash()
		for i, seat := range seats {
			if i != off {
				s.lose(seat, s.at[seat])
				s.blank(seat)
				s.launch(seat)
			}
		}
		s.sleep(300, 1500)
		third.start(s.ctx, s.run)
	}},
	{"the store loses answers during the first start", func(s *schedule) {
		s.storeFault(storeLosesAnswers, func() { s.sleep(500, 3000) })
	}},
	{"the store is old, and a machine loses power, during the first start", func(s *schedule) {
		s.storeFault(storeIsOld, func() {
			_, m := s.any()
			s.reboot(m)
			s.sleep(300, 2000)
		})
	}},
}

// last are faults after which nobody may serve any more.
var last = []fault{
	{"two lose their volumes while the third is off", func(s *schedule) {
		s.wiped = true
		off := s.rng.IntN(len(seats))
		third := s.at[seats[off]]
		third.crash()
		s.sleep(50, 400)
		for i, seat := range seats {
			if i != off {
				s.lose(seat, s.at[seat])
				s.blank(seat)
				s.launch(seat)
			}
		}
		s.sleep(1500, 3000)
		third.start(s.ctx, s.run)
	}},
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
	s.sleep(600, 1200)
	// What is acknowledged now, one of the two others may not have: they are the only ones to say so.
	others := s.others(seat)
	s.cut(others[0], true)
	s.sleep(400, 900)
	s.lose(seat, m)
	others[1].crash()
	s.join(others[0])
	copied.setSeat(seat)
	s.launch(seat)
	s.sleep(1500, 2500)
	others[1].start(s.ctx, s.run)
	// The operator sees the refusal, and gives a blank volume.
	s.later = append(s.later, func() {
		s.lose(seat, s.at[seat])
		s.blank(seat)
		s.launch(seat)
	})
}

func (s *schedule) others(seat string) (list []*machine) {
	for _, other := range seats {
		if other != seat {
			list = append(list, s.at[other])
		}
	}
	if s.rng.IntN(2) == 0 {
		list[0], list[1] = list[1], list[0]
	}
	return list
}

// choose is the list of faults of a schedule, and the one of its first start, which may be nil.
func choose(rng *mrand.Rand) (first *fault, list []fault) {
	if rng.IntN(3) == 0 {
		first = &early[rng.IntN(len(early))]
	}
	for range 2 + rng.IntN(3) {
		list = append(list, faults[rng.IntN(len(faults))])
	}
	switch rng.IntN(5) {
	case 0, 1:
		list[rng.IntN(len(list))] = rare[rng.IntN(len(rare))]
	case 2:
		list = append(list[:1], last[rng.IntN(len(last))])
	}
	return first, list
}

func names(list []fault) string {
	var words []string
	for _, f := range list {
		words = append(words, f.name)
	}
	return strings.Join(words, "; ")
}
