package role

import (
	"cmp"
	"fmt"
	"slices"
)

// Unit is a systemd unit of a role.
type Unit struct {
	// Name is the unit's name with its suffix: "etcd.service".
	Name string
	// Reason is the reason of a failed boot, as pkg/node/reason spells it, if the unit is not active and its own status
	// has no reason.
	Reason string
	// First is set for a unit that needs nothing of any other role. It comes before the units of all roles.
	First bool
	// Proof is the name of the role's check that fails while the unit does not work; NoProof is none.
	Proof string
}

// NoProof means that a machine's readiness does not depend on the unit.
const NoProof = "none"

// Check is a condition for the readiness of a machine with the role.
type Check struct {
	// Name is one word, for status texts and timelines; Unit is the unit to examine if the check fails.
	Name, Unit string
	Probe      Probe
}

// Probe names the kind of a check; pkg/node/ready implements it. The zero value is not a probe.
type Probe string

// The probes. HTTP returns one for each URL.
const (
	// UnitActive only requires that the unit is active.
	UnitActive Probe = "unit"
	// APIReady queries the API server of the same machine, at the cluster's port.
	APIReady Probe = "api"
	// NodeReady queries the cluster's API for the condition Ready of this machine's Node.
	NodeReady Probe = "node"
)

// HTTP is the probe that expects the status 200 from a daemon of the same machine.
func HTTP(port int, path string) Probe {
	return Probe(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
}

// Units lists the units of the roles, each before the units that need it. The first that does not work is therefore the
// cause of later failures: a master's certificates, its etcd and its API come before the token that its own kubelet
// waits for.
func (s Set) Units() []Unit {
	var units []Unit
	for _, p := range s.profiles() {
		units = append(units, p.Units...)
	}
	slices.SortStableFunc(units, func(a, b Unit) int {
		switch {
		case a.First == b.First:
			return 0
		case a.First:
			return -1
		}
		return 1
	})
	return units
}

// Checks lists the checks of the roles, in the order of Units.
func (s Set) Checks() []Check {
	var checks []Check
	for _, p := range s.profiles() {
		checks = append(checks, p.Checks...)
	}
	return checks
}

// profiles returns the profiles of the roles by their Order.
func (s Set) profiles() []Profile {
	var list []Profile
	for _, p := range profiles {
		if s.Has(p.Role) {
			list = append(list, p)
		}
	}
	slices.SortStableFunc(list, func(a, b Profile) int { return cmp.Compare(a.Order, b.Order) })
	return list
}

// UnitOf returns the unit of that name from the profiles; the zero Unit if no role has it.
func UnitOf(name string) Unit {
	for _, u := range Set(All()).Units() {
		if u.Name == name {
			return u
		}
	}
	return Unit{}
}
