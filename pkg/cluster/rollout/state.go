package rollout

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Version is the part of a launch template's version that decides how a machine is made. Two versions with different
// numbers may make the same machine.
type Version struct {
	// Number is the number of the version; 0 is none.
	Number int `json:"version"`
	// Image is the id of the image, Config the hash of the configuration in the user data, Type the instance type.
	Image  string `json:"image"`
	Config string `json:"config"`
	Type   string `json:"type"`
	// Rest is a digest of all other properties: disks, security groups, profile.
	Rest string `json:"-"`
	// Kubernetes is the image's version of Kubernetes, as v1.36.3; empty if it is not known, or nobody asked.
	Kubernetes string `json:"kubernetes"`
}

// Differs lists the differences between machines of the two versions.
func (v Version) Differs(other Version) []string {
	var differences []string
	for _, f := range []struct{ name, a, b string }{
		{"image", v.Image, other.Image}, {"configuration", v.Config, other.Config},
		{"instance type", v.Type, other.Type}, {"disk, network or profile", v.Rest, other.Rest},
	} {
		if f.a != f.b {
			differences = append(differences, f.name)
		}
	}
	return differences
}

// Previous is the newest version before latest that makes a different machine; false if there is none.
func Previous(versions []Version, latest Version) (Version, bool) {
	var best Version
	for _, v := range versions {
		if v.Number < latest.Number && v.Number > best.Number && len(v.Differs(latest)) > 0 {
			best = v
		}
	}
	return best, best.Number > 0
}

// Machine is a machine of a group.
type Machine struct {
	ID string `json:"id"`
	// From is the version that the machine was launched from.
	From Version `json:"from"`
	// Type is the machine's instance type, which in a group of several types need not be its version's.
	Type string `json:"type,omitempty"`
	// Image is the id of the image that EC2 says the machine was launched from; empty if EC2 shows no such machine.
	Image string `json:"image"`
	// Kubernetes is that image's version of Kubernetes, as v1.36.3; empty if it is not known, or nobody asked.
	Kubernetes string `json:"kubernetes"`
	// State is AutoScaling's lifecycle state: "InService", "Pending:Wait". A machine is in service once hardtack-ready
	// has completed its launch hook: all its roles work.
	State string `json:"state"`
	// Healthy is the health by AutoScaling, Running whether EC2 shows the instance as running.
	Healthy bool `json:"healthy"`
	Running bool `json:"running"`
	// Published reports whether DNS lists the machine's address under each of its names.
	Published bool `json:"published"`
}

// The lifecycle states that a rollout decides by.
const (
	inService = "InService"
	// terminatingWait is of a machine that hooks hold before it ends.
	terminatingWait = "Terminating:Wait"
)

// serves reports whether other machines can rely on this one.
func (m Machine) serves() bool { return m.State == inService && m.Healthy && m.Running && m.Published }

// Refresh is the newest instance refresh of a group by AutoScaling.
type Refresh struct {
	ID string `json:"id"`
	// Status is AutoScaling's status, Reason its explanation.
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
	// Percent is the progress. To is the wanted version of the launch template; 0 is the group's own.
	Percent int `json:"percent"`
	To      int `json:"to"`
}

// Active reports whether the refresh is under way.
func (r *Refresh) Active() bool {
	return r != nil && slices.Contains([]string{"Pending", "InProgress", "Cancelling", "RollbackInProgress", "Baking"}, r.Status)
}

