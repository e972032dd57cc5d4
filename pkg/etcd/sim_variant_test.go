package etcd

import (
	"testing"
	"time"
)

// wrong lists procedures that have lost data elsewhere, or that this one would be with one rule less.
var wrong = []variant{
	{name: "new on any empty disk", byFacts: "a first start follows its own record, on an empty directory of an undecided epoch", decideAs: func(f Facts) Action {
		a := Decide(f)
		if a.Row == J1Empty || a.Row == N2Abandon {
			return N1Start.action()
		}
		return a
	}},
	{name: "existing without a removal", joinAs: func(j JoinFacts) JoinAction {
		a := DecideJoin(j)
		if a.Do == JoinRemove {
			return takeOver(j, a.ID)
		}
		return a
	}},
	{name: "an older copy of the volume is accepted", decideAs: func(f Facts) Action {
		if a := Decide(f); a.Row != F5Foreign {
			return a
		}
		made := Made{Member: f.Member, UUID: f.Disk.UUID}
		f.Store.Made = &made
		if f.Disk.Marker != nil {
			marker := *f.Disk.Marker
			marker.Volume = f.volume()
			f.Disk.Marker = &marker
		}
		return Decide(f)
	}},
	{name: "every epoch has the same token", sameToken: true},
	{name: "promotion by the list of members", promotesOthers: true},
	{name: "a learner that is in the list is taken again", joinAs: func(j JoinFacts) JoinAction {
		f := &j.Facts
		if a := DecideJoin(j); f.Disk.WAL || f.Etcd.Running || !f.current() || a.Do == JoinStop {
			return a
		}
		for _, m := range f.List.Members {
			if f.mine(m) && m.Learner {
				return takeOver(j, m.ID)
			}
		}
		return DecideJoin(j)
	}},
	{name: "a new epoch opens although the old one has a quorum", byFacts: "formed waits for a quorum to leave the epoch before", decideAs: func(f Facts) Action {
		if f.Store.Begin != nil {
			begin := *f.Store.Begin
			begin.Previous = nil
			f.Store.Begin = &begin
		}
		return Decide(f)
	}},
	{name: "no record that a member has started", byFacts: "a first start follows its own record, on an empty directory of an undecided epoch", decideAs: func(f Facts) Action {
		a := Decide(f)
		if a.Row == N2Abandon {
			return N1Start.action()
		}
		return a
	}},
	{name: "a record that is not read allows a start", byFacts: "a first start follows its own record, on an empty directory of an undecided epoch", decideAs: func(f Facts) Action {
		a := Decide(f)
		if a.Row == N1Claim {
			return N1Start.action()
		}
		return a
	}},
	{name: "the start is not sealed", decideAs: func(f Facts) Action {
		if f.Etcd.Start != Sealed && f.Disk.WAL {
			f.Etcd.Start = Sealed
		}
		return Decide(f)
	}},
	{name: "clients come in before the outcome", byFacts: "clients come in only when the epoch is formed", decideAs: func(f Facts) Action {
		a := Decide(f)
		if a.Row == N1Start || a.Row == D2Forming {
			a.Clients = Open
		}
		return a
	}},
	{name: "data of an earlier epoch are started", byFacts: "any other start has a log of this epoch", decideAs: func(f Facts) Action {
		a := Decide(f)
		if a.Row == E4Epoch {
			return D1Formed.action()
		}
		return a
	}},
	{name: "whatever etcd panics on is discarded", byFacts: halts, decideAs: func(f Facts) Action {
		switch a := Decide(f); {
		case a.Row == SRuns && f.Etcd.Panics >= PanicsBefore:
			return S4Broken.action()
		case a.Row == D1Formed && f.Broken == f.Disk.Marker.MemberID:
			return D4Broken.action()
		default:
			return a
		}
	}},
	{name: "a learner's data are discarded when it has not come up", byFacts: halts, alone: true, decideAs: func(f Facts) Action {
		if a := Decide(f); a.Row != J2Learner || f.Etcd.Reads {
			return a
		}
		return S4Broken.action()
	}},
	{name: "data are discarded by a list from before etcd was halted", byFacts: discards, alone: true, decideAs: func(f Facts) Action {
		if a := Decide(f); a.Row != S4Broken {
			return a
		}
		return D4Broken.action()
	}},
	{name: "a first voter is given up since a list calls it a learner", byFacts: halts, alone: true, decideAs: func(f Facts) Action {
		if o := f.Store.Outcome; o != nil && o.Formed != nil {
			f.Store.Outcome = &Outcome{Formed: &Formed{ClusterID: o.Formed.ClusterID}}
		}
		return Decide(f)
	}},
}

// The rules that variants break which give up what etcd panics on.
const (
	discards = "data are discarded only for a later epoch, by a cluster that removed them, or as a halted learner's"
	halts    = "only what failed is halted"
)

// takeOver starts with an empty log under an ID that the cluster has.
func takeOver(j JoinFacts, id ID) JoinAction {
	if m := j.Facts.Disk.Marker; m != nil && m.MemberID == id {
		return JoinAction{Do: JoinStart, ID: id}
	}
	return JoinAction{Do: JoinRecord, ID: id}
}

// within is in how many schedules the simulator must find a wrong variant.
const within = 10_000

func TestSimulatorFindsWrongVariants(t *testing.T) {
	makeWords()
	for i := range wrong {
		v := &wrong[i]
		if v.alone {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			w, begin := newWorld(v), time.Now()
			for seed := uint64(1); seed <= within; seed++ {
				if found := w.run(seed); found != "" && !w.stuck {
					t.Logf("schedule %d, after %s: %s", seed, time.Since(begin).Round(time.Millisecond), found)
					return
				}
			}
			t.Errorf("%d schedules found nothing wrong", within)
		})
	}
}
