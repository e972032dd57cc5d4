package pki

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The objects of a cluster's store, as paths below its root. An authority is a pair: its name with Crt and with Key.
const (
	KubernetesCA = mastersDir + "kubernetes-ca"
	FrontProxyCA = mastersDir + "front-proxy-ca"
	// KubeletServingCA signs what kubelets serve with, and nothing else: only API servers trust it.
	KubeletServingCA = mastersDir + "kubelet-serving-ca"
	EtcdClientCA     = role.EtcdClientCA
	EtcdPeerCA       = string(role.Etcd) + "/peer-ca"
	ServiceAccount   = mastersDir + "service-account"
	EncryptionKey    = mastersDir + "encryption.key"
	BootstrapToken   = role.BootstrapToken
	PublicKubernetes = role.Public + "kubernetes-ca" + Crt
	// PublicInfo has the cluster's own facts: machine.ClusterInfo.
	PublicInfo = role.Public + "cluster-info.yaml"
	// PublicSecretsKey names the KMS key of a store in Parameter Store, where that is not AWS's own.
	PublicSecretsKey = role.Public + "secrets-key"
	// PublicIssuer says where the keys of the service accounts' tokens are published (issuer.Record), once they are.
	PublicIssuer = role.Public + "issuer.json"

	mastersDir = string(role.Masters) + "/"
)

// The suffixes of an authority's or key's objects.
const (
	Crt = role.Crt
	Key = role.Key
	Pub = ".pub"
)

// Authorities lists the names of all authorities, in the order of their creation.
func Authorities() []string {
	return []string{KubernetesCA, KubeletServingCA, FrontProxyCA, EtcdClientCA, EtcdPeerCA}
}

// Secrets lists what of a store is secret: objects, or what the names of some begin with.
func Secrets() []string {
	return append(Authorities(), ServiceAccount, EncryptionKey, BootstrapToken, role.Registries)
}

// ShortName is the name of an authority or key for people: "etcd-client-ca".
func ShortName(object string) string {
	return strings.ReplaceAll(strings.TrimPrefix(object, mastersDir), "/", "-")
}

// AuthorityName returns the common name of a cluster's authority: "demo etcd-client-ca".
func AuthorityName(cluster, object string) string { return cluster + " " + ShortName(object) }

// The errors of a store. An error matches at most one of them.
var (
	// ErrNotFound: the store has no such object.
	ErrNotFound = errors.New("not in the store")
	// ErrForbidden: the caller lacks the permission.
	ErrForbidden = errors.New("no permission")
	// ErrExists: the object exists, and was left unchanged.
	ErrExists = errors.New("already in the store")
	// ErrChanged: the object is not what it was when it was read.
	ErrChanged = errors.New("changed by somebody else")
	// ErrUnreachable: the store did not answer. Retrying may help.
	ErrUnreachable = errors.New("the store is out of reach")
	// ErrBusy is an ErrUnreachable: more is asked of the store than its account may. Retrying helps, the later the better.
	ErrBusy = fmt.Errorf("%w: it is asked for more than it may give", ErrUnreachable)
)

// Access lists what machines of a role may do in the store, as paths below its root; a path that ends in "/" stands
// for everything below it.
type Access struct {
	Read  []string
	Write []string
	// Create may be created where there is none, and not changed.
	Create []string
}

// MayRead reports whether an object may be read, or any that begins with its name.
func (a Access) MayRead(object string) bool {
	return slices.ContainsFunc(a.Read, func(read string) bool {
		return strings.HasPrefix(read, object) || strings.HasSuffix(read, "/") && strings.HasPrefix(object, read)
	})
}

// AccessOf returns the access of a role. A role file alone gives no access: the store checks the instance's own
// credentials.
func AccessOf(r role.Role) Access {
	p := r.Profile()
	return Access{Read: p.Reads, Write: p.Writes, Create: p.Creates}
}

// AccessOfAll returns the access of a machine with several roles.
func AccessOfAll(roles role.Set) Access {
	var all Access
	for _, r := range roles {
		a := AccessOf(r)
		all.Read = append(all.Read, a.Read...)
		all.Write = append(all.Write, a.Write...)
		all.Create = append(all.Create, a.Create...)
	}
	for _, list := range []*[]string{&all.Read, &all.Write, &all.Create} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return all
}

// OfMember returns the access of a machine that is one member of etcd: of all states it writes its own alone. An
// empty name changes nothing.
func (a Access) OfMember(name string) Access {
	a.Write = slices.Clone(a.Write)
	for i, object := range a.Write {
		if object == role.EtcdStatus {
			a.Write[i] += name
		}
	}
	return a
}
