package member

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// act takes the step of an action.
func (m *Member) act(ctx context.Context, a etcd.Action, f etcd.Facts) error {
	s := &f.Store
	switch a.Do {
	case etcd.Attach:
		return m.Volumes.Attach(ctx, f.Volumes.Claims[0].ID)
	case etcd.Make:
		return create(ctx, m, etcd.MadeObject(f.Volumes.Claims[0].ID), etcd.Made{Member: m.Member, UUID: newUUID()})
	case etcd.Format:
		return m.Disk.Format(ctx, f.Volumes.Claims[0].Device, s.Made.UUID)
	case etcd.Mount:
		return m.mount(ctx, f.Volumes.Claims[0].Device, s.Made.UUID)
	case etcd.Halt:
		err := m.Service.Stop(ctx)
		if err == nil && a.Row == etcd.S4Broken {
			m.broken = f.Disk.Marker.MemberID
		}
		return err
	case etcd.Discard:
		if err := m.Service.Stop(ctx); err != nil {
			return err
		}
		return m.discard(f.Disk.Marker.Epoch)
	case etcd.Fetch:
		return m.fetch(ctx, s)
	case etcd.Claim:
		// Kept before it is created: if the answer gets lost, the record says whether it was.
		m.attempt = etcd.NewToken()
		return create(ctx, m, etcd.StartedObject(s.Epoch, m.Member), etcd.Started{Volume: volume(f), UUID: f.Disk.UUID, Instance: m.Instance, Attempt: m.attempt})
	case etcd.First:
		return m.first(ctx, a, f)
	case etcd.Abandon:
		why := fmt.Sprintf("member %s had started before on %s, and has no data on %s", m.Member, s.Started.Instance, m.Instance)
		return create(ctx, m, etcd.OutcomeObject(s.Epoch), etcd.Outcome{Abandoned: why})
	case etcd.NextEpoch:
		return create(ctx, m, etcd.BeginObject(s.Epoch+1), s.Begin.Next(etcd.NewToken()))
	case etcd.Run:
		return m.start(ctx, a, f)
	case etcd.Rewrite:
		return m.write(a.Environment(f), environment{a.Clients, a.Start})
	case etcd.Form:
		return create(ctx, m, etcd.OutcomeObject(s.Epoch), etcd.Outcome{Formed: formed(f.List)})
	case etcd.Reopen:
		if err := m.Service.Stop(ctx); err != nil {
			return err
		}
		return m.start(ctx, a, f)
	case etcd.Advertise:
		ctx, cancel := m.answer(ctx)
		defer cancel()
		return m.mine().Update(ctx, f.Disk.Marker.MemberID, m.PeerURL)
	case etcd.Wait, etcd.Stop, etcd.Join, etcd.Report:
	}
	return fmt.Errorf("the step %q is not one to take", a.Do)
}

// create creates a record. That it exists is as good: whose it is, the next look shows.
func create[T etcd.Record](ctx context.Context, m *Member, object string, record T) error {
	ctx, cancel := m.answer(ctx)
	defer cancel()
	if err := m.Records.Create(ctx, object, etcd.Encode(record)); err != nil && !errors.Is(err, pki.ErrExists) {
		return err
	}
	return nil
}

func volume(f etcd.Facts) string {
	if len(f.Volumes.Claims) == 0 {
		return ""
	}
	return f.Volumes.Claims[0].ID
}

// newUUID returns a random UUID (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func formed(l *etcd.List) *etcd.Formed {
	f := &etcd.Formed{ClusterID: l.ClusterID, Members: map[string]etcd.ID{}}
	for _, member := range l.Members {
		f.Members[member.Name] = member.ID
	}
	return f
}

// mount mounts the volume. A file system that does not grow is no reason to stay away.
func (m *Member) mount(ctx context.Context, device, uuid string) error {
	if err := m.Disk.Mount(ctx, device, uuid); err != nil {
		return err
	}
	if err := m.Disk.Grow(ctx, device); err != nil {
		m.Say(Report{Step: "grow", Err: err})
	}
	return nil
}

// fetch restores the backup that the epoch starts from.
func (m *Member) fetch(ctx context.Context, s *etcd.Store) error {
	if m.Backups == nil {
		return fmt.Errorf("epoch %d starts from the backup %s, and this machine has no place of backups: set etcd's backup in the cluster's document", s.Epoch, s.Begin.Restore.Object)
	}
	return m.Backups.Restore(ctx, *s.Begin, m.Member, m.restoreDir(s.Epoch))
}

// use records that a volume has data from now on.
func (m *Member) use(ctx context.Context, f etcd.Facts, how etcd.How) error {
	if m.Storage == etcd.StorageMachine {
		return nil
	}
	return create(ctx, m, etcd.UsedObject(volume(f)), etcd.Used{Epoch: f.Store.Epoch, How: how})
}

// first starts etcd for the first time in an epoch. The attempt is forgotten before: it starts once.
func (m *Member) first(ctx context.Context, a etcd.Action, f etcd.Facts) error {
	begin, how := f.Store.Begin, etcd.ByStart
	if begin.Restore != nil {
		how = etcd.ByRestore
	}
	if err := m.use(ctx, f, how); err != nil {
		return err
	}
	err := WriteMarker(m.Dir, etcd.Marker{Cluster: m.Cluster, Member: m.Member, Epoch: f.Store.Epoch, Volume: volume(f),
		MemberID: etcd.MemberID(begin.Token, m.PeerURL), ClusterID: etcd.ClusterID(begin.Token, begin.Members)})
	if err != nil {
		return err
	}
	if begin.Restore != nil {
		err = m.adopt(f.Store.Epoch)
	} else {
		err = m.empty()
	}
	if err != nil {
		return err
	}
	m.attempt = ""
	return m.start(ctx, a, f)
}

