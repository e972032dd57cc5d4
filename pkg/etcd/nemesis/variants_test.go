package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/member"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// variant is the agent with one thing wrong: each is what somebody has shipped (../README.md).
type variant struct {
	name string
	// faults are those of its schedules: what it is known to fail at. They are among the faults of all schedules.
	faults []string
	make   func(*world) agent
}

var variants = []variant{
	{"a new cluster on any empty disk", []string{"two lose their volumes while the third is off"}, func(w *world) agent {
		return agent{w: w, decide: func(f etcd.Facts) etcd.Action {
			a := etcd.Decide(f)
			if a.Row == etcd.J1Empty || a.Row == etcd.N2Abandon {
				return etcd.Action{Row: etcd.N1Start, Do: etcd.First, Start: etcd.New}
			}
			return a
		}}
	}},
	{"an empty disk takes the old member's ID", []string{"a volume is lost, and the operator gives a new one"}, func(w *world) agent {
		return agent{w: w, decideJoin: takesOver(func(etcd.Member) bool { return true })}
	}},
	{"a member without a quorum goes on alone", []string{"a machine is cut off", "a machine is heard, and hears nothing"}, func(w *world) agent {
		return agent{w: w, alone: 1500 * time.Millisecond}
	}},
	{"an older copy of a volume is as good", []string{olderCopy}, func(w *world) agent {
		return agent{w: w, decide: func(f etcd.Facts) etcd.Action {
			if f.Disk.Marker != nil && len(f.Volumes.Claims) == 1 {
				marker := *f.Disk.Marker
				marker.Volume = f.Volumes.Claims[0].ID
				f.Disk.Marker = &marker
			}
			return etcd.Decide(f)
		}, records: func(r member.Records) member.Records { return copied{r, w} }}
	}},
	{"every epoch has the same token", []string{unseen}, func(w *world) agent {
		w.store.oneToken()
		return agent{w: w}
	}},
	{"whoever runs promotes a learner that is in the list", []string{learnerLost}, func(w *world) agent { return agent{w: w, promotes: true} }},
	{"a learner that is in the list is taken again", []string{learnerLost}, func(w *world) agent {
		return agent{w: w, decideJoin: takesOver(func(m etcd.Member) bool { return m.Learner })}
	}},
	{"a new epoch opens although the old one has a quorum", []string{oneOnly}, func(w *world) agent {
		return agent{w: w, decide: func(f etcd.Facts) etcd.Action {
			if f.Store.Begin != nil {
				begin := *f.Store.Begin
				begin.Previous = nil
				f.Store.Begin = &begin
			}
			return etcd.Decide(f)
		}}
	}},
	{"no record that a member has started", []string{"two volumes are lost during the first start, while the third is off"}, func(w *world) agent {
		return agent{w: w, records: func(r member.Records) member.Records { return forgetful{r, &sync.Map{}} }}
	}},
	{"a volume is taken from a machine that runs", []string{"a second machine comes for a seat, and the first goes"}, func(w *world) agent { return agent{w: w, force: true} }},
	{"a log that is not synced", []string{"all machines lose power, and boot"}, func(w *world) agent { return agent{w: w, flags: []string{"--unsafe-no-fsync"}} }},
}

// takesOver starts with an empty log under an ID that the cluster has for the member, if it is one of those.
func takesOver(one func(etcd.Member) bool) func(etcd.JoinFacts) etcd.JoinAction {
	return func(j etcd.JoinFacts) etcd.JoinAction {
		f := &j.Facts
		if f.List == nil || f.Etcd.Running || f.Disk.WAL {
			return etcd.DecideJoin(j)
		}
		for _, m := range f.List.Members {
			switch {
			case m.Name != f.Member && m.PeerURL != f.PeerURL || !one(m):
			case f.Disk.Marker != nil && f.Disk.Marker.MemberID == m.ID:
				return etcd.JoinAction{Do: etcd.JoinStart, ID: m.ID}
			default:
				return etcd.JoinAction{Do: etcd.JoinRecord, ID: m.ID}
			}
		}
		return etcd.DecideJoin(j)
	}
}

// promoting promotes every learner that the own member knows of, and asks nobody.
func promoting(ctx context.Context, own member.Peer) func(etcd.Facts) etcd.Action {
	return func(f etcd.Facts) etcd.Action {
		if f.Etcd.Reads && f.List != nil {
			for _, m := range f.List.Members {
				if m.Learner {
					asking, cancel := context.WithTimeout(ctx, patience)
					_ = own.Promote(asking, m.ID) // it is tried again
					cancel()
				}
			}
		}
		return etcd.Decide(f)
	}
}

