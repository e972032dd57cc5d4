// Package certs gives the daemons of a machine what they show and trust: certificates, keys and kubeconfigs.
//
// Its rule: no private key touches a disk. What is minted goes to a tmpfs, all files of a daemon at once; what it is
// minted with comes from the cluster's store at each run, stays in this process, and is only what the
// instance's own credentials may read, whatever role file the machine has.
package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// AuthorityPath is the public Kubernetes authority that the user data brings: the only thing that a minion trusts, and
// what a master compares its store with.
const AuthorityPath = "/etc/hardtack/ca.crt"

// Secrets is the cluster's store. Get's errors match pki.ErrNotFound, pki.ErrForbidden or pki.ErrUnreachable
// where the store has no answer, where it refuses one, and where trying again may help.
type Secrets interface {
	Get(ctx context.Context, object string) ([]byte, error)
	// String is the store's location.
	String() string
}

// Clock is a store that has a time of its own. Skew is how far that is ahead of the machine's, as of the last answer.
type Clock interface{ Skew() time.Duration }

// Host is what a machine knows of itself.
type Host struct {
	Name string
	// Addresses are those by which others reach it; none while its network is not up.
	Addresses []netip.Addr
}

// MintOptions say what to mint.
type MintOptions struct {
	// Root is the root directory of the machine; "" is "/", where keys are only ever written to memory.
	Root string
	// Roles are those to mint for; minions need nothing.
	Roles  role.Set
	Config machine.Config
	Store  Secrets
	// Host is asked again until the machine has an address.
	Host func() (Host, error)
	Now  func() time.Time
	// Patience bounds the wait for what comes by itself, the network and the store; 0 asks once.
	Patience time.Duration
	// Status gets what is waited for, for people; nil discards it.
	Status func(string)
	// Log gets the story; nil discards it.
	Log *slog.Logger
}

// Minted is what was done about one directory of pki.Dir.
type Minted struct {
	Dir string `json:"dir"`
	// Action is "minted" or "kept".
	Action string `json:"action"`
	// Reason says why it was minted.
	Reason       string              `json:"reason,omitempty"`
	Certificates []MintedCertificate `json:"certificates"`
}

// MintedCertificate is one certificate of a directory.
type MintedCertificate struct {
	Path    string    `json:"path"`
	Subject string    `json:"subject"`
	Expires time.Time `json:"expires"`
	// Renew is when it is due.
	Renew time.Time `json:"renew"`
}

// The values of Minted.Action.
const (
	actionMinted = "minted"
	actionKept   = "kept"
)

// Mint mints what the daemons of the roles need and do not have, or have for not much longer. What is there and good is
// left alone, so that it may be called as often as one likes.
func Mint(ctx context.Context, o MintOptions) ([]Minted, error) {
	w := newWaiter(o.Patience, o.Status, o.Log)
	files := bundles{root: o.Root}
	if err := files.check(); err != nil {
		return nil, err
	}
	host, err := awaitHost(ctx, w, o.Host)
	if err != nil {
		return nil, err
	}
	self := pki.Machine{Cluster: o.Config.Cluster, Hostname: host.Name, Addresses: host.Addresses}
	var all []pki.Bundle
	for _, r := range o.Roles {
		var more []pki.Bundle
		err := w.until(ctx, func() (err error) {
			if more, err = bundlesOf(ctx, o, r, self); err != nil {
				return err
			}
			return rightTime(o.Store)
		})
		if err != nil {
			return nil, fmt.Errorf("certificates for the role %s: %w", r, reason.With(reason.Certificates, err))
		}
		all = append(all, more...)
	}
	out := []Minted{}
	for _, b := range all {
		minted, err := files.renew(b, o.Now())
		if err != nil {
			return out, reason.With(reason.Certificates, err)
		}
		out = append(out, minted)
	}
	return out, nil
}

