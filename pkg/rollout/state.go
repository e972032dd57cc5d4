package rollout

import (
	"cmp"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Version is one of a launch template's, as far as it decides what a machine is. Two versions with another number may
// make the same machine.
type Version struct {
	// Number is the version's own; 0 is none.
	Number int `json:"version"`
	// Image is the image's id, Config the hash of the configuration in the user data, Type the instance type.
	Image  string `json:"image"`
	Config string `json:"config"`
	Type   string `json:"type"`
	// Rest is a digest of everything else: disks, security groups, profile.
	Rest string `json:"-"`
}

// Differs says in which respects a machine of version v is not one of version other.
func (v Version) Differs(other Version) []string {
	var what []string
	for _, f := range []struct{ name, a, b string }{
		{"image", v.Image, other.Image}, {"configuration", v.Config, other.Config},
		{"instance type", v.Type, other.Type}, {"disk, network or profile", v.Rest, other.Rest},
	} {
		if f.a != f.b {
			what = append(what, f.name)
		}
	}
	return what
}

// Previous is the newest of the versions before latest that makes another machine; false where there is none.
func Previous(versions []Version, latest Version) (Version, bool) {
	var best Version
	for _, v := range versions {
		if v.Number < latest.Number && v.Number > best.Number && len(v.Differs(latest)) > 0 {
			best = v
		}
	}
	return best, best.Number > 0
}

// Machine is one of a group's.
type Machine struct {
	ID string `json:"id"`
	// From is what it was launched from.
	From Version `json:"from"`
	// State is AutoScaling's word: "InService", "Pending:Wait". A machine comes into service when hardtack-ready has
	// completed its launch hook: all its roles work.
	State string `json:"state"`
	// Healthy is the group's verdict, Running that of EC2.
	Healthy bool `json:"healthy"`
	Running bool `json:"running"`
	// Published: DNS lists its address under each name that is its own.
	Published bool `json:"published"`
}

const inService = "InService"

// serves reports whether others can count on the machine.
func (m Machine) serves() bool { return m.State == inService && m.Healthy && m.Running && m.Published }

// Refresh is AutoScaling's own, the newest of a group.
type Refresh struct {
	ID string `json:"id"`
	// Status is AutoScaling's word, Reason its sentence.
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
	// Percent is how much is done. To is the version it goes to; 0 where it goes to what the group has.
	Percent int `json:"percent"`
	To      int `json:"to"`
}

// Active reports whether the refresh is under way.
func (r *Refresh) Active() bool {
	return r != nil && slices.Contains([]string{"Pending", "InProgress", "Cancelling", "RollbackInProgress", "Baking"}, r.Status)
}

// Group is one AutoScaling group.
type Group struct {
	// Name is AutoScaling's, "demo-etcd-a"; Key is the document's, "etcd-a".
	Name  string   `json:"name"`
	Key   string   `json:"key"`
	Roles role.Set `json:"roles"`
	// Member is its member of etcd, Members are all of the cluster's; none where etcd is one member beside its API server.
	Member  string   `json:"member,omitempty"`
	Members []string `json:"members,omitempty"`
	// Desired is how many machines there are to be.
	Desired int `json:"desired"`
	// Template is the id of its launch template.
	Template string `json:"template"`
	// Launches is what a machine would be made from now, Wanted what all are to be from.
	Launches Version `json:"launches"`
	Wanted   Version `json:"wanted"`
	// Durable: what etcd keeps is on a volume that outlives the machine.
	Durable  bool      `json:"durable,omitempty"`
	Machines []Machine `json:"machines"`
	Refresh  *Refresh  `json:"refresh,omitempty"`
}

// Control reports whether the group's machines are replaced one by one, with an eye on all of the control plane.
func (g Group) Control() bool { return g.Roles.Has(role.Etcd) || g.Roles.Has(role.Masters) }

// leaves reports whether the machine is on its way out.
func (m Machine) leaves() bool { return strings.HasPrefix(m.State, "Terminat") }

// Stale are the machines that are not as wanted, and stay.
func (g Group) Stale() []Machine {
	var out []Machine
	for _, m := range g.Machines {
		if !m.leaves() && len(m.From.Differs(g.Wanted)) > 0 {
			out = append(out, m)
		}
	}
	return out
}

// Why says in which respects machines of the group are not as wanted, each once.
func (g Group) Why() []string {
	var why []string
	for _, m := range g.Stale() {
		for _, what := range m.From.Differs(g.Wanted) {
			if !slices.Contains(why, what) {
				why = append(why, what)
			}
		}
	}
	return why
}

// Behind reports whether anything is to be done for the group.
func (g Group) Behind() bool { return len(g.Stale()) > 0 || len(g.Launches.Differs(g.Wanted)) > 0 }

// serving counts the machines that others can count on.
func (g Group) serving() int {
	n := 0
	for _, m := range g.Machines {
		if m.serves() {
			n++
		}
	}
	return n
}

// State is one whole reading of a cluster.
type State struct {
	Cluster string  `json:"cluster"`
	Groups  []Group `json:"groups"`
	// API is what is wrong with the API servers, as they say themselves; empty where they are ready or were not asked.
	API string `json:"api,omitempty"`
}

// group finds one by either of its names.
func (s State) group(name string) (Group, bool) {
	i := slices.IndexFunc(s.Groups, func(g Group) bool { return g.Name == name || g.Key == name })
	if i < 0 {
		return Group{}, false
	}
	return s.Groups[i], true
}

// ordered are the groups in the order of their turns.
func (s State) ordered() []Group {
	rank := func(g Group) int {
		switch {
		case g.Roles.Has(role.Etcd):
			return 0
		case g.Roles.Has(role.Masters):
			return 1
		}
		return 2
	}
	groups := slices.Clone(s.Groups)
	slices.SortStableFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name))
	})
	return groups
}
