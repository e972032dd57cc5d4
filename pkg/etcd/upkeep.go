package etcd

import "slices"

// The bounds of the upkeep.
const (
	// FreeShare is the part of a database, as 1 of so many, that has to be free before a leader's machine gives it back by
	// itself; FreeLeast is how many bytes it has to be besides. With both a defragmentation makes the next one far away.
	FreeShare = 2
	FreeLeast = 100 << 20
	// FullShare is the part of the quota, as 1 of so many, that must be free before the alarm NOSPACE is ended: it would come
	// again with the next writes.
	FullShare = 10
	// MostBehind is how many entries of the log a member may be behind while another one is busy.
	MostBehind = 5000
)

// The names of etcd's alarms.
const (
	NoSpace = "NOSPACE"
	Corrupt = "CORRUPT"
)

// Said is what a member says about itself.
type Said struct {
	ClusterID, Leader ID
	Applied           uint64
	// Size, InUse, Quota and Alarms are those of Content.
	Size, InUse, Quota int64
	Alarms             []string
}

// UpkeepFacts are what the leader's machine sees that looks after all members.
type UpkeepFacts struct {
	// List is the members by a linearizable read; nil if there was no answer.
	List *List
	// Self is the ID of this machine's own member.
	Self ID
	// Said are the answers of the members by their IDs; one that does not answer is not in it.
	Said map[ID]Said
	// Asked: a person asked for it. Then all databases are defragmented, and the alarm NOSPACE is no hindrance.
	Asked bool
	// Compacted, and Done by their IDs, are the steps of this round that were taken.
	Compacted bool
	Done      []ID
}

// UpkeepDo is a step of the upkeep.
type UpkeepDo uint8

// The steps.
const (
	// UpkeepWait: look again; Why says what stands against it.
	UpkeepWait UpkeepDo = iota
	// UpkeepCompact: compact to the newest revision and wait until that is done.
	UpkeepCompact
	// UpkeepDefrag: defragment the member with the action's ID.
	UpkeepDefrag
	// UpkeepDisarm: end the alarm NOSPACE of the member with the action's ID.
	UpkeepDisarm
	// UpkeepRecord: create the record that the member with the action's ID was removed.
	UpkeepRecord
	// UpkeepRemove: remove the member with the action's ID, at another voter.
	UpkeepRemove
	// UpkeepDone: nothing is left to do.
	UpkeepDone
)

var upkeepNames = [...]string{"wait", "compact", "defragment", "disarm", "record", "remove", "done"}

func (d UpkeepDo) String() string { return upkeepNames[d] }

// UpkeepAction is the next step of the upkeep.
type UpkeepAction struct {
	Do  UpkeepDo
	ID  ID
	Why Hindrance
}

// Explain says why the upkeep does not go on; its cause is empty if it does.
func (a UpkeepAction) Explain() Explanation {
	h := hindrances[a.Why]
	return Explanation{Reason: byMembership, Cause: h.cause, Next: h.next}
}

// Wasteful reports whether so much of the database is free that it is given back without being asked for.
func (s Said) Wasteful() bool {
	return s.Size-s.InUse >= FreeLeast && (s.Size-s.InUse)*FreeShare >= s.Size
}

// full reports whether the alarm NOSPACE would come again at once.
func (s Said) full() bool { return s.Quota > 0 && s.Size > s.Quota-s.Quota/FullShare }

func (s Said) has(alarm string) bool { return slices.Contains(s.Alarms, alarm) }

// DecideDefrag returns the next step of a defragmentation: one member after another, the leader last, each only while all
// are well. A member answers nobody while it is defragmented.
func DecideDefrag(f UpkeepFacts) UpkeepAction {
	if why := f.well(); why != NoHindrance {
		return UpkeepAction{Why: why}
	}
	space := slices.ContainsFunc(f.List.Members, func(m Member) bool { return f.Said[m.ID].has(NoSpace) })
	switch {
	case space && !f.Asked:
		return UpkeepAction{Why: HasAlarms}
	case space && !f.Compacted:
		return UpkeepAction{Do: UpkeepCompact}
	}
	for _, m := range f.leaderLast() {
		if !slices.Contains(f.Done, m.ID) && (f.Asked || f.Said[m.ID].Wasteful()) {
			return UpkeepAction{Do: UpkeepDefrag, ID: m.ID}
		}
	}
	if slices.ContainsFunc(f.List.Members, func(m Member) bool { return space && f.Said[m.ID].full() }) {
		return UpkeepAction{Why: StillFull}
	}
	for _, m := range f.List.Members {
		if f.Said[m.ID].has(NoSpace) {
			return UpkeepAction{Do: UpkeepDisarm, ID: m.ID}
		}
	}
	return UpkeepAction{Do: UpkeepDone}
}

