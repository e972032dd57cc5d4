// Package role names the roles that a machine can have and the files that give them to it.
//
// Its rule: this is the only place that spells a role or the path of a role file. A role is at once
// the suffix of the role file, the value of the group's tag Role, and the DNS label
// <role>.<cluster>.k8s, so the units, the agent, the lint and the records all ask here.
package role

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Role is one of the roles of a machine. The zero value is not a role.
type Role string

// The roles. A machine may hold several: masters and etcd together are the usual control plane.
const (
	Masters Role = "masters"
	Minions Role = "minions"
	Etcd    Role = "etcd"
)

// Dir is where role files live on a machine, and Prefix what their names begin with; the rest of the
// name is the role.
const (
	Dir    = "/etc/sysconfig"
	Prefix = "kubernetes-"
)

// All lists every role in the order in which tables show them.
func All() []Role { return []Role{Masters, Minions, Etcd} }

// File is the absolute path of the role file: "/etc/sysconfig/kubernetes-masters" for Masters.
func (r Role) File() string { return path.Join(Dir, Prefix+string(r)) }

// Parse returns the role of that name, or an error that lists the names there are.
func Parse(name string) (Role, error) {
	if r := Role(name); slices.Contains(All(), r) {
		return r, nil
	}
	return "", fmt.Errorf("role %q is not known: the roles are %s", name, Join(All(), ", "))
}

// OfFile tells what a path says about roles. named is false for a path that is not of the form of a
// role file; err is set when it is one, but of a role that is not known.
func OfFile(file string) (r Role, named bool, err error) {
	dir, base := path.Split(path.Clean(file))
	name, ok := strings.CutPrefix(base, Prefix)
	if path.Clean(dir) != Dir || !ok {
		return "", false, nil
	}
	r, err = Parse(name)
	return r, true, err
}

// Set is a set of roles: what one machine has been given. The zero value is the empty set.
type Set []Role

// NewSet returns the roles in the order of All, each once.
func NewSet(roles ...Role) Set {
	var s Set
	for _, r := range All() {
		if slices.Contains(roles, r) {
			s = append(s, r)
		}
	}
	return s
}

// ParseSet reads what Set.String prints: "masters+etcd", or "none".
func ParseSet(text string) (Set, error) {
	if text == "none" || text == "" {
		return nil, nil
	}
	var roles []Role
	for name := range strings.SplitSeq(text, "+") {
		r, err := Parse(name)
		if err != nil {
			return nil, err
		}
		roles = append(roles, r)
	}
	return NewSet(roles...), nil
}

// Combinations lists every set of roles that a machine can have, the empty one first.
func Combinations() []Set {
	all := All()
	sets := make([]Set, 0, 1<<len(all))
	for bits := range 1 << len(all) {
		var s Set
		for i, r := range all {
			if bits&(1<<i) != 0 {
				s = append(s, r)
			}
		}
		sets = append(sets, s)
	}
	return sets
}

// Has reports whether the set holds r.
func (s Set) Has(r Role) bool { return slices.Contains(s, r) }

// String joins the roles by "+"; the empty set is "none".
func (s Set) String() string {
	if len(s) == 0 {
		return "none"
	}
	return Join(s, "+")
}

// Join joins role names by sep.
func Join(roles []Role, sep string) string {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}
	return strings.Join(names, sep)
}
