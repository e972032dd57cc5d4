package etcd

import (
	"slices"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

// upkeepFacts is a cluster of three that is well, whose member 1 is this machine's and leads. Of every database 10 MiB of 300
// are free.
func upkeepFacts(change func(*UpkeepFacts)) UpkeepFacts {
	f := UpkeepFacts{Self: 1, List: &List{ClusterID: 9}, Said: map[ID]Said{}}
	for id, name := range []string{"a", "b", "c"} {
		f.List.Members = append(f.List.Members, Member{ID: ID(id + 1), Name: name, Started: true})
		f.Said[ID(id+1)] = Said{ClusterID: 9, Leader: 1, Applied: 10000, Size: 300 << 20, InUse: 290 << 20, Quota: 1 << 30}
	}
	if change != nil {
		change(&f)
	}
	return f
}

// says changes what a member says.
func (f *UpkeepFacts) says(id ID, change func(*Said)) {
	s := f.Said[id]
	change(&s)
	f.Said[id] = s
}

func (f *UpkeepFacts) all(change func(*Said)) {
	for id := range f.Said {
		f.says(id, change)
	}
}

func free(s *Said)    { s.InUse = 100 << 20 }
func noSpace(s *Said) { s.Alarms = []string{NoSpace} }

func TestDecideDefrag(t *testing.T) {
	asked := func(change func(*UpkeepFacts)) func(*UpkeepFacts) {
		return func(f *UpkeepFacts) {
			f.Asked = true
			if change != nil {
				change(f)
			}
		}
	}
	for name, tt := range map[string]struct {
		change func(*UpkeepFacts)
		want   UpkeepAction
	}{
		"nothing is free":          {nil, UpkeepAction{Do: UpkeepDone}},
		"the leader's is free":     {func(f *UpkeepFacts) { f.says(1, free) }, UpkeepAction{Do: UpkeepDefrag, ID: 1}},
		"all are, the leader last": {func(f *UpkeepFacts) { f.all(free) }, UpkeepAction{Do: UpkeepDefrag, ID: 2}},
		"two are done":             {func(f *UpkeepFacts) { f.all(free); f.Done = []ID{2, 3} }, UpkeepAction{Do: UpkeepDefrag, ID: 1}},
		"all are done":             {func(f *UpkeepFacts) { f.all(free); f.Done = []ID{2, 3, 1} }, UpkeepAction{Do: UpkeepDone}},
		"half of little is free":   {func(f *UpkeepFacts) { f.all(func(s *Said) { s.Size, s.InUse = 100<<20, 1 }) }, UpkeepAction{Do: UpkeepDone}},
		"a little of much is free": {func(f *UpkeepFacts) { f.all(func(s *Said) { s.Size, s.InUse = 1000<<20, 600<<20 }) }, UpkeepAction{Do: UpkeepDone}},
		"asked for":                {asked(nil), UpkeepAction{Do: UpkeepDefrag, ID: 2}},
		"asked for, and done":      {asked(func(f *UpkeepFacts) { f.Done = []ID{1, 2, 3} }), UpkeepAction{Do: UpkeepDone}},
		"no answer":                {func(f *UpkeepFacts) { f.List = nil }, UpkeepAction{Why: NoQuorum}},
		"it leads no more":         {asked(func(f *UpkeepFacts) { f.all(func(s *Said) { s.Leader = 2 }) }), UpkeepAction{Why: NotLeader}},
		"its own does not answer":  {asked(func(f *UpkeepFacts) { delete(f.Said, 1) }), UpkeepAction{Why: NotLeader}},
		"one is silent":            {asked(func(f *UpkeepFacts) { delete(f.Said, 3) }), UpkeepAction{Why: VoterSilent}},
		"one sees no leader":       {asked(func(f *UpkeepFacts) { f.says(3, func(s *Said) { s.Leader = 0 }) }), UpkeepAction{Why: NoLeader}},
		"one is another cluster's": {asked(func(f *UpkeepFacts) { f.says(3, func(s *Said) { s.ClusterID = 8 }) }), UpkeepAction{Why: VoterForeign}},
		"one is behind":            {asked(func(f *UpkeepFacts) { f.says(3, func(s *Said) { s.Applied = 4999 }) }), UpkeepAction{Why: VoterBehind}},
		"one is a learner":         {asked(func(f *UpkeepFacts) { f.List.Members[1].Learner = true }), UpkeepAction{Why: OtherLearner}},
		"one is corrupt":           {asked(func(f *UpkeepFacts) { f.says(2, func(s *Said) { s.Alarms = []string{Corrupt} }) }), UpkeepAction{Why: IsCorrupt}},
		"an alarm, not asked for":  {func(f *UpkeepFacts) { f.all(free); f.says(2, noSpace) }, UpkeepAction{Why: HasAlarms}},
		"an alarm":                 {asked(func(f *UpkeepFacts) { f.says(2, noSpace) }), UpkeepAction{Do: UpkeepCompact}},
		"compacted":                {asked(func(f *UpkeepFacts) { f.all(noSpace); f.Compacted = true }), UpkeepAction{Do: UpkeepDefrag, ID: 2}},
		"space again":              {asked(func(f *UpkeepFacts) { f.says(2, noSpace); f.Compacted, f.Done = true, []ID{1, 2, 3} }), UpkeepAction{Do: UpkeepDisarm, ID: 2}},
		"no space again": {asked(func(f *UpkeepFacts) {
			f.says(2, noSpace)
			f.says(3, func(s *Said) { s.Size = s.Quota - 1 })
			f.Compacted, f.Done = true, []ID{1, 2, 3}
		}), UpkeepAction{Why: StillFull}},
	} {
		if got := DecideDefrag(upkeepFacts(tt.change)); got != tt.want {
			t.Errorf("%s: %s %s %q, want %s %s %q", name, got.Do, got.ID, got.Explain().Cause, tt.want.Do, tt.want.ID, tt.want.Explain().Cause)
		}
	}
}

func TestDecideRemove(t *testing.T) {
	five := func(f *UpkeepFacts) {
		for id, name := range map[ID]string{4: "d", 5: "e"} {
			f.List.Members = append(f.List.Members, Member{ID: id, Name: name, Started: true})
			f.Said[id] = f.Said[3]
		}
	}
	for name, tt := range map[string]struct {
		change   func(*UpkeepFacts)
		id       ID
		recorded bool
		want     UpkeepAction
	}{
		"first the record":            {five, 5, false, UpkeepAction{Do: UpkeepRecord, ID: 5}},
		"then the member":             {five, 5, true, UpkeepAction{Do: UpkeepRemove, ID: 5}},
		"it is gone":                  {nil, 5, true, UpkeepAction{Do: UpkeepDone}},
		"the leader itself":           {five, 1, true, UpkeepAction{Do: UpkeepRemove, ID: 1}},
		"one that is dead":            {func(f *UpkeepFacts) { five(f); delete(f.Said, 5) }, 5, true, UpkeepAction{Do: UpkeepRemove, ID: 5}},
		"one of two that are dead":    {func(f *UpkeepFacts) { five(f); delete(f.Said, 5); delete(f.Said, 4) }, 5, true, UpkeepAction{Do: UpkeepRemove, ID: 5}},
		"one that runs beside a dead": {func(f *UpkeepFacts) { five(f); delete(f.Said, 4) }, 5, true, UpkeepAction{Why: VoterSilent}},
		"too many are dead": {func(f *UpkeepFacts) {
			five(f)
			for _, id := range []ID{3, 4, 5} {
				delete(f.Said, id)
			}
		}, 5, true, UpkeepAction{Why: TooFew}},
		"the last":                 {func(f *UpkeepFacts) { f.List.Members = f.List.Members[:1] }, 1, true, UpkeepAction{Why: TooFew}},
		"a learner that is no use": {func(f *UpkeepFacts) { f.List.Members[2].Learner = true; delete(f.Said, 2) }, 3, true, UpkeepAction{Do: UpkeepRemove, ID: 3}},
		"beside a learner":         {func(f *UpkeepFacts) { f.List.Members[2].Learner = true }, 2, true, UpkeepAction{Why: OtherLearner}},
		"beside an alarm":          {func(f *UpkeepFacts) { f.says(2, noSpace) }, 3, true, UpkeepAction{Why: HasAlarms}},
		"one with an alarm":        {func(f *UpkeepFacts) { f.says(3, func(s *Said) { s.Alarms = []string{Corrupt} }) }, 3, true, UpkeepAction{Do: UpkeepRemove, ID: 3}},
		"it leads no more":         {func(f *UpkeepFacts) { f.all(func(s *Said) { s.Leader = 2 }) }, 3, true, UpkeepAction{Why: NotLeader}},
		"another follows nobody":   {func(f *UpkeepFacts) { f.says(2, func(s *Said) { s.Leader = 0 }) }, 3, true, UpkeepAction{Why: NoLeader}},
		"another is far behind":    {func(f *UpkeepFacts) { f.says(2, func(s *Said) { s.Applied = 1 }) }, 3, true, UpkeepAction{Why: VoterBehind}},
		"nobody answers":           {func(f *UpkeepFacts) { f.List = nil }, 3, true, UpkeepAction{Why: NoQuorum}},
	} {
		if got := DecideRemove(upkeepFacts(tt.change), tt.id, tt.recorded); got != tt.want {
			t.Errorf("%s: %s %s %q, want %s %s %q", name, got.Do, got.ID, got.Explain().Cause, tt.want.Do, tt.want.ID, tt.want.Explain().Cause)
		}
	}
}

// TestUpkeepKeepsAQuorum decides for every state of five members: what is defragmented or removed leaves a quorum that runs.
func TestUpkeepKeepsAQuorum(t *testing.T) {
	seen := map[UpkeepDo]int{}
	for state := range 1 << 10 { // of each member whether it answers, and whether it follows the leader
		f := UpkeepFacts{Self: 1, Asked: true, List: &List{ClusterID: 9}, Said: map[ID]Said{}}
		up := 0
		for i := range 5 {
			id := ID(i + 1)
			f.List.Members = append(f.List.Members, Member{ID: id})
			if state>>(2*i)&1 == 0 {
				continue
			}
			s := Said{ClusterID: 9, Leader: 1, Applied: 1, Size: 1}
			if state>>(2*i+1)&1 == 0 {
				s.Leader = 0
			} else {
				up++
			}
			f.Said[id] = s
		}
		if a := DecideDefrag(f); a.Do == UpkeepDefrag {
			seen[a.Do]++
			if up != 5 {
				t.Fatalf("%+v: member %s is defragmented while %d of 5 are well", f, a.ID, up)
			}
		}
		for id := ID(1); id <= 5; id++ {
			a := DecideRemove(f, id, true)
			if a.Do != UpkeepRemove {
				continue
			}
			seen[a.Do]++
			rest := slices.DeleteFunc([]ID{1, 2, 3, 4, 5}, func(other ID) bool { return other == id || f.Said[other].Leader != 1 })
			if len(rest) < Quorum(4) {
				t.Fatalf("%+v: removing %s leaves %d of 4", f, id, len(rest))
			}
		}
	}
	if seen[UpkeepDefrag] == 0 || seen[UpkeepRemove] < 5 {
		t.Errorf("steps %v", seen)
	}
}

// TestAlarmed: each alarm is a reason that has a next step.
func TestAlarmed(t *testing.T) {
	for alarm, want := range map[string]reason.Reason{NoSpace: reason.NoSpace, Corrupt: reason.Corrupt} {
		if e := Alarmed([]string{alarm}); reason.Reason(e.Reason) != want || e.Cause == "" || want.Next() == "" {
			t.Errorf("%s: %+v", alarm, e)
		}
	}
	if e := Alarmed(nil); e != (Explanation{}) {
		t.Errorf("%+v", e)
	}
}
