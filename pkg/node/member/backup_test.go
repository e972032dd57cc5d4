package member

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// placeOfTests is a place whose backups take a minute.
type placeOfTests struct {
	newest atomic.Pointer[etcd.Backup]
	fails  error
	broken error // looking for a backup fails
	taken  atomic.Int32
	// drills counts the drills, each of which takes a minute and fails with undrilled.
	drills    atomic.Int32
	undrilled error
}

func (p *placeOfTests) Newest(_ context.Context, epoch int) (*etcd.Backup, error) {
	if epoch != 2 {
		return nil, errors.New("asked for another epoch")
	}
	return p.newest.Load(), p.broken
}

func (p *placeOfTests) Take(ctx context.Context, _ int, _ Peer) error {
	if err := (clock.System{}).Sleep(ctx, time.Minute); err != nil {
		return err
	}
	if p.fails == nil {
		p.taken.Add(1)
		p.newest.Store(&etcd.Backup{At: time.Now()})
	}
	return p.fails
}

func (p *placeOfTests) Drill(ctx context.Context, epoch int) (*etcd.Backup, error) {
	if err := (clock.System{}).Sleep(ctx, time.Minute); err != nil {
		return nil, err
	}
	p.drills.Add(1)
	newest := p.newest.Load()
	if p.undrilled != nil || newest == nil {
		return nil, p.undrilled
	}
	b := *newest
	b.Verified = time.Now()
	return &b, nil
}

func (*placeOfTests) Restore(context.Context, etcd.Begin, string, string) error { return nil }

// statusOfTests keeps the last status.
type statusOfTests struct{ last etcd.Status }

func (*statusOfTests) Get(context.Context, string) ([]byte, error)  { return nil, pki.ErrNotFound }
func (*statusOfTests) Create(context.Context, string, []byte) error { return nil }
func (s *statusOfTests) Put(_ context.Context, _ string, c []byte) (err error) {
	s.last, err = etcd.Parse[etcd.Status](c)
	return err
}

// ownOfTests is the own member.
type ownOfTests struct {
	Peer
	leads bool
}

func (o *ownOfTests) Status(context.Context) (Status, error) {
	s := Status{ID: 1, Leader: 2}
	if o.leads {
		s.Leader = 1
	}
	return s, nil
}

func (*ownOfTests) Members(context.Context) (etcd.List, error) {
	return etcd.List{Members: []etcd.Member{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}}}, nil
}

// watched runs the watch of a member that serves, as its loop does, for some time.
func watched(t *testing.T, m *Member, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(15 * time.Second) {
		if err := m.watch(t.Context(), etcd.Facts{Store: etcd.Store{Epoch: 2}}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBackups: only the leader's machine takes backups, one at a time, as often as it should; a failure is in the status and is
// told once, and the loop goes on.
func TestBackups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		place, own, records := &placeOfTests{}, &ownOfTests{}, &statusOfTests{}
		var told []Report
		m := New(Config{Member: "a", Instance: "i-1", Records: records, Backups: place, Clock: clock.System{}, Peer: func(string) Peer { return own },
			Own: "https://127.0.0.1:2379", Say: func(r Report) {
				if r.Step == StepBackup {
					told = append(told, r)
				}
			}})
		m.written = &environment{clients: etcd.Open}
		watched(t, m, time.Hour)
		if n := place.taken.Load(); n != 0 || records.last.Backup != nil {
			t.Errorf("no leader, and it took %d", n)
		}
		own.leads = true
		watched(t, m, time.Hour)
		if n := place.taken.Load(); n < 4 || n > 5 || records.last.Backup == nil || time.Since(records.last.Backup.At) > 17*time.Minute {
			t.Errorf("in an hour it took %d, the last at %v", n, records.last.Backup)
		}
		before := place.taken.Load()
		place.fails, told = errors.New("the place is full"), nil
		watched(t, m, time.Hour)
		failed := records.last.BackupFailed
		if place.taken.Load() != before || failed == nil || failed.Why != "the place is full" || time.Since(failed.At) > 6*time.Minute {
			t.Errorf("failures: %+v", failed)
		}
		if len(told) != 1 || !errors.Is(told[0].Err, place.fails) || told[0].Step != StepBackup {
			t.Errorf("told %+v", told)
		}
		place.fails = nil
		watched(t, m, 10*time.Minute)
		if records.last.BackupFailed != nil || place.taken.Load() == before {
			t.Errorf("after the failures: %+v", records.last)
		}
		place.broken = errors.New(strings.Repeat("x", 5000))
		watched(t, m, 2*time.Minute)
		if f := records.last.BackupFailed; f == nil || len(f.Why) > 2000 || time.Since(records.last.At) > 2*time.Minute {
			t.Errorf("a place that does not answer keeps the status away: %+v", records.last)
		}
	})
}

// TestBackupEnds: a backup that is being taken ends with the loop.
func TestBackupEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		place := &placeOfTests{}
		m := New(Config{Backups: place, Clock: clock.System{}, Peer: func(string) Peer { return &ownOfTests{} }, Own: "https://127.0.0.1:2379"})
		m.written = &environment{clients: etcd.Open}
		m.takeBackup(ctx, 2)
		cancel()
		m.endBackup()
		if place.taken.Load() != 0 {
			t.Error("it was taken")
		}
	})
}