// start starts etcd with an action's environment.
func (m *Member) start(ctx context.Context, a etcd.Action, f etcd.Facts) error {
	if err := m.write(a.Environment(f), environment{a.Clients, a.Start}); err != nil {
		return err
	}
	return m.Service.Start(ctx)
}

// write writes etcd's environment.
func (m *Member) write(lines []string, e environment) error {
	lines = append(lines, "ETCD_DATA_DIR="+m.dataDir(), "")
	if _, err := file.Replace(m.Environment, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		return fmt.Errorf("writing the environment of etcd: %w", err)
	}
	m.written, m.broken = &e, 0
	return nil
}

// watch looks after a member that runs: it ends a lock that is no longer needed, and writes the status when it is due.
func (m *Member) watch(ctx context.Context, f etcd.Facts) error {
	if m.lease != 0 {
		ctx, cancel := m.answer(ctx)
		defer cancel()
		if err := m.mine().Unlock(ctx, m.lease); err != nil {
			return err
		}
		m.lease = 0
	}
	m.backedUp(ctx)
	m.drilled(ctx)
	asking, cancel := m.answer(ctx)
	said, err := m.mine().Status(asking)
	cancel()
	if err != nil && m.progress() != nil {
		return nil // it is being defragmented
	}
	if err != nil {
		return fmt.Errorf("asking the own member for its status: %w", err)
	}
	m.alarms = said.Alarms
	led := m.lead(ctx, f, said) // neither backups nor the status wait for what fails here
	now, work := m.Clock.Now(), m.progress()
	if changes := fmt.Sprint(work, said.Alarms); m.wrote != changes {
		m.wrote = changes
	} else if !m.status.IsZero() && now.Sub(m.status) < StatusEvery {
		return led
	}
	status := etcd.Status{
		At: now.UTC(), Instance: m.Instance, Epoch: f.Store.Epoch, MemberID: said.ID, ClusterID: said.ClusterID, Row: etcd.SRuns, Learner: said.Learner, Leader: said.Leader, Work: work,
		Store: etcd.Content{Version: said.Version, RaftIndex: said.Applied, Revision: said.Revision, Size: said.Size, InUse: said.InUse, Quota: said.Quota, Alarms: said.Alarms},
	}
	if f.Disk.Marker != nil {
		status.Volume = f.Disk.Marker.Volume
	}
	if m.Backups != nil {
		m.backUp(ctx, &status)
	}
	return errors.Join(led, m.put(ctx, status))
}

// put writes the status.
func (m *Member) put(ctx context.Context, status etcd.Status) error {
	ctx, cancel := m.answer(ctx)
	defer cancel()
	if err := m.Records.Put(ctx, etcd.StatusObject(m.Member), etcd.Encode(status)); err != nil {
		return err
	}
	m.status = m.Clock.Now()
	return nil
}

// waits writes into the status why a machine waits, once a minute at most. What a running member of the same seat reports on
// another machine is not replaced.
func (m *Member) waits(ctx context.Context, f etcd.Facts, r Report) {
	idle := r.Action.Do == etcd.Wait || r.Action.Do == etcd.Stop || r.Action.Do == etcd.Join
	now := m.Clock.Now()
	if !idle || r.Why.Cause == "" || !f.Store.Answers || !m.status.IsZero() && now.Sub(m.status) < StatusEvery {
		return
	}
	m.status = now // also where it cannot be written: a report is not worth more requests than one a minute
	asking, cancel := m.answer(ctx)
	defer cancel()
	data, err := m.Records.Get(asking, etcd.StatusObject(m.Member))
	if err != nil && !errors.Is(err, pki.ErrNotFound) {
		return
	}
	old, bad := etcd.Parse[etcd.Status](data)
	if bad == nil && old.Instance != m.Instance && old.Row == etcd.SRuns && now.Sub(old.At) < 2*StatusEvery {
		return
	}
	// The epoch is that of the data: a machine that only reads of a new one has not left the old one. Until it sees the data
	// of its volume, what was reported of them last still holds.
	status := etcd.Status{At: now.UTC(), Instance: m.Instance, Volume: volume(f), Row: r.Action.Row, Why: r.Why.Cause, Next: r.Why.Next}
	switch marker := f.Disk.Marker; {
	case marker != nil:
		status.Volume, status.Epoch, status.MemberID, status.ClusterID = marker.Volume, marker.Epoch, marker.MemberID, marker.ClusterID
	case bad == nil && status.Volume != "" && status.Volume == old.Volume:
		status.Epoch, status.MemberID, status.ClusterID, status.Backup = old.Epoch, old.MemberID, old.ClusterID, old.Backup
	}
	if bad == nil && status.Epoch > 0 && status.Epoch == old.Epoch { // of the cluster, and not of this machine
		status.Verified, status.DrillFailed = old.Verified, old.DrillFailed
	}
	status.Learner = r.Action.Row == etcd.J2Learner
	_ = m.put(ctx, status)
}
