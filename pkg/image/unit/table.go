package unit

import (
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Table says which units run for which roles. Its JSON is stable: fields are added, never changed.
type Table struct {
	// Schema is the version of this format: 1.
	Schema int `json:"schema"`
	// Roles are in the order of role.All, then an operator's own by name: those that a unit names.
	Roles []RoleFile `json:"roles"`
	// Units are sorted by role, in the order of role.All, then by name; those of no role come last.
	Units []Row `json:"units"`
	// Ports are the ports that units open to other machines by Port= in their section [X-Hardtack], sorted by role. Those of Hardtack's
	// own units are not among them.
	Ports []role.Opening `json:"ports,omitempty"`
	// NoUnit lists programs of the image that are for operators and have no unit.
	NoUnit []string `json:"no_unit"`
	// Combinations holds every set of Hardtack's roles that a machine can have, the empty one first, and each of them with each
	// of an operator's own. Units that these start together, a machine with several of an operator's own starts together too.
	Combinations []Combination `json:"combinations"`
}

// RoleFile is a role and the file that gives it to a machine.
type RoleFile struct {
	Role role.Role `json:"role"`
	File string    `json:"file"`
}

// Row is one unit that a start job is made for.
type Row struct {
	Unit string `json:"unit"`
	// Role is empty for a unit that every machine runs.
	Role role.Role `json:"role,omitempty"`
}

// Combination says for a machine with these roles which units start: every unit is in Starts or in Skips.
type Combination struct {
	// Name is "masters+etcd", or "none".
	Name  string      `json:"name"`
	Roles []role.Role `json:"roles"`
	// Starts lists the units whose conditions hold, Skips those whose do not, and those that require what fails.
	Starts []string `json:"starts"`
	Skips  []string `json:"skips"`
	// Fails lists the units of Starts that fail by design: the reader of user data, on a machine without a role.
	Fails []string `json:"fails"`
}

// NewTable computes the table of the enabled units. Slices and targets are left out, since nothing runs in them unless
// a unit of the table does, and so are timers and the units that they start, which are no part of a boot.
func NewTable(units []Unit) Table {
	t := Table{Schema: 1, Units: []Row{}, NoUnit: []string{"kubectl"}, Ports: openingsOf(units)}
	own := ownRoles(units)
	roles := append(role.All(), own...)
	for _, r := range roles {
		t.Roles = append(t.Roles, RoleFile{Role: r, File: r.File()})
	}
	listed := slices.DeleteFunc(slices.Clone(units), func(u Unit) bool { return !needsCondition(u) || !u.enabled() || u.Kind() == "timer" })
	slices.SortStableFunc(listed, func(a, b Unit) int {
		if d := rank(roles, a) - rank(roles, b); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	for _, u := range listed {
		r, _ := u.Role()
		t.Units = append(t.Units, Row{Unit: u.Name, Role: r})
	}
	for _, set := range role.Combinations(own...) {
		t.Combinations = append(t.Combinations, combination(listed, set))
	}
	return t
}

// rank is the place of the unit's role in the table.
func rank(roles []role.Role, u Unit) int {
	r, ok := u.Role()
	if !ok {
		return len(roles)
	}
	return slices.Index(roles, r)
}

func combination(units []Unit, set role.Set) Combination {
	// Empty lists instead of nil: JSON must say [] and not null.
	c := Combination{
		Name: set.String(), Roles: append([]role.Role{}, set...),
		Starts: []string{}, Skips: []string{}, Fails: []string{},
	}
	for _, u := range units {
		switch {
		case !u.Starts(set), len(set) == 0 && u.requires(UserData):
			c.Skips = append(c.Skips, u.Name)
		default:
			c.Starts = append(c.Starts, u.Name)
			if len(set) == 0 && u.Name == UserData {
				c.Fails = append(c.Fails, u.Name)
			}
		}
	}
	return c
}

// requires reports whether the unit does not start where another fails.
func (u Unit) requires(name string) bool {
	return u.lists("Requires", name)
}

// Combination returns the units of a machine with the set of roles. ok is false if a role of the set is none of the table's,
// or if it has more than one of an operator's own.
func (t Table) Combination(set role.Set) (c Combination, ok bool) {
	for _, c := range t.Combinations {
		if c.Name == set.String() {
			return c, true
		}
	}
	return Combination{}, false
}
