package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// part is one component with everything decided.
type part struct {
	field   string
	program program
	// flags are all flags by name.
	flags map[string]flag
	// document is the configuration document, nil for a component that has none.
	document *document
}

// flag is one flag with its value. ${CLUSTER_NAME} is filled in, ${MEMBER} is each machine's own.
type flag struct {
	value  string
	origin Origin
	// bare is what a machine with a bare role file runs the program with.
	bare baked
}

// derivation is a flag or a field of a document that follows from the cluster.
type derivation struct {
	component, name string
	value           any
	from            string
}

// parameters of values: what stands for the cluster's name, and for the name of the machine's member.
const (
	clusterParameter = "${CLUSTER_NAME}"
	memberParameter  = "${MEMBER}"
)

// derivedFlags are the flags that follow from the cluster.
func (f *completer) derivedFlags() []derivation {
	c := f.out.Cluster
	derived := []derivation{
		{"kubeAPIServer", "service-cluster-ip-range", c.Network.ServiceCIDR, "network.serviceCIDR"},
		{"kubeControllerManager", "service-cluster-ip-range", c.Network.ServiceCIDR, "network.serviceCIDR"},
		{"kubeControllerManager", "cluster-cidr", c.Network.PodCIDR, "network.podCIDR"},
		{"kubeAPIServer", "secure-port", fmt.Sprint(c.API.Port), "api.port"},
	}
	members := f.members()
	if len(members) == 0 {
		return derived
	}
	var clients, peers []string
	for _, m := range members {
		host := fmt.Sprintf("https://%s-%s.%s", role.Etcd, m, c.Domain())
		clients = append(clients, host+":2379")
		peers = append(peers, m+"="+host+":2380")
	}
	own := fmt.Sprintf("https://%s-%s.%s", role.Etcd, memberParameter, c.Domain())
	const from = "groups"
	return append(derived,
		derivation{"kubeAPIServer", "etcd-servers", strings.Join(clients, ","), from},
		derivation{"etcd", "name", memberParameter, from},
		derivation{"etcd", "listen-client-urls", "https://0.0.0.0:2379", from},
		derivation{"etcd", "listen-peer-urls", "https://0.0.0.0:2380", from},
		derivation{"etcd", "advertise-client-urls", own + ":2379", from},
		derivation{"etcd", "initial-advertise-peer-urls", own + ":2380", from},
		derivation{"etcd", "initial-cluster", strings.Join(peers, ","), from},
		derivation{"etcd", "initial-cluster-token", c.Name, "name"},
	)
}

// members are the names of etcd's members, none for the one beside its API server.
func (f *completer) members() []string {
	if len(f.out.Groups) == 0 {
		return nil
	}
	return f.out.Groups[0].Members
}

// component returns the overrides of a component by its name in a document.
func (c *Components) component(field string) *Component {
	return map[string]*Component{
		"kubeAPIServer": &c.KubeAPIServer, "kubeControllerManager": &c.KubeControllerManager,
		"kubeScheduler": &c.KubeScheduler, "kubeProxy": &c.KubeProxy, "kubelet": &c.Kubelet, "etcd": &c.Etcd,
		"containerd": &c.Containerd, "flannel": &c.Flannel, "coreDNS": &c.CoreDNS,
	}[field]
}

// componentNames are the components in the order of a document.
var componentNames = []string{
	"kubeAPIServer", "kubeControllerManager", "kubeScheduler", "kubeProxy", "kubelet", "etcd", "containerd", "flannel", "coreDNS",
}

// components lays the layers of each component over each other: upstream, image, cluster, user.
func (f *completer) components() {
	derived := f.derivedFlags()
	for _, field := range componentNames {
		p := part{field: field, program: f.out.image.programs[field], flags: map[string]flag{}}
		given := f.in.component(field)
		f.flags(&p, given.Flags, derived)
		f.document(&p, given.Config)
		out := f.out.Cluster.component(field)
		out.Flags = map[string]any{}
		for name, fl := range p.flags {
			out.Flags[name] = fl.value
			f.out.Origins[join(field+".flags", name)] = fl.origin
		}
		f.out.parts = append(f.out.parts, p)
	}
}

// flags decides a component's flags.
func (f *completer) flags(p *part, given map[string]any, derived []derivation) {
	for name, b := range p.program.flags {
		b.value = strings.ReplaceAll(b.value, clusterParameter, f.out.Cluster.Name)
		p.flags[name] = flag{value: b.value, origin: Origin{Default, b.from}, bare: b}
	}
	for _, d := range derived {
		if d.component == p.field {
			fl := p.flags[d.name]
			if value := d.value.(string); value != fl.value || !fl.bare.set {
				fl.value, fl.origin = value, Origin{Derived, d.from}
			}
			p.flags[d.name] = fl
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		field := join(p.field+".flags", name)
		value, err := flagText(given[name])
		if err != nil {
			f.errorf(field, "%v", err)
			continue
		}
		fl := p.flags[name]
		if value != fl.value || fl.origin == (Origin{}) {
			fl.value, fl.origin = value, Origin{Kind: User}
		}
		p.flags[name] = fl
	}
}

// flagText is the text of a flag's value as it stands on a command line: lists are joined by commas, and
// so are the pairs of a map.
func flagText(v any) (string, error) {
	switch v := v.(type) {
	case string:
		if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return "", fmt.Errorf("a flag is one line of text")
		}
		return v, nil
	case bool, int, int64, uint64, float64:
		return fmt.Sprint(v), nil
	case []any:
		var items []string
		for _, item := range v {
			text, err := flagText(item)
			if err != nil {
				return "", err
			}
			items = append(items, text)
		}
		return strings.Join(items, ","), nil
	case map[string]any:
		var pairs []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			text, err := flagText(v[key])
			if err != nil {
				return "", err
			}
			pairs = append(pairs, key+"="+text)
		}
		return strings.Join(pairs, ","), nil
	case nil:
		return "", nil
	}
	return "", fmt.Errorf("%v is no value of a flag: text, a number, true or false, or a list or map of these", v)
}
