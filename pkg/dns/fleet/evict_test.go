package fleet_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/evict"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/notice"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// ending has a group of minions with both hooks on termination, of which one machine ends.
func ending(t *testing.T, clock awsfake.Clock, faults awsfake.Faults) (*awsfake.Account, *fleet.Evictions, evict.Machine) {
	t.Helper()
	a, _, api := region(t, awsfake.Options{Clock: clock, Faults: faults})
	group(t, a, "demo-masters", "masters+etcd", 1, nil)
	group(t, a, "demo-minions", "minions", 2, nil)
	group(t, a, "other-minions", "minions", 1, map[string]string{role.TagCluster: "other"})
	for name, timeout := range map[string]time.Duration{role.EvictionHook: 15 * time.Minute, "hardtack-drain": 5 * time.Minute} {
		err := a.AutoScaling().PutHook("demo-minions", awsfake.Hook{Name: name, Transition: "autoscaling:EC2_INSTANCE_TERMINATING", Heartbeat: timeout, Default: awsfake.Continue})
		if err != nil {
			t.Fatal(err)
		}
	}
	id := a.AutoScaling().Instances("demo-minions")[0].ID
	if err := a.AutoScaling().Terminate(id, true); err != nil {
		t.Fatal(err)
	}
	a.Tick()
	return a, &fleet.Evictions{API: api, Cluster: "demo"}, evict.Machine{ID: id, Group: "demo-minions", State: "Terminating:Wait", Policy: notice.DefaultPolicy()}
}

// TestEvictionsNotices reads what is done about notices from the group, and for how long a machine may take from its hook.
func TestEvictionsNotices(t *testing.T) {
	a, e, _ := ending(t, nil, nil)
	group(t, a, "demo-spot", "minions", 1, map[string]string{role.TagNotices: "rebalance=cordon scheduled=ignore"})
	group(t, a, "demo-typo", "minions", 1, map[string]string{role.TagNotices: "spot=dran"})
	got, err := e.Sight(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]notice.Policy{"demo-minions": notice.DefaultPolicy(), "demo-typo": notice.DefaultPolicy(),
		"demo-spot": {Spot: notice.Drain, Scheduled: notice.Ignore, Rebalance: notice.Cordon}}
	for _, m := range got.Machines {
		if m.Policy != want[m.Group] {
			t.Errorf("%s: %s, want %s", m.Group, m.Policy, want[m.Group])
		}
	}
	for range 2 {
		for name, want := range map[string]time.Duration{"demo-minions": 15 * time.Minute, "demo-spot": 0} {
			if d, err := e.Drain(t.Context(), name); err != nil || d != want {
				t.Errorf("%s: %v, %v", name, d, err)
			}
		}
	}
	if n := a.Calls()["autoscaling:DescribeLifecycleHooks"]; n != 2 {
		t.Errorf("the hooks of two groups were read %d times", n)
	}
}

// waits are the hooks that a machine waits for.
func waits(a *awsfake.Account, m evict.Machine) (hooks []string) {
	for _, i := range a.AutoScaling().Instances(m.Group) {
		if i.ID == m.ID {
			for name := range i.Tokens {
				hooks = append(hooks, name)
			}
		}
	}
	slices.Sort(hooks)
	return hooks
}

func TestEvictionsSight(t *testing.T) {
	a, e, m := ending(t, nil, nil)
	got, err := e.Sight(t.Context())
	if err != nil || len(got.Machines) != 2 || got.Closing || !slices.Contains(got.Machines, m) {
		t.Errorf("got %+v, %v, want %+v and another", got, err, m)
	}
	if err := a.AutoScaling().SetDesired("demo-masters", 0); err != nil {
		t.Fatal(err)
	}
	if got, err = e.Sight(t.Context()); err != nil || !got.Closing {
		t.Errorf("without a master: %+v, %v", got, err)
	}
	// Who sees no group of masters does not see the whole cluster: its masters' groups may have other tags.
	other := &fleet.Evictions{API: e.API, Cluster: "other"}
	if got, err = other.Sight(t.Context()); err != nil || len(got.Machines) != 1 || got.Closing {
		t.Errorf("without a group of masters: %+v, %v", got, err)
	}
}

