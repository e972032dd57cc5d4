package machine

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// KindInfo is the kind of a ClusterInfo.
const KindInfo = "ClusterInfo"

// ClusterInfo has the facts that all members of a cluster must agree on. They are written to the store once, when the
// cluster is created; every machine compares its configuration with them before any of its daemons starts.
type ClusterInfo struct {
	APIVersion string      `yaml:"apiVersion"`
	Kind       string      `yaml:"kind"`
	Cluster    string      `yaml:"cluster"`
	API        InfoAPI     `yaml:"api"`
	Network    InfoNetwork `yaml:"network"`
	Etcd       InfoEtcd    `yaml:"etcd"`
}

// InfoAPI is the port of every API server.
type InfoAPI struct {
	Port int `yaml:"port"`
}

// InfoNetwork is Network without the values that may differ between machines.
type InfoNetwork struct {
	ServiceCIDR string `yaml:"serviceCIDR"`
	PodCIDR     string `yaml:"podCIDR"`
	DNSAddress  string `yaml:"dnsAddress"`
	DNSDomain   string `yaml:"dnsDomain"`
}

// InfoEtcd names all members; none is the one member beside its API server.
type InfoEtcd struct {
	Members []string `yaml:"members"`
}

// Info returns the facts of a complete Config.
func (c Config) Info() ClusterInfo {
	n := c.Network
	return ClusterInfo{
		APIVersion: APIVersion, Kind: KindInfo, Cluster: c.Cluster, API: InfoAPI{c.API.Port},
		Network: InfoNetwork{n.ServiceCIDR, n.PodCIDR, n.DNSAddress, n.DNSDomain}, Etcd: InfoEtcd{append([]string{}, c.Etcd.Members...)},
	}
}

// Marshal writes the object.
func (i ClusterInfo) Marshal() ([]byte, error) { return yaml.Marshal(i) }

// ParseInfo reads the object; file is only for messages.
func ParseInfo(file string, data []byte) (ClusterInfo, error) {
	var i ClusterInfo
	var problems problem.List
	if lines, refused, ok := decode(file, data, &i, &problems, "the cluster's own facts are empty"); ok {
		v := validator{file: file, lines: lines, refused: refused, problems: &problems}
		v.header(i.APIVersion, i.Kind, KindInfo)
		v.required("cluster", i.Cluster)
		v.form("cluster", i.Cluster, labelForm, "a DNS label")
		v.port("api.port", i.API.Port)
		n := i.Network
		for field, value := range map[string]string{"serviceCIDR": n.ServiceCIDR, "podCIDR": n.PodCIDR, "dnsAddress": n.DNSAddress, "dnsDomain": n.DNSDomain} {
			v.required("network."+field, value)
		}
		v.network(Network{ServiceCIDR: n.ServiceCIDR, PodCIDR: n.PodCIDR, DNSAddress: n.DNSAddress, DNSDomain: n.DNSDomain})
		v.etcd(Etcd{Members: i.Etcd.Members})
	}
	problems.Sort()
	if err := problems.Err(); err != nil {
		return ClusterInfo{}, err
	}
	return i, nil
}

// Fact is one value that all members must agree on.
type Fact struct {
	// Field is its path: "network.serviceCIDR".
	Field string `json:"field"`
	Value string `json:"value"`
}

// The fields of Fact.
const (
	FieldCluster     = "cluster"
	FieldAPIPort     = "api.port"
	FieldServiceCIDR = "network.serviceCIDR"
	FieldPodCIDR     = "network.podCIDR"
	FieldDNSAddress  = "network.dnsAddress"
	FieldDNSDomain   = "network.dnsDomain"
	FieldMembers     = "etcd.members"
)

// Facts lists them in the object's order.
func (i ClusterInfo) Facts() []Fact {
	return []Fact{
		{FieldCluster, i.Cluster}, {FieldAPIPort, fmt.Sprint(i.API.Port)}, {FieldServiceCIDR, i.Network.ServiceCIDR}, {FieldPodCIDR, i.Network.PodCIDR},
		{FieldDNSAddress, i.Network.DNSAddress}, {FieldDNSDomain, i.Network.DNSDomain}, {FieldMembers, JoinMembers(i.Etcd.Members)},
	}
}

