package pki

import (
	"fmt"
	"net/netip"
	"path"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Dir has the minted files, in a directory for each daemon. It is on a tmpfs: the files never reach a disk, and
// are gone when the machine is powered off.
const Dir = "/run/hardtack/pki"

// The names of the directories below Dir.
const (
	DirEtcd              = "etcd"
	DirAPIServer         = "kube-apiserver"
	DirControllerManager = "kube-controller-manager"
	DirScheduler         = "kube-scheduler"
	DirAdmin             = "admin"
	DirController        = "hardtack-controller"
	DirKubelet           = "kubelet"
	DirProxy             = "kube-proxy"
	DirFlannel           = "flanneld"
	DirTunnelServer      = "konnectivity-server"
	DirTunnelAgent       = "konnectivity-agent"
	DirAddons            = "hardtack-addons"
)

// Daemons lists the directories whose reader is the unit of the same name and may have to be started again, in the order in which
// they depend on each other. Both ends of the tunnels read everything for each connection.
func Daemons() []string {
	return []string{DirEtcd, DirAPIServer, DirControllerManager, DirScheduler, DirController, DirKubelet, DirProxy, DirFlannel, DirAddons}
}

// File is one file of a bundle.
type File struct {
	Name    string
	Content []byte
}

// Bundle has the files of one daemon: one directory, whose files are replaced together.
type Bundle struct {
	// Dir is the name of the directory below Dir.
	Dir string
	// Leaves are the certificates to mint, and Files everything else.
	Leaves []Leaf
	Files  []File
	// AtStart are the files that the daemon reads only when it starts: when one of them changes, it has to be started again.
	AtStart []string
}

// Leaf is a certificate and key to mint: the files Name with Crt and with Key.
type Leaf struct {
	Name    string
	Profile Profile
	Issuer  Authority
}

// Path returns the path of a file of the bundle on a machine.
func (b Bundle) Path(name string) string { return path.Join(Dir, b.Dir, name) }

// Mint issues every leaf, and returns all files of the bundle.
func (b Bundle) Mint(now time.Time) ([]File, error) {
	files := b.Files[:len(b.Files):len(b.Files)]
	for _, l := range b.Leaves {
		pair, err := l.Issuer.Issue(l.Profile, now)
		if err != nil {
			return nil, fmt.Errorf("minting %s: %w", b.Path(l.Name+Crt), err)
		}
		files = append(files, File{l.Name + Crt, pair.Certificate}, File{l.Name + Key, pair.Key})
	}
	return files, nil
}

// Machine is the machine's identity in its certificates.
type Machine struct {
	Cluster  string
	Hostname string
	// Addresses are the machine's own addresses.
	Addresses []netip.Addr
}

// local returns the names and addresses by which a machine reaches itself.
func (m Machine) local() (names []string, addresses []netip.Addr) {
	names = []string{"localhost"}
	if m.Hostname != "" && m.Hostname != "localhost" {
		names = append(names, m.Hostname)
	}
	addresses = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	return names, append(addresses, m.Addresses...)
}

// EtcdAuthorities are the authorities that a machine with the role etcd reads.
type EtcdAuthorities struct{ Client, Peer Authority }

// EtcdBundles returns the bundles of an etcd member. member is its name, "" for the only member of a cluster.
//
// The server's certificate is also a client certificate: etcd's gRPC gateway uses it to connect to its own server. The
// addresses are included because etcd resolves a peer certificate's names by DNS only if the peer's address is not in
// the certificate: a member that has just moved need not wait for its record.
func EtcdBundles(a EtcdAuthorities, m Machine, member string) []Bundle {
	names, addresses := m.local()
	if member != "" {
		// Members that are found by SRV records are verified by the domain.
		names = append(names, role.MemberHost(m.Cluster, member), role.Domain(m.Cluster))
	}
	leaf := func(name string, issuer Authority) Leaf {
		return Leaf{name, Profile{Name: DirEtcd + "-" + name, Usage: Server | Client, Names: names, Addresses: addresses, Life: LeafLife}, issuer}
	}
	return []Bundle{{
		Dir: DirEtcd, AtStart: []string{"ca.crt", "peer-ca.crt"},
		Leaves: []Leaf{leaf("server", a.Client), leaf("peer", a.Peer)},
		Files: []File{
			{"ca.crt", EncodeCertificates(a.Client.Trusted())},
			{"peer-ca.crt", EncodeCertificates(a.Peer.Trusted())},
		},
	}}
}

// MastersAuthorities are the authorities and other keys that a machine with the role masters reads.
type MastersAuthorities struct {
	Kubernetes, KubeletServing, FrontProxy, EtcdClient Authority
	ServiceAccount                                     AccountKeys
	// Encryption are the keys of Secrets in etcd.
	Encryption EncryptionKeys
}

// API is the API server's identity in its certificate.
type API struct {
	Port int
	// Service is the address of the Service kubernetes, and DNSDomain the domain of Services.
	Service   netip.Addr
	DNSDomain string
	// Names are additional names and addresses.
	Names []string
}

// The users and groups of the masters' own certificates.
const (
	// GroupKubeletClients is the API server's group as a client of kubelets. It has no rights of its own: a binding to
	// the role system:kubelet-api-admin is enough.
	GroupKubeletClients = "hardtack:kubelet-clients"
	// GroupAdmins has all rights without a binding, and nothing can take them back. No certificate on a machine is of it.
	GroupAdmins = "system:masters"
	userAdmin   = "hardtack:admin"
	// UserAddons has its rights by a binding, which the first master of a cluster makes.
	UserAddons = "hardtack:addons"
	// userController has the rights that the addons give it, which are those that maintaining nodes needs.
	userController = "hardtack:controller"
	// GroupMetrics may read the metrics of every component, and find out where they are. The addons give it that.
	GroupMetrics = "hardtack:metrics"
	userMetrics  = "hardtack:prometheus"
)

// MastersBundles returns the bundles of the control plane's daemons on one machine.
func MastersBundles(a MastersAuthorities, m Machine, api API) ([]Bundle, error) {
	accounts, err := EncodeKey(a.ServiceAccount.Key)
	if err != nil {
		return nil, err
	}
	apiserver, err := apiServer(a, accounts, m, api)
	if err != nil {
		return nil, err
	}
	manager := client(DirControllerManager, "system:kube-controller-manager", LeafLife, a, api)
	manager.Files = append(manager.Files, File{"service-account.key", accounts})
	manager.AtStart = append(manager.AtStart, "service-account.key")
	// What it signs requests with: each signer takes one certificate and its key.
	for _, signer := range []struct {
		name string
		Authority
	}{{"client-ca", a.Kubernetes}, {"kubelet-serving-ca", a.KubeletServing}} {
		key, err := EncodeKey(signer.Key)
		if err != nil {
			return nil, err
		}
		manager.Files = append(manager.Files, File{signer.name + Crt, EncodeCertificate(signer.Certificate)}, File{signer.name + Key, key})
	}
	return []Bundle{
		apiserver, manager,
		client(DirScheduler, "system:kube-scheduler", LeafLife, a, api),
		tunnelServer(a, m, api),
		controller(a, m, api),
		client(DirAdmin, UserAddons, AdminLife, a, api),
	}, nil
}

// apiServer returns the bundle of an API server. accounts is the encoded key of the service accounts.
func apiServer(a MastersAuthorities, accounts []byte, m Machine, api API) (Bundle, error) {
	accountsPublic, err := EncodePublic(a.ServiceAccount.Public...)
	if err != nil {
		return Bundle{}, err
	}
	encryption, err := EncryptionConfig(a.Encryption)
	if err != nil {
		return Bundle{}, err
	}
	names, addresses := apiNames(m, api)
	return Bundle{
		// kubelet-ca.crt: client-go reads that authority anew from 1.36 on, and only for plain requests: exec, attach and
		// port-forward go on with the one of the start (transport/ca_rotation.go).
		Dir: DirAPIServer, AtStart: []string{"etcd-ca.crt", "kubelet-ca.crt", "service-account.key", "service-account.pub"},
		Leaves: []Leaf{
			{"server", Profile{Name: "kube-apiserver", Usage: Server, Names: names, Addresses: addresses, Life: LeafLife}, a.Kubernetes},
			{"etcd-client", Profile{Name: "kube-apiserver-etcd-client", Usage: Client, Life: LeafLife}, a.EtcdClient},
			{"front-proxy-client", Profile{Name: "front-proxy-client", Usage: Client, Life: LeafLife}, a.FrontProxy},
			{"kubelet-client", Profile{Name: "kube-apiserver-kubelet-client", Groups: []string{GroupKubeletClients}, Usage: Client, Life: LeafLife}, a.Kubernetes},
		},
		Files: []File{
			{"ca.crt", EncodeCertificates(a.Kubernetes.Trusted())},
			{"kubelet-ca.crt", EncodeCertificates(a.KubeletServing.Trusted())},
			{"etcd-ca.crt", EncodeCertificates(a.EtcdClient.Trusted())},
			{"front-proxy-ca.crt", EncodeCertificates(a.FrontProxy.Trusted())},
			{"service-account.key", accounts},
			{"service-account.pub", accountsPublic},
			{"encryption.yaml", encryption},
		},
	}, nil
}

// tunnelServer returns the bundle of the end of the nodes' tunnels beside an API server. Agents know it by the API server's names, and
// it knows them by their nodes' certificates. It reads all files again for each connection.
func tunnelServer(a MastersAuthorities, m Machine, api API) Bundle {
	names, addresses := apiNames(m, api)
	return Bundle{
		Dir:    DirTunnelServer,
		Leaves: []Leaf{{"server", Profile{Name: DirTunnelServer, Usage: Server, Names: names, Addresses: addresses, Life: LeafLife}, a.Kubernetes}},
		Files:  []File{{"client-ca.crt", EncodeCertificates(a.Kubernetes.Trusted())}},
	}
}

// controller returns the bundle of hardtack-controller, a client of the API server that also serves metrics, by the API server's names:
// a Prometheus finds both by the same record.
func controller(a MastersAuthorities, m Machine, api API) Bundle {
	b := client(DirController, userController, LeafLife, a, api)
	names, addresses := apiNames(m, api)
	b.Leaves = append(b.Leaves, Leaf{"server", Profile{Name: DirController, Usage: Server, Names: names, Addresses: addresses, Life: LeafLife}, a.Kubernetes})
	return b
}

// MetricsClient issues the certificate of a Prometheus, of the group GroupMetrics.
func MetricsClient(a Authority, life time.Duration, now time.Time) (Pair, error) {
	return a.Issue(Profile{Name: userMetrics, Groups: []string{GroupMetrics}, Usage: Client, Life: life}, now)
}

// MetricsServer is the name of the Service of the add-on of that name, and of its certificate's files.
const MetricsServer = "metrics-server"

// MetricsServerBundle returns what the add-on metrics-server is given by a master: a certificate that API servers know it by, and the
// authority that it knows kubelets by. It runs in a pod, so that whoever applies the add-ons hands them over, and does so again
// when any of them changes.
func MetricsServerBundle(a MastersAuthorities) Bundle {
	return Bundle{
		Dir: DirAddons, AtStart: []string{"ca.crt", "kubelet-ca.crt", MetricsServer + Crt},
		Leaves: []Leaf{{MetricsServer, Profile{Name: MetricsServer, Usage: Server, Names: []string{MetricsServer + ".kube-system.svc"}, Life: LeafLife}, a.Kubernetes}},
		Files: []File{
			{"ca.crt", EncodeCertificates(a.Kubernetes.Trusted())},
			{"kubelet-ca.crt", EncodeCertificates(a.KubeletServing.Trusted())},
		},
	}
}

// apiNames returns the names and addresses of an API server.
func apiNames(m Machine, api API) ([]string, []netip.Addr) {
	names, addresses := m.local()
	names = append(names, role.Masters.Host(m.Cluster), "kubernetes", "kubernetes.default", "kubernetes.default.svc")
	if api.DNSDomain != "" {
		names = append(names, "kubernetes.default.svc."+api.DNSDomain)
	}
	if api.Service.IsValid() {
		addresses = append(addresses, api.Service)
	}
	for _, name := range api.Names {
		if address, err := netip.ParseAddr(name); err == nil {
			addresses = append(addresses, address)
		} else {
			names = append(names, name)
		}
	}
	return unique(names), unique(addresses)
}

// unique removes duplicates, and keeps the order.
func unique[T comparable](list []T) []T {
	seen := map[T]bool{}
	var out []T
	for _, v := range list {
		if !seen[v] {
			out = append(out, v)
		}
		seen[v] = true
	}
	return out
}

// client returns the bundle of a client of the machine's own API server.
func client(dir, user string, life time.Duration, a MastersAuthorities, api API) Bundle {
	b := Bundle{
		Dir:    dir,
		Leaves: []Leaf{{"client", Profile{Name: user, Usage: Client, Life: life}, a.Kubernetes}},
	}
	if dir != DirAdmin {
		// A Kubernetes before 1.36 reads a kubeconfig's authority only then, and so does what publishes it to pods.
		b.AtStart = []string{"ca.crt"}
	}
	b.Files = []File{
		{"ca.crt", EncodeCertificates(a.Kubernetes.Trusted())},
		{"kubeconfig", Kubeconfig{
			Server: fmt.Sprintf("https://127.0.0.1:%d", api.Port), CAFile: b.Path("ca.crt"), User: user,
			CertificateFile: b.Path("client" + Crt), KeyFile: b.Path("client" + Key),
		}.Render()},
	}
	return b
}
