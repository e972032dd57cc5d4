package nemesis

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/member"
)

// variant is the agent with one thing wrong: each is what somebody has shipped (../README.md).
type variant struct {
	name string
	make func(*world) agent
}

var variants = []variant{
	{"a new cluster on any empty disk", func(w *world) agent {
		return agent{w: w, decide: func(f etcd.Facts) etcd.Action {
			a := etcd.Decide(f)
			if a.Row == etcd.J1Empty || a.Row == etcd.N2Abandon {
				return etcd.Action{Row: etcd.N1Start, Do: etcd.First, Start: etcd.New}
			}
			return a
		}}
	}},
	{"an empty disk takes the old member's ID", func(w *world) agent {
		return agent{w: w, decideJoin: func(j etcd.JoinFacts) etcd.JoinAction {
			a := etcd.DecideJoin(j)
			if mine := listedAs(j); mine != 0 && !j.Facts.Etcd.Running && !j.Facts.Disk.WAL {
				if m := j.Facts.Disk.Marker; m != nil && m.MemberID == mine {
					return etcd.JoinAction{Do: etcd.JoinStart, ID: mine}
				}
				return etcd.JoinAction{Do: etcd.JoinRecord, ID: mine}
			}
			return a
		}}
	}},
	{"a member without a quorum goes on alone", func(w *world) agent {
		return agent{w: w, alone: 1500 * time.Millisecond}
	}},
	{"an older copy of a volume is as good", func(w *world) agent {
		return agent{w: w, decide: func(f etcd.Facts) etcd.Action {
			if f.Disk.On == etcd.OnExt4 {
				f.Store.Made = &etcd.Made{Member: f.Member, UUID: f.Disk.UUID}
				f.Store.Used = &etcd.Used{Epoch: 1, How: etcd.ByStart}
				if f.Disk.Marker != nil {
					marker := *f.Disk.Marker
					marker.Volume = f.Volumes.Claims[0].ID
					f.Disk.Marker = &marker
				}
			}
			return etcd.Decide(f)
		}}
	}},
	{"no record that a member has started", func(w *world) agent {
		return agent{w: w, records: forgetful{w.store, &sync.Map{}}}
	}},
	{"a volume is taken from a machine that runs", func(w *world) agent { return agent{w: w, force: true} }},
	{"a log that is not synced", func(w *world) agent { return agent{w: w, flags: []string{"--unsafe-no-fsync"}} }},
}

// listedAs is the ID that the cluster has for the member that asks.
func listedAs(j etcd.JoinFacts) etcd.ID {
	if j.Facts.List == nil {
		return 0
	}
	for _, m := range j.Facts.List.Members {
		if m.Name == j.Facts.Member || m.PeerURL == j.Facts.PeerURL {
			return m.ID
		}
	}
	return 0
}

// forgetful is a store whose records of a first start can be created by every process anew.
type forgetful struct {
	*records
	started *sync.Map
}

func (r forgetful) Get(ctx context.Context, object string) ([]byte, error) {
	if data, ok := r.started.Load(object); ok {
		return data.([]byte), nil
	}
	return r.records.Get(ctx, object)
}

func (r forgetful) Create(ctx context.Context, object string, content []byte) error {
	if strings.Contains(object, "/started-") {
		r.started.Store(object, content)
		return nil
	}
	return r.records.Create(ctx, object, content)
}

// of is the view of one process.
func (r forgetful) of() member.Records { return forgetful{r.records, &sync.Map{}} }

var errNone = errors.New("the nemesis did not notice")

// TestVariants holds the nemesis against variants of the agent that are wrong: it must find each in at most fifty
// schedules.
func TestVariants(t *testing.T) {
	b, ok := newBench(t)
	if !ok {
		return
	}
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			b := b.of(t)
			found := b.schedules(50, 1, func(w *world) procedure { return v.make(w).run }, true)
			if len(found) == 0 {
				t.Error(errNone)
			}
			for of, wrong := range found {
				t.Logf("schedule %d: %s", of, strings.Join(wrong, "; "))
			}
		})
	}
}
