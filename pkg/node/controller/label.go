package controller

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// rolePrefix begins the labels that kubectl shows as a node's roles. NodeRestriction forbids kubelets to set them.
const rolePrefix = "node-role.kubernetes.io/"

// controlPlane is Kubernetes' usual label for masters, set beside our own.
const controlPlane = rolePrefix + "control-plane"

// label labels each node with the roles of its machine.
func (c *Controller) label(ctx context.Context, nodes []Node, masters []netip.Addr, known cloud) error {
	var errs []error
	for _, n := range nodes {
		labels := missing(n, n.Addresses, masters)
		if len(labels) > 0 && !known.none {
			// A node's own status must not make it a master.
			i, _ := known.find(n.Name)
			labels = missing(n, i.Addresses, masters)
		}
		if len(labels) == 0 {
			continue
		}
		c.Log.Info("labelling a node", "node", n.Name, "labels", labels)
		errs = append(errs, c.Nodes.Label(ctx, n.Name, labels))
	}
	return errors.Join(errs...)
}

// missing returns the role labels that a node lacks. Every node is a minion; a node with the address of an API server is
// a master. A machine with the role etcd alone is not a node.
func missing(n Node, addresses, masters []netip.Addr) map[string]string {
	want := []string{rolePrefix + string(role.Minions)}
	if slices.ContainsFunc(addresses, func(a netip.Addr) bool { return slices.Contains(masters, a) }) {
		want = append(want, rolePrefix+string(role.Masters), controlPlane)
	}
	out := map[string]string{}
	for _, label := range want {
		if _, ok := n.Labels[label]; !ok {
			out[label] = ""
		}
	}
	return out
}
