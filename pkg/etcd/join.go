package etcd

import (
	"fmt"
	"strings"
	"time"
)

// The waits of a replacement.
const (
	// SilentFor is how long nobody must have answered as the member whose data are lost.
	SilentFor = time.Minute
	// LeaderFor is how long the other members must have agreed on one leader.
	LeaderFor = 30 * time.Second
	// BackupWithin is how old the newest verified backup may be.
	BackupWithin = 15 * time.Minute
	// LockFor is the lease of the lock; its holder renews it.
	LockFor = time.Minute
)

// LockKey is the key in etcd that one machine holds while it changes who is a member.
const LockKey = "/hardtack/replace"

// Lock is who holds the lock.
type Lock uint8

// The states of the lock.
const (
	// LockUnknown: not asked, or no answer. It is taken by a transaction, which tells.
	LockUnknown Lock = iota
	// LockMine: this process holds it, by a lease that has not ended.
	LockMine
	// LockOthers: another machine does.
	LockOthers
)

// JoinFacts are what a machine sees that is to become a member of a formed cluster: Decide said Join.
type JoinFacts struct {
	Facts Facts
	Lock  Lock
	// Voters are the answers of the voters of Facts.List, by their IDs; one that does not answer is not in it.
	Voters []Voter
	// Silent is for how long no member has answered at this member's URL; 0 if one does, or if it was not tried.
	Silent time.Duration
	// Backups: the cluster has a place for them. BackupAge is the age of the newest verified one; below zero if there is
	// none.
	Backups   bool
	BackupAge time.Duration
	// Added is the ID that this process got for this member by adding it; 0 if it did not, or has started etcd since.
	Added ID
	// Own is what this machine's own etcd says about itself, twice running; nil if it does not run or answered once.
	Own *Own
	// Target is the leader's applied index when the learner was first seen running; 0 if it was not asked.
	Target uint64
}

// Voter is what another member says about itself.
type Voter struct {
	ID        ID
	ClusterID ID
	Leader    ID
	// LeaderFor is for how long it has named this leader.
	LeaderFor time.Duration
	// Alarms: it has any.
	Alarms bool
}

// Own is what a member says about itself.
type Own struct {
	ID      ID
	Learner bool
	// Applied is the index of the last entry that it has applied.
	Applied uint64
}

// JoinDo is a step of a replacement.
type JoinDo uint8

// The steps. Each can be repeated; a machine that ends between two begins again and is led to the right one.
const (
	// JoinWait: look again.
	JoinWait JoinDo = iota
	// JoinStop: as JoinWait, but nothing changes until a person acts.
	JoinStop
	// JoinLock: take LockKey with a lease of LockFor, by a transaction at another member.
	JoinLock
	// JoinBackup: take a backup and verify it.
	JoinBackup
	// JoinRemove: remove the member with the action's ID. That it is not found is fine.
	JoinRemove
	// JoinAdd: add this member's URL as a learner and keep its ID as Added. "Unhealthy cluster" is tried again.
	JoinAdd
	// JoinRecord: create "used", write the marker with Added and the epoch, both on stable storage.
	JoinRecord
	// JoinStart: forget Added, write the environment, start etcd.
	JoinStart
	// JoinPromote: sync the directory of the database, which etcd has exchanged without that, then promote the member with the
	// action's ID, at a voter.
	JoinPromote
	// JoinDone: it is a voter. Release the lock.
	JoinDone
)

var joinNames = [...]string{"wait", "stop", "lock", "backup", "remove", "add", "record", "start", "promote", "done"}

func (d JoinDo) String() string { return joinNames[d] }

// JoinAction is the next step of a replacement.
type JoinAction struct {
	Do JoinDo
	// ID is whom to remove, record or promote.
	ID ID
	// Why is set with JoinWait and JoinStop: what is waited for.
	Why Hindrance
}

// Hindrance is why a replacement does not go on. The zero value is none.
type Hindrance uint8

// The hindrances.
const (
	NoHindrance Hindrance = iota
	OnlyMember
	NoQuorum
	OtherCluster
	Locked
	VoterSilent
	VoterForeign
	NoLeader
	HasAlarms
	OtherLearner
	StillAnswers
	TooFew
	CatchingUp
	WasRemoved
	NotLeader
	VoterBehind
	IsCorrupt
	StillFull
)

var hindrances = [...]struct{ cause, next string }{
	NoHindrance:  {},
	OnlyMember:   {"the data of the cluster's only member are lost", restore},
	NoQuorum:     {"no other member answers with a quorum", status + "; if their data are lost too: " + restore},
	OtherCluster: {"the members that answer are of another cluster", "hardtack dns doctor checks the names; " + status},
	Locked:       {"another member is being replaced", "it goes on when that is done; " + status},
	VoterSilent:  {"another voter does not answer, and with this change a quorum could be lost", status},
	VoterForeign: {"another voter is of another cluster", status},
	NoLeader:     {fmt.Sprintf("the other voters have not agreed on one leader for %s", LeaderFor), status},
	HasAlarms:    {"another voter has an alarm", "hardtack etcd status names it; hardtack etcd defrag ends one of space"},
	OtherLearner: {"another member is still a learner", "it goes on when that one is a voter; " + status},
	StillAnswers: {fmt.Sprintf("the member that is to be replaced has answered within %s", SilentFor), "end the machine that still runs it"},
	TooFew:       {"without this member there is no quorum", restore},
	CatchingUp:   {"the new member does not have everything yet", "journalctl -u etcd"},
	WasRemoved:   {"a person has removed this member, and it has had no new place for its data since", "take its group out of the document, and hardtack stack apply; to have it back: hardtack etcd replace MEMBER"},
	NotLeader:    {"this machine's member is not the leader", "the leader's machine goes on; " + status},
	VoterBehind:  {fmt.Sprintf("another voter is %d entries of the log or more behind", MostBehind), status},
	IsCorrupt:    {"a member's data differ from the others' (alarm CORRUPT)", status + "; end the machine of that member, then hardtack etcd replace it"},
	StillFull:    {"the database is as full as before after compaction and defragmentation: what is in it is in use", "delete objects (events, secrets of past releases), or raise etcd.flags.quota-backend-bytes and refresh etcd; then hardtack etcd defrag"},
}

