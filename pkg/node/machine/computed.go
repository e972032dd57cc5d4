package machine

import (
	"fmt"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// KubeletFile is the drop-in with a machine's own values, which comes over the kubelet's configuration.
const KubeletFile = "/etc/kubernetes/kubelet.conf.d/50-machine.conf"

// Computed is a flag or a field of a component's configuration that each machine computes at boot from what it is, and that comes
// over the program's own default. What a document or a role file sets has precedence.
type Computed struct {
	// Component is the component's field in a cluster document. Name is that of the flag, or of the field if IsField.
	Component, Name string
	IsField         bool
	// Rule says what it becomes, for people.
	Rule string
}

// AllComputed lists what pkg/node/kubelet computes.
func AllComputed() []Computed {
	const (
		kubelet = "kubelet"
		name    = "the node's name, by the group's node.naming"
	)
	return []Computed{
		{kubelet, "providerID", true, "aws:///ZONE/INSTANCE by the metadata service, none without one"},
		{kubelet, "maxPods", true, fmt.Sprintf("the group's node.maxPods, or %d, or fewer if the node's address range holds fewer", UsualPods)},
		{kubelet, "kubeReserved", true, "GKE's formula: memory 25% of the first 4 GiB, 20% of the next 4, 10% of the next 8, 6% up to 128 GiB, 2% of the rest; " +
			"CPUs 6% of the first, 1% of the second, 0.5% of the next two, 0.25% of the rest; a quarter of the memory is left to pods"},
		{kubelet, "systemReserved", true, systemRule()},
		{kubelet, "evictionHard", true, "memory.available 100Mi, which belongs to the formula of kubeReserved, and the kubelet's own for disks"},
		{kubelet, "registerWithTaints", true, "the group's node.taints, and the control plane's on a machine that has the role masters too"},
		{kubelet, "hostname-override", false, name},
		{kubelet, "node-ip", false, "the address of the interface with the default route"},
		{kubelet, "node-labels", false, "the group's node.labels, and by the metadata service the region, the zone and the instance type"},
		{"kubeProxy", "hostname-override", false, name},
	}
}

// systemRule is the rule of systemReserved.
func systemRule() string {
	var parts []string
	for _, r := range role.All() {
		if mib := r.Profile().Reserve; mib > 0 {
			parts = append(parts, fmt.Sprintf("%d MiB with the role %s", mib, r))
		}
	}
	return "memory for the control plane of the same machine: " + strings.Join(parts, ", ")
}
