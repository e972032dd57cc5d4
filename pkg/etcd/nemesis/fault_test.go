package nemesis

import (
	"maps"
	mrand "math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// fault is something that happens to a cluster.
type fault struct {
	name string
	do   func(*schedule)
}

// faults are those that a cluster outlives without a hand.
var faults = []fault{
	{"a machine loses power, and boots", func(s *schedule) {
		_, m := s.any()
		s.reboot(m)
	}},
	{"all machines lose power, and boot", func(s *schedule) {
		s.blackout()
		for _, m := range s.at {
			m.start(s.ctx, s.run)
		}
	}},
	{"etcd is killed", func(s *schedule) {
		_, m := s.any()
		if d := m.running(); d != nil {
			d.signal(syscall.SIGKILL)
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
	{"an agent ends, again and again, while its machine boots", func(s *schedule) {
		_, m := s.any()
		s.reboot(m)
		s.restarts(m)
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
		for _, seat := range s.seats {
			s.at[seat].powerOff()
		}
		for _, seat := range s.seats {
			s.launch(seat)
		}
	}},
	{"a second machine comes for a seat, and the first goes", func(s *schedule) {
		seat, m := s.any()
		s.launch(seat)
		s.sleep(200, 900)
		m.powerOff()
	}},
	{"a second machine comes for a seat, and goes again", func(s *schedule) {
		seat, m := s.any()
		s.launch(seat)
		s.sleep(200, 900)
		s.at[seat].powerOff()
		s.at[seat] = m
	}},
	{"names are old while a machine is replaced", func(s *schedule) {
		seat, m := s.any()
		s.namesAre(s.resolved())
		m.powerOff()
		s.launch(seat)
		s.sleep(300, 1500)
		s.namesAre(nil)
	}},
	{"two names are each other's while a machine is replaced", func(s *schedule) {
		seat, m := s.any()
		wrong, others := s.resolved(), s.others(seat)
		one, two := memberName(others[0].seat), memberName(seat)
		wrong[one], wrong[two] = wrong[two], wrong[one]
		s.namesAre(wrong)
		m.powerOff()
		s.launch(seat)
		s.sleep(300, 1500)
		s.namesAre(nil)
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
	{"the store is slow while a machine is replaced", func(s *schedule) {
		s.storeFault(storeIsSlow, func() {
			seat, m := s.any()
			m.powerOff()
			s.launch(seat)
			s.sleep(1000, 3000)
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
	{"two volumes have each other's tags for a while", func(s *schedule) {
		seat, _ := s.any()
		pair := []string{seat, s.others(seat)[0].seat}
		for range 2 { // there and back
			s.swap(pair[0], pair[1])
			s.sleep(300, 1500)
		}
	}},
	{"a second volume has a member's tags for a while", func(s *schedule) {
		seat, m := s.any()
		twin, err := s.newVolume(seat)
		if err != nil {
			s.t.Fatal(err)
		}
		s.reboot(m)
		s.sleep(300, 1500)
		twin.setSeat("")
	}},
	{"an operator replaces what is not lost, while a machine is replaced", func(s *schedule) {
		seat, m := s.any()
		s.replace(seat)
		m.powerOff()
		s.launch(seat)
		s.replace(seat)
	}},
	{"the clock of a machine jumps", func(s *schedule) {
		_, m := s.any()
		m.mu.Lock()
		m.skew += time.Duration(s.rng.IntN(120)-60) * time.Minute
		if s.backups { // an operator whose clock differs by minutes from that of a backup is refused
			m.skew = time.Duration(s.rng.IntN(120)-60) * time.Second
		}
		m.mu.Unlock()
	}},
}

// rare are faults that take seconds to mend: a schedule has one of them at most.
var rare = []fault{
	{"a volume is lost, and the operator gives a new one", func(s *schedule) {
		seat, m := s.any()
		s.lose(seat, m)
		s.launch(seat)
		s.sleep(10, 300)
		s.replace(seat)
	}},
	{"a volume is lost, and the machine that joins in its place loses power", func(s *schedule) {
		seat, m := s.any()
		s.lose(seat, m)
		s.launch(seat)
		s.replace(seat)
		s.sleep(500, 9000)
		s.reboot(s.at[seat])
	}},
	{"a volume is lost, and the agent that joins in its place ends, again and again", func(s *schedule) {
		seat, m := s.any()
		s.lose(seat, m)
		s.launch(seat)
		s.replace(seat)
		for range 4 {
			s.sleep(100, 3000)
			s.restarts(s.at[seat])
		}
	}},
	{"a volume is lost, and its successor too, while it joins", func(s *schedule) {
		seat, m := s.any()
		for range 2 {
			s.lose(seat, m)
			s.launch(seat)
			s.replace(seat)
			m = s.at[seat]
			s.sleep(500, 9000)
		}
	}},
	{learnerLost, func(s *schedule) {
		seat, m := s.any()
		s.lose(seat, m)
		s.launch(seat)
		s.replace(seat)
		s.learns(seat, s.rng.IntN(3) == 0)
		s.lose(seat, s.at[seat])
		s.launch(seat)
		s.sleep(200, 1500)
		s.replace(seat)
	}},
	{"a volume is lost, and the store loses answers while another joins", func(s *schedule) {
		seat, m := s.any()
		s.lose(seat, m)
		s.launch(seat)
		s.replace(seat)
		s.storeFault(storeLosesAnswers, func() { s.sleep(3000, 8000) })
	}},
	{"a volume gives errors, and the operator replaces it", func(s *schedule) {
		seat, m := s.any()
		if v := m.volume(); v != nil {
			v.wear()
		}
		s.sleep(300, 3000)
		s.lose(seat, m)
		s.launch(seat)
		s.replace(seat)
	}},
	{olderCopy, func(s *schedule) {
		seat, m := s.any()
		s.older(seat, m)
	}},
	tornFault,
}

// The names of faults that a variant is held against.
const (
	learnerLost = "a volume is lost, and its successor too, when it has just what it needs"
	olderCopy   = "a volume is lost, and an older copy of it comes in its place"
	reborn      = "two volumes are lost during the first start, and the third still sees what was before"
)

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
	{"an agent ends, again and again, during the first start", func(s *schedule) {
		_, m := s.any()
		s.restarts(m)
	}},
	{"a volume is lost during the first start", func(s *schedule) {
		seat, m := s.any()
		s.lose(seat, m)
		s.blank(seat)
		s.launch(seat)
	}},
	{"two volumes are lost during the first start, while the third is off", func(s *schedule) {
		third := s.loseOthers()
		s.sleep(300, 1500)
		third.start(s.ctx, s.run)
	}},
	{reborn, func(s *schedule) {
		s.sleep(200, 1500)
		before := s.store.copy()
		third := s.loseOthers()
		if !s.wiped {
			third.remembers(before)
			s.until(s.store.formed)
		}
		s.sleep(100, 600)
		third.start(s.ctx, s.run)
		s.sleep(800, 3000)
		third.remembers(nil)
	}},
	{"the store loses answers during the first start", func(s *schedule) {
		s.storeFault(storeLosesAnswers, func() { s.sleep(500, 3000) })
	}},
	{"the store is slow, and a machine loses power, during the first start", func(s *schedule) {
		s.storeFault(storeIsSlow, func() {
			_, m := s.any()
			s.reboot(m)
			s.sleep(1000, 5000)
		})
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
		third := s.loseOthers()
		s.sleep(1500, 3000)
		third.start(s.ctx, s.run)
	}},
}

// choose is the list of faults of a schedule, and the one of its first start, which may be nil. If only has names, the
// schedule has no other faults than these.
func choose(rng *mrand.Rand, only []string) (first *fault, list []fault) {
	if len(only) > 0 {
		return directed(rng, only)
	}
	if rng.IntN(3) == 0 {
		first = &early[rng.IntN(len(early))]
	}
	common := slices.Concat(faults, full)
	for range 2 + rng.IntN(3) {
		list = append(list, common[rng.IntN(len(common))])
	}
	switch rng.IntN(10) {
	case 0, 1, 2, 3:
		list[rng.IntN(len(list))] = rare[rng.IntN(len(rare))]
	case 4:
		list = append(list[:1], last[rng.IntN(len(last))])
	case 5, 6:
		list[rng.IntN(len(list))] = restores[rng.IntN(len(restores))]
	case 7:
		list = append(list[:1], grows[rng.IntN(len(grows))])
	}
	return first, list
}

// withBackups reports whether a schedule needs a place for backups. Others have one sometimes.
func withBackups(rng *mrand.Rand, list []fault) bool {
	for _, f := range list {
		if slices.ContainsFunc(restores, func(r fault) bool { return r.name == f.name }) {
			return true
		}
	}
	return rng.IntN(6) == 0
}

func directed(rng *mrand.Rand, only []string) (first *fault, list []fault) {
	of := func(all []fault) []fault {
		return slices.DeleteFunc(slices.Clone(all), func(f fault) bool { return !slices.Contains(only, f.name) })
	}
	if starts := of(early); len(starts) > 0 {
		first = &starts[rng.IntN(len(starts))]
	}
	if common := of(slices.Concat(faults, full)); len(common) > 0 {
		for range 1 + rng.IntN(3) {
			list = append(list, common[rng.IntN(len(common))])
		}
	}
	if seldom := of(slices.Concat(rare, grows, last, restores)); len(seldom) > 0 {
		list = append(list, seldom[rng.IntN(len(seldom))])
	}
	return first, list
}

// named are the names of all faults that have a text in them.
func named(text string) (list []string) {
	for _, f := range slices.Concat(early, faults, full, rare, grows, last, restores) {
		if strings.Contains(f.name, text) {
			list = append(list, f.name)
		}
	}
	return list
}

func names(list []fault) string {
	var words []string
	for _, f := range list {
		words = append(words, f.name)
	}
	return strings.Join(words, "; ")
}

// blackout ends all machines at once.
func (s *schedule) blackout() {
	var group sync.WaitGroup
	for _, m := range s.at {
		group.Go(m.crash)
	}
	group.Wait()
}

// restarts ends the agent of a machine at any of its steps, a few times.
func (s *schedule) restarts(m *machine) {
	for range 3 + s.rng.IntN(4) {
		s.sleep(1, 150)
		m.restart(s.ctx, s.run)
	}
}

// loseOthers takes a machine's power, and the volumes of all others. If there was a cluster, it is no more.
func (s *schedule) loseOthers() (third *machine) {
	kept, third := s.any()
	third.crash()
	s.sleep(50, 400)
	for _, other := range s.others(kept) {
		s.lose(other.seat, other)
	}
	s.wiped = s.store.formed()
	for _, other := range s.others(kept) {
		s.blank(other.seat)
		s.launch(other.seat)
	}
	return third
}

// swap gives two seats each other's volumes, and new machines.
func (s *schedule) swap(one, two string) {
	s.at[one].powerOff()
	s.at[two].powerOff()
	ones, twos := s.volumesOf(one), s.volumesOf(two)
	for _, v := range ones {
		v.setSeat(two)
	}
	for _, v := range twos {
		v.setSeat(one)
	}
	s.launch(one)
	s.launch(two)
}

// resolved is what the names are now.
func (s *schedule) resolved() map[string]netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.names)
}

// namesAre gives all machines that run a wrong view of the names; nil ends it.
func (s *schedule) namesAre(view map[string]netip.Addr) {
	for _, m := range s.at {
		m.sees(view)
	}
}
