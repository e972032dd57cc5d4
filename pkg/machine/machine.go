// Package machine holds what one machine is told about its cluster: the file /etc/hardtack/machine.yaml.
//
// Its rule: a Config is plain values that pkg/spec writes and the agent reads, nothing secret among them;
// what a machine can find out by itself (its address, its instance) is not in it.
package machine

import "go.yaml.in/yaml/v3"

// Path is where the file is on a machine.
const Path = "/etc/hardtack/machine.yaml"

// The identity of the format.
const (
	APIVersion = "hardtack.dev/v1"
	Kind       = "Machine"
)

// Config is what one machine is told. Parse checks it; the zero value is not a valid one.
type Config struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	// Cluster is the cluster's name, a DNS label: CLUSTER_NAME of the role files and the tag KubernetesCluster.
	Cluster string `yaml:"cluster"`
	// Group is the name of the AutoScaling group that the machine was launched in.
	Group string `yaml:"group"`
	// ConfigHash is over everything that the user data says; a node carries it as an annotation.
	ConfigHash string `yaml:"configHash"`
	// Store is where the cluster's secrets are: "ssm:/hardtack/<cluster>" or "dir:/path".
	Store   string  `yaml:"store"`
	API     API     `yaml:"api"`
	Etcd    Etcd    `yaml:"etcd,omitempty"`
	Network Network `yaml:"network"`
	Node    Node    `yaml:"node,omitempty"`
	// LaunchHook is the lifecycle hook that the machine completes when its roles work; empty is none.
	LaunchHook string `yaml:"launchHook,omitempty"`
}

// API is the API server, as everybody finds it.
type API struct {
	// Port is that of masters.<cluster>.k8s, and of every master.
	Port int `yaml:"port"`
	// Names are further names and addresses for the server's certificate; may be empty.
	Names []string `yaml:"names,omitempty"`
}

// Etcd is the membership. Both are empty for the one member on the same machine as its API server.
type Etcd struct {
	// Members are the names of all members; etcd-<member>.<cluster>.k8s is each one's address.
	Members []string `yaml:"members,omitempty"`
	// Member is this machine's, and empty where it has no role etcd or the members are not named.
	Member string `yaml:"member,omitempty"`
}

// Network is the cluster's addresses.
type Network struct {
	// ServiceCIDR's first address is the API's Service, PodCIDR holds all nodes' ranges.
	ServiceCIDR string `yaml:"serviceCIDR"`
	PodCIDR     string `yaml:"podCIDR"`
	// DNSAddress is that of the Service kube-dns, DNSDomain what pods search in ("cluster.local").
	DNSAddress string `yaml:"dnsAddress"`
	DNSDomain  string `yaml:"dnsDomain"`
	// MTU of the pods' network in bytes; 0 is the interface's less VXLAN's 50.
	MTU int `yaml:"mtu,omitempty"`
}

// Node is how a minion registers. The zero value is the default of every field.
type Node struct {
	// Naming is "ip-name" (the instance's private DNS name; the default where there is a metadata service),
	// "instance-id" or "hostname" (the default elsewhere).
	Naming string `yaml:"naming,omitempty"`
	// Labels are given to the node at its registration; those that NodeRestriction forbids are refused.
	Labels map[string]string `yaml:"labels,omitempty"`
	// Taints are "key=value:Effect".
	Taints []string `yaml:"taints,omitempty"`
	// MaxPods of this node; 0 is 110 or what the node's share of PodCIDR holds.
	MaxPods int `yaml:"maxPods,omitempty"`
}

// Domain is the cluster's DNS domain: "<cluster>.k8s".
func (c Config) Domain() string { return c.Cluster + ".k8s" }

// Marshal writes the file.
func (c Config) Marshal() ([]byte, error) { return yaml.Marshal(c) }