// TestEvictionsHold restarts the time of our hook, and completes it once. The DNS function leaves it alone.
func TestEvictionsHold(t *testing.T) {
	clock := awsfake.NewVirtualClock(time.Now())
	a, e, m := ending(t, clock, nil)
	if err := (&fleet.Hooks{API: e.API}).Complete(t.Context(), m.Group, m.ID); err != nil {
		t.Fatal(err)
	}
	if left := waits(a, m); !slices.Equal(left, []string{role.EvictionHook}) {
		t.Errorf("after the DNS function it waits for %v", left)
	}
	clock.Advance(14 * time.Minute)
	a.Tick()
	if d, err := e.Hold(t.Context(), m); err != nil || d != 15*time.Minute {
		t.Errorf("held for %v, %v", d, err)
	}
	clock.Advance(14 * time.Minute)
	a.Tick()
	if left := waits(a, m); len(left) != 1 {
		t.Errorf("it is not held: %v", left)
	}
	for i := range 3 {
		if was, err := e.Release(t.Context(), m); err != nil || was != (i == 0) {
			t.Errorf("released: %v, %v", was, err)
		}
	}
	if d, err := e.Hold(t.Context(), m); err != nil || d != 0 {
		t.Errorf("one that is gone is held for %v, %v", d, err)
	}
	if d, err := e.Hold(t.Context(), evict.Machine{ID: m.ID, Group: "demo-masters"}); err != nil || d != 0 || a.Calls()["autoscaling:RecordLifecycleActionHeartbeat"] != 2 {
		t.Errorf("in a group without a hook: %v, %v", d, err)
	}
}

// TestEvictionsDenied names the permission that is missing.
func TestEvictionsDenied(t *testing.T) {
	for action, call := range map[string]func(e *fleet.Evictions, m evict.Machine) error{
		"DescribeAutoScalingGroups":      func(e *fleet.Evictions, _ evict.Machine) error { _, err := e.Sight(t.Context()); return err },
		"DescribeLifecycleHooks":         func(e *fleet.Evictions, m evict.Machine) error { _, err := e.Hold(t.Context(), m); return err },
		"RecordLifecycleActionHeartbeat": func(e *fleet.Evictions, m evict.Machine) error { _, err := e.Hold(t.Context(), m); return err },
		"CompleteLifecycleAction":        func(e *fleet.Evictions, m evict.Machine) error { _, err := e.Release(t.Context(), m); return err },
	} {
		faults := &awsfake.Script{}
		a, e, m := ending(t, nil, faults)
		faults.Add(action, awsfake.Fault{Refuse: &awsfake.Error{Code: "AccessDenied", Status: 403}})
		if err := call(e, m); err == nil || !strings.Contains(err.Error(), "allow autoscaling:"+action) {
			t.Errorf("%s: %v", action, err)
		}
		if len(waits(a, m)) != 2 {
			t.Errorf("%s: it waits for %v", action, waits(a, m))
		}
	}
}

// TestEvictionsDrainAsksAgain after a refusal: a hook's time that could not be read is not 0.
func TestEvictionsDrainAsksAgain(t *testing.T) {
	faults := &awsfake.Script{}
	_, e, m := ending(t, nil, faults)
	faults.Add("DescribeLifecycleHooks", awsfake.Fault{Refuse: awsfake.Throttled()})
	if d, err := e.Drain(t.Context(), m.Group); err == nil {
		t.Errorf("refused: %v", d)
	}
	if d, err := e.Drain(t.Context(), m.Group); err != nil || d != 15*time.Minute {
		t.Errorf("then: %v, %v", d, err)
	}
}
