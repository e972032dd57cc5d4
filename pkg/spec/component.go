package spec

import (
	"reflect"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Components are the overrides of each component. The struct is the table of components: the order of its fields is the
// order of a complete document, and the tags of a field say everything that the component's unit and its upstream do not:
//
//	program   the executable; a component with a unit is run by <program>.service
//	lock      the component of the image's lock that the program comes from
//	document  where its configuration document is, if no flag names it
//	env       the prefix of the environment variables from which the program itself reads its flags
//	role      for a component without a unit, which runs in pods: the role of the machines that create them
//
// A new component is a field here, and its flags in upstream/*.json (TestUpstream writes these).
type Components struct {
	KubeAPIServer         Component `yaml:"kubeAPIServer" program:"kube-apiserver" lock:"kubernetes"`
	KubeControllerManager Component `yaml:"kubeControllerManager" program:"kube-controller-manager" lock:"kubernetes"`
	KubeScheduler         Component `yaml:"kubeScheduler" program:"kube-scheduler" lock:"kubernetes"`
	KubeProxy             Component `yaml:"kubeProxy" program:"kube-proxy" lock:"kubernetes"`
	Kubelet               Component `yaml:"kubelet" program:"kubelet" lock:"kubernetes"`
	// Etcd is where the data of etcd's members are, and the overrides of the program.
	Etcd       Etcd      `yaml:"etcd" program:"etcd" lock:"etcd" env:"ETCD_"`
	Containerd Component `yaml:"containerd" program:"containerd" lock:"containerd" document:"/etc/containerd/config.toml"`
	Flannel    Component `yaml:"flannel" program:"flanneld" lock:"flannel"`
	// The two ends of the API servers' way to nodes and pods.
	KonnectivityServer Component `yaml:"konnectivityServer" program:"konnectivity-server" lock:"konnectivity"`
	KonnectivityAgent  Component `yaml:"konnectivityAgent" program:"konnectivity-agent" lock:"konnectivity"`

	CoreDNS Component `yaml:"coreDNS" program:"coredns" lock:"coredns" role:"masters" document:"/usr/lib/hardtack/addons/20-dns.yaml"`
}

// Component is the overrides of one component.
type Component struct {
	// Flags are the flags by name, without dashes; null is upstream's default.
	Flags map[string]any `yaml:"flags,omitempty"`
	// Config is merged into the component's configuration document; null is upstream's default.
	Config map[string]any `yaml:"config,omitempty"`
}

// component is one field of Components with its tags.
type component struct {
	// name is the component's name in a document.
	name                string
	executable, release string
	documentPath        string
	envPrefix           string
	podRole             role.Role
	index               int
}

// components is the table that Components declares, in its order.
var components = readComponents()

func readComponents() []component {
	var table []component
	for i := range reflect.TypeFor[Components]().NumField() {
		f := reflect.TypeFor[Components]().Field(i)
		table = append(table, component{
			name: f.Tag.Get("yaml"), executable: f.Tag.Get("program"), release: f.Tag.Get("lock"),
			documentPath: f.Tag.Get("document"), envPrefix: f.Tag.Get("env"), podRole: role.Role(f.Tag.Get("role")), index: i,
		})
	}
	return table
}

// unit is the name of the unit that runs the component, or "" for one that runs in pods.
func (c component) unit() string {
	if c.podRole != "" {
		return ""
	}
	return c.executable + ".service"
}

// overrides returns the component's field of cs.
func (c component) overrides(cs *Components) *Component {
	return reflect.ValueOf(cs).Elem().Field(c.index).Addr().Interface().(interface{ itself() *Component }).itself()
}

// itself is the component's overrides, also where they are a part of a larger value.
func (c *Component) itself() *Component { return c }
