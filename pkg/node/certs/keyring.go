package certs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// keyring reads keys from the store. After the first error it reads nothing more.
type keyring struct {
	store Secrets
	now   time.Time
	err   error
}

func (k *keyring) get(ctx context.Context, object string) []byte {
	if k.err != nil {
		return nil
	}
	data, err := k.store.Get(ctx, object)
	if err != nil {
		k.err = classified(err, k.store)
	}
	return data
}

// fail keeps the first error about an object.
func (k *keyring) fail(object string, err error) {
	if k.err == nil && err != nil {
		k.err = fmt.Errorf("%s of %s: %w", object, k.store, err)
	}
}

func (k *keyring) authority(ctx context.Context, name string) pki.Authority {
	cert, key := k.get(ctx, name+pki.Crt), k.get(ctx, name+pki.Key)
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

func (k *keyring) accounts(ctx context.Context) pki.AccountKeys {
	public, key := k.get(ctx, pki.ServiceAccount+pki.Pub), k.get(ctx, pki.ServiceAccount+pki.Key)
	if k.err != nil {
		return pki.AccountKeys{}
	}
	keys, err := pki.ParseAccountKeys(public, key)
	k.fail(pki.ServiceAccount, err)
	return keys
}

func (k *keyring) encryption(ctx context.Context) pki.EncryptionKeys {
	data := k.get(ctx, pki.EncryptionKey)
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
