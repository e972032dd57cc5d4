// Package certs provides the daemons of a machine with certificates, keys and kubeconfigs.
//
// Its rule: no private key touches a disk. Minted files are written to a tmpfs, all files of a daemon at once. The keys
// that sign them are read from the cluster's store at each run and stay in this process; the store only returns the
// keys that the instance's own credentials may read, whatever role file the machine has.
package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Secrets is the cluster's store. The errors of Get and GetAll match pki.ErrNotFound, pki.ErrForbidden (the store refuses), or
// pki.ErrUnreachable (a retry may help; pki.ErrBusy too if it should come later).
type Secrets interface {
	Get(ctx context.Context, object string) ([]byte, error)
	// GetAll returns those objects that exist, by their names; with an error, those that were read before it.
	GetAll(ctx context.Context, objects ...string) (map[string][]byte, error)
	// String is the store's location.
	String() string
}

// Clock is a store with its own clock. Skew is how far that was ahead of the machine's at the last answer.
type Clock interface{ Skew() time.Duration }

// Host is the name and the addresses of a machine.
type Host struct {
	Name string
	// Addresses are those that other machines can reach; empty while the network is not up.
	Addresses []netip.Addr
}

// MintOptions are the options of Mint.
type MintOptions struct {
	// Root is the root directory of the machine; "" is "/", where keys are only ever written to memory.
	Root string
	// Roles are the roles to mint for; minions need nothing.
	Roles  role.Set
	Config config.Effective
	Store  Secrets
	// Host is called until the machine has an address.
	Host func() (Host, error)
	Now  func() time.Time
	// Patience bounds the wait for the network and the store; 0 tries once.
	Patience time.Duration
	// Status receives texts about what is missing; may be nil.
	Status func(string)
	// Log may be nil.
	Log *slog.Logger
}

// Minted is the result for one directory of pki.Dir.
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
	// Renew is when it is due for renewal.
	Renew time.Time `json:"renew"`
}

// The values of Minted.Action.
const (
	actionMinted = "minted"
	actionKept   = "kept"
)

