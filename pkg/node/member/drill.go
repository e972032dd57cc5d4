package member

import (
	"context"
	"errors"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// StepDrill is the step of a Report about a backup that the leader's machine has taken back from its place and restored for a
// trial, or could not. What the member does and waits for is in other reports.
const StepDrill = "drill"

// ErrDamaged is that the place of backups has something else than what was stored there.
var ErrDamaged = errors.New("the stored backup is damaged")

// The times of drills.
const (
	drillEvery = 24 * time.Hour
	// drillRest is how long a machine's member leads before its first drill: while machines start or are replaced, none is
	// kept busy by it.
	drillRest = 10 * time.Minute
	// drillAgain is the time between two tries after a failure: each one reads a whole backup, and there is a new one by then.
	drillAgain = time.Hour
)

// drill is how this machine, while its member leads, takes the newest backup back once a day. What other machines did before
// it knows by the members' statuses.
type drill struct {
	epoch  int                 // of which the rest is; 0 until the own status was read
	last   *etcd.Backup        // see etcd.Status
	failed *etcd.BackupFailure // see etcd.Status
	led    bool                // this member led in the last look, and the others' statuses were read
	next   time.Time           // not before
	ends   chan drillEnd       // nil while there is none
}

// drillEnd is what came of a drill.
type drillEnd struct {
	epoch  int
	backup *etcd.Backup // nil if there was none to take back
	err    error
}

// drillDue completes a member's status by the last drill, and begins one if this member leads and one is due.
func (m *Member) drillDue(ctx context.Context, s *etcd.Status, leads bool) {
	d, now := &m.drill, m.Clock.Now()
	if d.epoch != s.Epoch {
		*d = drill{ends: d.ends}
		if m.recall(ctx, s.Epoch, m.Member) != nil {
			return // the next look tries again
		}
		d.epoch = s.Epoch
	}
	switch {
	case !leads:
		d.led = false
	case !d.led:
		d.led = m.recallAll(ctx, s.Epoch) == nil
		d.next = now.Add(drillRest)
	case d.ends == nil && !now.Before(d.next) && s.Backup != nil && (d.last == nil || now.Sub(d.last.Verified) >= drillEvery):
		ends := make(chan drillEnd, 1)
		d.ends = ends
		go func() {
			backup, err := m.Backups.Drill(ctx, s.Epoch)
			ends <- drillEnd{s.Epoch, backup, err}
		}()
	}
	s.Verified, s.DrillFailed = d.last, d.failed
}

// recallAll takes over what any member's status says of the last drill.
func (m *Member) recallAll(ctx context.Context, epoch int) error {
	asking, cancel := m.answer(ctx)
	list, err := m.mine().Members(asking)
	cancel()
	for _, member := range list.Members {
		if err == nil && member.Name != "" {
			err = m.recall(ctx, epoch, member.Name)
		}
	}
	return err
}

// recall takes over what a member's status says of the last drill of an epoch, if that is news.
func (m *Member) recall(ctx context.Context, epoch int, member string) error {
	asking, cancel := m.answer(ctx)
	defer cancel()
	data, err := m.Records.Get(asking, etcd.StatusObject(member))
	if errors.Is(err, pki.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	s, err := etcd.Parse[etcd.Status](data)
	if err != nil || s.Epoch != epoch {
		return nil // of another epoch, or of a version that is not understood: it is drilled again
	}
	d := &m.drill
	if s.Verified != nil && (d.last == nil || s.Verified.Verified.After(d.last.Verified)) {
		d.last = s.Verified
	}
	if s.DrillFailed != nil && (d.failed == nil || s.DrillFailed.At.After(d.failed.At)) {
		d.failed = s.DrillFailed
	}
	if d.failed != nil && d.last != nil && d.last.Verified.After(d.failed.At) && !d.failed.Damaged {
		d.failed = nil
	}
	return nil
}

// drilled looks whether a drill has ended, and if so has the status written.
func (m *Member) drilled(ctx context.Context) {
	select {
	case end := <-m.drill.ends: // blocks while there is none
		m.drill.ends, m.status = nil, time.Time{}
		if end.epoch == m.drill.epoch && ctx.Err() == nil {
			m.drillEnded(end)
		}
	default:
	}
}

// drillEnded keeps what came of a drill for the status. That a stored backup was damaged stays there for a day: newer ones may
// be whole, and a person is to know.
func (m *Member) drillEnded(end drillEnd) {
	d, now := &m.drill, m.Clock.Now()
	if end.err != nil {
		d.next = now.Add(drillAgain)
		d.failed = &etcd.BackupFailure{At: now.UTC(), Why: short(end.err.Error()), Damaged: errors.Is(end.err, ErrDamaged)}
		m.Say(Report{Step: StepDrill, Err: end.err})
		return
	}
	if end.backup == nil {
		return
	}
	d.last = end.backup
	if d.failed != nil && (!d.failed.Damaged || now.Sub(d.failed.At) >= drillEvery) {
		d.failed = nil
	}
	m.Say(Report{Step: StepDrill})
}

// endDrill waits for a drill, whose context has ended.
func (m *Member) endDrill() {
	if m.drill.ends != nil {
		<-m.drill.ends
	}
}
