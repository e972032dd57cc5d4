package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
)

// Report is a cluster's etcd at one moment.
type Report struct {
	Cluster string `json:"cluster"`
	Store   string `json:"store"`
	// Epoch is 0 if none has begun. Outcome is formed, abandoned or, while members start for the first time, empty.
	Epoch     int     `json:"epoch"`
	Outcome   string  `json:"outcome"`
	ClusterID etcd.ID `json:"cluster_id,omitzero"`
	// Healthy: every member is, there is an epoch which is formed, and the backups are recent.
	Healthy bool `json:"healthy"`
	// Voters are the members that are voters and healthy; Quorum is how many of all members must be.
	Voters  int      `json:"voters"`
	Quorum  int      `json:"quorum"`
	Members []Member `json:"members"`
	// Backup is the newest backup that a member reports.
	Backup *etcd.Backup `json:"backup,omitempty"`
	// Verified is the newest backup that was taken back from its place and restored for a trial. Its At is when it was taken, its
	// Verified when it was taken back.
	Verified *etcd.Backup `json:"verified,omitempty"`
	// Findings are what is wrong, each with its next step. Those that are only warnings leave Healthy as it is.
	Findings []Finding `json:"findings"`
	// formed are the IDs of the outcome by the members' names.
	formed map[string]etcd.ID
}

// Member is a member of etcd, with what the cloud and the store say about it.
type Member struct {
	Name string `json:"name"`
	// Role is leader, voter or learner by the member's own report; empty if there is none.
	Role    string `json:"role"`
	Healthy bool   `json:"healthy"`
	// Lag is how many entries of the log the member has not applied that another one had applied when this one reported.
	Lag uint64 `json:"lag"`
	// Seconds is the age of Status.
	Seconds int `json:"age_seconds,omitzero"`
	// Status is nil if the member has never reported.
	Status   *etcd.Status `json:"status,omitempty"`
	Volumes  []Volume     `json:"volumes"`
	Machines []Machine    `json:"machines"`
}

// Finding is something that is wrong. Member is empty where it is none's alone.
type Finding struct {
	Member  string `json:"member,omitempty"`
	What    string `json:"what"`
	Next    string `json:"next"`
	Warning bool   `json:"warning,omitempty"`
}

// The values of Member.Role and Report.Outcome.
const (
	Leader    = "leader"
	Voter     = "voter"
	Learner   = "learner"
	Formed    = "formed"
	Abandoned = "abandoned"
)

// The bounds of a healthy cluster.
const (
	// mostLag is how many entries a member may be behind: etcd's own bound for catching up without a snapshot.
	mostLag = 5000
	// oldBackup is four of the quarter hours between two backups, oldTrial a day and an hour.
	oldBackup = time.Hour
	oldTrial  = 25 * time.Hour
)

// Status looks at every member. It is an error if the store does not answer; a cloud that does not is a finding.
func (c *Cluster) Status(ctx context.Context) (*Report, error) {
	all, err := c.epochs(ctx)
	if err != nil {
		return nil, err
	}
	e := newest(all)
	r := &Report{Cluster: c.Name, Store: c.Records.String(), Epoch: e.number, Members: []Member{}, Findings: []Finding{}, Quorum: etcd.Quorum(len(c.Members))}
	volumes, machines, cloudErr := c.look(ctx)
	for _, name := range c.names(volumes) {
		m := Member{Name: name, Volumes: []Volume{}, Machines: []Machine{}}
		for _, v := range volumes {
			if v.Member == name {
				m.Volumes = append(m.Volumes, v)
			}
		}
		for _, i := range machines {
			if i.Member == name {
				m.Machines = append(m.Machines, i)
			}
		}
		if m.Status, err = read[etcd.Status](ctx, c.Records, etcd.StatusObject(name)); err != nil {
			return nil, err
		}
		r.Members = append(r.Members, m)
	}
	c.assess(r, e, cloudErr)
	return r, nil
}

// look asks the cloud.
func (c *Cluster) look(ctx context.Context) (volumes []Volume, machines []Machine, err error) {
	if c.Cloud == nil {
		return nil, nil, nil
	}
	if machines, err = c.Cloud.Machines(ctx); err == nil && c.Storage == machine.StorageVolume {
		volumes, err = c.Cloud.Volumes(ctx)
	}
	return volumes, machines, err
}

// names are the document's members, and those that only a volume names.
func (c *Cluster) names(volumes []Volume) []string {
	names := slices.Clone(c.Members)
	for _, v := range volumes {
		if !slices.Contains(names, v.Member) {
			names = append(names, v.Member)
		}
	}
	return names
}

