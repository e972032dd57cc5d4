package record

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// TestOwnRole publishes a role that is an operator's, as long as it has a group, and leaves alone what others have at names
// that could be such a role's.
func TestOwnRole(t *testing.T) {
	policy := DefaultPolicy()
	foreign := Set{Name: "grafana.demo.k8s.", Type: A, TTL: time.Minute, Values: []string{"10.9.9.9"}}
	group := func(name string, r role.Role, address string) Group {
		return Group{Name: name, Cluster: "demo", Role: r, Desired: 1, Members: []Member{{InstanceID: "i-" + name, Private: netip.MustParseAddr(address),
			Lifecycle: InService, Healthy: true, Running: true}}}
	}
	began := time.Unix(1_700_000_000, 0)
	with := Fleet{Cluster: "demo", At: began, Groups: []Group{group("m", role.Masters, "10.0.0.1"), group("in", ingress, "10.0.0.2")}}
	without := Fleet{Cluster: "demo", Groups: with.Groups[:1]}
	check := func(step string, sets []Set, want ...string) {
		t.Helper()
		if got := at(sets, "ingress.demo.k8s.", A); !slices.Equal(got, want) {
			t.Errorf("%s: ingress has %v, want %v", step, got, want)
		}
		if got := at(sets, foreign.Name, A); !slices.Equal(got, foreign.Values) {
			t.Errorf("%s: the other's record is %v", step, got)
		}
		for _, s := range ManagedSets(sets, "demo", policy) {
			if s.Name == foreign.Name {
				t.Errorf("%s: the other's record counts as the cluster's", step)
			}
		}
	}
	have := next(t, []Set{foreign}, with, policy, "g1")
	check("a group of it", have, "10.0.0.2")
	have = next(t, have, with, policy, "g2")
	check("a second sweep", have, "10.0.0.2")
	without.At = began.Add(time.Minute)
	have = next(t, have, without, policy, "g3")
	check("its group is missing", have, "10.0.0.2")
	without.At = without.At.Add(VanishAfter + time.Second)
	have = next(t, have, without, policy, "g4")
	check("its group has been missing for long", have)
	// A name that somebody else has is never taken.
	taken := append(have, Set{Name: "ingress.demo.k8s.", Type: A, TTL: time.Minute, Values: []string{"10.8.8.8"}})
	want, _ := Desired(with, policy, Limits{})
	sets, found := Guard(want, taken, with, policy)
	if found.Err() == nil || !slices.ContainsFunc(found, func(p problem.Problem) bool { return p.Rule == "name-taken" && p.Field == "ingress.demo.k8s." }) {
		t.Errorf("a name that is taken: %v", found)
	}
	check("a name that is taken", Diff(taken, sets, "g5").Apply(taken), "10.8.8.8")
}