// rightTime reports a clock by which certificates would be minted that others do not take yet, or no longer: one that is
// further from the store's than certificates are backdated.
func rightTime(store Secrets) error {
	clock, ok := store.(Clock)
	if !ok || clock.Skew().Abs() <= pki.Backdate {
		return nil
	}
	side := "behind"
	if clock.Skew() < 0 {
		side = "ahead of"
	}
	return passing{reason.Errorf(reason.Clock, "this machine's clock is %v %s that of %s: nobody would take the certificates that it mints",
		clock.Skew().Abs().Round(time.Second), side, store)}
}

// awaitHost waits until the machine has an address.
func awaitHost(ctx context.Context, w *waiter, ask func() (Host, error)) (Host, error) {
	var host Host
	err := w.until(ctx, func() (err error) {
		host, err = ask()
		if err == nil && len(host.Addresses) == 0 {
			err = passing{reason.Errorf(reason.Network, "this machine has no address yet: its network is not up")}
		}
		return err
	})
	return host, err
}

// bundlesOf reads what the role's bundles are minted with.
func bundlesOf(ctx context.Context, o MintOptions, r role.Role, self pki.Machine) ([]pki.Bundle, error) {
	k := keyring{store: o.Store, now: o.Now()}
	switch r {
	case role.Etcd:
		a := pki.EtcdAuthorities{Client: k.authority(ctx, pki.EtcdClientCA), Peer: k.authority(ctx, pki.EtcdPeerCA)}
		if k.err != nil {
			return nil, k.err
		}
		return pki.EtcdBundles(a, self, o.Config.Etcd.Member), nil
	case role.Masters:
		a := pki.MastersAuthorities{
			Kubernetes: k.authority(ctx, pki.KubernetesCA), FrontProxy: k.authority(ctx, pki.FrontProxyCA),
			EtcdClient: k.authority(ctx, pki.EtcdClientCA), ServiceAccount: k.key(ctx, pki.ServiceAccount+pki.Key),
			Encryption: k.encryption(ctx),
		}
		if k.err != nil {
			return nil, k.err
		}
		if err := sameAuthority(o.Root, a.Kubernetes.Certificate, o.Store); err != nil {
			return nil, err
		}
		api, err := apiOf(o.Config)
		if err != nil {
			return nil, err
		}
		return pki.MastersBundles(a, self, api)
	}
	return nil, nil
}

// apiOf is the API server of the cluster's configuration.
func apiOf(c machine.Config) (pki.API, error) {
	services, err := netip.ParsePrefix(c.Network.ServiceCIDR)
	if err != nil {
		return pki.API{}, reason.Errorf(reason.Config, "%s: network.serviceCIDR: %w", machine.Path, err)
	}
	return pki.API{Port: c.API.Port, Service: services.Masked().Addr().Next(), DNSDomain: c.Network.DNSDomain, Names: c.API.Names}, nil
}

// sameAuthority compares the authority that everybody trusts with the one of the store.
func sameAuthority(root string, stored *x509.Certificate, store Secrets) error {
	trusted, err := readAuthority(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a master alone needs none; its minions will
	}
	if err != nil {
		return err
	}
	if pki.Same(trusted, stored) {
		return nil
	}
	return &reason.Error{
		Reason: reason.Untrusted,
		Next:   "make the user data again from this store, or name the store that the user data was made from",
		Err: fmt.Errorf("wrong authority: %s of the user data is %q (SHA-256 %s), and %s of %s is %q (SHA-256 %s): no machine would trust this one",
			AuthorityPath, trusted.Subject.CommonName, pki.Fingerprint(trusted),
			pki.KubernetesCA+pki.Crt, store, stored.Subject.CommonName, pki.Fingerprint(stored)),
	}
}

// readAuthority reads the authority of the user data.
func readAuthority(root string) (*x509.Certificate, error) {
	data, err := os.ReadFile(filepath.Join("/", root, AuthorityPath))
	if err != nil {
		return nil, reason.Errorf(reason.Config, "reading the cluster's authority: %w", err)
	}
	cert, err := pki.ParseAuthorityCertificate(data)
	if err != nil {
		return nil, reason.Errorf(reason.Config, "%s: %w", AuthorityPath, err)
	}
	return cert, nil
}
