package role

// Profile has the facts about a role. Every program that needs one of them reads it here.
type Profile struct {
	Role Role
	// Order is the role's place on a machine with several roles: a daemon may wait for those of a role with a lower Order.
	Order int
	Ports []Port
	// Reads, Writes and Creates are the objects of the cluster's store that a machine of the role may read, write, and create
	// where there is none, as paths below the store's root. A path that ends in "/" stands for everything below it.
	Reads, Writes, Creates []string
	// Reserve is the memory in MiB that the role's daemons use beside pods. It is Reserved if the kubelet's reservation on
	// every node already includes it.
	Reserve int
	// Memory is the memory in MiB that a machine needs for the role, with room. A machine with several roles needs the sum.
	Memory int
	Units  []Unit
	Checks []Check
}

// Reserved is the Reserve of a role whose daemons belong to every node.
const Reserved = -1

// The objects of the store that a profile lists by name; pkg/pki has the others.
const (
	// Public is the directory that every role reads.
	Public = "public/"
	// EtcdClientCA is the authority of etcd's clients: a certificate and a key.
	EtcdClientCA = string(Etcd) + "/client-ca"
	// BootstrapToken is the token with which a machine joins the cluster.
	BootstrapToken = string(Minions) + "/bootstrap-token"
	// Registries has the credentials of container registries, an object for each registry.
	Registries = string(Minions) + "/registries/"
	// EtcdRecords has what was decided about etcd's members. Each is created once and never changed.
	EtcdRecords = string(Etcd) + "/records/"
	// EtcdStatus has the state that each of etcd's members reports, below the member's name.
	EtcdStatus = string(Etcd) + "/status/"
	// Crt and Key are the suffixes of a certificate and its key.
	Crt = ".crt"
	Key = ".key"
)

// profiles has the roles in the order in which tables show them.
//
// Source of Reserve: an idle control plane of 1.36 had 307 (API server), 138 (controller manager) and 107 MB (scheduler)
// resident, in which the program's text counts three times, and etcd 53; the rest is for the objects of a small cluster.
var profiles = []Profile{
	{
		Role: Masters, Order: 2,
		Ports: []Port{
			{"tcp", DefaultAPIPort, "kube-apiserver", Set{Masters, Minions}},
			{"tcp", TunnelPort, "konnectivity-server", Set{Minions}},
			{"tcp", TunnelMetricsPort, "konnectivity-server", nil},
			{"tcp", ControllerManagerPort, "kube-controller-manager", nil},
			{"tcp", SchedulerPort, "kube-scheduler", nil},
			// A Prometheus runs on a node, in a pod or not. Nobody is answered without a certificate for the group that reads metrics.
			{"tcp", MetricsPort, "hardtack-agent", Set{Minions}},
		},
		// The key of the authority of etcd's clients: an API server is a client and mints its certificate itself.
		Reads:   []string{Public, string(Masters) + "/", EtcdClientCA + Crt, EtcdClientCA + Key, BootstrapToken, EtcdRecords, EtcdStatus},
		Writes:  []string{BootstrapToken},
		Reserve: 640, Memory: 1536,
		Units: []Unit{
			{Name: "hardtack-certs-masters.service", Reason: "certificates", First: true, Proof: "api"},
			{Name: "kube-apiserver.service", Reason: "api", Proof: "api"},
			{Name: "konnectivity-server.service", Proof: "tunnels"},
			{Name: "kube-controller-manager.service", Proof: "controllers"},
			{Name: "kube-scheduler.service", Proof: "scheduler"},
			{Name: "hardtack-addons.service", Reason: "addons", Proof: "addons"},
			// It serves machines that join later, and each master runs it: this machine is ready without it.
			{Name: "hardtack-controller.service", Proof: NoProof},
		},
		Checks: []Check{
			{"api", "kube-apiserver.service", APIReady},
			{"controllers", "kube-controller-manager.service", UnitActive},
			{"scheduler", "kube-scheduler.service", UnitActive},
			{"tunnels", "konnectivity-server.service", UnitActive},
			{"addons", "hardtack-addons.service", UnitActive},
		},
	},
	{
		Role: Minions, Order: 3,
		Ports: []Port{
			// API servers connect to the kubelet by the node's own tunnel, or by another node's; and so do pods on any node that
			// read nodes' metrics.
			{"tcp", KubeletPort, "kubelet", Set{Minions}},
			{"tcp", KubeletHealthPort, "kubelet", nil},
			{"tcp", KubeProxyHealthPort, "kube-proxy", Set{Masters, Minions}},
			{"tcp", 10249, "kube-proxy", nil},
			{"udp", VXLANPort, "", Set{Minions}},
			{"tcp", 10010, "containerd", nil},
		},
		Reads:   []string{Public, BootstrapToken, Registries},
		Reserve: Reserved, Memory: 1536,
		Units: []Unit{
			// Every machine runs it, but only a node's other units wait for its file.
			{Name: "hardtack-node.service", Proof: "node"},
			{Name: "hardtack-bootstrap.service", Reason: "token", Proof: "node"},
			{Name: "containerd.service", Proof: "node"},
			// Without these images a pod can still get them from a registry.
			{Name: "hardtack-images.service", Proof: NoProof},
			{Name: "kubelet.service", Reason: "kubelet", Proof: "kubelet"},
			// It ends by itself; what comes after it has checks of its own.
			{Name: "hardtack-registered.service", Proof: NoProof},
			{Name: "kube-proxy.service", Proof: "proxy"},
			{Name: "flanneld.service", Proof: "network"},
			{Name: "konnectivity-agent.service", Proof: "tunnel"},
			// A machine is ready without it, and outside EC2 it has nothing to do.
			{Name: "hardtack-notices.service", Proof: NoProof},
		},
		Checks: []Check{
			{"kubelet", "kubelet.service", HTTP(KubeletHealthPort, "/healthz")},
			{"proxy", "kube-proxy.service", UnitActive},
			{"network", "flanneld.service", UnitActive},
			// It is started when one master is connected: until then no API server reaches the node's pods.
			{"tunnel", "konnectivity-agent.service", UnitActive},
			{"node", "kubelet.service", NodeReady},
		},
	},
	{
		Role: Etcd, Order: 1,
		Ports: []Port{
			{"tcp", EtcdClientPort, "etcd", Set{Masters}},
			{"tcp", EtcdPeerPort, "etcd", Set{Etcd}},
			{"tcp", EtcdMetricsPort, "etcd", nil},
		},
		Reads:   []string{Public, string(Etcd) + "/"},
		Writes:  []string{EtcdStatus},
		Creates: []string{EtcdRecords},
		Reserve: 128, Memory: 512,
		Units: []Unit{
			{Name: "hardtack-certs-etcd.service", Reason: "certificates", First: true, Proof: "etcd"},
			{Name: "hardtack-member.service", Reason: "membership", Proof: "etcd"},
			{Name: "etcd.service", Reason: "etcd", Proof: "etcd"},
		},
		Checks: []Check{{"etcd", "etcd.service", HTTP(EtcdMetricsPort, "/readyz")}},
	},
}

// Profile returns the profile of the role. An operator's own role has the zero Profile: no daemons of Hardtack's, and no access
// to the store.
func (r Role) Profile() Profile {
	for _, p := range profiles {
		if p.Role == r {
			return p
		}
	}
	return Profile{}
}
