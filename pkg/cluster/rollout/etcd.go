package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The bounds within which the machine of a member is replaced.
const (
	// ReportAge is how old a member's report may be: it writes one every minute.
	ReportAge = 3 * time.Minute
	// MostLag is how many entries of etcd's log a member may be behind. With more, the remaining members could need minutes to
	// catch up while one of them is away.
	MostLag = 5000
	// BackupAge is how old the newest backup may be: members take one every quarter of an hour.
	BackupAge = 15 * time.Minute
)

// Reports are what the members of etcd report to the cluster's store.
type Reports struct {
	// At is the time of the reading, by the clock of the store where that has one. The zero value means that nothing was read.
	At time.Time `json:"at,omitzero"`
	// Epoch is the current epoch; 0 if there is none.
	Epoch int `json:"epoch,omitempty"`
	// Members are the newest reports by the members' names; a member without an entry has never reported.
	Members map[string]etcd.Status `json:"members,omitempty"`
	// Unread says why the reports may not be read; empty if they were.
	Unread string `json:"unread,omitempty"`
}

// Volume is the volume that a member's report names.
type Volume struct {
	ID string `json:"id"`
	// Holder is the machine that has it; empty if none has.
	Holder string `json:"holder,omitempty"`
}

// report returns what the group's member reports; false if it never has.
func (s State) report(g Group) (etcd.Status, bool) {
	r, ok := s.Etcd.Members[g.Member]
	return r, ok
}

// doubt says why the data of the group's member may end with its machine; empty if they do not. Only the member itself can
// say where its data are: a volume with its tags, even an attached one, may be empty beside the machine's own disk.
func (s State) doubt(g Group) string {
	r, ok := s.report(g)
	switch {
	case s.Etcd.Unread != "":
		return "what its member reports cannot be read: " + s.Etcd.Unread
	case !ok:
		return "its member does not report that its data are on a volume"
	case r.Volume == "":
		return "its member reports that its data are on the machine's own disk"
	case r.Epoch != s.Etcd.Epoch:
		return fmt.Sprintf("its member reports data of epoch %d, and etcd is at epoch %d", r.Epoch, s.Etcd.Epoch)
	case g.Volume == nil || g.Volume.ID != r.Volume:
		return fmt.Sprintf("its member reports volume %s, which is not there", r.Volume)
	case g.starting() && (g.Volume.Holder == "" || g.has(g.Volume.Holder)):
		return "" // its machine has never been in service, and so has had no data that are not on the volume
	case !g.has(g.Volume.Holder):
		return fmt.Sprintf("its member reports volume %s, which none of its machines has", r.Volume)
	case r.Instance != g.Volume.Holder:
		return fmt.Sprintf("machine %s has volume %s, and has not reported yet that its member runs on it", g.Volume.Holder, r.Volume)
	}
	return s.silence(r)
}

// Stays says why the machine of the group's member must not be ended now, so that one of another group goes on with the member's
// data; empty if nothing stands against it.
func (s State) Stays(g Group) string {
	if text := s.doubt(g); text != "" {
		return text
	}
	if in, text := s.unfit(g); text != "" {
		return in.Name + ": " + text
	}
	return ""
}

// handover is the step that ends the machine which has the data of a member of another group: the document has moved the member,
// and the group's own machine waits for them. false if there is no such machine, or it leaves already.
func (s State) handover(chosen []Group) (Step, bool) {
	for _, seat := range s.ordered() {
		if seat.Volume == nil {
			continue
		}
		for _, g := range s.Groups {
			i := slices.IndexFunc(g.Stale(), func(m Machine) bool { return m.ID == seat.Volume.Holder })
			if i < 0 || g.Member == seat.Member {
				continue
			}
			m := g.Stale()[i]
			if !g.chosenFrom(chosen) {
				return Step{Action: Wait, Group: seat.Name, Reason: fmt.Sprintf("member %s waits for its volume %s, which %s of %s has", seat.Member, seat.Volume.ID, m.ID, g.Key)}, true
			}
			if text := s.held(seat, m); text != "" {
				return Step{Action: Wait, Group: g.Name, Reason: fmt.Sprintf("%s has the data of member %s: %s", m.ID, seat.Member, text)}, true
			}
			return Step{Action: Replace, Group: g.Name, Machine: m.ID, From: m.From.Number, To: g.Wanted.Number,
				Reason: fmt.Sprintf("has member %s, which is %s's now and waits for its volume %s: ", seat.Member, seat.Key, seat.Volume.ID) + strings.Join(g.Lacks(m), ", ")}, true
		}
	}
	return Step{}, false
}

