// Package spec turns a minimal cluster.yaml into the complete configuration of a cluster, and that into
// the user data of each group's machines.
//
// Its rule: a complete configuration is a pure function of the document and of what the image has baked
// in, and says of every value where it comes from. What the image says by itself (the units' flags, the
// files below /etc) is read from the image's own files; there is no second list of it here. Completing a
// complete document changes nothing.
package spec

import (
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The identity of the format.
const (
	APIVersion = "hardtack.dev/v1"
	Kind       = "Cluster"
)

// DefaultVersion is the Kubernetes minor version of a document that names none.
const DefaultVersion = "1.36"

// Cluster is a cluster.yaml as it was written, or with every field set. Parse makes it.
type Cluster struct {
	Header `yaml:",inline"`
	// Name is a DNS label: CLUSTER_NAME of the role files, the tag KubernetesCluster, and the domain
	// <name>.k8s.
	Name string `yaml:"name"`
	// Version is the Kubernetes minor version of the image ("1.36"): which flags there are. The patch
	// version is the lock's.
	Version string `yaml:"version"`
	// Store is where the cluster's secrets are: "ssm:/path" or "dir:/path".
	Store string `yaml:"store"`
	// LaunchHook is the lifecycle hook that a machine completes when its roles work; "none" is none.
	LaunchHook string  `yaml:"launchHook"`
	API        API     `yaml:"api"`
	Network    Network `yaml:"network"`
	// Groups are the AutoScaling groups, or what stands for them.
	Groups []GroupSpec `yaml:"groups"`
	// AWS is what a stack on AWS is made of; it changes nothing on machines.
	AWS        AWS `yaml:"aws"`
	Components `yaml:",inline"`
	Extras     `yaml:",inline"`

	source *source
}

// Header says which format a document is of.
type Header struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
}

// API is the API server, as everybody finds it.
type API struct {
	// Port is that of masters.<cluster>.k8s, and of every master.
	Port int `yaml:"port"`
	// Names are further names and addresses for the server's certificate.
	Names []string `yaml:"names"`
}

// Network is the cluster's addresses.
type Network struct {
	// ServiceCIDR's first address is the API's Service, its tenth the cluster's DNS.
	ServiceCIDR string `yaml:"serviceCIDR"`
	// PodCIDR holds all nodes' ranges.
	PodCIDR string `yaml:"podCIDR"`
	// DNSAddress is that of the Service kube-dns, DNSDomain what pods search in.
	DNSAddress string `yaml:"dnsAddress"`
	DNSDomain  string `yaml:"dnsDomain"`
	// MTU of the pods' network in bytes; 0 is the interface's less VXLAN's 50.
	MTU int `yaml:"mtu"`
}

// GroupSpec is one group of machines that are alike, or with Members one group a member.
type GroupSpec struct {
	// Name is a DNS label.
	Name string `yaml:"name"`
	// Roles are what each machine is; in the order in which they are written, the first is the group's tag.
	Roles []string `yaml:"roles"`
	// Size is how many machines the group keeps; nil is 1. With Members it is their number.
	Size *int `yaml:"size"`
	// Members names the members of etcd: each is a group <name>-<member> of one machine.
	Members []string `yaml:"members"`
	// CPUs and Memory (MiB) are what a lab gives each machine.
	CPUs   int  `yaml:"cpus"`
	Memory int  `yaml:"memory"`
	Node   Node `yaml:"node"`
	// AWS is what the group's machines are on AWS.
	AWS GroupAWS `yaml:"aws"`
}

// Node is how the group's machines register. It only counts with the role minions.
type Node struct {
	// Naming is "ip-name", "instance-id" or "hostname"; "auto" is the first where there is a metadata
	// service, and the last elsewhere.
	Naming string            `yaml:"naming"`
	Labels map[string]string `yaml:"labels"`
	// Taints are "key=value:Effect"; nil is derived: the control plane's taint where masters are minions
	// too and other minions exist.
	Taints []string `yaml:"taints"`
	// MaxPods is 0 for 110, or what the node's share of PodCIDR holds.
	MaxPods int `yaml:"maxPods"`
}

// Components are the overrides of each component, by its name.
type Components struct {
	KubeAPIServer         Component `yaml:"kubeAPIServer"`
	KubeControllerManager Component `yaml:"kubeControllerManager"`
	KubeScheduler         Component `yaml:"kubeScheduler"`
	KubeProxy             Component `yaml:"kubeProxy"`
	Kubelet               Component `yaml:"kubelet"`
	Etcd                  Component `yaml:"etcd"`
	Containerd            Component `yaml:"containerd"`
	Flannel               Component `yaml:"flannel"`
	CoreDNS               Component `yaml:"coreDNS"`
}

// Component is the flags and the configuration document of one component.
type Component struct {
	// Flags are by name, without dashes. null is what upstream has where the flag is not given.
	Flags map[string]any `yaml:"flags,omitempty"`
	// Config is merged into the component's configuration document; null takes a field out of it.
	Config map[string]any `yaml:"config,omitempty"`
}

// Group is one AutoScaling group of the complete configuration.
type Group struct {
	// Name is unique in the cluster: "masters", or "etcd-a" for a member.
	Name string `json:"name"`
	// Roles are in the order of role.All, Tag is the one that the group's tag Role names.
	Roles role.Set  `json:"roles"`
	Tag   role.Role `json:"tag"`
	Size  int       `json:"size"`
	// Member is the machine's member of etcd, or empty; Members are all of the cluster's.
	Member  string   `json:"member,omitempty"`
	Members []string `json:"members,omitempty"`
	// CPUs and Memory (MiB) are what a lab gives each machine.
	CPUs   int  `json:"cpus"`
	Memory int  `json:"memory"`
	Node   Node `json:"-"`
	// AWS is what the group's machines are on AWS.
	AWS GroupAWS `json:"aws"`
}

// Complete is a complete configuration.
type Complete struct {
	// Cluster has every field set.
	Cluster *Cluster
	// Groups are in the order of the document, those with members one by one.
	Groups []Group
	// Origins says of each leaf of Cluster, by its path, where the value comes from.
	Origins map[string]Origin

	upstream *upstream
	parts    []part
}

// Origin is where a value comes from.
type Origin struct {
	// Kind is "user", "derived" or "default".
	Kind OriginKind `json:"kind"`
	// From names whose default, or what it is derived from.
	From string `json:"from,omitempty"`
}

// OriginKind says who decided a value.
type OriginKind string

// The origins. A value counts as the user's where it is written and is not what would hold anyway.
const (
	User    OriginKind = "user"
	Derived OriginKind = "derived"
	Default OriginKind = "default"
)

// String prints "user", "default (hardtack)", "derived (network.serviceCIDR)".
func (o Origin) String() string {
	if o.From == "" {
		return string(o.Kind)
	}
	return string(o.Kind) + " (" + o.From + ")"
}

// Domain is the cluster's DNS domain: "<name>.k8s".
func (c *Cluster) Domain() string { return c.Name + ".k8s" }