// JoinMembers formats the names of etcd's members for messages.
func JoinMembers(members []string) string {
	if len(members) == 0 {
		return "none (one beside its API server)"
	}
	sorted := slices.Sorted(slices.Values(members))
	return strings.Join(sorted, " ")
}

// Differences lists the facts that differ between two values, each with both values.
func (i ClusterInfo) Differences(other ClusterInfo) []string {
	var out []string
	theirs := other.Facts()
	for n, f := range i.Facts() {
		if f.Value != theirs[n].Value {
			out = append(out, fmt.Sprintf("%s is %s, not %s", f.Field, theirs[n].Value, f.Value))
		}
	}
	return out
}

// dnsIndex is which address of the Services' range is the cluster's DNS by default.
const dnsIndex = 10

// DNSOf returns the default address of the cluster's DNS in the Services' range; "" if the range is invalid.
func DNSOf(serviceCIDR string) string {
	p, err := netip.ParsePrefix(serviceCIDR)
	if err != nil {
		return ""
	}
	a := p.Addr()
	for range dnsIndex {
		a = a.Next()
	}
	return a.String()
}

// UsualPods is how many pods a node takes by the kubelet's default, and the number with which upstream tests a node.
const UsualPods = 110

// NodeMask is the prefix length of each node's range of pods: the controller manager's default of --node-cidr-mask-size.
const NodeMask = 24

// PodRoom returns how many pods have an address on a node whose range has that prefix length: all addresses but those of the
// network, the bridge and the broadcast.
func PodRoom(mask int) int { return 1<<(32-mask) - 3 }

// EtcdURL is the URL of a member for its clients.
func EtcdURL(cluster, member string) string {
	return etcdURL(role.MemberHost(cluster, member), role.EtcdClientPort)
}

func etcdURL(host string, port int) string { return "https://" + host + ":" + strconv.Itoa(port) }

// EtcdServers is the value of kube-apiserver's --etcd-servers.
func EtcdServers(cluster string, members []string) string {
	var urls []string
	for _, m := range members {
		urls = append(urls, EtcdURL(cluster, m))
	}
	return strings.Join(urls, ",")
}

// Setting is one setting of etcd, by the name of its flag.
type Setting struct{ Flag, Value string }

// EtcdPeerURL is the URL of a member for the other members. The lone member of a cluster that names none is on its own
// machine only.
func EtcdPeerURL(cluster, member string, members []string) string {
	if len(members) == 0 {
		return etcdURL("127.0.0.1", role.EtcdPeerPort)
	}
	return etcdURL(role.MemberHost(cluster, member), role.EtcdPeerPort)
}

// PeerURLs are the peer URLs of all members; empty for a cluster that names none.
func (e Etcd) PeerURLs(cluster string) []string {
	var urls []string
	for _, m := range e.Members {
		urls = append(urls, EtcdPeerURL(cluster, m, e.Members))
	}
	return urls
}

// EtcdSettings are those that make a machine a named member. member may stand for a name that is filled in later. With
// whom it starts is not among them: the agent decides that from the records of the cluster's store.
func EtcdSettings(cluster, member string, members []string) []Setting {
	own := role.MemberHost(cluster, member)
	return []Setting{
		{"name", member},
		{"listen-client-urls", etcdURL("0.0.0.0", role.EtcdClientPort)},
		{"listen-peer-urls", etcdURL("0.0.0.0", role.EtcdPeerPort)},
		{"advertise-client-urls", etcdURL(own, role.EtcdClientPort)},
		{"initial-advertise-peer-urls", EtcdPeerURL(cluster, member, members)},
	}
}

// Variable is the environment variable that etcd reads the setting from.
func (s Setting) Variable() string {
	return "ETCD_" + strings.ToUpper(strings.ReplaceAll(s.Flag, "-", "_"))
}
