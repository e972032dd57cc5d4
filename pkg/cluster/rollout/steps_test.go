package rollout_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
)

// A step has all that its execution needs, and no more.
func TestSteps(t *testing.T) {
	launches := func(s rollout.State, key string) rollout.State {
		return of(s, key, func(g *rollout.Group) { g.Launches = v1 })
	}
	etcdDone := fresh("i-a", "i-b", "i-c")
	for name, tt := range map[string]struct {
		state rollout.State
		want  rollout.Step
	}{
		"a group of the control plane is pointed": {launches(three(v1), "etcd-c"), rollout.Step{Action: rollout.Point, Group: "demo-etcd-c", From: 1, To: 2}},
		"a group of minions is pointed":           {launches(three(v2), "minions"), rollout.Step{Action: rollout.Point, Group: "demo-minions", From: 1, To: 2}},
		"a machine is replaced":                   {etcdDone(three(v1)), rollout.Step{Action: rollout.Replace, Group: "demo-masters", Machine: "i-m1", From: 1, To: 2}},
		"one that does not serve is replaced": {at(etcdDone(three(v1)), "i-m2", state("Pending")), rollout.Step{Action: rollout.Replace, Group: "demo-masters",
			Machine: "i-m2", From: 1, To: 2}},
		"a group is refreshed": {fresh("i-m1", "i-m2")(etcdDone(three(v1))), rollout.Step{Action: rollout.Start, Group: "demo-minions", From: 1, To: 2}},
		"a refresh is watched": {of(three(v2), "minions", func(g *rollout.Group) {
			g.Refresh = &rollout.Refresh{ID: "1", Status: "InProgress", Percent: 50, To: 2}
		}), rollout.Step{Action: rollout.Watch, Group: "demo-minions", To: 2, Percent: 50}},
		"a machine that has the data of another seat waits": {of(durable(), "etcd-b", func(g *rollout.Group) { g.Volume.Holder = "i-m1" }), rollout.Step{Action: rollout.Wait, Group: "demo-masters"}},
		"nothing is left": {three(v2), rollout.Step{Action: rollout.Finished}},
	} {
		t.Run(name, func(t *testing.T) {
			got := rollout.Next(tt.state, nil, nil)
			got.Reason = ""
			assert.Equal(t, got, tt.want)
		})
	}
	got := rollout.Next(handedOver(), nil, nil)
	got.Reason = ""
	assert.Equal(t, got, rollout.Step{Action: rollout.Replace, Group: "demo-masters", Machine: "i-m1", From: 1, To: 2})
}

// Members of etcd come first, then masters, then everything else, whatever their names are.
func TestStepsOrder(t *testing.T) {
	s := rollout.State{Cluster: "demo", Groups: []rollout.Group{group("alpha", minions, machine("i-w", v1)), group("beta", masters, machine("i-m", v1)), group("gamma", etcd, machine("i-e", v1))}}
	next(t, s, "", "replace i-e, image")
	var refusal *rollout.Refusal
	assert.Assert(t, errors.As(rollout.Refuse(s, nil, nil), &refusal))
	assert.DeepEqual(t, refusal.Safe, []string{"beta", "alpha"})
}

// handedOver is durable with the volume of etcd-b at a master, as whose member it runs.
func handedOver() rollout.State {
	s := at(durable(), "i-b", state("Pending:Wait"))
	s = of(s, "etcd-b", func(g *rollout.Group) { g.Volume.Holder = "i-m1" })
	r := s.Etcd.Members["b"]
	r.Instance = "i-m1"
	s.Etcd.Members["b"] = r
	return s
}

// Who waits for a hook is named, and that it is for pods where the group's hook is known.
func TestStepsNameHeldMachines(t *testing.T) {
	for name, tt := range map[string]struct {
		held  []string
		drain time.Duration
		want  []string // the words that the reason has
	}{
		"none":              {nil, 0, nil},
		"none, with a hook": {nil, time.Hour, nil},
		"one":               {[]string{"i-w2"}, 0, []string{"hooks", "i-w2"}},
		"one, for its pods": {[]string{"i-w2"}, time.Hour, []string{"pods", "1h0m0s", "i-w2"}},
		"both":              {[]string{"i-w1", "i-w2"}, 0, []string{"hooks", "i-w1", "i-w2"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := of(three(v2), "minions", func(g *rollout.Group) {
				g.Refresh, g.Drain = &rollout.Refresh{ID: "1", Status: "InProgress", To: 2}, tt.drain
			})
			for _, id := range tt.held {
				s = at(s, id, state("Terminating:Wait"))
			}
			reason := rollout.Next(s, nil, nil).Reason
			for _, word := range []string{"hooks", "pods", "1h0m0s", "i-w1", "i-w2"} {
				if strings.Contains(reason, word) != slices.Contains(tt.want, word) {
					t.Errorf("%q: %s", word, reason)
				}
			}
		})
	}
}

// In a group of several types a machine of any of them is as wanted, whatever its version's type is.
func TestLacks(t *testing.T) {
	for name, tt := range map[string]struct {
		types   []string // of the group
		machine rollout.Machine
		want    string
	}{
		"one type, the version's":       {nil, rollout.Machine{From: v2, Type: "m7i.large"}, ""},
		"one type, and another machine": {nil, rollout.Machine{From: v2, Type: "c7i.large"}, ""}, // somebody has changed it: the version is what was asked for
		"one of several":                {[]string{"m7a.large", "c7i.large"}, rollout.Machine{From: v2, Type: "c7i.large"}, ""},
		"none of several":               {[]string{"c7i.large", "m7a.large"}, rollout.Machine{From: v2, Type: "m7i.large"}, "instance type"},
		"of several, not known":         {[]string{"c7i.large", "m7a.large"}, rollout.Machine{From: v2}, ""},
		"of another version's type": {[]string{"c7i.large"}, rollout.Machine{From: rollout.Version{Image: "ami-b", Config: "sha256:1", Type: "m5.large"}, Type: "c7i.large"},
			""},
		"of several, with another image": {[]string{"c7i.large"}, rollout.Machine{From: v1, Type: "c7i.large"}, "image"},
		"another image":                  {nil, rollout.Machine{From: v1, Type: "m7i.large"}, "image"},
	} {
		t.Run(name, func(t *testing.T) {
			g := rollout.Group{Wanted: v2, Types: tt.types}
			assert.Equal(t, strings.Join(g.Lacks(tt.machine), ", "), tt.want)
		})
	}
	// What several machines lack is said once.
	s := three(v1)
	assert.DeepEqual(t, s.Groups[1].Why(), []string{"image"})
}
