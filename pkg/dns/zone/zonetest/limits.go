package zonetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// Addresses returns n addresses.
func Addresses(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("10.1.%d.%d", i/250, i%250)
	}
	return out
}

func largestSet(t *testing.T, s Subject) {
	limit := s.Zone.Limits().SetValues
	if limit < 100 {
		t.Fatalf("the limit is %d", limit)
	}
	now := sets(Control("1"), Masters(Addresses(limit)...))
	swap(t, s.Zone, nil, now)
	holds(t, s.Zone, now...)
	next := sets(Control("2"), Masters(Addresses(limit - 1)[:limit-1]...))
	swap(t, s.Zone, now, next)
	holds(t, s.Zone, next...)
}

func overLimit(t *testing.T, s Subject) {
	now := sets(Control("1"), Masters("10.0.0.1"))
	swap(t, s.Zone, nil, now)
	limit := s.Zone.Limits().SetValues
	err := s.Zone.CompareAndSwap(t.Context(), Cluster, now, sets(Control("2"), Masters(Addresses(limit+1)...)))
	if err == nil || !strings.Contains(err.Error(), "masters.demo.k8s.") || !strings.Contains(err.Error(), fmt.Sprint(limit)) {
		t.Errorf("the error does not name the set and the limit: %v", err)
	}
	if errors.Is(err, reconcile.ErrConflict) || errors.Is(err, reconcile.ErrUnknownOutcome) || errors.Is(err, reconcile.ErrThrottled) {
		t.Errorf("trying again would not help, but the error says so: %v", err)
	}
	holds(t, s.Zone, now...)
}

// neighbours adds records of clusters with similar names: one that sorts right after, and one with the same ending; and one
// that could be a role's of an operator's own, which is read, since nobody may add to it, and is not the cluster's.
func neighbours(t *testing.T, s Subject) {
	now := sets(Control("1"), Masters("10.0.0.1"))
	swap(t, s.Zone, nil, now)
	var others []record.Set
	for _, name := range []string{"masters.demo2.k8s.", "masters.xdemo.k8s.", "other.demo.k8s."} {
		others = append(others, record.Set{Name: name, Type: record.A, TTL: 5 * time.Second, Values: []string{"10.9.9.9"}})
	}
	swap(t, s.Zone, nil, others)
	got, err := s.Zone.Read(t.Context(), Cluster)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(append(now, others[2]), got); diff != "" {
		t.Errorf("the reading is not as expected (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(now, record.ManagedSets(got, Cluster, record.DefaultPolicy())); diff != "" {
		t.Errorf("the cluster's records are not as expected (-want +got):\n%s", diff)
	}
}

func wrongKey(t *testing.T, s Subject) {
	now := sets(Control("1"), Masters("10.0.0.1"))
	swap(t, s.Zone, nil, now)
	if got, err := s.WrongKey.Read(t.Context(), Cluster); err == nil {
		t.Errorf("wrong credentials read %v", got)
	}
	err := s.WrongKey.CompareAndSwap(t.Context(), Cluster, now, sets(Control("2"), Masters("10.0.0.2")))
	if err == nil || errors.Is(err, reconcile.ErrConflict) || errors.Is(err, reconcile.ErrUnknownOutcome) || errors.Is(err, reconcile.ErrThrottled) {
		t.Errorf("wrong credentials: %v", err)
	}
	holds(t, s.Zone, now...)
}

func lostReply(t *testing.T, s Subject) {
	now, next := sets(Control("1"), Masters("10.0.0.1")), sets(Control("2"), Masters("10.0.0.2"))
	swap(t, s.Zone, nil, now)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := s.LoseReply().CompareAndSwap(ctx, Cluster, now, next); !errors.Is(err, reconcile.ErrUnknownOutcome) {
		t.Errorf("the reply was lost: %v", err)
	}
	holds(t, s.Zone, next...)
}
