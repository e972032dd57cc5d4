package member

import (
	"context"
	"encoding/json"
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

// memberWith is a member that serves, leads, and has a place for its backups.
func memberWith(place Backups) (*Member, *statusOfTests) {
	own, records := &ownOfTests{leads: true}, &statusOfTests{}
	m := New(Config{Member: "a", Instance: "i-1", Records: records, Backups: place, Clock: clock.System{}, Peer: func(string) Peer { return own }, Own: "https://127.0.0.1:2379"})
	m.written = &environment{clients: etcd.Open}
	return m, records
}

// TestBackupsGoOn: neither a backup that a wrong clock has dated two days ahead nor one with a damaged description is the last.
func TestBackupsGoOn(t *testing.T) {
	for name, place := range map[string]*placeOfTests{"from the future": {}, "damaged": {broken: ErrDamaged}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				place.newest.Store(&etcd.Backup{At: time.Now().Add(48 * time.Hour)})
				m, records := memberWith(place)
				watched(t, m, time.Hour)
				if n := place.taken.Load(); n < 1 || n > 5 {
					t.Errorf("in an hour it took %d: %+v", n, records.last.BackupFailed)
				}
			})
		})
	}
}

// silent is a place that neither takes nor gives anything until it is given up.
type silent struct{ *placeOfTests }

func (silent) Take(ctx context.Context, _ int, _ Peer) error { <-ctx.Done(); return context.Cause(ctx) }

// mute does not even say what it has.
type mute struct{ silent }

func (mute) Newest(ctx context.Context, _ int) (*etcd.Backup, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestBackupsGivenUp: a place that has stopped sending keeps no status away, and the status says so.
func TestBackupsGivenUp(t *testing.T) {
	for name, place := range map[string]Backups{"taking": silent{&placeOfTests{}}, "looking": mute{silent{&placeOfTests{}}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, records := memberWith(place)
				ctx, cancel := context.WithCancel(t.Context())
				for end := time.Now().Add(time.Hour); time.Now().Before(end); time.Sleep(15 * time.Second) {
					before := time.Now()
					if err := m.watch(ctx, etcd.Facts{Store: etcd.Store{Epoch: 2}}); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(before); took > 2*time.Minute {
						t.Fatalf("one look took %v", took)
					}
				}
				if records.last.BackupFailed == nil || time.Since(records.last.At) > 3*time.Minute {
					t.Errorf("after an hour the status has %+v", records.last)
				}
				cancel()
				m.endBackup()
			})
		})
	}
}

// TestShort: what a status has of a failure takes no more than its share there, whatever JSON makes of it.
func TestShort(t *testing.T) {
	for text, cut := range map[string]bool{"the place is full": false, strings.Repeat("x", 5000): true, strings.Repeat("<p>", 1000): true} {
		said := short(text)
		encoded, err := json.Marshal(said)
		if err != nil || len(encoded) > mostWhy || cut != strings.HasSuffix(said, "...") || !cut && said != text || cut && len(said) < 100 {
			t.Errorf("%d bytes, %v: %.80s", len(encoded), err, said)
		}
	}
}
