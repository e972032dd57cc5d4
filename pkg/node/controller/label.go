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

// label labels each node with the roles of its machine. What a node says of itself is no reason for a control-plane
// label, only for looking its machine up.
func (c *Controller) label(ctx context.Context, nodes []Node, self Self, known cloud) error {
	var errs []error
	for _, n := range nodes {
		labels := missing(n, isMaster(n, self, known))
		if len(labels) == 0 {
			continue
		}
		c.Log.Info("labelling a node", "node", n.Name, "labels", labels)
		errs = append(errs, c.Nodes.Label(ctx, n.Name, labels))
	}
	return errors.Join(errs...)
}

// isMaster reports whether a node's machine is a master: its instance is, by its group, and a minion too, without which it
// is no node; or, without a cloud, it is this machine, whose controller knows that.
func isMaster(n Node, self Self, known cloud) bool {
	if known.none {
		return self.Node == n.Name
	}
	i, ok := known.find(n.Name)
	return ok && !i.Gone && i.ID == n.Instance && i.Roles.Has(role.Masters) && i.Roles.Has(role.Minions)
}

// mayLack reports whether a node may lack a label, as far as that is known without asking the cloud.
func mayLack(n Node, masters []netip.Addr) bool {
	says := slices.ContainsFunc(n.Addresses, func(a netip.Addr) bool { return slices.Contains(masters, a) })
	return len(missing(n, says)) > 0
}

// missing returns the role labels that a node lacks. Every node is a minion. A machine with the role etcd alone is not a
// node.
func missing(n Node, master bool) map[string]string {
	want := []string{rolePrefix + string(role.Minions)}
	if master {
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