// leaderLast are the members, this machine's own as the last.
func (f *UpkeepFacts) leaderLast() []Member {
	members := slices.Clone(f.List.Members)
	slices.SortStableFunc(members, func(a, b Member) int {
		switch {
		case a.ID == f.Self:
			return 1
		case b.ID == f.Self:
			return -1
		}
		return 0
	})
	return members
}

// well looks whether every member can do without another one for a while.
func (f *UpkeepFacts) well() Hindrance {
	if f.List == nil || len(f.List.Members) == 0 {
		return NoQuorum
	}
	own, ok := f.Said[f.Self]
	if !ok || own.Leader != f.Self {
		return NotLeader
	}
	for _, m := range f.List.Members {
		if m.Learner {
			return OtherLearner
		}
		said, ok := f.Said[m.ID]
		switch {
		case !ok:
			return VoterSilent
		case said.ClusterID != f.List.ClusterID:
			return VoterForeign
		case said.Leader != f.Self:
			return NoLeader
		case said.has(Corrupt):
			return IsCorrupt
		case said.Applied+MostBehind < own.Applied:
			return VoterBehind
		}
	}
	return NoHindrance
}

// DecideRemove returns the next step of the removal of the member with an ID that a person asked for; recorded says that its
// place has the record of it. Afterwards there is a quorum, and a member that runs is removed only while all others do.
func DecideRemove(f UpkeepFacts, id ID, recorded bool) UpkeepAction {
	if f.List == nil || len(f.List.Members) == 0 {
		return UpkeepAction{Why: NoQuorum}
	}
	if own, ok := f.Said[f.Self]; !ok || own.Leader != f.Self {
		return UpkeepAction{Why: NotLeader}
	}
	target := f.List.byID(id)
	switch {
	case target == nil:
		return UpkeepAction{Do: UpkeepDone}
	case !target.Learner:
		if why := f.without(id); why != NoHindrance {
			return UpkeepAction{Why: why}
		}
	}
	if !recorded {
		return UpkeepAction{Do: UpkeepRecord, ID: id}
	}
	return UpkeepAction{Do: UpkeepRemove, ID: id}
}

// without looks whether the cluster can bear that a voter is removed.
func (f *UpkeepFacts) without(id ID) Hindrance {
	rest, answer := 0, 0
	for _, m := range f.List.Members {
		switch {
		case m.ID == id:
			continue
		case m.Learner:
			return OtherLearner
		}
		rest++
		said, ok := f.Said[m.ID]
		switch {
		case !ok:
			continue
		case said.ClusterID != f.List.ClusterID:
			return VoterForeign
		case said.Leader != f.Self:
			return NoLeader
		case len(said.Alarms) > 0:
			return HasAlarms
		case said.Applied+MostBehind < f.Said[f.Self].Applied:
			return VoterBehind
		}
		answer++
	}
	_, runs := f.Said[id]
	switch {
	case answer == 0 || answer < Quorum(rest):
		return TooFew
	case runs && answer < rest:
		return VoterSilent
	}
	return NoHindrance
}

// Alarmed says what a member's alarms mean; its cause is empty if there is none. The next step is the reason's.
func Alarmed(alarms []string) Explanation {
	switch {
	case slices.Contains(alarms, Corrupt):
		return Explanation{Reason: "corrupt", Cause: "etcd's alarm CORRUPT: the data of this member differ from the others'"}
	case slices.Contains(alarms, NoSpace):
		return Explanation{Reason: "no-space", Cause: "etcd's alarm NOSPACE: the database is at its quota, and every write is refused"}
	}
	return Explanation{}
}
