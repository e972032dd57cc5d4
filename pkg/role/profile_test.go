package role

import (
	"reflect"
	"slices"
	"testing"
)

// TestProfiles fails for a role that lacks a fact, since each would be a silent fault elsewhere: a daemon without
// memory, a closed port, a machine that is called ready too early.
func TestProfiles(t *testing.T) {
	if got := Join(All(), " "); got != "masters minions etcd" {
		t.Errorf("the roles are %s", got)
	}
	orders := map[int]Role{}
	for _, r := range All() {
		p := r.Profile()
		for name, value := range map[string]any{"Role": p.Role, "Order": p.Order, "Ports": p.Ports, "Reads": p.Reads, "Reserve": p.Reserve,
			"Memory": p.Memory, "Units": p.Units, "Checks": p.Checks} {
			if reflect.ValueOf(value).IsZero() {
				t.Errorf("the profile of %s has no %s", r, name)
			}
		}
		if other, ok := orders[p.Order]; ok {
			t.Errorf("%s and %s have the same order", r, other)
		}
		orders[p.Order] = r
		if !slices.Contains(p.Reads, Public) {
			t.Errorf("%s does not read %s, which has the cluster's CA", r, Public)
		}
		testUnits(t, p)
	}
	if p := Role("nobody").Profile(); !reflect.DeepEqual(p, Profile{}) {
		t.Errorf("a role that is not known has %+v", p)
	}
}

func testUnits(t *testing.T, p Profile) {
	t.Helper()
	for _, u := range p.Units {
		proven := slices.ContainsFunc(p.Checks, func(c Check) bool { return c.Name == u.Proof })
		if u.Name == "" || !proven && u.Proof != NoProof {
			t.Errorf("%s: unit %q: its proof %q is no check of the role", p.Role, u.Name, u.Proof)
		}
		if UnitOf(u.Name) != u {
			t.Errorf("%s: unit %s is there twice", p.Role, u.Name)
		}
	}
	for _, c := range p.Checks {
		if !slices.ContainsFunc(p.Units, func(u Unit) bool { return u.Name == c.Unit }) {
			t.Errorf("%s: check %s looks at %q, which is no unit of the role", p.Role, c.Name, c.Unit)
		}
		if c.Probe == "" {
			t.Errorf("%s: check %s has no probe", p.Role, c.Name)
		}
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		Domain("demo"): "demo.k8s", Masters.Host("demo"): "masters.demo.k8s", MemberHost("demo", "a"): "etcd-a.demo.k8s", Minions.Shard(7): "minions-7",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestUnits tests that each unit comes after the units that can cause its failure.
func TestUnits(t *testing.T) {
	var units, checks []string
	for _, u := range Set(All()).Units() {
		units = append(units, u.Name)
	}
	for _, c := range Set(All()).Checks() {
		checks = append(checks, c.Name)
	}
	want := []string{"hardtack-certs-etcd.service", "hardtack-certs-masters.service", "etcd.service", "kube-apiserver.service",
		"kube-controller-manager.service", "kube-scheduler.service", "hardtack-addons.service", "hardtack-controller.service", "hardtack-node.service",
		"hardtack-bootstrap.service", "containerd.service", "hardtack-images.service", "kubelet.service", "kube-proxy.service", "flanneld.service"}
	ordered(t, units, want)
	ordered(t, checks, []string{"etcd", "api", "controllers", "scheduler", "addons", "kubelet", "proxy", "network", "node"})
	if one := NewSet(Minions).Units(); len(one) != len(Minions.Profile().Units) || one[0].Name != "hardtack-node.service" {
		t.Errorf("a minion's units are %v", one)
	}
}

// ordered fails unless all of want occur in that order; others may stand between them.
func ordered(t *testing.T, got, want []string) {
	t.Helper()
	known := slices.DeleteFunc(slices.Clone(got), func(name string) bool { return !slices.Contains(want, name) })
	if !slices.Equal(known, want) {
		t.Errorf("%v, want the order %v", got, want)
	}
}
