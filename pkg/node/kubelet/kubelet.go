package kubelet

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// kubelet is the part of KubeletConfiguration (kubelet.config.k8s.io/v1beta1) that depends on the machine.
type kubelet struct {
	APIVersion         string            `yaml:"apiVersion"`
	Kind               string            `yaml:"kind"`
	ProviderID         string            `yaml:"providerID,omitempty"`
	ClusterDNS         []string          `yaml:"clusterDNS,omitempty"`
	ClusterDomain      string            `yaml:"clusterDomain,omitempty"`
	MaxPods            int               `yaml:"maxPods,omitempty"`
	KubeReserved       map[string]string `yaml:"kubeReserved,omitempty"`
	SystemReserved     map[string]string `yaml:"systemReserved,omitempty"`
	EvictionHard       map[string]string `yaml:"evictionHard,omitempty"`
	RegisterWithTaints []machine.Taint   `yaml:"registerWithTaints,omitempty"`
	RotateCertificates *bool             `yaml:"rotateCertificates,omitempty"`
	ServerTLSBootstrap *bool             `yaml:"serverTLSBootstrap,omitempty"`
}

// controlPlane keeps pods off machines that are masters too, unless they tolerate it.
var controlPlane = machine.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: "NoSchedule"}

// kubeletFile renders the drop-in. The operator's kubelet.yaml has precedence. A drop-in would override it, so the
// drop-in omits every field that kubelet.yaml sets.
func kubeletFile(c machine.Config, f Facts, p Plan) (string, error) {
	var base map[string]any
	if err := yaml.Unmarshal(f.Kubelet, &base); err != nil {
		return "", reason.Errorf(reason.Config, "reading the kubelet's configuration: %w", err)
	}
	yes := true
	k := kubelet{
		APIVersion: "kubelet.config.k8s.io/v1beta1", Kind: "KubeletConfiguration",
		ProviderID: p.ProviderID, ClusterDNS: []string{c.Network.DNSAddress}, ClusterDomain: c.Network.DNSDomain,
		MaxPods:            maxPods(c),
		KubeReserved:       map[string]string{"cpu": fmt.Sprintf("%dm", p.Reserved.KubeCPU), "memory": fmt.Sprintf("%dMi", p.Reserved.KubeMemory)},
		EvictionHard:       thresholds(p.Reserved),
		RotateCertificates: &yes, ServerTLSBootstrap: &yes,
	}
	if p.Reserved.SystemMemory > 0 {
		k.SystemReserved = map[string]string{"memory": fmt.Sprintf("%dMi", p.Reserved.SystemMemory)}
	}
	var err error
	if k.RegisterWithTaints, err = taints(c, f.Roles); err != nil {
		return "", err
	}
	leaveOut(&k, base)
	text, err := yaml.Marshal(k)
	return "# Written by hardtack-agent node at every boot, from what this machine is.\n" + string(text), err
}

// thresholds are the kubelet's defaults, except that of the memory, which belongs to the formula of reserve. All of them
// are needed: a map in a drop-in replaces the kubelet's whole map.
func thresholds(r Reservation) map[string]string {
	return map[string]string{
		"memory.available": fmt.Sprintf("%dMi", r.Eviction), "nodefs.available": "10%", "nodefs.inodesFree": "5%",
		"imagefs.available": "15%", "imagefs.inodesFree": "5%",
	}
}

// leaveOut clears the fields that kubelet.yaml sets.
func leaveOut(k *kubelet, base map[string]any) {
	for field, empty := range map[string]func(){
		"providerID": func() { k.ProviderID = "" }, "maxPods": func() { k.MaxPods = 0 },
		"kubeReserved": func() { k.KubeReserved = nil }, "systemReserved": func() { k.SystemReserved = nil },
		"evictionHard": func() { k.EvictionHard = nil }, "registerWithTaints": func() { k.RegisterWithTaints = nil },
		"rotateCertificates": func() { k.RotateCertificates = nil }, "serverTLSBootstrap": func() { k.ServerTLSBootstrap = nil },
	} {
		if _, ok := base[field]; ok {
			empty()
		}
	}
	if dns, ok := base["clusterDNS"]; ok && fmt.Sprint(dns) != "["+machine.ImageDNSAddress+"]" {
		k.ClusterDNS = nil
	}
	if domain, ok := base["clusterDomain"]; ok && domain != machine.ImageDNSDomain {
		k.ClusterDomain = ""
	}
}

// maxPods is the configured number, or the usual one, or fewer if the node's range of addresses is smaller. Where nodes have
// smaller ranges than by default, the machine file has the number.
func maxPods(c machine.Config) int {
	if c.Node.MaxPods != 0 {
		return c.Node.MaxPods
	}
	p, err := netip.ParsePrefix(c.Network.PodCIDR)
	if err != nil || !p.Addr().Is4() {
		return machine.UsualPods
	}
	return min(machine.UsualPods, max(1, machine.PodRoom(max(p.Bits(), machine.NodeMask))))
}

// taints are the taints of the machine file, and that of the control plane if the machine is also a master.
func taints(c machine.Config, roles role.Set) ([]machine.Taint, error) {
	var out []machine.Taint
	if roles.Has(role.Masters) {
		out = append(out, controlPlane)
	}
	for _, text := range c.Node.Taints {
		t, err := machine.ParseTaint(text)
		if err != nil {
			return nil, reason.With(reason.Config, err)
		}
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out, nil
}

// labels are the labels of the machine file, and the region, zone and type of the instance from the metadata service.
func labels(c machine.Config, f Facts) string {
	all := map[string]string{}
	if i := f.Instance; i != nil {
		all["topology.kubernetes.io/region"], all["topology.kubernetes.io/zone"] = i.Region, i.Zone
		all["node.kubernetes.io/instance-type"] = i.Type
	}
	maps.Copy(all, c.Node.Labels)
	maps.DeleteFunc(all, func(key, value string) bool { return value == "" && !has(c.Node.Labels, key) })
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		pairs = append(pairs, key+"="+all[key])
	}
	return strings.Join(pairs, ",")
}

func has(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}
