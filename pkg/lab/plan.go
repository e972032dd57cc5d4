package lab

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/pkg/store"
)

// Plan is the cluster that a lab is to be, as values.
type Plan struct {
	// Cluster is the cluster's name.
	Cluster string
	// Groups are in the order of the cluster's specification.
	Groups []Group
	// Empty: the region is made without zone, authorities and groups, for somebody who makes them by its APIs, as on AWS.
	// Of the plan count the names, and what the groups' machines have of memory and processors.
	Empty bool
	// LaunchHook is the name of the hook that a machine completes itself once it works; empty is none.
	LaunchHook string
	// APIPort is that of every master.
	APIPort int
	// Store is the root of the cluster's secrets in Parameter Store: "/hardtack/demo".
	Store string
	// UserData is a group's, once the cluster's public CA is known.
	UserData func(group string, ca []byte) ([]byte, error)
}

// Group is one AutoScaling group to be.
type Group struct {
	// Name is what people call it, unique in the cluster; Scaling is its AutoScaling group's, which the machines are told.
	Name, Scaling string
	Roles         role.Set
	// Size is how many machines the group keeps.
	Size int
	// Member is the etcd member whose volume the group's machine gets; empty is none.
	Member string
	// Members are all of the cluster's etcd members, on groups with the role etcd.
	Members []string
	// Memory is in MiB.
	Memory, CPUs int
}

// check says what about the plan makes no lab.
func (p Plan) check() error {
	var errs []error
	if p.Store == "" || p.UserData == nil {
		errs = append(errs, errors.New("the cluster keeps its secrets in no Parameter Store (in a lab its store is ssm:/path)"))
	}
	if len(p.Groups) == 0 {
		errs = append(errs, errors.New("the cluster has no group"))
	}
	for _, g := range p.Groups {
		if len(g.Roles) == 0 || g.Size < 0 || g.Memory <= 0 || g.CPUs <= 0 {
			errs = append(errs, fmt.Errorf("group %q: roles %q, size %d, %d MiB and %d processors make no machines", g.Name, g.Roles, g.Size, g.Memory, g.CPUs))
		}
		if g.Member != "" && g.Size > 1 {
			errs = append(errs, fmt.Errorf("group %q holds the etcd member %s and has size %d: a member is one machine", g.Name, g.Member, g.Size))
		}
	}
	return errors.Join(errs...)
}

// names are the AutoScaling groups'.
func (p Plan) names() []string {
	var names []string
	for _, g := range p.Groups {
		names = append(names, g.Scaling)
	}
	return names
}

// group finds a group by either of its names.
func (p Plan) group(name string) (Group, bool) {
	for _, g := range p.Groups {
		if g.Name == name || g.Scaling == name {
			return g, true
		}
	}
	return Group{}, false
}

// tags are those by which records are made; all but EtcdMembers reach the machines too.
func (g Group) tags(cluster string) map[string]string {
	t := map[string]string{fleet.TagCluster: cluster, fleet.TagRole: g.Roles.String()}
	if g.Roles.Has(role.Etcd) && len(g.Members) > 0 {
		t[fleet.TagEtcdMembers] = strings.Join(g.Members, " ")
	}
	return t
}

// PlanOf is the plan of a complete configuration.
func PlanOf(c *spec.Complete) (Plan, error) {
	at, err := store.ParseLocation(c.Cluster.Store)
	if err != nil {
		return Plan{}, fmt.Errorf("planning the lab: %w", err)
	}
	p := Plan{Cluster: c.Cluster.Name, APIPort: c.Cluster.API.Port, UserData: c.UserData}
	if at.Kind == store.KindSSM {
		p.Store = at.Root
	}
	for _, g := range c.Groups {
		p.LaunchHook = c.Machine(g).LaunchHook
		p.Groups = append(p.Groups, Group{
			Name: g.Name, Scaling: c.AutoScaling(g), Roles: g.Roles, Size: g.Size, Member: g.Member, Members: g.Members, Memory: g.Memory, CPUs: g.CPUs,
		})
	}
	return p, p.check()
}
