// Package machine has the two documents about a machine's cluster: the machine file /etc/hardtack/machine.yaml with the
// configuration of one machine, and the object public/cluster-info.yaml of the cluster's store with the facts that all
// its machines must agree on.
//
// Its rule: both are plain values without secrets, written by pkg/spec and read by the agent. Neither has values that a
// machine can find out itself (its address, its instance). A machine file only has values that differ from those of the
// role file, the image and the instance: every field may be left out.
package machine

import (
	"crypto/sha256"
	"fmt"
	"net"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Path is where the file is on a machine.
const Path = "/etc/hardtack/machine.yaml"

// The identity of the format.
const (
	APIVersion = "hardtack.dev/v1"
	Kind       = "Machine"
)

// Config is the configuration of one machine: as its machine file has it, where the zero value of a field means that it
// is not set, or completed by pkg/node/config. Parse checks it.
type Config struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	// Cluster is the cluster's name, a DNS label: CLUSTER_NAME of the role files and the tag KubernetesCluster.
	Cluster string `yaml:"cluster,omitempty"`
	// Group is the name of the AutoScaling group that the machine was launched in. Empty: the instance knows it.
	Group string `yaml:"group,omitempty"`
	// ConfigHash is over everything that the user data says; a node carries it as an annotation. By default it is the
	// SHA-256 of the user data.
	ConfigHash string `yaml:"configHash,omitempty"`
	// Store is where the cluster's secrets are: "ssm:/hardtack/<cluster>" or "dir:/path".
	Store string `yaml:"store,omitempty"`
	// CAFile is the path of the cluster's public CA on the machine; empty: it is read from the store.
	CAFile  string  `yaml:"caFile,omitempty"`
	API     API     `yaml:"api,omitempty"`
	Etcd    Etcd    `yaml:"etcd,omitempty"`
	Network Network `yaml:"network,omitempty"`
	Node    Node    `yaml:"node,omitempty"`
	// Addons are the names of the optional manifests of the image that a master applies; what it applied of others is removed.
	Addons []string `yaml:"addons,omitempty"`
	// AddonImages are the references of the images of these add-ons, by their names in the document.
	AddonImages map[string]string `yaml:"addonImages,omitempty"`
	// LaunchHook is the lifecycle hook that the machine completes when its roles work; NoHook is none, and so is the empty
	// text of a Config that is complete.
	LaunchHook string `yaml:"launchHook,omitempty"`
}

// The defaults that no file of the image has: the hook's name where a machine has a group, and how a document says that
// there is none.
const (
	DefaultLaunchHook = "hardtack-ready"
	NoHook            = "none"
)

// The cluster's DNS as the image's kubelet.yaml has it: there it is a default, and anything else the operator's.
const (
	ImageDNSAddress = "10.96.0.10"
	ImageDNSDomain  = "cluster.local"
)

// CAPath is where user data may put the cluster's public CA.
const CAPath = "/etc/hardtack/ca.crt"

// DefaultStore is where a cluster keeps its secrets in AWS.
func DefaultStore(cluster string) string { return "ssm:/hardtack/" + cluster }

// API is how clients reach the API servers.
type API struct {
	// Port is the TCP port of every API server.
	Port int `yaml:"port,omitempty"`
	// Names are further DNS names and IP addresses of the API server; may be empty.
	Names []string `yaml:"names,omitempty"`
}

// LoneMember is the name of the only member of an etcd beside its API server, whose cluster names no members: on its
// volume, in its records, and as the image's own configuration has it.
const LoneMember = "a"

// The values of Etcd.Storage.
const (
	// StorageVolume is a volume of EBS with the member's tags, which the machine attaches to itself.
	StorageVolume = "volume"
	// StorageDisk is a local disk, Etcd.Disk.
	StorageDisk = "disk"
	// StorageMachine is the machine's own disk: the member's data are lost with the machine.
	StorageMachine = "machine"
)

// Etcd is the membership of etcd, and where the data of the machine's member are.
type Etcd struct {
	// Members are the names of all members; etcd-<member>.<cluster>.k8s is each one's address. Empty: etcd is a single member
	// on the same machine as its API server.
	Members []string `yaml:"members,omitempty"`
	// Member is the name of this machine's member; empty if it has no role etcd. Without Members it is LoneMember.
	Member string `yaml:"member,omitempty"`
	// Storage is where the member's data are: StorageVolume, StorageDisk or, where nothing is said, StorageMachine. An image
	// never waits for a volume that its user data do not speak of.
	Storage string `yaml:"storage,omitempty"`
	// Disk is the device of StorageDisk: a path below /dev/disk/by-id, which stays the same however disks are counted.
	Disk string `yaml:"disk,omitempty"`
	// Backup is where the leader's machine stores backups: BackupsStack, or as ParseBackups takes it; empty is nowhere. BackupEvery is how many
	// minutes lie between two; 0 is BackupMinutes.
	Backup      string `yaml:"backup,omitempty"`
	BackupEvery int    `yaml:"backupEvery,omitempty"`
}

// Network is the cluster's addresses.
type Network struct {
	// ServiceCIDR's first address is the API's Service, PodCIDR holds all nodes' ranges.
	ServiceCIDR string `yaml:"serviceCIDR,omitempty"`
	PodCIDR     string `yaml:"podCIDR,omitempty"`
	// DNSAddress is the address of the Service kube-dns, DNSDomain the domain that pods search in ("cluster.local").
	DNSAddress string `yaml:"dnsAddress,omitempty"`
	DNSDomain  string `yaml:"dnsDomain,omitempty"`
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

// HashPrefix begins the hash of a configuration; the SHA-256 of the user data in hex follows.
const HashPrefix = "sha256:"

// Hash is the ConfigHash of machines with that user data.
func Hash(userData []byte) string { return fmt.Sprintf("%s%x", HashPrefix, sha256.Sum256(userData)) }

// APIServer returns the URL of the API server that the daemons of a machine use: on a master its own. A master's name is
// in masters.<cluster>.k8s only once its group has it in service, which it gets into when its daemons work.
func (c Config) APIServer(roles role.Set) string {
	host := role.Masters.Host(c.Cluster)
	if roles.Has(role.Masters) {
		host = "127.0.0.1"
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(c.API.Port))
}

// Marshal writes the file.
func (c Config) Marshal() ([]byte, error) { return yaml.Marshal(c) }
