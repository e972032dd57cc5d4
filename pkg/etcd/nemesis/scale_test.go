package nemesis

import (
	"context"
	"slices"
	"time"
)

// grows are faults of a schedule in which the document gets two members more, and loses them again.
var grows = []fault{
	{"three members become five, and three again", func(s *schedule) {
		s.grow()
		f := faults[s.rng.IntN(len(faults))]
		s.logf("fault: %s", f.name)
		f.do(s)
		s.shrink()
	}},
	{"two members more come while a machine is replaced, and go again", func(s *schedule) {
		_, m := s.any()
		s.widen()
		s.sleep(100, 4000)
		m.powerOff()
		s.launch(m.seat)
		s.becomes()
		s.shrink()
	}},
	tornVoterFault,
}

// widen is the operator who names two members more in the document, and applies it.
func (s *schedule) widen() {
	for _, seat := range spare {
		s.seats = append(s.seats, seat)
		s.blank(seat)
		s.launch(seat)
	}
}

func (s *schedule) grow() {
	s.widen()
	s.becomes()
}

// becomes waits until the members are those of the document.
func (s *schedule) becomes() {
	if err := s.whole(s.ctx, s.seats, s.conf); err != nil && s.ctx.Err() == nil {
		s.breach("the cluster does not become %v: %v", s.seats, err)
	}
}

// shrink is the operator who removes the members that came last, one after another, and applies a document without them.
func (s *schedule) shrink() {
	for _, seat := range slices.Backward(spare) {
		s.remove(seat)
		s.lose(seat, s.at[seat])
		delete(s.at, seat)
		s.seats = slices.DeleteFunc(s.seats, func(other string) bool { return other == seat })
	}
}

// remove is the operator who asks for a member's removal, until it is done.
func (s *schedule) remove(seat string) {
	var err error
	for range 100 { // the members' reports may be old, or one of them is away: then it is refused
		if err = s.asks(seat); err == nil {
			s.logf("hardtack etcd remove %s: done", seat)
			return
		}
		s.logf("hardtack etcd remove %s: %v", seat, err)
		if sleep(s.ctx, 300*time.Millisecond) != nil {
			return
		}
	}
	s.breach("hardtack etcd remove %s refuses, and nothing changes that: %v", seat, err)
}

func (s *schedule) asks(seat string) error {
	ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second)
	defer cancel()
	c := s.operator()
	asked, err := c.Remove(ctx, seat, false)
	if err != nil {
		return err
	}
	return c.AwaitOrder(ctx, asked, nil)
}
