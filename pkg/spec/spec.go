// Package spec turns a minimal cluster.yaml into the complete configuration of a cluster, and that into
// the user data of each group's machines.
//
// Its rule: a complete configuration is a pure function of the document and of what the image has baked
// in, and says of every value where it comes from. What the image says by itself (the units' flags, the
// files below /etc) is read from the image's own files; there is no second list of it here. Completing a
// complete document changes nothing.
package spec

import (
	"slices"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The identity of the format.
const (
	APIVersion = "hardtack.dev/v1"
	Kind       = "Cluster"
)

// DefaultVersion is the Kubernetes minor version of a document that names none.
const DefaultVersion = "1.36"

// The doc comments of the fields of a document, here and in component.go, etcd.go, aws.go, accounts.go, podroles.go, machines.go, proxy.go, registries.go and extras.go, are also what Explain says:
// each begins with "<Field> is" or "<Field> are". TestFieldTexts copies them to fields.json.
//
//go:generate go test -run TestFieldTexts -update .

// Cluster is a cluster.yaml as it was written, or with every field set. Parse makes it.
type Cluster struct {
	Header `yaml:",inline"`
	// Name is the cluster's name, a DNS label. The cluster's DNS domain is <name>.k8s.
	Name string `yaml:"name"`
	// Version is the Kubernetes minor version of the image, such as 1.36: it decides which flags and fields exist. The
	// patch version is the image's.
	Version string `yaml:"version"`
	// Arch is the architecture of all machines, amd64 or arm64: of their one image, and of their instance types on AWS.
	Arch string `yaml:"arch"`
	// Store is where the cluster's secrets are: ssm:/path for AWS Parameter Store, or dir:/path for a directory.
	Store string `yaml:"store"`
	// LaunchHook is the lifecycle hook that a machine completes when its roles work; "none" stands for no hook.
	LaunchHook string `yaml:"launchHook"`
	// API is the port and the names of the API servers.
	API API `yaml:"api"`
	// Network is the address ranges of Services and pods, and the cluster's DNS.
	Network Network `yaml:"network"`
	// Machines is what all machines have beside the image's own settings: of the kernel, and their limits.
	Machines Machines `yaml:"machines"`
	// Proxy is how machines reach what is outside of the cluster, where they do not by themselves.
	Proxy Proxy `yaml:"proxy"`
	// Registries are how machines pull images: mirrors, authorities of registries, and who has credentials in the store.
	Registries []Registry `yaml:"registries"`
	// PodSecurity is the Pod Security Standard of namespaces that do not name one by label, kube-system excepted:
	// baseline, restricted, or privileged, which refuses nothing.
	PodSecurity string `yaml:"podSecurity"`
	// ServiceAccounts is whose name pods' tokens have as their issuer, and where others than the API servers find the keys.
	ServiceAccounts ServiceAccounts `yaml:"serviceAccounts"`
	// Addons are what the masters install beside what every cluster has: metrics-server, which kubectl top and autoscalers ask, and on AWS
	// aws-ebs-csi-driver, aws-cloud-controller-manager and cluster-autoscaler, which scales the groups that say a max of their own.
	Addons []string `yaml:"addons"`
	// AddonImages are the references of the images of these add-ons, by the images' names. The defaults are upstream's releases by their
	// tags; a reference with a digest (NAME:TAG@sha256:...) stays what it is.
	AddonImages map[string]string `yaml:"addonImages"`
	// Groups are the groups of machines, each an AutoScaling group on AWS.
	Groups []GroupSpec `yaml:"groups"`
	// AWS is the settings of the cluster's stack on AWS; they change nothing on machines.
	AWS        AWS `yaml:"aws"`
	Components `yaml:",inline"`
	Extras     `yaml:",inline"`

	source *source
}

// Header says which format a document has.
type Header struct {
	// APIVersion is the version of the document's format: hardtack.dev/v1.
	APIVersion string `yaml:"apiVersion"`
	// Kind is the kind of the document: Cluster.
	Kind string `yaml:"kind"`
}

// API is how clients reach the API servers.
type API struct {
	// Port is the TCP port of every API server.
	Port int `yaml:"port"`
	// Names are further DNS names and IP addresses of the API server.
	Names []string `yaml:"names"`
	// Internal is whether the DNS function keeps api.internal.<cluster>.k8s: the private addresses of the healthy masters, in the private
	// zone beside masters.<cluster>.k8s.
	Internal bool `yaml:"internal"`
	// Zone is a public zone, in which the DNS function keeps api.<cluster>.<its name>: the public addresses of the healthy masters.
	Zone APIZone `yaml:"zone"`
}

// APIZone is a public zone; both fields are empty for none.
type APIZone struct {
	// ID is the zone's id in Route 53.
	ID string `yaml:"id"`
	// Name is the zone's name, without the dot at its end.
	Name string `yaml:"name"`
}

// PublicName is the name of the API servers in the document's public zone; empty without one.
func (c *Complete) PublicName() string {
	if c.Cluster.API.Zone.Name == "" {
		return ""
	}
	return "api." + c.Cluster.Name + "." + c.Cluster.API.Zone.Name
}

// apiNames are all further names of the API servers, which their certificates have: the document's, and those of the records that it asks
// for.
func (c *Complete) apiNames() []string {
	names := slices.Clone(c.Cluster.API.Names)
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if c.Cluster.API.Internal {
		add("api.internal." + role.Domain(c.Cluster.Name))
	}
	add(c.PublicName())
	return names
}

// Network is the cluster's addresses.
type Network struct {
	// ServiceCIDR is the address range of Services; its first address is that of the API's Service.
	ServiceCIDR string `yaml:"serviceCIDR"`
	// PodCIDR is the address range of all pods. Every node has a /24 of it, or what kubeControllerManager.flags.node-cidr-mask-size
	// says, so that the default is for 1024 nodes. The range of a cluster that has machines cannot be changed.
	PodCIDR string `yaml:"podCIDR"`
	// DNSAddress is the address of the Service kube-dns.
	DNSAddress string `yaml:"dnsAddress"`
	// DNSDomain is the domain that pods search in.
	DNSDomain string `yaml:"dnsDomain"`
	// MTU is the MTU of the pods' network in bytes; 0 is the interface's, less 50 for VXLAN.
	MTU int `yaml:"mtu"`
	// NonMasqueradeCIDRs are ranges outside of the cluster to which pods go by their own addresses, and not by their node's. Routers there have to
	// know the way back.
	NonMasqueradeCIDRs []string `yaml:"nonMasqueradeCIDRs"`
	// TimeServers is the NTP servers of all machines, by name or address, beside those of DHCP. Without a cloud they are Debian's
	// pool by default; in a cloud there are none, since its own server is there.
	TimeServers []string `yaml:"timeServers"`
}

// GroupSpec is one group of identical machines in a document. With Members it stands for one group for each member.
type GroupSpec struct {
	// Name is the group's name, a DNS label; with members there is a group <name>-<member> for each.
	Name string `yaml:"name"`
	// Roles are the roles of each machine of the group; the first is the value of the group's tag Role.
	Roles []string `yaml:"roles"`
	// Size is how many machines the group keeps, 1 if it is not set; with members it is their number.
	Size *int `yaml:"size"`
	// Members are the names of etcd's members, a machine each; none is the only member beside its API server, which is a.
	Members []string `yaml:"members"`
	// CPUs is how many processors a lab gives each machine.
	CPUs int `yaml:"cpus"`
	// Memory is how many MiB of memory a lab gives each machine.
	Memory int `yaml:"memory"`
	// Node is how the group's machines register as nodes; only groups with the role minions have any.
	Node Node `yaml:"node"`
	// AWS is the settings of the group's machines on AWS.
	AWS GroupAWS `yaml:"aws"`
}

// Node is how the group's machines register with the API server.
type Node struct {
	// Naming is how a node gets its name: ip-name, instance-id, hostname, or auto, which is ip-name where there is a
	// metadata service and hostname elsewhere.
	Naming string `yaml:"naming"`
	// Labels are the labels that a node registers with.
	Labels map[string]string `yaml:"labels"`
	// Taints are the taints that a node registers with, as key=value:Effect. If they are not set, nodes that are also
	// masters get the control plane's taint, provided that there are other minions.
	Taints []string `yaml:"taints"`
	// MaxPods is how many pods a node takes; 0 is 110, or what the node's address range holds.
	MaxPods int `yaml:"maxPods"`
	// PodsReachMetadata is whether the group's pods reach the metadata service, with the machine's credentials in it; without
	// it no pod does, even in the host's network.
	PodsReachMetadata bool `yaml:"podsReachMetadata"`
}

// Group is one AutoScaling group of the complete configuration.
type Group struct {
	// Name is unique in the cluster: "masters", or "etcd-a" for a member.
	Name string `json:"name"`
	// Roles are in the order of role.All, Tag is the one that the group's tag Role names.
	Roles role.Set  `json:"roles"`
	Tag   role.Role `json:"tag"`
	Size  int       `json:"size"`
	// Member is the machine's member of etcd, or empty; Members are all of the cluster's, none for one member whose name is
	// only its volume's.
	Member  string   `json:"member,omitempty"`
	Members []string `json:"members,omitempty"`
	// CPUs and Memory (MiB) are the size of each machine in a lab.
	CPUs   int  `json:"cpus"`
	Memory int  `json:"memory"`
	Node   Node `json:"-"`
	// AWS is what the group's machines are on AWS.
	AWS GroupAWS `json:"aws"`
}

// Complete is a complete configuration: every field has a value and an origin.
type Complete struct {
	// Cluster has every field set.
	Cluster *Cluster
	// Groups are in the order of the document, those with members one by one.
	Groups []Group
	// Origins has the origin of each leaf of Cluster, by its path.
	Origins map[string]Origin

	upstream   *upstream
	components []resolved
	// admission is the document of the API server's admission plugins, nil where it is the image's.
	admission map[string]any
	// providers is the kubelet's document of credential providers, nil where it is the image's.
	providers map[string]any
}

// Origin is the origin of a value.
type Origin struct {
	// Kind is "user", "derived", "default" or "machine".
	Kind OriginKind `json:"kind"`
	// From names the program whose default it is, or the field that it is derived from, or is the rule by which machines compute it.
	From string `json:"from,omitempty"`
}

// OriginKind is the kind of an Origin.
type OriginKind string

// The origins. A value is the user's if the document has it and it differs from the default. The value of ByMachine is not known
// before a machine boots: what stands there is the program's own default, which the machine replaces.
const (
	User    OriginKind = "user"
	Derived OriginKind = "derived"
	Default OriginKind = "default"

	ByMachine OriginKind = "machine"
)

// String prints "user", "default (hardtack)", "derived (network.serviceCIDR)", "computed on the machine (RULE)".
func (o Origin) String() string {
	if o.Kind == ByMachine {
		return "computed on the machine (" + o.From + ")"
	}
	if o.From == "" {
		return string(o.Kind)
	}
	return string(o.Kind) + " (" + o.From + ")"
}
