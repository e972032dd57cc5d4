package reconcile_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// A plan is what a call would write, and writes nothing.
func TestPlan(t *testing.T) {
	b := newBench(machine("i-1", 1, record.InService))
	if _, err := b.sync(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	b.fleet.Groups[0].Members = append(b.fleet.Groups[0].Members, machine("i-2", 2, record.InService))
	before := b.zone.list()
	writes := b.writes
	p, err := b.syncer(t).Plan(t.Context(), cluster)
	if err != nil || b.writes != writes || b.slept != 0 {
		t.Fatalf("%d writes, asleep for %s, %v", b.writes-writes, b.slept, err)
	}
	if p.Report.Cluster != cluster || p.Report.Values["masters.demo.k8s. A"] != 2 || p.Report.Calls.ZoneReads != 1 || p.Report.Changed {
		t.Errorf("the report is %+v", p.Report)
	}
	if !record.Diff(p.Have, before, "").Empty() || len(p.Have) != len(before) {
		t.Errorf("it has %v", p.Have)
	}
	if err := b.zone.swap(p.Change.Remove, p.Change.Create); err != nil {
		t.Fatalf("the plan fits no zone: %v", err)
	}
	if !record.Diff(b.zone.list(), p.Want, "").Empty() || len(b.zone.list()) != len(p.Want) || len(b.masters()) != 2 {
		t.Errorf("after the change the zone has %v, wanted %v", b.zone.list(), p.Want)
	}
	if p, err = b.syncer(t).Plan(t.Context(), cluster); err != nil || !p.Change.Empty() {
		t.Errorf("nothing is to do: %v, %v", p.Change, err)
	}
	b.fleetErr = errors.New("page 2 of 3 did not arrive")
	if _, err := b.syncer(t).Plan(t.Context(), cluster); !errors.Is(err, b.fleetErr) || !strings.Contains(err.Error(), cluster) {
		t.Errorf("%v", err)
	}
}

// What fits no batch is an error, of a plan and of a call, and nothing is written.
func TestSyncWithoutRoom(t *testing.T) {
	b := newBench(machine("i-1", 1, record.InService), machine("i-2", 2, record.InService))
	b.limits = record.Limits{SetValues: 100, BatchValues: 1}
	if p, err := b.syncer(t).Plan(t.Context(), cluster); err == nil {
		t.Errorf("the plan is %+v", p)
	}
	if _, err := b.sync(t.Context(), t); err == nil || b.writes > 0 {
		t.Errorf("%d writes, %v", b.writes, err)
	}
}

// A change larger than a batch takes several, the last of which has all; each counts as a request.
func TestSyncWritesInParts(t *testing.T) {
	b := newBench(machine("i-1", 1, record.InService))
	minions := record.Group{Name: "demo-minions", Cluster: cluster, Role: role.Minions, Desired: 40}
	for i := range 40 {
		minions.Members = append(minions.Members, machine("m-"+string(rune('A'+i)), byte(100+i), record.InService))
	}
	b.fleet.Groups = append(b.fleet.Groups, minions)
	b.limits = record.Limits{SetValues: 100, BatchValues: 50}
	r, err := b.sync(t.Context(), t)
	if err != nil || r.Calls.ZoneWrites < 2 || r.Calls.ZoneReads != 1 || len(b.masters()) != 1 || r.Values["masters.demo.k8s. A"] != 1 || r.Unannounced != 41 {
		t.Errorf("%+v, %v: %v", r, err, b.zone.list())
	}
	if p, err := b.syncer(t).Plan(t.Context(), cluster); err != nil || !p.Change.Empty() {
		t.Errorf("and yet %v, %v", p.Change, err)
	}
}

// Records that are not this fleet's are told and not changed.
func TestSyncLeavesAnothersRecords(t *testing.T) {
	b := newBench(machine("i-1", 1, record.InService))
	foreign := []record.Set{{Name: "masters.demo.k8s.", Type: record.A, TTL: time.Minute, Values: []string{"10.9.9.9"}}}
	if err := b.zone.swap(nil, foreign); err != nil {
		t.Fatal(err)
	}
	r, err := b.sync(t.Context(), t)
	if err == nil || b.writes > 0 || len(r.Problems) == 0 || r.Problems[0].Rule != record.RuleNotOwned {
		t.Errorf("%d writes, %+v, %v", b.writes, r, err)
	}
}

// A group that is missing from a reading keeps its records for a while, and the call asks to be called when that is over.
func TestSyncKeepsAVanishedGroup(t *testing.T) {
	b := newBench(machine("i-1", 1, record.InService))
	if _, err := b.sync(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	b.now = b.now.Add(time.Hour)
	gone := b.now.Add(record.VanishAfter)
	b.fleet.Groups = nil
	r, err := b.sync(t.Context(), t)
	if err != nil || len(b.masters()) != 1 || b.masters()[0] != "10.0.0.1" || !r.CallAgainAt.Equal(gone) {
		t.Errorf("masters are %v, again at %s, want %s, %v", b.masters(), r.CallAgainAt, gone, err)
	}
	b.now = gone
	r, err = b.sync(t.Context(), t)
	if err != nil || len(b.masters()) == 1 && b.masters()[0] == "10.0.0.1" || !r.CallAgainAt.IsZero() {
		t.Errorf("masters are %v, again at %s, %v", b.masters(), r.CallAgainAt, err)
	}
}