// Environment returns the lines of etcd's environment for JoinStart.
func (j JoinAction) Environment(f Facts) []string { return environment(f, Joining, Open) }

// Explain says why a replacement does not go on; its cause is empty if it does.
func (j JoinAction) Explain(f Facts) Explanation {
	h := hindrances[j.Why]
	return Explanation{Reason: byMembership, Cause: h.cause, Next: strings.ReplaceAll(h.next, "MEMBER", f.Member)}
}

// DecideJoin returns the next step by which this machine becomes a member of the formed cluster: guarded removal of the ID
// whose data are lost, addition as a learner, start, promotion.
func DecideJoin(j JoinFacts) JoinAction {
	f := &j.Facts
	if f.Disk.WAL || f.Etcd.Running {
		return promote(&j)
	}
	if f.Store.Removed != nil {
		return JoinAction{Do: JoinStop, Why: WasRemoved}
	}
	if why := j.answered(); why == OnlyMember {
		return JoinAction{Do: JoinStop, Why: why}
	} else if why != NoHindrance {
		return JoinAction{Why: why}
	}
	switch j.Lock {
	case LockOthers:
		return JoinAction{Why: Locked}
	case LockUnknown:
		return JoinAction{Do: JoinLock}
	case LockMine:
	}
	if added := f.List.byID(j.Added); added != nil && added.Learner && f.mine(*added) {
		return added.start(f)
	}
	if why := j.guard(); why != NoHindrance {
		return JoinAction{Why: why}
	}
	if j.Backups && (j.BackupAge < 0 || j.BackupAge > BackupWithin) {
		return JoinAction{Do: JoinBackup}
	}
	for _, m := range f.List.Members {
		if f.mine(m) {
			return JoinAction{Do: JoinRemove, ID: m.ID}
		}
	}
	return JoinAction{Do: JoinAdd}
}

// promote leads a member that has a log to its vote. It must say itself that it has everything: etcd promotes a learner
// whose data are gone, as the leader only remembers what it has sent.
func promote(j *JoinFacts) JoinAction {
	f := &j.Facts
	if f.Disk.Marker == nil || !f.current() {
		return JoinAction{Why: NoQuorum}
	}
	id := f.Disk.Marker.MemberID
	switch m := f.List.byID(id); {
	case m == nil:
		return JoinAction{Why: NoQuorum}
	case !m.Learner:
		return JoinAction{Do: JoinDone}
	}
	if o := j.Own; o == nil || o.ID != id || !o.Learner || j.Target == 0 || o.Applied < j.Target {
		return JoinAction{Why: CatchingUp}
	}
	return JoinAction{Do: JoinPromote, ID: id}
}

// start begins etcd under the ID that was added, once that is recorded.
func (m *Member) start(f *Facts) JoinAction {
	marker := f.Disk.Marker
	recorded := marker != nil && marker.MemberID == m.ID && marker.Epoch == f.Store.Epoch && (f.Storage == StorageMachine || f.Store.Used != nil)
	if recorded {
		return JoinAction{Do: JoinStart, ID: m.ID}
	}
	return JoinAction{Do: JoinRecord, ID: m.ID}
}

// answered looks whether the cluster answers.
func (j *JoinFacts) answered() Hindrance {
	f := &j.Facts
	switch {
	case f.List == nil && f.only():
		return OnlyMember
	case f.List == nil || len(f.List.Members) == 0:
		return NoQuorum
	case !f.current():
		return OtherCluster
	}
	return NoHindrance
}

// only reports whether the cluster was formed by this member alone, and is to have no other.
func (f *Facts) only() bool {
	members := f.Store.Outcome.Formed.Members
	_, mine := members[f.Member]
	return len(members) == 1 && mine && !f.Others
}

// guard looks whether the other voters can bear the change: all of them answer, agree, and are a quorum without this one.
func (j *JoinFacts) guard() Hindrance {
	f := &j.Facts
	voters, others, leader := 0, 0, ID(0)
	for _, m := range f.List.Members {
		mine := f.mine(m)
		switch {
		case mine && m.Started && j.Silent < SilentFor:
			return StillAnswers
		case m.Learner && !mine:
			return OtherLearner
		case m.Learner:
			continue
		}
		voters++
		if mine {
			continue
		}
		others++
		if why := j.voter(m.ID, &leader); why != NoHindrance {
			return why
		}
	}
	if others == 0 || others < Quorum(voters) {
		return TooFew
	}
	return NoHindrance
}

// voter looks whether another voter is well and names the same leader as those before it.
func (j *JoinFacts) voter(id ID, leader *ID) Hindrance {
	for _, v := range j.Voters {
		if v.ID != id {
			continue
		}
		switch {
		case v.ClusterID != j.Facts.List.ClusterID:
			return VoterForeign
		case v.Alarms:
			return HasAlarms
		case v.Leader == 0 || v.LeaderFor < LeaderFor || *leader != 0 && *leader != v.Leader:
			return NoLeader
		}
		*leader = v.Leader
		return NoHindrance
	}
	return VoterSilent
}
