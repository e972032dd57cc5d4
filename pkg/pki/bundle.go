package pki

import (
	"crypto/ecdsa"
	"fmt"
	"net/netip"
	"path"
	"time"
)

// Dir is where the machines keep what is minted, a directory for each daemon. It is on a tmpfs: what is in it
// never reaches a disk, and is gone with the machine's power.
const Dir = "/run/hardtack/pki"

// The names of the directories below Dir.
const (
	DirEtcd              = "etcd"
	DirAPIServer         = "kube-apiserver"
	DirControllerManager = "kube-controller-manager"
	DirScheduler         = "kube-scheduler"
	DirAdmin             = "admin"
	DirKubelet           = "kubelet"
	DirProxy             = "kube-proxy"
	DirFlannel           = "flanneld"
)

// File is one file of a bundle.
type File struct {
	Name    string
	Content []byte
}

// Bundle is what one daemon reads: all files of one directory, which are replaced together.
type Bundle struct {
	// Dir is below Dir.
	Dir string
	// Leaves are the certificates to mint, and Files everything else.
	Leaves []Leaf
	Files  []File
}

// Leaf is a pair of files to mint: Name with Crt and with Key.
type Leaf struct {
	Name    string
	Profile Profile
	Issuer  Authority
}

// Path is where a file of the bundle is on a machine.
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

// Machine is what goes into certificates of the machine itself.
type Machine struct {
	Cluster  string
	Hostname string
	// Addresses are the machine's own, by which others reach it.
	Addresses []netip.Addr
}

// local are the names and addresses by which a machine reaches itself.
func (m Machine) local() (names []string, addresses []netip.Addr) {
	names = []string{"localhost"}
	if m.Hostname != "" && m.Hostname != "localhost" {
		names = append(names, m.Hostname)
	}
	addresses = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	return names, append(addresses, m.Addresses...)
}

// domain is the cluster's: what the records of its machines end in.
func (m Machine) domain() string { return m.Cluster + ".k8s" }

// EtcdAuthorities are those that a machine with the role etcd reads.
type EtcdAuthorities struct{ Client, Peer Authority }

// EtcdBundles is what a member needs. member is its name, "" for the only member of a cluster.
//
// The server's certificate is a client's as well: etcd's own gateway shows it to the server that it is part of.
// The addresses are there because etcd compares a certificate's names with the address of who shows it, by
// DNS, only where none of its addresses is that one: a member that has just moved need not wait for its record.
func EtcdBundles(a EtcdAuthorities, m Machine, member string) []Bundle {
	names, addresses := m.local()
	if member != "" {
		// The domain is what a member found by SRV is asked for.
		names = append(names, "etcd-"+member+"."+m.domain(), m.domain())
	}
	leaf := func(name string, issuer Authority) Leaf {
		return Leaf{name, Profile{Name: "etcd-" + name, Usage: Server | Client, Names: names, Addresses: addresses, Life: LeafLife}, issuer}
	}
	return []Bundle{{
		Dir:    DirEtcd,
		Leaves: []Leaf{leaf("server", a.Client), leaf("peer", a.Peer)},
		Files: []File{
			{"ca.crt", EncodeCertificate(a.Client.Certificate)},
			{"peer-ca.crt", EncodeCertificate(a.Peer.Certificate)},
		},
	}}
}

// MastersAuthorities are those that a machine with the role masters reads, and the other keys of the cluster.
type MastersAuthorities struct {
	Kubernetes, FrontProxy, EtcdClient Authority
	ServiceAccount                     *ecdsa.PrivateKey
	// Encryption is the key that Secrets are encrypted with in etcd: EncryptionKeySize bytes.
	Encryption []byte
}

// API is the API server as its certificate names it.
type API struct {
	Port int
	// Service is the address of the Service kubernetes, and DNSDomain what pods' names end in.
	Service   netip.Addr
	DNSDomain string
	// Names are further names and addresses.
	Names []string
}

