// Package authority makes a cluster's authorities and keys in its store, once, and says what is there.
//
// Its rule: nothing that exists is ever replaced. Each object is created by itself; what a run that broke off has
// left is taken as it is, and only what is missing is made, so that running again always finishes the job,
// and two runs at once end with one set.
package authority

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// Store keeps objects by path. Get's error matches pki.ErrNotFound where there is none, and Create's matches
// pki.ErrExists where there is one, which it then leaves alone.
type Store interface {
	Get(ctx context.Context, object string) ([]byte, error)
	Create(ctx context.Context, object string, content []byte) error
}

// The values of Made.Action.
const (
	Created = "created"
	Kept    = "kept"
)

// Made is what Create did about one object.
type Made struct {
	Object string `json:"object"`
	Action string `json:"action"`
}

// creator is one run of Create.
type creator struct {
	store   Store
	cluster string
	now     time.Time
	made    []Made
}

// Create makes what is missing of a cluster's authorities and keys, and returns every object in order, up to the one
// that failed.
func Create(ctx context.Context, store Store, cluster string, now time.Time) ([]Made, error) {
	c := &creator{store: store, cluster: cluster, now: now}
	for _, name := range pki.Authorities() {
		if err := c.authority(ctx, name); err != nil {
			return c.made, err
		}
	}
	if err := c.serviceAccount(ctx); err != nil {
		return c.made, err
	}
	_, err := c.object(ctx, pki.EncryptionKey, func() ([]byte, error) { return pki.NewEncryptionKey(), nil })
	return c.made, err
}

// object returns the object's content: what is there, else what made returns, else what somebody else has created
// in between.
func (c *creator) object(ctx context.Context, name string, made func() ([]byte, error)) ([]byte, error) {
	content, err := c.store.Get(ctx, name)
	if err == nil {
		c.made = append(c.made, Made{name, Kept})
		return content, nil
	}
	// A directory that is not there yet is made by Create.
	if !errors.Is(err, pki.ErrNotFound) && !errors.Is(err, pki.ErrUnreachable) {
		return nil, err
	}
	if content, err = made(); err != nil {
		return nil, fmt.Errorf("making %s: %w", name, err)
	}
	err = c.store.Create(ctx, name, content)
	switch {
	case err == nil:
		c.made = append(c.made, Made{name, Created})
		return content, nil
	case errors.Is(err, pki.ErrExists):
		c.made = append(c.made, Made{name, Kept})
		return c.store.Get(ctx, name)
	}
	return nil, err
}

// key makes or reads a private key.
func (c *creator) key(ctx context.Context, name string) (*ecdsa.PrivateKey, error) {
	content, err := c.object(ctx, name, func() ([]byte, error) {
		key, err := pki.NewKey()
		if err != nil {
			return nil, err
		}
		return pki.EncodeKey(key)
	})
	if err != nil {
		return nil, err
	}
	key, err := pki.ParseKey(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return key, nil
}

// authority makes the key first: whoever then makes the certificate, now or in another run, makes it of that key.
// A certificate without its key is refused, since a new key would not be the one that it was made of.
func (c *creator) authority(ctx context.Context, name string) error {
	if err := c.refuseOrphan(ctx, name); err != nil {
		return err
	}
	key, err := c.key(ctx, name+pki.Key)
	if err != nil {
		return err
	}
	content, err := c.object(ctx, name+pki.Crt, func() ([]byte, error) {
		a, err := pki.NewAuthority(pki.AuthorityName(c.cluster, name), key, c.now)
		if err != nil {
			return nil, err
		}
		return pki.EncodeCertificate(a.Certificate), nil
	})
	if err != nil {
		return err
	}
	cert, err := pki.ParseAuthorityCertificate(content)
	if err != nil {
		return fmt.Errorf("%s: %w", name+pki.Crt, err)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return fmt.Errorf("%s is not the certificate of %s: one of the two was replaced, and nothing is changed here", name+pki.Crt, name+pki.Key)
	}
	if name != pki.KubernetesCA {
		return nil
	}
	public, err := c.object(ctx, pki.PublicKubernetes, func() ([]byte, error) { return content, nil })
	if err == nil && string(public) != string(content) {
		return fmt.Errorf("%s is not a copy of %s: one of the two was replaced, and nothing is changed here", pki.PublicKubernetes, name+pki.Crt)
	}
	return err
}

// refuseOrphan reports a certificate whose key is gone. It looks for the certificate first: another run makes the key
// before it, so that whoever sees the certificate sees the key too.
func (c *creator) refuseOrphan(ctx context.Context, name string) error {
	if _, err := c.store.Get(ctx, name+pki.Crt); err != nil {
		return nil // not there, or an error that making the certificate meets again
	}
	if _, err := c.store.Get(ctx, name+pki.Key); errors.Is(err, pki.ErrNotFound) {
		return fmt.Errorf("%s is there and %s is gone: what it was made of cannot be made again; "+
			"next: restore the key, or start over with an empty store", name+pki.Crt, name+pki.Key)
	}
	return nil
}

func (c *creator) serviceAccount(ctx context.Context) error {
	key, err := c.key(ctx, pki.ServiceAccount+pki.Key)
	if err != nil {
		return err
	}
	public, err := pki.EncodePublic(key)
	if err != nil {
		return err
	}
	have, err := c.object(ctx, pki.ServiceAccount+pki.Pub, func() ([]byte, error) { return public, nil })
	if err == nil && string(have) != string(public) {
		return fmt.Errorf("%s is not the public half of %s: one of the two was replaced, and nothing is changed here",
			pki.ServiceAccount+pki.Pub, pki.ServiceAccount+pki.Key)
	}
	return err
}