// Group is an AutoScaling group.
type Group struct {
	// Name is the name in AutoScaling, "demo-etcd-a"; Key is the name in the document, "etcd-a".
	Name  string   `json:"name"`
	Key   string   `json:"key"`
	Roles role.Set `json:"roles"`
	// Member is the name of the group's etcd member, Members are those of the whole cluster. Members is empty where etcd is a
	// single member beside its API server.
	Member  string   `json:"member,omitempty"`
	Members []string `json:"members,omitempty"`
	// Drain is how long the group's hook holds a machine that ends until its pods have moved away; 0 if it has no such hook,
	// or no machine of it waits for its hooks.
	Drain time.Duration `json:"-"`
	// Desired is the desired number of machines.
	Desired int `json:"desired"`
	// Template is the id of the launch template.
	Template string `json:"template"`
	// Types are the instance types that the group's machines may have in place of their version's; empty if it has no others.
	Types []string `json:"types,omitempty"`
	// Launches is the version from which the group launches machines now, Wanted the version that all are to have.
	Launches Version `json:"launches"`
	Wanted   Version `json:"wanted"`
	// Volume is the volume that the group's member reports; nil if it reports none, or there is no such volume.
	Volume   *Volume   `json:"volume,omitempty"`
	Machines []Machine `json:"machines"`
	Refresh  *Refresh  `json:"refresh,omitempty"`
}

// Control reports whether the group belongs to the control plane, whose machines are replaced one by one.
func (g Group) Control() bool { return g.Roles.Has(role.Etcd) || g.Roles.Has(role.Masters) }

// leaves reports whether the machine is terminating.
func (m Machine) leaves() bool { return strings.HasPrefix(m.State, "Terminat") }

// Stale are the machines that differ from the wanted version and are not terminating.
func (g Group) Stale() []Machine {
	var out []Machine
	for _, m := range g.Machines {
		if !m.leaves() && len(g.Lacks(m)) > 0 {
			out = append(out, m)
		}
	}
	return out
}

// Lacks lists how a machine of the group differs from what it is to be. In a group of several types that of the version says nothing:
// what counts is whether the machine's own is one of them.
func (g Group) Lacks(m Machine) []string {
	wanted := g.Wanted
	if len(g.Types) > 0 && m.Type != "" {
		m.From.Type, wanted.Type = m.Type, m.Type
		if !slices.Contains(g.Types, m.Type) {
			wanted.Type = g.Types[0]
		}
	}
	return m.From.Differs(wanted)
}

// Why lists the differences between the group's machines and the wanted version, each once.
func (g Group) Why() []string {
	var why []string
	for _, m := range g.Stale() {
		for _, difference := range g.Lacks(m) {
			if !slices.Contains(why, difference) {
				why = append(why, difference)
			}
		}
	}
	return why
}

// Behind reports whether the group has anything left to do.
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

// State is one complete reading of a cluster.
type State struct {
	Cluster string  `json:"cluster"`
	Groups  []Group `json:"groups"`
	// API is the error of the API servers' readiness check; empty if they are ready or were not asked.
	API string `json:"api,omitempty"`
	// Etcd is what the members of etcd report.
	Etcd Reports `json:"etcd,omitzero"`
	// Unread are the groups of the cluster that could not be read. Nothing is done with their machines.
	Unread []Unread `json:"unread,omitempty"`
}

// Unread is a group that could not be read: it is not as it was made, AWS refused a call, or the group is gone.
type Unread struct {
	// Group is its name in AutoScaling, Key its name in the document.
	Group string `json:"group"`
	Key   string `json:"key"`
	// Control is whether its machines may be of the control plane: their roles say so, or are unknown as well.
	Control bool `json:"control"`
	// Gone is whether AutoScaling has no such group.
	Gone bool `json:"gone,omitempty"`
	// Member and Members are as in Group, as far as they could be read.
	Member  string   `json:"member,omitempty"`
	Members []string `json:"members,omitempty"`
	// Why names the group, what could not be read of it, and what to do.
	Why string `json:"why"`
}

// HasUnread reports whether a group, by either of its names, could not be read.
func (s State) HasUnread(name string) bool {
	return slices.ContainsFunc(s.Unread, func(u Unread) bool { return u.named([]string{name}) })
}

func (u Unread) named(names []string) bool {
	return slices.Contains(names, u.Group) || slices.Contains(names, u.Key)
}

// group finds a group by either of its names.
func (s State) group(name string) (Group, bool) {
	i := slices.IndexFunc(s.Groups, func(g Group) bool { return g.Name == name || g.Key == name })
	if i < 0 {
		return Group{}, false
	}
	return s.Groups[i], true
}

// ordered are the groups in the order in which they are replaced.
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
