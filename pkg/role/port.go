package role

// Port is a port on which the units of a role listen. It does not include systemd's own ports on every machine.
type Port struct {
	// Protocol is "tcp" or "udp".
	Protocol string
	Number   int
	// Program is the program that listens; empty is the kernel itself, for VXLAN.
	Program string
	// From are the roles whose machines connect to the port; empty if only programs of the same machine do, by 127.0.0.1.
	From Set
}

// What names the listener: the program, or "VXLAN" for the kernel itself.
func (p Port) What() string {
	if p.Program == "" {
		return "VXLAN"
	}
	return p.Program
}

// The ports that more than one program needs.
const (
	// DefaultAPIPort is the port of the API servers, unless the cluster's document has another.
	DefaultAPIPort = 443
	// EtcdClientPort is the port of etcd members for API servers, EtcdPeerPort their port for each other.
	EtcdClientPort = 2379
	EtcdPeerPort   = 2380

	// EtcdMetricsPort is where an etcd member says whether it is healthy, and has its metrics.
	EtcdMetricsPort = 2381
	// KubeletPort is where a kubelet answers API servers, and has its metrics; KubeletHealthPort is where it says whether it is healthy.
	KubeletPort       = 10250
	KubeletHealthPort = 10248
	// KubeProxyHealthPort is where kube-proxy says whether its node forwards connections to Services.
	KubeProxyHealthPort = 10256
	// VXLANPort is where nodes get pods' packets from each other, by UDP.
	VXLANPort = 8472
	// TunnelPort is where the nodes' tunnels end, and TunnelMetricsPort where their server has its metrics, as in Kubernetes'
	// documentation ("Set up Konnectivity service").
	TunnelPort        = 8132
	TunnelMetricsPort = 8133

	ControllerManagerPort = 10257
	SchedulerPort         = 10259
	// MetricsPort is where a master has its own metrics, and those of daemons that listen on 127.0.0.1 only.
	MetricsPort = 10265
)

// Ports lists the ports on which the role's units listen, and the roles that connect to them. The table of ports in the
// documents and the security groups of a stack are made from this list, and the end-to-end test compares it with a
// machine.
//
// A single etcd member beside its API server serves no other machine: all ports of etcd are local then.
func (r Role) Ports() []Port { return r.Profile().Ports }
