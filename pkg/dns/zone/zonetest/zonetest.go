// Package zonetest is the conformance suite of reconcile.Zone, which each zone runs against a real or a strict server,
// and starts BIND for tests.
//
// Its rule: a scenario is the same for every zone; differences between services are in [Subject].
package zonetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// Cluster is the cluster of the suite's names; the zone is k8s.
const Cluster = "demo"

// Subject gives access to one empty zone.
type Subject struct {
	Zone reconcile.Zone
	// WrongKey accesses the same zone with credentials that the service rejects.
	WrongKey reconcile.Zone
	// LoseReply returns a zone whose next change is committed, but whose response is lost.
	LoseReply func() reconcile.Zone
	// MatchesTTL: a base that differs only in its TTL is a conflict.
	MatchesTTL bool
}

// Run runs the suite; fresh returns a new, empty zone for each scenario.
func Run(t *testing.T, fresh func(t *testing.T) Subject) {
	t.Helper()
	for _, sc := range []struct {
		name string
		run  func(*testing.T, Subject)
	}{
		{"what is written is read", writesAndReads},
		{"a stale base is a conflict and changes nothing", staleBase},
		{"a base from before A-B-A is a conflict", aba},
		{"a base that is half right is a conflict", partialBase},
		{"a set that exists is not created again", createsOnce},
		{"one of many at once wins", concurrent},
		{"a set as large as the limit", largestSet},
		{"a set over the limit is refused by name", overLimit},
		{"other clusters and other people's records stay out", neighbours},
		{"wrong credentials", wrongKey},
		{"a lost reply is an unknown outcome", lostReply},
	} {
		t.Run(sc.name, func(t *testing.T) { sc.run(t, fresh(t)) })
	}
}

// Masters returns the set masters.demo.k8s. with the addresses.
func Masters(addresses ...string) record.Set {
	return record.Set{Name: "masters.demo.k8s.", Type: record.A, TTL: 5 * time.Second, Values: slices.Sorted(slices.Values(addresses))}
}

// Control returns the control record with the generation.
func Control(generation string) record.Set {
	return record.Set{Name: "_hardtack.demo.k8s.", Type: record.TXT, TTL: 5 * time.Second,
		Values: []string{"generation=" + generation, "owner=hardtack"}}
}

func swap(t *testing.T, z reconcile.Zone, remove, create []record.Set) {
	t.Helper()
	if err := z.CompareAndSwap(t.Context(), Cluster, remove, create); err != nil {
		t.Fatal(err)
	}
}

func conflicts(t *testing.T, z reconcile.Zone, remove, create []record.Set) {
	t.Helper()
	if err := z.CompareAndSwap(t.Context(), Cluster, remove, create); !errors.Is(err, reconcile.ErrConflict) {
		t.Errorf("not a conflict: %v", err)
	}
}

// holds asserts that the zone has exactly these sets.
func holds(t *testing.T, z reconcile.Zone, want ...record.Set) {
	t.Helper()
	got, err := z.Read(t.Context(), Cluster)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the zone is not as expected (-want +got):\n%s", d)
	}
}

func sets(s ...record.Set) []record.Set { return s }

func writesAndReads(t *testing.T, s Subject) {
	holds(t, s.Zone)
	all := sets(
		record.Set{Name: "_etcd-server-ssl._tcp.demo.k8s.", Type: record.SRV, TTL: 5 * time.Second, Values: []string{"0 0 2380 etcd-a.demo.k8s."}},
		Control("1"),
		record.Set{Name: "etcd-a.demo.k8s.", Type: record.A, TTL: 5 * time.Second, Values: []string{"10.0.0.9"}},
		Masters("10.0.0.1", "10.0.0.2"),
		record.Set{Name: "masters.demo.k8s.", Type: record.AAAA, TTL: 60 * time.Second, Values: []string{"2001:db8::1"}},
		record.Set{Name: "minions.demo.k8s.", Type: record.TXT, TTL: 5 * time.Second, Values: []string{"count=1234", "shards=4"}},
	)
	swap(t, s.Zone, nil, all)
	holds(t, s.Zone, all...)
	swap(t, s.Zone, all, nil)
	holds(t, s.Zone)
}

