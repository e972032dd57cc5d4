package pki

import (
	"errors"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The objects of a cluster's store, by their paths below its root. A pair is Crt and Key of one of the
// authorities' names.
const (
	KubernetesCA     = "masters/kubernetes-ca"
	FrontProxyCA     = "masters/front-proxy-ca"
	EtcdClientCA     = "etcd/client-ca"
	EtcdPeerCA       = "etcd/peer-ca"
	ServiceAccount   = "masters/service-account"
	EncryptionKey    = "masters/encryption.key"
	BootstrapToken   = "minions/bootstrap-token"
	PublicKubernetes = "public/kubernetes-ca.crt"
)

// The suffixes of what belongs together.
const (
	Crt = ".crt"
	Key = ".key"
	Pub = ".pub"
)

// Authorities are the names of all authorities, in the order in which they are made.
func Authorities() []string { return []string{KubernetesCA, FrontProxyCA, EtcdClientCA, EtcdPeerCA} }

// AuthorityName is the common name of an authority of a cluster: "demo etcd-client-ca".
func AuthorityName(cluster, object string) string {
	return cluster + " " + strings.ReplaceAll(strings.TrimPrefix(object, "masters/"), "/", "-")
}

// What a store says when it has no answer. Its errors match at most one of these.
var (
	// ErrNotFound: the store answers, and has no such object.
	ErrNotFound = errors.New("not in the store")
	// ErrForbidden: the store answers, and does not let this caller.
	ErrForbidden = errors.New("no permission")
	// ErrExists: the object is there already, and was left as it is.
	ErrExists = errors.New("already in the store")
	// ErrUnreachable: the store did not answer. Trying again may help.
	ErrUnreachable = errors.New("the store is out of reach")
)

// Access is what the machines of one role may do in the store, as paths below its root; a path that ends in "/"
// stands for everything below it.
type Access struct {
	Read  []string
	Write []string
}

// AccessOf says which role holds what. A role file gives nothing of it: the store asks for the instance's
// own credentials, whatever the machine believes to be.
func AccessOf(r role.Role) Access {
	switch r {
	case role.Masters:
		// The key of etcd's clients' authority: an API server is one, and mints its certificate itself.
		return Access{
			Read:  []string{"public/", "masters/", EtcdClientCA + Crt, EtcdClientCA + Key, BootstrapToken},
			Write: []string{BootstrapToken},
		}
	case role.Etcd:
		return Access{Read: []string{"public/", "etcd/"}}
	case role.Minions:
		return Access{Read: []string{"public/", BootstrapToken}}
	}
	return Access{}
}

// AccessOfAll is what a machine with several roles may do.
func AccessOfAll(roles role.Set) Access {
	var all Access
	for _, r := range roles {
		a := AccessOf(r)
		all.Read = append(all.Read, a.Read...)
		all.Write = append(all.Write, a.Write...)
	}
	slices.Sort(all.Read)
	slices.Sort(all.Write)
	return Access{Read: slices.Compact(all.Read), Write: slices.Compact(all.Write)}
}

// MayRead reports whether an object may be read.
func (a Access) MayRead(object string) bool { return covers(a.Read, object) }

// MayWrite reports whether an object may be written.
func (a Access) MayWrite(object string) bool { return covers(a.Write, object) }

func covers(paths []string, object string) bool {
	return slices.ContainsFunc(paths, func(p string) bool {
		return p == object || strings.HasSuffix(p, "/") && strings.HasPrefix(object, p)
	})
}
