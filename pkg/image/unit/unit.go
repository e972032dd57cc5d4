// Package unit reads systemd units, computes which of them the roles of a machine start, and checks them.
//
// Its rule: the units are the only list. Which units run for a role is computed from the files that systemd reads, by
// systemd's own rules for conditions.
package unit

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// UserData is the unit that writes the role files. Every role unit is ordered after it, and it fails on
// a machine that has been given no role.
const UserData = "hardtack-userdata.service"

// Option is one assignment of a unit.
type Option struct {
	Section, Name string
	// Value is as written, with continued lines joined by a space.
	Value string
	// File and Line say where the assignment begins; lines count from 1.
	File string
	Line int
}

// Unit is one unit with its drop-ins.
type Unit struct {
	// Name is the unit's name with its suffix: "etcd.service".
	Name string
	// File is the path in the file system that it was read from.
	File string
	// Options are in the order in which systemd reads them: the unit's own, then its drop-ins'.
	Options []Option
}

// Kind is the suffix of the name: "service", "slice", "target".
func (u Unit) Kind() string { return strings.TrimPrefix(path.Ext(u.Name), ".") }

// Short is the name as tables show it: a service without its suffix, every other unit with it.
func (u Unit) Short() string { return strings.TrimSuffix(u.Name, ".service") }

// Values returns the assignments of one name in order. An empty assignment takes back those before it,
// as it does in systemd for lists.
func (u Unit) Values(section, name string) []Option {
	var found []Option
	for _, o := range u.Options {
		if o.Section != section || o.Name != name {
			continue
		}
		if o.Value == "" {
			found = nil
			continue
		}
		found = append(found, o)
	}
	return found
}

// Value returns the last assignment of one name; the zero Option where there is none.
func (u Unit) Value(section, name string) Option {
	values := u.Values(section, name)
	if len(values) == 0 {
		return Option{}
	}
	return values[len(values)-1]
}

// words returns the unit names of a list like After=, each with the assignment that it is in.
func (u Unit) words(section string, names ...string) []Option {
	var found []Option
	for _, o := range u.Options {
		if o.Section != section || !slices.Contains(names, o.Name) {
			continue
		}
		for word := range strings.FieldsSeq(o.Value) {
			one := o
			one.Value = word
			found = append(found, one)
		}
	}
	return found
}

// lists reports whether a list of the section [Unit] names a unit.
func (u Unit) lists(list, name string) bool {
	return slices.ContainsFunc(u.words("Unit", list), func(o Option) bool { return o.Value == name })
}

// defaultDependencies reports whether systemd adds its own dependencies to the unit.
func (u Unit) defaultDependencies() bool {
	switch strings.ToLower(u.Value("Unit", "DefaultDependencies").Value) {
	case "no", "false", "off", "0", "n", "f":
		return false
	}
	return true
}

// enabled reports whether something starts the unit because of its [Install] section.
func (u Unit) enabled() bool {
	return len(u.words("Install", "WantedBy", "RequiredBy", "UpheldBy")) > 0
}

// triggeredUnit is the unit that a timer starts: the service of the same name unless Unit= names another; "" for other
// kinds.
func (u Unit) triggeredUnit() string {
	if u.Kind() != "timer" {
		return ""
	}
	return cmp.Or(u.Value("Timer", "Unit").Value, strings.TrimSuffix(u.Name, ".timer")+".service")
}

// EveryMachine reports whether the unit declares that it runs on every machine, whatever its roles: by "Role=any" in
// the section [X-Hardtack], which systemd does not read.
func (u Unit) EveryMachine() bool { return u.Value(ownSection, "Role").Value == "any" }

// ownRoles lists the roles of an operator's own that conditions of the units name, sorted.
func ownRoles(units []Unit) []role.Role {
	var named []role.Role
	for _, u := range units {
		for _, c := range u.conditions() {
			r, _, _ := role.OfFile(path.Clean(c.operand)) // of another file it is "", which Own leaves out
			named = append(named, r)
		}
	}
	return role.Own(named)
}

// Role returns the role that the unit belongs to: the one whose role file alone decides whether the unit starts, in
// every combination. ok is false for a unit that no role or more than one decides.
func (u Unit) Role() (r role.Role, ok bool) {
	own := ownRoles([]Unit{u})
	for _, r := range append(role.All(), own...) {
		same := !slices.ContainsFunc(role.Combinations(own...), func(s role.Set) bool {
			return u.Starts(s) != s.Has(r)
		})
		if same {
			return r, true
		}
	}
	return "", false
}