func staleBase(t *testing.T, s Subject) {
	first, second := sets(Control("1"), Masters("10.0.0.1")), sets(Control("2"), Masters("10.0.0.2"))
	swap(t, s.Zone, nil, first)
	swap(t, s.Zone, first, second)
	conflicts(t, s.Zone, first, sets(Control("3"), Masters("10.0.0.3")))
	holds(t, s.Zone, second...)
	if s.MatchesTTL {
		other := Masters("10.0.0.2")
		other.TTL = time.Minute
		conflicts(t, s.Zone, sets(other), sets(Masters("10.0.0.3")))
		holds(t, s.Zone, second...)
	}
}

func aba(t *testing.T, s Subject) {
	base := sets(Control("1"), Masters("10.0.0.1"))
	between := sets(Control("2"), Masters("10.0.0.2"))
	back := sets(Control("3"), Masters("10.0.0.1"))
	swap(t, s.Zone, nil, base)
	swap(t, s.Zone, base, between)
	swap(t, s.Zone, between, back)
	conflicts(t, s.Zone, base, sets(Control("4"), Masters("10.0.0.4")))
	holds(t, s.Zone, back...)
}

func partialBase(t *testing.T, s Subject) {
	now := sets(Control("1"), Masters("10.0.0.1", "10.0.0.2"))
	swap(t, s.Zone, nil, now)
	for _, base := range [][]record.Set{
		sets(Control("1"), Masters("10.0.0.1")),
		sets(Control("1"), Masters("10.0.0.1", "10.0.0.2", "10.0.0.3")),
		sets(Control("0"), Masters("10.0.0.1", "10.0.0.2")),
		sets(Control("1"), record.Set{Name: "etcd.demo.k8s.", Type: record.A, TTL: 5 * time.Second, Values: []string{"10.0.0.1"}}),
	} {
		conflicts(t, s.Zone, base, sets(Control("2"), record.Set{Name: "minions.demo.k8s.", Type: record.A, TTL: 5 * time.Second, Values: []string{"10.0.0.7"}}))
	}
	holds(t, s.Zone, now...)
}

func createsOnce(t *testing.T, s Subject) {
	now := sets(Control("1"), Masters("10.0.0.1"))
	swap(t, s.Zone, nil, now)
	conflicts(t, s.Zone, nil, sets(Masters("10.0.0.1")))
	conflicts(t, s.Zone, nil, sets(Masters("10.0.0.2")))
	conflicts(t, s.Zone, sets(Control("1")), sets(Control("2"), Masters("10.0.0.2")))
	holds(t, s.Zone, now...)
}

func concurrent(t *testing.T, s Subject) {
	base := sets(Control("0"), Masters("10.0.0.0"))
	swap(t, s.Zone, nil, base)
	const n = 8
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			errs[i] = s.Zone.CompareAndSwap(t.Context(), Cluster, base,
				sets(Control(fmt.Sprint("w", i)), Masters(fmt.Sprintf("10.0.1.%d", i))))
		})
	}
	wg.Wait()
	winner := -1
	for i, err := range errs {
		switch {
		case err == nil && winner >= 0:
			t.Fatalf("writers %d and %d both won", winner, i)
		case err == nil:
			winner = i
		case !errors.Is(err, reconcile.ErrConflict) && !errors.Is(err, reconcile.ErrThrottled):
			t.Errorf("writer %d: %v", i, err)
		}
	}
	if winner < 0 {
		t.Fatal("no writer won")
	}
	holds(t, s.Zone, Control(fmt.Sprint("w", winner)), Masters(fmt.Sprintf("10.0.1.%d", winner)))
}
