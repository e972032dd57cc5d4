package member

import (
	"context"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
)

// StepBackup is the step of a Report about a backup that the leader's machine has taken, or could not take. What the member
// does and waits for is in other reports.
const StepBackup = "backup"

// BackupEvery is how old the newest backup becomes where Config says nothing.
const BackupEvery = 15 * time.Minute

// backupAgain is the time between two tries after a failure.
const backupAgain = 3 * time.Minute

// backup is the backup that this machine takes while its member leads.
type backup struct {
	taking chan error // nil while none is being taken
	next   time.Time  // not before: the last one failed
	failed *etcd.BackupFailure
	one    sync.Mutex // is held while one is taken: by this, or for an order
}

func (b *backup) take(ctx context.Context, to Backups, epoch int, from Peer) error {
	b.one.Lock()
	defer b.one.Unlock()
	return to.Take(ctx, epoch, from)
}

// backUp completes a member's status by the newest backup, and begins to take one if this member leads and the newest is too
// old. A backup that is due is no reason to wait for anything: what fails is in the status and tried again.
func (m *Member) backUp(ctx context.Context, s *etcd.Status) {
	newest, err := m.Backups.Newest(ctx, s.Epoch)
	leads := s.Leader == s.MemberID && !s.Learner
	now := m.Clock.Now()
	switch {
	case err != nil:
		m.backupFailed(err)
	case !leads:
		m.backup.failed = nil // the leader's to say
	case m.backup.taking == nil && !now.Before(m.backup.next) && (newest == nil || now.Sub(newest.At) >= m.BackupEvery-StatusEvery/2):
		m.takeBackup(ctx, s.Epoch)
	}
	s.Backup, s.BackupFailed = newest, m.backup.failed
	m.drillDue(ctx, s, leads)
}

// takeBackup takes one beside the loop, which goes on watching: a snapshot takes as long as it takes.
func (m *Member) takeBackup(ctx context.Context, epoch int) {
	taking, own := make(chan error, 1), m.mine()
	m.backup.taking = taking
	go func() { taking <- m.backup.take(ctx, m.Backups, epoch, own) }()
}

// backedUp looks whether the backup that is being taken is done, and if so has the status written.
func (m *Member) backedUp(ctx context.Context) {
	select {
	case err := <-m.backup.taking: // blocks while there is none
		m.backup.taking, m.status = nil, time.Time{}
		switch {
		case err == nil:
			m.backup.failed, m.backup.next = nil, time.Time{}
			m.Say(Report{Step: StepBackup})
		case ctx.Err() == nil:
			m.backupFailed(err)
		}
	default:
	}
}

// backupFailed keeps a failure for the status. Who looks is told of the first, and of another.
func (m *Member) backupFailed(err error) {
	now := m.Clock.Now()
	m.backup.next = now.Add(backupAgain)
	before := m.backup.failed
	m.backup.failed = &etcd.BackupFailure{At: now.UTC(), Why: short(err.Error())}
	if before == nil || before.Why != m.backup.failed.Why {
		m.Say(Report{Step: StepBackup, Err: err})
	}
}

// mostWhy bounds the text of a failure in bytes: a status is a parameter, which takes 4 KiB.
const mostWhy = 1 << 10

func short(text string) string {
	if len(text) > mostWhy {
		return text[:mostWhy] + "..."
	}
	return text
}

// endBackup waits for the backup that is being taken, whose context has ended.
func (m *Member) endBackup() {
	if m.backup.taking == nil {
		return
	}
	if err := <-m.backup.taking; err == nil { // one that fails as the agent ends is tried again by the next
		m.Say(Report{Step: StepBackup})
	}
}