// assess fills in what follows from what was seen.
func (c *Cluster) assess(r *Report, e epoch, cloudErr error) {
	now := c.Clock.Now()
	if cloudErr != nil {
		r.find(Finding{What: cloudErr.Error(), Next: "volumes and machines are not checked until EC2 answers"})
	}
	r.formation(e)
	r.Healthy = true
	for i := range r.Members {
		m := &r.Members[i]
		m.report(r.Members, now)
		if b := m.backup(); b != nil && (r.Backup == nil || b.At.After(r.Backup.At)) {
			r.Backup = b
		}
		found := append(c.place(m, cloudErr == nil), c.running(m, r, now)...)
		m.Healthy = len(found) == 0
		if m.Healthy && m.Role != Learner {
			r.Voters++
		}
		for _, f := range found {
			f.Member = m.Name
			r.find(f)
		}
	}
	if e.number > 0 && r.Voters < r.Quorum {
		r.find(Finding{What: fmt.Sprintf("%d of %d members are healthy voters, and a quorum is %d: writes may not be possible", r.Voters, len(c.Members), r.Quorum),
			Next: "bring machines with their volumes back, as said for each member; only if a majority of the volumes is lost for good, a new epoch begins from a backup"})
	}
	r.backups(now)
	r.failedBackups(now)
	r.drilled(now)
	for _, f := range r.Findings {
		r.Healthy = r.Healthy && f.Warning
	}
}

func (r *Report) find(f Finding) { r.Findings = append(r.Findings, f) }

// formation says what of the cluster's first start is missing.
func (r *Report) formation(e epoch) {
	switch {
	case e.number == 0:
		r.find(Finding{What: "no epoch has begun: no member may start for the first time", Next: "hardtack pki create begins the first one"})
	case e.outcome == nil:
		r.find(Finding{What: fmt.Sprintf("epoch %d is not formed yet: clients do not reach etcd", e.number), Next: "it forms when all its members have started, or a quorum and " + etcd.FormAfter.String() + " have passed"})
	case e.outcome.Formed == nil:
		r.Outcome = Abandoned
		r.find(Finding{What: fmt.Sprintf("epoch %d is abandoned: %s", e.number, e.outcome.Abandoned), Next: "a member's machine begins the next one by itself"})
	default:
		r.Outcome, r.ClusterID, r.formed = Formed, e.outcome.Formed.ClusterID, e.outcome.Formed.Members
	}
}

// report fills in what follows from the members' own reports.
func (m *Member) report(all []Member, now time.Time) {
	s := m.Status
	if s == nil {
		return
	}
	m.Seconds = max(0, int(now.Sub(s.At)/time.Second))
	switch {
	case s.Learner:
		m.Role = Learner
	case s.Row != etcd.SRuns: // a machine that waits has no role
	case s.Leader == s.MemberID:
		m.Role = Leader
	default:
		m.Role = Voter
	}
	for _, other := range all {
		// Reports have different times: only what another one had applied before this one reported is missing here.
		if o := other.Status; o != nil && o.Epoch == s.Epoch && !o.At.After(s.At) && o.Store.RaftIndex > s.Store.RaftIndex {
			m.Lag = max(m.Lag, o.Store.RaftIndex-s.Store.RaftIndex)
		}
	}
}

func (m *Member) backup() *etcd.Backup {
	if m.Status == nil {
		return nil
	}
	return m.Status.Backup
}

// place says what is wrong with the member's volume and machine.
func (c *Cluster) place(m *Member, known bool) (found []Finding) {
	add := func(next, what string, args ...any) {
		found = append(found, Finding{What: fmt.Sprintf(what, args...), Next: next})
	}
	if !slices.Contains(c.Members, m.Name) {
		add("take the tags off the volume, or put the member back into the document", "no member of the document, but volume %s has its tag", m.Volumes[0].ID)
		return found
	}
	if c.Cloud == nil || !known {
		return nil
	}
	switch {
	case c.Storage != machine.StorageVolume:
	case len(m.Volumes) == 0:
		add("hardtack stack apply makes the first one; for one that was lost: hardtack etcd replace "+m.Name, "no volume has its tags")
	case len(m.Volumes) > 1:
		var ids []string
		for _, v := range m.Volumes {
			ids = append(ids, v.ID)
		}
		add("take the tag EtcdMember off all but the one with its data; the member's machine takes none of them until then", "%d volumes have its tags: %s", len(ids), strings.Join(ids, ", "))
	default:
		v := m.Volumes[0]
		switch {
		case v.Holder == "":
			add("the member's machine attaches it; without a machine see the activities of its group", "volume %s is %s: no machine has it", v.ID, v.State)
		case v.HolderState != "running":
			add("it becomes free when the machine is terminated; it is never detached by force", "volume %s is held by %s, which is %s", v.ID, v.Holder, v.HolderState)
		}
	}
	if len(m.Machines) == 0 && !slices.ContainsFunc(m.Volumes, Volume.Held) {
		add("see the activities of its group: hardtack stack status", "it has no machine")
	}
	return found
}

