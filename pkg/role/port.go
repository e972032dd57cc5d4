package role

// Port is one on which the units of a role listen, beside systemd's own on every machine.
type Port struct {
	// Protocol is "tcp" or "udp".
	Protocol string
	Number   int
	// Program is the one that listens; empty is the kernel itself, for VXLAN.
	Program string
	// From are the roles whose machines ask there; empty is this machine's own programs, by 127.0.0.1.
	From Set
}

// What is the program's name, and for the kernel itself what it listens for.
func (p Port) What() string {
	if p.Program == "" {
		return "VXLAN"
	}
	return p.Program
}

// DefaultAPIPort is where API servers listen, and what minions and clients ask, unless the cluster's document says
// otherwise.
const DefaultAPIPort = 443

// Ports lists what the units of a role listen on, and for whom: the README's table, what the security groups of a stack
// let in, and what the end-to-end test compares with a machine, are this list.
//
// A lone member of etcd beside its API server listens for nobody else: all of etcd's ports are local then.
func (r Role) Ports() []Port {
	switch r {
	case Masters:
		return []Port{
			{"tcp", DefaultAPIPort, "kube-apiserver", Set{Masters, Minions}},
			{"tcp", 10257, "kube-controller-manager", nil},
			{"tcp", 10259, "kube-scheduler", nil},
		}
	case Etcd:
		return []Port{
			{"tcp", 2379, "etcd", Set{Masters}},
			{"tcp", 2380, "etcd", Set{Etcd}},
			{"tcp", 2381, "etcd", nil},
		}
	case Minions:
		return []Port{
			// API servers ask the kubelet, and so do pods that read nodes' metrics, from whichever node they are on.
			{"tcp", 10250, "kubelet", Set{Masters, Minions}},
			{"tcp", 10248, "kubelet", nil},
			{"tcp", 10256, "kube-proxy", Set{Masters, Minions}},
			{"tcp", 10249, "kube-proxy", nil},
			{"udp", 8472, "", Set{Minions}},
			{"tcp", 10010, "containerd", nil},
		}
	}
	return nil
}
