// Package role names the roles that a machine can have and the files that give them to it.
//
// Its rule: this is the only place that spells a role or the path of a role file. A role is at once
// the suffix of the role file, the value of the group's tag Role, and the DNS label
// <role>.<cluster>.k8s, so the units, the agent, the lint and the records all use this package.
package role

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/near"
)

// Role is one of the roles of a machine: one of Hardtack's, or one of an operator's own, which is whatever a unit of the
// image names. The zero value is not a role.
type Role string

// The roles. A machine may hold several: masters and etcd together are the usual control plane.
const (
	Masters Role = "masters"
	Minions Role = "minions"
	Etcd    Role = "etcd"
)

// Dir is the directory of role files on a machine, and Prefix the beginning of their names; the rest
// of the name is the role.
const (
	Dir    = "/etc/sysconfig"
	Prefix = "kubernetes-"
)

// ClusterVariable is the variable of every role file with the name of the cluster.
const ClusterVariable = "CLUSTER_NAME"

// All lists Hardtack's own roles in the order in which tables show them.
func All() []Role {
	all := make([]Role, len(profiles))
	for i, p := range profiles {
		all[i] = p.Role
	}
	return all
}

// File is the absolute path of the role file: "/etc/sysconfig/kubernetes-masters" for Masters.
func (r Role) File() string { return path.Join(Dir, Prefix+string(r)) }

// Known reports whether the role is one of Hardtack's, which have a Profile.
func (r Role) Known() bool { return slices.Contains(All(), r) }

// maxName leaves room for a shard's number in a DNS label, and for the cluster's name in names at AWS.
const maxName = 32

// ownForm is a DNS label that begins with a letter.
var ownForm = regexp.MustCompile(`^[a-z]([a-z0-9-]*[a-z0-9])?$`)

// shardForm is the label of a shard.
var shardForm = regexp.MustCompile(`-[0-9]+$`)

// reserved are names that mean something else where roles stand: sets of roles, labels of records, directories of the store.
var reserved = []string{"none", "any", "all", "api", "public"}

// Parse returns the role of that name: one of Hardtack's, or one of an operator's own. A name that is nearly one of
// Hardtack's is an error, since it is more likely a slip than a role.
func Parse(name string) (Role, error) {
	r := Role(name)
	why := ""
	switch {
	case r.Known():
		return r, nil
	case near.Typo(strings.ToLower(strings.TrimSpace(name)), strings.Fields(Join(All(), " "))) != "", Role(strings.ToLower(strings.TrimSpace(name))).Known():
	case !ownForm.MatchString(name) || len(name) > maxName:
		why = fmt.Sprintf(", and names of your own, which have small letters, digits and hyphens as a DNS label has them, begin with a letter, and are at most %d long", maxName)
	case slices.Contains(reserved, name), strings.HasPrefix(name, MemberPrefix), strings.HasPrefix(name, Prefix), shardForm.MatchString(name):
		why = ", and names of your own, but this one has another meaning: " + strings.Join(reserved, ", ") + ", " + MemberPrefix + "…, " + Prefix + "… and …-<number> are taken"
	default:
		return r, nil
	}
	return "", fmt.Errorf("role %q is not known: the roles are %s%s", name, Join(All(), ", "), why)
}

// OfFile returns the role of a role file's path. named is false if the path does not have the form of a
// role file. err is set if it has, but its name is no role's.
func OfFile(file string) (r Role, named bool, err error) {
	dir, base := path.Split(path.Clean(file))
	name, ok := strings.CutPrefix(base, Prefix)
	if path.Clean(dir) != Dir || !ok {
		return "", false, nil
	}
	r, err = Parse(name)
	return r, true, err
}

// Set is the set of roles of a machine. The zero value is the empty set.
type Set []Role

// NewSet returns the set of the given roles, in the order of All, then an operator's own by name.
func NewSet(roles ...Role) Set {
	var s Set
	for _, r := range All() {
		if slices.Contains(roles, r) {
			s = append(s, r)
		}
	}
	for _, r := range slices.Sorted(slices.Values(roles)) {
		if r != "" && !s.Has(r) {
			s = append(s, r)
		}
	}
	return s
}

// Own returns those of the roles that are an operator's, sorted, each once.
func Own(roles []Role) []Role {
	return slices.DeleteFunc(NewSet(roles...), Role.Known)
}

// ParseSet parses the output of Set.String: "masters+etcd", or "none". The empty text is the empty set.
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

// Combinations lists every set of Hardtack's roles that a machine can have, the empty one first; and with each role of an
// operator's own, every such set with that role added.
func Combinations(own ...Role) []Set {
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
	for _, r := range own {
		for _, s := range sets[:1<<len(all)] {
			sets = append(sets, NewSet(append(slices.Clone(s), r)...))
		}
	}
	return sets
}

// Files returns the roles that a directory has role files of, given its file names: "kubernetes-masters". Names of files that
// are no role's are left out.
func Files(names []string) Set {
	var have []Role
	for _, name := range names {
		if r, named, err := OfFile(path.Join(Dir, name)); named && err == nil {
			have = append(have, r)
		}
	}
	return NewSet(have...)
}

// Has reports whether the set holds r.
func (s Set) Has(r Role) bool { return slices.Contains(s, r) }

// LaunchedByMasters reports whether masters complete the launches of machines with these roles. IAM allows a hook's answer for a
// whole group, and so a minion could end its siblings' launches. A master could do more than that in any case, and a member of etcd
// is alone in its group.
func (s Set) LaunchedByMasters() bool { return s.Has(Minions) && !s.Has(Masters) && !s.Has(Etcd) }

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
