package reconcile_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// drained is a bench in which i-1 stays and the others have left the records long ago.
func drained(t *testing.T, ids ...string) *bench {
	t.Helper()
	b := newBench(machine("i-1", 1, record.InService))
	for i, id := range ids {
		b.fleet.Groups[0].Members = append(b.fleet.Groups[0].Members, machine(id, byte(i+2), record.TerminatingWait))
	}
	if _, err := b.sync(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	b.now = b.now.Add(10 * time.Minute)
	return b
}

// A hook that cannot be completed is an error, and no other hook waits for it.
func TestHooksFailOneByOne(t *testing.T) {
	b := drained(t, "i-2", "i-3", "i-4")
	denied := errors.New("AccessDenied")
	b.hookErrs = []error{nil, denied}
	r, err := b.sync(t.Context(), t)
	if !errors.Is(err, denied) || !slices.Equal(b.completed, []string{"i-2", "i-4"}) || r.Calls.Hooks != 3 {
		t.Errorf("completed %v, %+v, %v", b.completed, r.Calls, err)
	}
	var states []reconcile.HookState
	for i, h := range r.Hooks {
		states = append(states, h.State)
		if h.Group != "demo-masters" || h.InstanceID != []string{"i-2", "i-3", "i-4"}[i] {
			t.Errorf("hook %d is %+v", i, h)
		}
	}
	if !slices.Equal(states, []reconcile.HookState{reconcile.HookDone, reconcile.HookFailed, reconcile.HookDone}) {
		t.Errorf("the hooks are %v", states)
	}
	if !r.CallAgainAt.IsZero() {
		t.Errorf("again at %s: nothing is waited for", r.CallAgainAt)
	}
}

// A hook is tried again where AutoScaling asks to slow down.
func TestHooksAreThrottled(t *testing.T) {
	b := drained(t, "i-2")
	b.hookErrs = []error{reconcile.ErrThrottled, reconcile.ErrThrottled}
	r, err := b.sync(t.Context(), t)
	if err != nil || !slices.Equal(b.completed, []string{"i-2"}) || r.Calls.Hooks != 3 || r.Throttled != 2 {
		t.Errorf("completed %v, %+v, %v", b.completed, r, err)
	}
}

// A machine is published as long as one of its addresses is, of whichever family, and whoever else has it.
func TestHooksWaitForEveryAddress(t *testing.T) {
	six := netip.MustParseAddr("2001:db8::2")
	for name, change := range map[string]func(old, other *record.Member){
		"its address":            func(old, other *record.Member) { other.Private = old.Private },
		"its address of IPv6":    func(old, other *record.Member) { old.Private6, other.Private6 = six, six },
		"its address for others": func(old, other *record.Member) { old.Public = other.Private },
	} {
		t.Run(name, func(t *testing.T) {
			old, other := machine("i-2", 2, record.TerminatingWait), machine("i-3", 3, record.InService)
			change(&old, &other)
			b := newBench(machine("i-1", 1, record.InService), old, other)
			for writes := range 2 {
				r, err := b.sync(t.Context(), t)
				if err != nil || r.Calls.ZoneWrites != 1-writes || len(b.completed) > 0 || len(r.Hooks) != 1 || r.Hooks[0].State != reconcile.HookHeld || r.Hooks[0].InstanceID != "i-2" || r.Hooks[0].Group != "demo-masters" {
					t.Errorf("completed %v, %+v, %v", b.completed, r, err)
				}
				if !r.CallAgainAt.IsZero() {
					t.Errorf("again at %s: no time helps here", r.CallAgainAt)
				}
				b.now = b.now.Add(time.Hour)
			}
			b.fleet.Groups[0].Members = b.fleet.Groups[0].Members[:2]
			r, err := b.sync(t.Context(), t)
			if err != nil || len(b.completed) > 0 || r.Hooks[0].State != reconcile.HookWaiting {
				t.Errorf("it has just left: completed %v, %+v, %v", b.completed, r.Hooks, err)
			}
			b.now = r.CallAgainAt
			if _, err := b.sync(t.Context(), t); err != nil || !slices.Equal(b.completed, []string{"i-2"}) {
				t.Errorf("when due: completed %v, %v", b.completed, err)
			}
		})
	}
}

// A machine whose address another has taken over stays published: nothing is written for it.
func TestHooksOfATakenAddress(t *testing.T) {
	b := draining(t)
	b.fleet.Groups[0].Members = append(b.fleet.Groups[0].Members, machine("i-3", 2, record.InService))
	generation := b.generation(t)
	r, err := b.sync(t.Context(), t, reconcile.Event{})
	if err != nil || len(b.completed) > 0 || len(r.Hooks) != 1 || r.Hooks[0].State != reconcile.HookHeld {
		t.Errorf("completed %v, %+v, %v", b.completed, r, err)
	}
	if r.Calls.ZoneWrites != 0 || b.generation(t) != generation {
		t.Errorf("%d writes: %s became %s", r.Calls.ZoneWrites, generation, b.generation(t))
	}
}

// The next call is asked for when the first of several hooks is due, whatever their order.
func TestHooksAskForTheFirst(t *testing.T) {
	hold := record.DefaultTTL + testSettle
	for _, order := range [][2]int{{1, 2}, {2, 1}} {
		b := newBench(machine("i-1", 1, record.InService), machine("i-2", 2, record.InService), machine("i-3", 3, record.InService))
		if _, err := b.sync(t.Context(), t); err != nil {
			t.Fatal(err)
		}
		members := b.fleet.Groups[0].Members
		for n, i := range order {
			b.now, members[i].Lifecycle = epoch.Add(time.Hour+time.Duration(n)*20*time.Second), record.TerminatingWait
			if r, err := b.sync(t.Context(), t, reconcile.Event{}); err != nil || !r.CallAgainAt.Equal(epoch.Add(time.Hour+hold)) {
				t.Errorf("%v: again at %s, %v", order, r.CallAgainAt.Sub(epoch), err)
			}
		}
		b.now = epoch.Add(time.Hour + hold)
		r, err := b.sync(t.Context(), t)
		if err != nil || !slices.Equal(b.completed, []string{members[order[0]].InstanceID}) || !r.CallAgainAt.Equal(b.now.Add(20*time.Second)) {
			t.Errorf("%v: completed %v, again at %s, %v", order, b.completed, r.CallAgainAt.Sub(epoch), err)
		}
	}
}

// Without hooks to complete, nothing is written for a machine that ends, and nothing is told about it.
func TestSyncWithoutHooks(t *testing.T) {
	b := newBench(machine("i-1", 1, record.InService))
	b.configure = func(c *reconcile.Config) { c.Hooks = nil }
	if _, err := b.sync(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	b.fleet.Groups[0].Members = append(b.fleet.Groups[0].Members, machine("i-2", 2, record.TerminatingWait))
	r, err := b.sync(t.Context(), t)
	if err != nil || r.Calls.ZoneWrites != 0 || len(r.Hooks) > 0 || !r.CallAgainAt.IsZero() {
		t.Errorf("%+v, %v", r, err)
	}
}

// One change says of the machines that it removes, and of those that were never published, that they have left.
func TestSyncFencesWithAChange(t *testing.T) {
	b := draining(t)
	b.fleet.Groups[0].Members = append(b.fleet.Groups[0].Members, machine("i-3", 3, record.TerminatingWait))
	r, err := b.sync(t.Context(), t, reconcile.Event{})
	if err != nil || r.Calls.ZoneWrites != 1 || len(r.Hooks) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, h := range r.Hooks {
		if h.State != reconcile.HookWaiting || !h.Due.Equal(b.now.Add(record.DefaultTTL+testSettle)) {
			t.Errorf("%+v", h)
		}
	}
	b.now = r.CallAgainAt
	if r, err = b.sync(t.Context(), t); err != nil || !slices.Equal(b.completed, []string{"i-2", "i-3"}) || r.Calls.ZoneWrites != 0 {
		t.Errorf("completed %v, %+v, %v", b.completed, r.Calls, err)
	}
}

// More machines that end at once than a generation remembers take several rounds, and no call fails for it.
func TestHooksOfVeryManyMachines(t *testing.T) {
	for name, state := range map[string]record.Lifecycle{"published": record.InService, "never published": record.PendingWait} {
		t.Run(name, func(t *testing.T) {
			b := newBench(machine("i-1", 1, record.InService))
			var ends []record.Member
			for i := range 900 {
				m := machine(fmt.Sprint("i-e", i), 0, state)
				m.Private = stormAddress(1000 + i)
				ends = append(ends, m)
			}
			minions := record.Group{Name: "demo-minions", Cluster: cluster, Role: role.Minions, Desired: 900, Members: ends}
			b.fleet.Groups = append(b.fleet.Groups, minions)
			if _, err := b.sync(t.Context(), t); err != nil {
				t.Fatal(err)
			}
			b.now = b.now.Add(time.Hour)
			for i := range ends {
				ends[i].Lifecycle = record.TerminatingWait
			}
			for round := 0; len(b.fleet.Groups[1].Members) > 0; round++ {
				r, err := b.sync(t.Context(), t, reconcile.Event{})
				if err != nil || round > 6 || round == 0 && len(b.completed) > 0 {
					t.Fatalf("round %d: %d machines wait, %+v, %v", round, len(b.fleet.Groups[1].Members), r.Calls, err)
				}
				b.fleet.Groups[1].Members = slices.DeleteFunc(b.fleet.Groups[1].Members, func(m record.Member) bool { return slices.Contains(b.completed, m.InstanceID) })
				b.now = r.CallAgainAt
			}
		})
	}
}
