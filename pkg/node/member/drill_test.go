package member

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// statusesOfTests keeps the statuses of all members.
type statusesOfTests struct {
	statusOfTests
	all map[string][]byte
}

func (s *statusesOfTests) Get(_ context.Context, object string) ([]byte, error) {
	if data, ok := s.all[object]; ok {
		return data, nil
	}
	return nil, pki.ErrNotFound
}

func (s *statusesOfTests) Put(ctx context.Context, object string, c []byte) error {
	s.all[object] = c
	return s.statusOfTests.Put(ctx, object, c)
}

// drillBench is the loop of member a, and what it says.
type drillBench struct {
	*Member
	place   *placeOfTests
	own     *ownOfTests
	records *statusesOfTests
	told    []string
}

func newDrillBench() *drillBench {
	b := &drillBench{place: &placeOfTests{}, own: &ownOfTests{}, records: &statusesOfTests{all: map[string][]byte{}}}
	b.own.leads = true
	b.start()
	return b
}

// start starts the agent, again if it ran.
func (b *drillBench) start() {
	b.Member = New(Config{Member: "a", Instance: "i-1", Records: b.records, Backups: b.place, Clock: clock.System{}, Peer: func(string) Peer { return b.own },
		Own: "https://127.0.0.1:2379", Say: func(r Report) {
			if r.Step == StepDrill {
				b.told = append(b.told, fmt.Sprint(r.Err))
			}
		}})
	b.written = &environment{clients: etcd.Open}
}

func (b *drillBench) want(t *testing.T, when string, drills int32) {
	t.Helper()
	if n := b.place.drills.Swap(0); n != drills {
		t.Errorf("%s: %d drills, want %d", when, n, drills)
	}
}

// TestDrills: the leader's machine takes the newest backup back once a day, whoever leads and however often agents start.
func TestDrills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrillBench()
		b.own.leads = false
		watched(t, b.Member, 30*time.Hour)
		b.want(t, "while another one leads", 0)
		b.own.leads = true
		watched(t, b.Member, 9*time.Minute)
		b.want(t, "in the first minutes", 0)
		watched(t, b.Member, 50*time.Hour)
		b.want(t, "in fifty hours", 3)
		if v := b.records.last.Verified; v == nil || time.Since(v.Verified) > 3*time.Hour || v.At.IsZero() || b.records.last.DrillFailed != nil {
			t.Errorf("the status has %+v", b.records.last)
		}
		b.start()
		watched(t, b.Member, 10*time.Hour)
		b.want(t, "after the agent's start", 0)
		if b.records.last.Verified == nil {
			t.Error("the agent's start has forgotten the drill")
		}

		b.own.leads = false
		watched(t, b.Member, time.Minute)
		other := b.records.last
		other.Verified = &etcd.Backup{At: time.Now(), Verified: time.Now().Add(23 * time.Hour)}
		b.records.all[etcd.StatusObject("b")] = etcd.Encode(other)
		b.own.leads = true
		watched(t, b.Member, 40*time.Hour)
		b.want(t, "after another one's drill", 0)
		watched(t, b.Member, 8*time.Hour)
		b.want(t, "a day after another one's drill", 1)

		other.Epoch, other.Verified.Verified = 1, time.Now().Add(100*time.Hour)
		b.records.all[etcd.StatusObject("b")] = etcd.Encode(other)
		b.records.all[etcd.StatusObject("a")] = etcd.Encode(other)
		b.start()
		watched(t, b.Member, time.Hour)
		b.want(t, "where all are of another epoch", 1)
	})
}

// TestDrillFails: a drill that fails is in the status with the reason, is tried again every hour, and is over with the next that
// does not; but that a backup was damaged stays there for a day.
func TestDrillFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrillBench()
		b.place.undrilled = errors.New("no answer")
		watched(t, b.Member, 3*time.Hour)
		if f := b.records.last.DrillFailed; f == nil || f.Why != "no answer" || f.Damaged || time.Since(f.At) > 65*time.Minute {
			t.Errorf("%+v", f)
		}
		b.want(t, "in three hours of failures", 3)
		if fmt.Sprint(b.told) != "[no answer no answer no answer]" {
			t.Errorf("told %q", b.told)
		}
		b.start()
		watched(t, b.Member, 5*time.Minute)
		if b.records.last.DrillFailed == nil {
			t.Error("the agent's start has forgotten the failure")
		}
		b.place.undrilled = nil
		watched(t, b.Member, time.Hour)
		b.want(t, "once it works", 1)
		if b.records.last.DrillFailed != nil || b.records.last.Verified == nil {
			t.Errorf("%+v", b.records.last)
		}
		watched(t, b.Member, 23*time.Hour)
		b.place.undrilled = fmt.Errorf("another SHA-256: %w", ErrDamaged)
		watched(t, b.Member, 70*time.Minute)
		b.place.undrilled = nil
		watched(t, b.Member, 22*time.Hour)
		if f, v := b.records.last.DrillFailed, b.records.last.Verified; f == nil || !f.Damaged || v == nil || !v.Verified.After(f.At) {
			t.Errorf("the damage is forgotten with the next backup: %+v, %+v", f, v)
		}
		watched(t, b.Member, 26*time.Hour)
		if b.records.last.DrillFailed != nil {
			t.Errorf("after a day: %+v", b.records.last.DrillFailed)
		}
	})
}

// TestDrillEnds: a drill ends with the loop, and a failure by that is not told.
func TestDrillEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := newDrillBench()
		s := &etcd.Status{Epoch: 2, Backup: &etcd.Backup{}}
		b.drillDue(ctx, s, true)
		time.Sleep(drillRest)
		b.drillDue(ctx, s, true)
		if b.drill.ends == nil {
			t.Fatal("there is no drill")
		}
		cancel()
		b.endDrill()
		if b.place.drills.Load() != 0 || b.told != nil {
			t.Errorf("%d, %q", b.place.drills.Load(), b.told)
		}
	})
}
