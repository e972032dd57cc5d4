package etcd

import (
	"slices"
	"testing"
	"time"
)

// The product of what a replacement sees.
func TestProductOfJoinFacts(t *testing.T) {
	n, done := 0, map[JoinDo]int{}
	why := map[Hindrance]int{}
	for f := range joinProduct {
		n++
		a := DecideJoin(*f)
		done[a.Do]++
		why[a.Why]++
		if broken := brokenJoinRule(f, a); broken != "" {
			t.Fatalf("%s: %s %s %q for %+v, list %+v, marker %+v", broken, a.Do, a.ID, hindrances[a.Why].cause, *f, f.Facts.List, f.Facts.Disk.Marker)
		}
	}
	t.Logf("%d rows of facts", n)
	for d := range joinNames {
		if done[JoinDo(d)] == 0 {
			t.Errorf("no facts lead to %s", JoinDo(d))
		}
	}
	for h := range WasRemoved + 1 { // the others are the upkeep's
		if why[h] == 0 {
			t.Errorf("no facts lead to the hindrance %q", hindrances[h].cause)
		}
	}
}

func joinLists() (all []*List) {
	a := Member{ID: 1, Name: "a", PeerURL: "https://a:2380", Started: true}
	c := Member{ID: 3, Name: "c", PeerURL: "https://c:2380", Started: true}
	cLearner := c
	cLearner.Learner = true
	mine := []Member{{ID: member, Name: "b", PeerURL: url, Started: true}, {ID: member, Name: "b", PeerURL: url, Learner: true, Started: true}, {ID: member, PeerURL: url, Learner: true},
		{ID: member, Name: "b", PeerURL: "https://127.0.0.1:2380", Started: true}}
	for _, others := range [][]Member{{}, {a}, {a, c}, {a, cLearner}} {
		all = append(all, &List{ClusterID: cluster, Members: others})
		for _, m := range mine {
			all = append(all, &List{ClusterID: cluster, Members: append([]Member{m}, others...)})
		}
	}
	return append(all, nil, &List{ClusterID: 9, Members: []Member{a, c}})
}

func joinVoters() [][]Voter {
	well := func(id ID) Voter { return Voter{ID: id, ClusterID: cluster, Leader: 1, LeaderFor: LeaderFor} }
	all := [][]Voter{{}, {well(1)}, {well(3)}, {well(1), well(3)}}
	for _, change := range []func(*Voter){
		func(v *Voter) { v.ClusterID = 9 },
		func(v *Voter) { v.Leader = 3 },
		func(v *Voter) { v.Leader = 0 },
		func(v *Voter) { v.LeaderFor-- },
		func(v *Voter) { v.Alarms = true },
	} {
		v := well(3)
		change(&v)
		all = append(all, []Voter{well(1), v})
	}
	return all
}

func joinProduct(yield func(*JoinFacts) bool) {
	formed := []*Outcome{{Formed: &Formed{ClusterID: cluster}}, {Formed: &Formed{ClusterID: cluster, Members: map[string]ID{"b": member}}}, {Formed: &Formed{ClusterID: cluster, Members: map[string]ID{"a": 1, "b": member, "c": 3}}}}
	markers := []*Marker{nil, {Cluster: "demo", Member: "b", Epoch: 2, MemberID: member, ClusterID: cluster}, {Cluster: "demo", Member: "b", Epoch: 1, MemberID: member, ClusterID: cluster}}
	owns := []*Own{nil, {ID: 7, Learner: true, Applied: 100}, {ID: member, Applied: 100}, {ID: member, Learner: true, Applied: 99}, {ID: member, Learner: true, Applied: 100}}
	for _, storage := range []Storage{StorageVolume, StorageMachine} {
		j := JoinFacts{Facts: base(storage)}
		f := &j.Facts
		f.Disk.Mounted = true
		for _, f.List = range joinLists() {
			for _, used := range []*Used{nil, {Epoch: 2, How: ByJoin}} {
				for _, outcome := range formed {
					f.Store = Store{Answers: true, Epoch: 2, Begin: &Begin{Token: theToken, Members: peers}, Outcome: outcome, Used: used}
					if len(outcome.Formed.Members) == 0 {
						f.Store.Removed = &Removed{Member: "b", Epoch: 2, Order: 1}
					}
					for _, f.Disk.Marker = range markers {
						for _, f.Disk.WAL = range both {
							if !joinRest(&j, owns, yield) {
								return
							}
						}
					}
				}
			}
		}
	}
}

