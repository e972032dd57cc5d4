package lab

import (
	"errors"
	"fmt"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// Plan describes the cluster of a lab.
type Plan struct {
	*spec.Complete
	// Store is the root of the cluster's secrets in Parameter Store: "/hardtack/demo".
	Store string
	// Empty starts the region without authorities, image and stack, so that the user makes them through its APIs, as on
	// AWS. The names and the machines' memory and processors are still taken from the configuration.
	Empty bool
}

// PlanOf makes the plan of a complete configuration. An error if its store is not in Parameter Store or no template
// can be made of it.
func PlanOf(c *spec.Complete) (Plan, error) {
	at, err := store.ParseLocation(c.Cluster.Store)
	if err == nil && at.Kind != store.KindSSM {
		err = errors.New("the cluster keeps its secrets in no Parameter Store (in a lab its store is ssm:/path)")
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

// names returns the AutoScaling groups' names.
func (p Plan) names() []string {
	var names []string
	for _, g := range p.Groups {
		names = append(names, p.AutoScaling(g))
	}
	return names
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
