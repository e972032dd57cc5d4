package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
)

// StepBackup is the step of a Report about a backup that the leader's machine has taken, or could not take. What the member
// does and waits for is in other reports.
const StepBackup = "backup"

// BackupEvery is how old the newest backup becomes where Config says nothing.
const BackupEvery = 15 * time.Minute

// askPlace bounds a question to the place, and takeTime a backup, as drillTime does a drill.
const askPlace, takeTime = time.Minute, 30 * time.Minute

// backupAgain is the time between two tries after a failure.
const backupAgain = 3 * time.Minute

// backup is the backup that this machine takes while its member leads.
type backup struct {
	taking chan error // nil while none is being taken
	next   time.Time  // not before: the last one failed
	took   time.Time  // when this process has taken the last one
	failed *etcd.BackupFailure
	one    sync.Mutex // is held while one is taken: by this, or for an order
}

func (b *backup) take(ctx context.Context, to Backups, epoch int, from Peer) error {
	b.one.Lock()
	defer b.one.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, takeTime, fmt.Errorf("not within %v", takeTime))
	defer cancel()
	return to.Take(ctx, epoch, from)
}

// backUp completes a member's status by the newest backup, and begins to take one if this member leads and the newest is too
// old. A backup that is due is no reason to wait for anything: what fails is in the status and tried again.
func (m *Member) backUp(ctx context.Context, s *etcd.Status) {
	asking, cancel := context.WithTimeout(ctx, askPlace)
	newest, err := m.Backups.Newest(asking, s.Epoch)
	cancel()
	leads := s.Leader == s.MemberID && !s.Learner
	now := m.Clock.Now()
	due := leads && m.backup.taking == nil && !now.Before(m.backup.next) && m.isDue(newest, now)
	switch {
	case err != nil && (!due || !errors.Is(err, ErrDamaged)): // a newer one takes the damaged one's place
		m.backupFailed(err)
	case !leads:
		m.backup.failed = nil // the leader's to say
	case due:
		m.takeBackup(ctx, s.Epoch)
	}
	s.Backup, s.BackupFailed = newest, m.backup.failed
	m.drillDue(ctx, s, leads)
}

// isDue: one from the future, which a wrong clock has dated, counts for no other.
func (m *Member) isDue(newest *etcd.Backup, now time.Time) bool {
	every := m.BackupEvery - StatusEvery/2
	switch {
	case newest == nil:
		return true
	case now.Before(newest.At.Add(-etcd.BackupWithin)):
		return now.Sub(m.backup.took) >= every
	}
	return now.Sub(newest.At) >= every
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
			m.backup.failed, m.backup.next, m.backup.took = nil, time.Time{}, m.Clock.Now()
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
	for cut := text; ; cut = cut[:len(cut)*3/4] {
		said := cut
		if len(cut) < len(text) {
			said += "..."
		}
		if encoded, err := json.Marshal(said); err != nil || len(encoded) <= mostWhy { // as the status has it: "<" takes six bytes
			return said
		}
	}
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