// The users and groups of what the masters mint for themselves.
const (
	// GroupKubeletClients is the API server's when it calls kubelets. It is in no group with rights of its own:
	// a binding to the role system:kubelet-api-admin is all that it needs.
	GroupKubeletClients = "hardtack:kubelet-clients"
	// GroupAdmins may do everything without any binding: what installs the first bindings needs it.
	GroupAdmins = "system:masters"
	userAdmin   = "hardtack:admin"
)

// MastersBundles is what the control plane's daemons need on one machine.
func MastersBundles(a MastersAuthorities, m Machine, api API) ([]Bundle, error) {
	apiserver, err := apiServer(a, m, api)
	if err != nil {
		return nil, err
	}
	accounts, err := EncodeKey(a.ServiceAccount)
	if err != nil {
		return nil, err
	}
	manager := client(DirControllerManager, "system:kube-controller-manager", nil, LeafLife, a, api)
	authorityKey, err := EncodeKey(a.Kubernetes.Key)
	if err != nil {
		return nil, err
	}
	manager.Files = append(manager.Files, File{"ca.key", authorityKey}, File{"service-account.key", accounts})
	return []Bundle{
		apiserver, manager,
		client(DirScheduler, "system:kube-scheduler", nil, LeafLife, a, api),
		client(DirAdmin, userAdmin, []string{GroupAdmins}, AdminLife, a, api),
	}, nil
}

func apiServer(a MastersAuthorities, m Machine, api API) (Bundle, error) {
	accounts, err := EncodeKey(a.ServiceAccount)
	if err != nil {
		return Bundle{}, err
	}
	accountsPublic, err := EncodePublic(a.ServiceAccount)
	if err != nil {
		return Bundle{}, err
	}
	encryption, err := EncryptionConfig(a.Encryption)
	if err != nil {
		return Bundle{}, err
	}
	names, addresses := apiNames(m, api)
	return Bundle{
		Dir: DirAPIServer,
		Leaves: []Leaf{
			{"server", Profile{Name: "kube-apiserver", Usage: Server, Names: names, Addresses: addresses, Life: LeafLife}, a.Kubernetes},
			{"etcd-client", Profile{Name: "kube-apiserver-etcd-client", Usage: Client, Life: LeafLife}, a.EtcdClient},
			{"front-proxy-client", Profile{Name: "front-proxy-client", Usage: Client, Life: LeafLife}, a.FrontProxy},
			{"kubelet-client", Profile{Name: "kube-apiserver-kubelet-client", Groups: []string{GroupKubeletClients}, Usage: Client, Life: LeafLife}, a.Kubernetes},
		},
		Files: []File{
			{"ca.crt", EncodeCertificate(a.Kubernetes.Certificate)},
			{"etcd-ca.crt", EncodeCertificate(a.EtcdClient.Certificate)},
			{"front-proxy-ca.crt", EncodeCertificate(a.FrontProxy.Certificate)},
			{"service-account.key", accounts},
			{"service-account.pub", accountsPublic},
			{"encryption.yaml", encryption},
		},
	}, nil
}

// apiNames are the names and addresses of an API server.
func apiNames(m Machine, api API) ([]string, []netip.Addr) {
	names, addresses := m.local()
	names = append(names, "masters."+m.domain(), "kubernetes", "kubernetes.default", "kubernetes.default.svc")
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

// unique drops what comes a second time.
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

// client is the bundle of a client of the API server of its own machine.
func client(dir, user string, groups []string, life time.Duration, a MastersAuthorities, api API) Bundle {
	b := Bundle{
		Dir:    dir,
		Leaves: []Leaf{{"client", Profile{Name: user, Groups: groups, Usage: Client, Life: life}, a.Kubernetes}},
	}
	b.Files = []File{
		{"ca.crt", EncodeCertificate(a.Kubernetes.Certificate)},
		{"kubeconfig", Kubeconfig{
			Server: fmt.Sprintf("https://127.0.0.1:%d", api.Port), CAFile: b.Path("ca.crt"), User: user,
			CertificateFile: b.Path("client" + Crt), KeyFile: b.Path("client" + Key),
		}.Render()},
	}
	return b
}