// Mint mints the certificates and keys of the roles' daemons that are missing or due for renewal. Others are left
// alone, so that it may be called at any time.
func Mint(ctx context.Context, o MintOptions) ([]Minted, error) {
	w := newWaiter(o.Patience, yields(o.Roles), o.Status, o.Log)
	files := bundles{root: o.Root}
	if err := files.check(); err != nil {
		return nil, err
	}
	host, err := awaitHost(ctx, w, o.Host)
	if err != nil {
		return nil, err
	}
	self := pki.Machine{Cluster: o.Config.Cluster, Hostname: host.Name, Addresses: host.Addresses}
	keys, err := o.ring(ctx, w)
	if err != nil {
		return nil, reason.With(reason.Certificates, err)
	}
	var all []pki.Bundle
	for _, r := range o.Roles {
		var more []pki.Bundle
		err := w.retry(ctx, func() (err error) {
			if more, err = bundlesOf(o, keys, r, self); err != nil {
				return err
			}
			return checkClock(o.Store)
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

// checkClock reports a clock by which certificates would be minted that others do not take yet, or no longer: one that is
// further from the store's than certificates are backdated.
func checkClock(store Secrets) error {
	clock, ok := store.(Clock)
	if !ok || clock.Skew().Abs() <= pki.Backdate {
		return nil
	}
	side := "behind"
	if clock.Skew() < 0 {
		side = "ahead of"
	}
	return temporaryError{reason.Errorf(reason.Clock, "this machine's clock is %v %s that of %s: no machine would accept the certificates that it mints",
		clock.Skew().Abs().Round(time.Second), side, store)}
}

// awaitHost waits until the machine has an address.
func awaitHost(ctx context.Context, w *waiter, ask func() (Host, error)) (Host, error) {
	var host Host
	err := w.retry(ctx, func() (err error) {
		host, err = ask()
		if err == nil && len(host.Addresses) == 0 {
			err = temporaryError{reason.Errorf(reason.Network, "this machine has no address yet: its network is not up")}
		}
		return err
	})
	return host, err
}

// ring reads the keys of all roles. What was read once is not read again because another read was refused.
func (o MintOptions) ring(ctx context.Context, w *waiter) (map[string][]byte, error) {
	wanted, have := ringOf(o.Roles), map[string][]byte{}
	if len(wanted) == 0 {
		return have, nil
	}
	err := w.retry(ctx, func() error {
		missing := slices.DeleteFunc(slices.Clone(wanted), func(object string) bool { _, ok := have[object]; return ok })
		got, err := o.Store.GetAll(ctx, missing...)
		maps.Copy(have, got)
		if err != nil {
			return classified(err, o.Store)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("certificates for the roles %s: %w", o.Roles, err)
	}
	return have, nil
}

// bundlesOf reads the role's bundles from the keys that they are minted with.
func bundlesOf(o MintOptions, keys map[string][]byte, r role.Role, self pki.Machine) ([]pki.Bundle, error) {
	k := keyring{store: o.Store, now: o.Now(), keys: keys}
	switch r {
	case role.Etcd:
		a := pki.EtcdAuthorities{Client: k.authority(pki.EtcdClientCA), Peer: k.authority(pki.EtcdPeerCA)}
		if k.err != nil {
			return nil, k.err
		}
		return pki.EtcdBundles(a, self, o.Config.Etcd.Member), nil
	case role.Masters:
		a := pki.MastersAuthorities{
			Kubernetes: k.authority(pki.KubernetesCA), KubeletServing: k.authority(pki.KubeletServingCA),
			FrontProxy: k.authority(pki.FrontProxyCA), EtcdClient: k.authority(pki.EtcdClientCA),
			ServiceAccount: k.accounts(), Encryption: k.encryption(),
		}
		if k.err != nil {
			return nil, k.err
		}
		if err := sameAuthority(o.Root, o.Config.CA(), a.Kubernetes.Certificate, o.Store); err != nil {
			return nil, err
		}
		api, err := apiOf(o.Config.Config)
		if err != nil {
			return nil, err
		}
		all, err := pki.MastersBundles(a, self, api)
		if slices.Contains(o.Config.Addons, pki.MetricsServer) {
			all = append(all, pki.MetricsServerBundle(a))
		}
		return all, err
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

// sameAuthority reports an authority of the store that signs and that the machines do not trust.
func sameAuthority(root, file string, stored *x509.Certificate, store Secrets) error {
	trusted, err := readTrusted(root, file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a master alone needs none; its minions will
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(trusted, func(c *x509.Certificate) bool { return pki.Same(c, stored) }) {
		return nil
	}
	return &reason.Error{
		Reason: reason.Untrusted,
		Next:   "hardtack pki ca prints the certificate of this store: put it into the user data, leave it out there, or name the store that the user data was made from by the line STORE= of the role file",
		Err: fmt.Errorf("wrong authority: %s of the user data is %q (SHA-256 %s), and %s of %s is %q (SHA-256 %s): no machine would trust this one",
			file, trusted[0].Subject.CommonName, pki.Fingerprints(trusted),
			pki.KubernetesCA+pki.Crt, store, stored.Subject.CommonName, pki.Fingerprint(stored)),
	}
}

// readTrusted reads the authority that the machine trusts, or the two while it is being replaced.
func readTrusted(root, file string) ([]*x509.Certificate, error) {
	data, err := os.ReadFile(filepath.Join("/", root, file))
	if err != nil {
		return nil, reason.Errorf(reason.Config, "reading the cluster's authority: %w", err)
	}
	certs, err := pki.ParseTrusted(data)
	if err != nil {
		return nil, reason.Errorf(reason.Config, "%s: %w", file, err)
	}
	return certs, nil
}