// running says what is wrong with the member itself.
func (c *Cluster) running(m *Member, r *Report, now time.Time) (found []Finding) {
	add := func(next, what string, args ...any) {
		found = append(found, Finding{What: fmt.Sprintf(what, args...), Next: next})
	}
	s := m.Status
	if s == nil || !slices.Contains(c.Members, m.Name) {
		if s == nil {
			add("the console of its machine says what it waits for", "it has never reported")
		}
		return found
	}
	if age := now.Sub(s.At); age > fresh {
		add("the console of its machine says what it waits for", "its last report is %s old, from %s", age.Round(time.Second), s.Instance)
		return found
	}
	if s.Row != etcd.SRuns {
		why := cmp.Or(s.Why, s.Row.When())
		add(cmp.Or(s.Next, "the console of "+s.Instance+" says more"), "its machine %s waits (%s): %s", s.Instance, s.Row, why)
		return found
	}
	if r.Epoch > 0 && s.Epoch != r.Epoch {
		add("its machine leaves the old epoch by itself as soon as it reads the store", "it is in epoch %d, and the store's newest is %d", s.Epoch, r.Epoch)
	} else if r.ClusterID != 0 && s.ClusterID != r.ClusterID {
		add("end its machine and keep its volume for a look: these are not the cluster's data", "it is in cluster %s, and epoch %d is cluster %s", s.ClusterID, r.Epoch, r.ClusterID)
	}
	if len(m.Volumes) == 1 && s.Volume != m.Volumes[0].ID {
		add("the tags and the machine's disks do not agree: look which volume has its data", "it runs on %s, and the volume with its tags is %s", named(s.Volume), m.Volumes[0].ID)
	}
	if s.Learner {
		add("its machine promotes it by itself when it has caught up", "it is a learner: it does not vote yet")
	}
	if s.Leader == 0 {
		add("without a quorum there is none: see the other members", "it knows no leader")
	}
	if m.Lag > mostLag {
		add("look at the load and the disk of its machine", "it is %d entries behind", m.Lag)
	}
	if c := s.Store; c.Quota > 0 && c.InUse > c.Quota/10*8 {
		add("delete what is not needed, or raise etcd.flags.quota-backend-bytes and refresh etcd: at the quota every write is refused", "%d %% of its database's quota are in use", c.InUse*100/c.Quota)
	}
	for _, alarm := range s.Store.Alarms {
		add(nextOfAlarm(alarm, m.Name), "alarm %s", alarm)
	}
	return found
}

// named is a volume's name for people.
func named(volume string) string {
	if volume == "" {
		return "its machine's own disk"
	}
	return volume
}

func nextOfAlarm(alarm, member string) string {
	if alarm == etcd.Corrupt {
		return "its data differ from the others': end its machine, then hardtack etcd replace " + member
	}
	return "the database is at its quota and takes no writes: delete what is not needed, then hardtack etcd defrag compacts, defragments and ends the alarm"
}

// backups says what is wrong with the newest backup.
func (r *Report) backups(now time.Time) {
	switch b := r.Backup; {
	case b == nil && r.Epoch > 0:
		r.find(Finding{What: "no member reports a backup: the loss of a majority of the data would be final", Next: "name a place for backups in the cluster's document (etcd.backup.to)", Warning: true})
	case b == nil:
	case now.Sub(b.At) > oldBackup:
		r.find(Finding{What: fmt.Sprintf("the newest backup is %s old", now.Sub(b.At).Round(time.Minute)), Next: "the leader's machine makes them: its journal says why there is none"})
	case b.Verified.IsZero() || now.Sub(b.Verified) > oldTrial:
		r.find(Finding{What: "the newest backup was not restored for a trial within a day", Next: "the leader's machine tries each one that it takes: its journal says why there is none", Warning: true})
	}
}

// failedBackups says why there is no newer one, as each member last reported.
func (r *Report) failedBackups(now time.Time) {
	for _, m := range r.Members {
		if s := m.Status; s != nil && s.BackupFailed != nil && now.Sub(s.At) <= fresh {
			r.find(Finding{Member: m.Name, What: fmt.Sprintf("its last backup failed %s ago: %s", now.Sub(s.BackupFailed.At).Round(time.Second), s.BackupFailed.Why),
				Next: "its machine tries again every few minutes; while backups fail no lost member is replaced (etcd.backup.to: none gives that up)", Warning: true})
		}
	}
}
