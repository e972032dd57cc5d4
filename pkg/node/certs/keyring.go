package certs

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// ringOf lists the objects of the store that the roles' bundles are minted with.
func ringOf(roles role.Set) (objects []string) {
	pair := func(names ...string) {
		for _, name := range names {
			objects = append(objects, name+pki.Crt, name+pki.Key)
		}
	}
	if roles.Has(role.Etcd) {
		pair(pki.EtcdClientCA, pki.EtcdPeerCA)
	}
	if roles.Has(role.Masters) {
		pair(pki.KubernetesCA, pki.KubeletServingCA, pki.FrontProxyCA, pki.EtcdClientCA)
		objects = append(objects, pki.ServiceAccount+pki.Pub, pki.ServiceAccount+pki.Key, pki.EncryptionKey)
	}
	slices.Sort(objects)
	return slices.Compact(objects)
}

// keyring reads keys from what was read of the store, until the first error.
type keyring struct {
	store Secrets
	now   time.Time
	// keys has the objects of ringOf that exist.
	keys map[string][]byte
	err  error
}

func (k *keyring) get(object string) []byte {
	data, ok := k.keys[object]
	if !ok && k.err == nil {
		k.err = classified(fmt.Errorf("reading %s in %s: %w", object, k.store, pki.ErrNotFound), k.store)
	}
	return data
}

// fail keeps the first error about an object.
func (k *keyring) fail(object string, err error) {
	if k.err == nil && err != nil {
		k.err = fmt.Errorf("%s of %s: %w", object, k.store, err)
	}
}

func (k *keyring) authority(name string) pki.Authority {
	cert, key := k.get(name+pki.Crt), k.get(name+pki.Key)
	if k.err != nil {
		return pki.Authority{}
	}
	a, err := pki.ParseAuthority(cert, key)
	if err == nil {
		err = clockReason(pki.Check(a.Certificate, k.now))
	}
	k.fail(name, err)
	return a
}

func (k *keyring) accounts() pki.AccountKeys {
	public, key := k.get(pki.ServiceAccount+pki.Pub), k.get(pki.ServiceAccount+pki.Key)
	if k.err != nil {
		return pki.AccountKeys{}
	}
	keys, err := pki.ParseAccountKeys(public, key)
	k.fail(pki.ServiceAccount, err)
	return keys
}

func (k *keyring) encryption() pki.EncryptionKeys {
	data := k.get(pki.EncryptionKey)
	if k.err != nil {
		return pki.EncryptionKeys{}
	}
	keys, err := pki.ParseEncryptionKeys(data)
	k.fail(pki.EncryptionKey, err)
	return keys
}

// classified gives an error of the store its reason and the next step; one that may pass becomes passing.
func classified(err error, store Secrets) error {
	var has *reason.Error
	switch {
	case errors.Is(err, pki.ErrUnreachable) && errors.As(err, &has): // the store knows what was out of reach before itself
		return temporaryError{err}
	case errors.Is(err, pki.ErrUnreachable):
		return temporaryError{&reason.Error{Reason: reason.Store, Err: err,
			Next: "look at this machine's network, its instance profile, and the way to " + store.String()}}
	case errors.Is(err, pki.ErrClock):
		return temporaryError{reason.With(reason.Clock, err)}
	case errors.Is(err, pki.ErrForbidden):
		return &reason.Error{Reason: reason.Permission, Err: err,
			Next: "a role file gives no rights: give the group's instance role the policy of its roles, or the machine another role file"}
	case errors.Is(err, pki.ErrNotFound):
		return &reason.Error{Reason: reason.Store, Err: err,
			Next: "make it (hardtack pki create --store " + store.String() + "), or name the right store in the cluster's configuration"}
	}
	return reason.With(reason.Store, err)
}

// clockReason gives an authority's error of time its reason. A wrong clock may pass: a time service sets it.
func clockReason(err error) error {
	switch {
	case errors.Is(err, pki.ErrClock):
		return temporaryError{reason.With(reason.Clock, err)}
	case errors.Is(err, pki.ErrExpired):
		return reason.With(reason.Clock, err)
	}
	return err
}