// copied is the store to whom a copy of a volume has the records of what it was copied from.
type copied struct {
	member.Records
	w *world
}

func (r copied) Get(ctx context.Context, object string) ([]byte, error) {
	r.w.mu.Lock()
	all := slices.Clone(r.w.volumes)
	r.w.mu.Unlock()
	for _, v := range all {
		if v.origin != "" {
			object = strings.ReplaceAll(object, v.id, v.origin)
		}
	}
	return r.Records.Get(ctx, object)
}

// forgetful is the store to one process, which can create the record of a first start anew, as every process can.
type forgetful struct {
	member.Records
	started *sync.Map
}

func (r forgetful) Get(ctx context.Context, object string) ([]byte, error) {
	if data, ok := r.started.Load(object); ok {
		return data.([]byte), nil
	}
	if strings.Contains(object, "/started-") {
		return nil, pki.ErrNotFound
	}
	return r.Records.Get(ctx, object)
}

func (r forgetful) Create(ctx context.Context, object string, content []byte) error {
	err := r.Records.Create(ctx, object, content)
	if errors.Is(err, pki.ErrExists) && strings.Contains(object, "/started-") {
		err = nil
	}
	if err == nil {
		r.started.Store(object, content)
	}
	return err
}

// most is how many schedules a variant may survive.
const most = 50

// hunt is the search for what is wrong with one variant.
type hunt struct {
	variant
	tried, under int // schedules that were begun, and of them those that run
	found        uint64
	wrong        []string
	after        time.Duration
}

// TestVariants holds the nemesis against variants of the agent that are wrong: it must find each in at most fifty
// schedules.
func TestVariants(t *testing.T) {
	if os.Getenv("HARDTACK_E2E_LONG") == "" {
		t.Skip("up to fifty schedules of each of eleven variants: make e2e-long runs it (HARDTACK_E2E_LONG=1)")
	}
	b, ok := newBench(t)
	if !ok {
		return
	}
	var hunts []*hunt
	for _, v := range variants {
		if strings.Contains(v.name, *which) {
			hunts = append(hunts, &hunt{variant: v})
		}
	}
	began, before := time.Now(), usage()
	b.hunt(t, hunts)
	tried := 0
	for _, h := range hunts {
		tried += h.tried
		t.Run(h.name, func(t *testing.T) {
			if h.found == 0 {
				t.Fatalf("the nemesis did not notice in %d schedules", h.tried)
			}
			t.Logf("schedule %d, after %.0f s: %s", h.found, h.after.Seconds(), strings.Join(h.wrong, "; "))
		})
	}
	t.Logf("%d schedules for %d variants in %.0f s, and %.0f s of CPU", tried, len(hunts), time.Since(began).Seconds(), (usage() - before).Seconds())
}

// hunt runs schedules of all variants, a few at once, until each was found or has survived enough of them.
func (b *bench) hunt(t *testing.T, hunts []*hunt) {
	t.Helper()
	var mu sync.Mutex
	began := time.Now()
	// next is the variant with the fewest schedules, of those that are not found.
	next := func() (h *hunt, of uint64) {
		mu.Lock()
		defer mu.Unlock()
		for _, other := range hunts {
			if other.found == 0 && other.tried < most && (h == nil || other.under < h.under || other.under == h.under && other.tried < h.tried) {
				h = other
			}
		}
		if h == nil || h.tried > 0 && *seed != 0 {
			return nil, 0
		}
		h.tried++
		h.under++
		return h, max(*seed, uint64(h.tried))
	}
	var group sync.WaitGroup
	for lane := range *atOne {
		group.Go(func() {
			for t.Context().Err() == nil {
				h, of := next()
				if h == nil {
					return
				}
				wrong := b.of(t, h.faults).one(lane+1, of, func(w *world) procedure { return h.make(w).run })
				mu.Lock()
				h.under--
				if len(wrong) > 0 && (h.found == 0 || of < h.found) {
					h.found, h.wrong, h.after = of, wrong, time.Since(began)
					fmt.Printf("%3.0f s: %s: found by schedule %d\n", h.after.Seconds(), h.name, of)
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
}