// held says why the machine that has a member's data must not be ended now, as if it were the seat's. Members that have never had
// an ID wait for this one, and are left out.
func (s State) held(seat Group, m Machine) string {
	seat.Machines = []Machine{m}
	s.Groups = slices.DeleteFunc(slices.Clone(s.Groups), func(g Group) bool {
		r, _ := s.report(g)
		return g.Name == seat.Name || g.starting() && r.MemberID == 0
	})
	s.Groups = append(s.Groups, seat)
	return s.Stays(seat)
}

// silence says why a report is none of a member that runs now; empty if it is.
func (s State) silence(r etcd.Status) string {
	switch age := s.Etcd.At.Sub(r.At); {
	case age > ReportAge:
		return fmt.Sprintf("its member has not reported for %d minutes", minutes(age))
	case age < -ReportAge:
		return fmt.Sprintf("its member's report is of %s, which is yet to come: compare the clocks", r.At.UTC().Format(time.RFC3339))
	case r.Row != etcd.SRuns:
		return fmt.Sprintf("its member does not run (row %s)", r.Row)
	}
	return ""
}

func minutes(d time.Duration) int { return int(d / time.Minute) }

// starting reports whether no machine of the group has been in service yet, apart from those that are leaving.
func (g Group) starting() bool {
	return !slices.ContainsFunc(g.Machines, func(m Machine) bool { return !m.leaves() && !strings.HasPrefix(m.State, "Pending") })
}

func (g Group) has(machine string) bool {
	return slices.ContainsFunc(g.Machines, func(m Machine) bool { return m.ID == machine })
}

// unfit says why the machine of a member must not be replaced now, by what all members report; empty if nothing stands
// against it. Members that have never reported are judged by their groups alone. The seat's own member may be down.
func (s State) unfit(seat Group) (in Group, why string) {
	for _, g := range s.ordered() {
		r, ok := s.report(g)
		if !ok || !g.Roles.Has(role.Etcd) || g.Name == seat.Name && g.serving() == 0 {
			continue
		}
		if text := s.unfitMember(g, r); text != "" {
			return g, fmt.Sprintf("member %s: %s", g.Member, text)
		}
	}
	if newest, ok := s.newestBackup(); ok && s.Etcd.At.Sub(newest) > BackupAge {
		return seat, fmt.Sprintf("the newest backup is %d minutes old", minutes(s.Etcd.At.Sub(newest)))
	}
	return Group{}, ""
}

func (s State) unfitMember(g Group, r etcd.Status) string {
	if text := s.silence(r); text != "" {
		return text
	}
	switch lag := s.lag(r); {
	case !g.has(r.Instance):
		return fmt.Sprintf("its report is of machine %s, and its machine has not reported yet", r.Instance)
	case r.Epoch != s.Etcd.Epoch:
		return fmt.Sprintf("it is at epoch %d, and etcd at epoch %d", r.Epoch, s.Etcd.Epoch)
	case r.Learner:
		return "it is a learner, which has no vote yet"
	case r.Leader == 0:
		return "it knows no leader"
	case len(r.Store.Alarms) > 0:
		return "etcd's alarm " + strings.Join(r.Store.Alarms, " and ")
	case lag >= MostLag:
		return fmt.Sprintf("it is %d entries behind", lag)
	}
	return ""
}

// lag is how many entries a member was behind at the time of its report, at least: members report at different times, and
// one that reported earlier had no more entries then than the leader has when this one reports.
func (s State) lag(r etcd.Status) uint64 {
	most := r.Store.RaftIndex
	for _, other := range s.Etcd.Members {
		if other.Epoch == r.Epoch && !other.At.After(r.At) {
			most = max(most, other.Store.RaftIndex)
		}
	}
	return most - r.Store.RaftIndex
}

// newestBackup is when the newest backup was taken; false if no member reports one.
func (s State) newestBackup() (at time.Time, ok bool) {
	for _, r := range s.Etcd.Members {
		if r.Backup != nil && r.Backup.At.After(at) {
			at, ok = r.Backup.At, true
		}
	}
	return at, ok
}
