package control

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// rolePrefix is what kubectl shows as a node's roles. A kubelet may not set it itself: NodeRestriction.
const rolePrefix = "node-role.kubernetes.io/"

// controlPlane is the label that others look for, beside our own word for it.
const controlPlane = rolePrefix + "control-plane"

// label says of each node which roles its machine has.
func (c *Controller) label(ctx context.Context, nodes []Node, masters []netip.Addr, known cloud) error {
	var errs []error
	for _, n := range nodes {
		labels := missing(n, n.Addresses, masters)
		if len(labels) > 0 && !known.none {
			// What a node says of its addresses makes no master of it.
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

// missing are the role labels that a node of these addresses lacks. Every node is a minion; who has an API server's
// address is a master. A machine of etcd's is no node, or is one because it is a minion too.
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
