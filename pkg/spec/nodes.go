package spec

import (
	"fmt"
	"math/bits"
	"net/netip"
	"strconv"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The controller manager's flags of a node's share of the pods' range. It does not start with both of them
// (setNodeCIDRMaskSizes in cmd/kube-controller-manager/app/core.go).
const (
	maskFlag     = "node-cidr-mask-size"
	maskIPv4Flag = "node-cidr-mask-size-ipv4"
	manager      = "kubeControllerManager"
)

// The longest and the shortest share of a node: a /30 has an address for one pod.
const (
	longestMask    = 30
	shortestPods   = 8 // the mask of the largest range of pods
	allocateFlag   = "allocate-node-cidrs"
	kubeletPods    = "maxPods"
	kubeletPodsKey = "kubelet.config." + kubeletPods
)

// nodeMask returns the prefix length of each node's share of the pods' range, and the flag of the document that says so, ""
// for the controller manager's default. What is no number here is found with the flags.
func (c *Cluster) nodeMask() (mask int, flag string) {
	for _, name := range []string{maskFlag, maskIPv4Flag} {
		text, err := flagText(c.KubeControllerManager.Flags[name])
		if n, notNumber := strconv.Atoi(text); err == nil && notNumber == nil && n != 0 {
			return n, manager + ".flags." + name
		}
	}
	return machine.NodeMask, ""
}

// nodes checks the pods' range, each node's share of it, and the groups' sizes against each other: a node beyond the last
// share never gets addresses, and its pods never start.
func (f *completer) nodes() {
	pods, err1 := netip.ParsePrefix(f.out.Cluster.Network.PodCIDR)
	services, err2 := netip.ParsePrefix(f.out.Cluster.Network.ServiceCIDR)
	given := f.in.KubeControllerManager.Flags
	if allocate, _ := flagText(given[allocateFlag]); err1 != nil || err2 != nil || allocate == "false" {
		return // said already, or others give the shares
	}
	mask, flag := f.in.nodeMask()
	if flag == manager+".flags."+maskFlag {
		if both, _ := flagText(given[maskIPv4Flag]); both != "" && both != "0" {
			f.hint(manager+".flags."+maskIPv4Flag, "leave one of them out", "the controller manager does not start with --%s and --%s", maskFlag, maskIPv4Flag)
			return
		}
	}
	if mask < pods.Bits() || mask > longestMask {
		f.hint(flag, fmt.Sprintf("write one between %d and %d", pods.Bits(), longestMask), "a node's share of the pods' range %s cannot be a /%d", pods, mask)
		return
	}
	f.podsOfNodes(mask)
	need, holds := f.mostNodes(), 1<<(mask-pods.Bits())
	if need <= holds {
		return
	}
	hint := "give each node a smaller share: " + manager + ".flags." + maskFlag
	if least := mask - bits.Len(uint(need-1)); least >= shortestPods {
		hint = "write podCIDR: " + wider(pods, services, least)
	}
	f.hint("network.podCIDR", hint+"; a cluster that has machines keeps its range: lower size or aws.max of its groups",
		"%s holds %d nodes with a /%d each, and the groups with the role %s may have %d", pods, holds, mask, role.Minions, need)
}

// shares is how many nodes get a share of the pods' range, 0 where that cannot be said or others give the shares.
func (f *completer) shares() int {
	pods, err := netip.ParsePrefix(f.out.Cluster.Network.PodCIDR)
	allocate, _ := flagText(f.in.KubeControllerManager.Flags[allocateFlag])
	mask, _ := f.in.nodeMask()
	if err != nil || allocate == "false" || mask < pods.Bits() || mask > longestMask {
		return 0
	}
	return 1 << (mask - pods.Bits())
}

// mostNodes is how many nodes the groups may have at the same time.
func (f *completer) mostNodes() int {
	return f.sumOfNodes(func(g Group) int { return max(g.Size, g.AWS.Max) })
}

// firstNodes is how many nodes the groups begin with.
func (f *completer) firstNodes() int { return f.sumOfNodes(func(g Group) int { return g.Size }) }

func (f *completer) sumOfNodes(of func(Group) int) int {
	sum := 0
	for _, g := range f.out.Groups {
		if g.Roles.Has(role.Minions) {
			sum += of(g)
		}
	}
	return sum
}

// podsOfNodes refuses more pods on a node than its share has addresses for.
func (f *completer) podsOfNodes(mask int) {
	room := machine.PodRoom(mask)
	hint := fmt.Sprintf("write at most %d, or give nodes larger shares: %s.flags.%s", room, manager, maskFlag)
	const text = "%d pods on a node, whose /%d has addresses for %d"
	for i, g := range f.in.Groups {
		if g.Node.MaxPods > room {
			f.hint(at("groups", i)+".node.maxPods", hint, text, g.Node.MaxPods, mask, room)
		}
	}
	if n, ok := f.out.Cluster.Kubelet.Config[kubeletPods].(int); ok && n > room && f.out.Origins[kubeletPodsKey].Kind == User {
		f.hint(kubeletPodsKey, hint, text, n, mask, room)
	}
}

// wider returns a range of pods of that prefix length: the given one widened, or a private one that does not overlap the
// Services'.
func wider(pods, services netip.Prefix, length int) string {
	for _, start := range []netip.Prefix{
		pods, netip.MustParsePrefix(defaultPodCIDR), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("10.0.0.0/8"),
	} {
		p := netip.PrefixFrom(start.Addr(), length).Masked()
		if !p.Overlaps(services) && (start == pods || p.Addr().IsPrivate() || start.Contains(p.Addr())) {
			return p.String()
		}
	}
	return fmt.Sprintf("a /%d that does not overlap the Services' range", length)
}
