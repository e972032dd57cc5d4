package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// Plan describes the cluster of a lab.
type Plan struct {
	*spec.Complete
	// Store is the root of the cluster's secrets in Parameter Store: "/hardtack/demo".
	Store string
	// Empty starts the region without authorities, image and stack, so that the user makes them through its APIs, as on
	// AWS. The names and the machines' memory and processors are still taken from the configuration, where it has the group.
	Empty bool
}

// PlanOf makes the plan of a complete configuration. An error if its store is not in Parameter Store, if its pods or Services would have
// addresses of the machines, or if no template can be made of it.
func PlanOf(c *spec.Complete) (Plan, error) {
	at, err := store.ParseLocation(c.Cluster.Store)
	if err == nil && at.Kind != store.KindSSM {
		err = errors.New("the cluster keeps its secrets in no Parameter Store (in a lab its store is ssm:/path)")
	}
	if err == nil {
		err = beside(c.Cluster.Network)
	}
	if err == nil {
		_, err = template.Render(c, nil) // report an unsupported configuration before a daemon is started
	}
	if err != nil {
		return Plan{}, fmt.Errorf("planning the lab: %w", err)
	}
	// A lab has no KMS: its volumes are files.
	copied, cluster := *c, *c.Cluster
	cluster.Etcd.Key, copied.Cluster = "", &cluster
	return Plan{Complete: &copied, Store: at.Root}, nil
}

// beside reports a range of the document that the lab's own network is in: what machines send to each other, or to the gateway, the
// resolver and AWS's APIs, would go to pods or Services.
func beside(n spec.Network) error {
	for _, r := range []struct{ field, text string }{{"serviceCIDR", n.ServiceCIDR}, {"podCIDR", n.PodCIDR}} {
		switch taken, err := netip.ParsePrefix(r.text); {
		case err != nil:
			return fmt.Errorf("reading network.%s: %w", r.field, err)
		case taken.Overlaps(subnet):
			return fmt.Errorf("network.%s %s overlaps the network of the lab's machines, %s; next: write another range, or leave it out", r.field, taken, subnet)
		}
	}
	return nil
}

// namesIn returns the names of the AutoScaling groups.
func (p Plan) namesIn(account *awsfake.Account) []string {
	var names []string
	for _, g := range p.groupsIn(account) {
		names = append(names, p.AutoScaling(g))
	}
	return names
}

// groupsIn returns the plan's groups, whether they exist yet or not, and, of a region that the user fills, the cluster's other
// groups: the user's stack may be of a later document than the lab's.
func (p Plan) groupsIn(account *awsfake.Account) []spec.Group {
	groups := slices.Clone(p.Groups)
	if !p.Empty {
		return groups
	}
	for _, made := range account.AutoScaling().Groups() {
		if _, known := p.group(made.Name); known {
			continue
		}
		if g, ok := p.tagged(made.Name, made.Tags); ok {
			groups = append(groups, g)
		}
	}
	return groups
}

// tagged returns the group that an AutoScaling group's tags describe, with the memory and processors that its roles need. False
// if it is not the cluster's, or the region is not the user's to fill.
func (p Plan) tagged(scaling string, tags map[string]string) (spec.Group, bool) {
	name, named := strings.CutPrefix(scaling, p.AutoScaling(spec.Group{}))
	roles, err := role.ParseSet(tags[role.TagRole])
	if !p.Empty || !named || tags[role.TagCluster] != p.Cluster.Name || err != nil || len(roles) == 0 {
		return spec.Group{}, false
	}
	g := spec.Group{Name: name, Roles: roles, Member: tags[role.TagEtcdMember]}
	g.CPUs, g.Memory = spec.MachineSize(roles)
	return g, true
}

// groupIn finds a group of groupsIn by its name in the document, or by its AutoScaling group's.
func (p Plan) groupIn(account *awsfake.Account, name string) (spec.Group, bool) {
	groups := p.groupsIn(account)
	i := slices.IndexFunc(groups, func(g spec.Group) bool { return g.Name == name || p.AutoScaling(g) == name })
	if i < 0 {
		return spec.Group{}, false
	}
	return groups[i], true
}

// group finds a group by its name in the document, or by its AutoScaling group's.
func (p Plan) group(name string) (spec.Group, bool) {
	for _, g := range p.Groups {
		if g.Name == name || p.AutoScaling(g) == name {
			return g, true
		}
	}
	return spec.Group{}, false
}