func joinRest(j *JoinFacts, owns []*Own, yield func(*JoinFacts) bool) bool {
	if j.Facts.Disk.WAL {
		for _, j.Facts.Etcd.Running = range both {
			for _, j.Own = range owns {
				for _, j.Target = range []uint64{0, 100} {
					if !yield(j) {
						return false
					}
				}
			}
		}
		j.Facts.Etcd.Running, j.Own, j.Target = false, nil, 0
		return true
	}
	for _, j.Lock = range []Lock{LockUnknown, LockMine, LockOthers} {
		for _, j.Voters = range joinVoters() {
			for _, j.Silent = range []time.Duration{0, SilentFor} {
				for _, j.Backups = range both {
					for _, j.BackupAge = range []time.Duration{-1, BackupWithin, BackupWithin + 1} {
						for _, j.Added = range []ID{0, member, 99} {
							if !yield(j) {
								return false
							}
						}
					}
				}
			}
		}
	}
	return true
}

func brokenJoinRule(j *JoinFacts, a JoinAction) string {
	f := &j.Facts
	current := f.List != nil && f.List.ClusterID == cluster
	var own *Member
	voters, well, learners := 0, 0, 0
	if f.List != nil {
		for i, m := range f.List.Members {
			switch {
			case m.PeerURL == url || m.Name == "b":
				own = &f.List.Members[i]
				if !m.Learner {
					voters++
				}
			case m.Learner:
				learners++
			default:
				voters++
				if slices.ContainsFunc(j.Voters, func(v Voter) bool {
					return v.ID == m.ID && v.ClusterID == cluster && v.Leader == 1 && v.LeaderFor >= LeaderFor && !v.Alarms
				}) {
					well++
				}
			}
		}
	}
	others := voters
	if own != nil && !own.Learner {
		others--
	}
	changes := a.Do == JoinRemove || a.Do == JoinAdd
	recorded := f.Disk.Marker != nil && f.Disk.Marker.MemberID == a.ID && f.Disk.Marker.Epoch == f.Store.Epoch
	for _, rule := range []struct {
		text string
		kept bool
	}{
		{"members are changed under the lock, where there is no log", !changes || j.Lock == LockMine && !f.Disk.WAL && !f.Etcd.Running && current},
		{"members are changed while all other voters are well and a quorum", !changes || well == others && others >= Quorum(voters) && others > 0},
		{"members are changed after a backup", !changes || !j.Backups || j.BackupAge >= 0 && j.BackupAge <= BackupWithin},
		{"who was removed does nothing without data", f.Store.Removed == nil || f.Disk.WAL || f.Etcd.Running || a.Do == JoinStop},
		{"one learner at a time", !changes || learners == 0},
		{"only this member is removed, and only when nobody runs it", a.Do != JoinRemove || own != nil && own.ID == a.ID && (!own.Started || j.Silent >= SilentFor)},
		{"nobody is added twice", a.Do != JoinAdd || own == nil},
		{"what starts empty was added in this run, and is recorded", a.Do != JoinStart || j.Added == a.ID && a.ID != 0 && own != nil && own.ID == a.ID && own.Learner && recorded && !f.Disk.WAL && (f.Storage == StorageMachine || f.Store.Used != nil)},
		{"what is recorded was added in this run", a.Do != JoinRecord || j.Added == a.ID && a.ID != 0 && own != nil && own.ID == a.ID && !f.Disk.WAL},
		{"a learner is promoted by its own word", a.Do != JoinPromote || own != nil && own.ID == a.ID && own.Learner && j.Own != nil && j.Own.ID == a.ID && j.Own.Learner && j.Target > 0 && j.Own.Applied >= j.Target},
		{"it is done when it votes", a.Do != JoinDone || own != nil && !own.Learner},
		{"who waits says why", (a.Do != JoinWait && a.Do != JoinStop) == (a.Why == NoHindrance)},
	} {
		if !rule.kept {
			return rule.text
		}
	}
	return ""
}

// TestOnlyMember: the data of a member that formed the cluster alone are lost for good only if it is to have no others. One to
// which others have come since waits for them, and not for a restore.
func TestOnlyMember(t *testing.T) {
	j := JoinFacts{Facts: base(StorageMachine)}
	j.Facts.Disk.Mounted = true
	j.Facts.Store = Store{Answers: true, Epoch: 2, Begin: &Begin{Token: theToken, Members: peers[1:2]}, Outcome: &Outcome{Formed: &Formed{ClusterID: cluster, Members: map[string]ID{"b": member}}}}
	if a := DecideJoin(j); a.Do != JoinStop || a.Why != OnlyMember {
		t.Errorf("alone: %s %s", a.Do, hindrances[a.Why].cause)
	}
	j.Facts.Others = true
	if a := DecideJoin(j); a.Do != JoinWait || a.Why != NoQuorum {
		t.Errorf("with others: %s %s", a.Do, hindrances[a.Why].cause)
	}
}
